"""What one client can ask of the server: time, and a bucket of heavy questions."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from sqlalchemy.exc import TimeoutError as NoConnectionFree
from starlette.types import Receive, Scope, Send

from groktime.api.middleware import BoundedRequests, Exports, HeavyWork, Limits
from groktime.api.problems import ApiError, translate


def test_a_burst_is_allowed_then_a_rate() -> None:
    now = [0.0]
    heavy = HeavyWork(Limits(heavy_burst=3, heavy_per_second=2.0), clock=lambda: now[0])
    for _ in range(3):
        heavy.take("a")
    with pytest.raises(ApiError) as refused:
        heavy.take("a")
    assert refused.value.status == 429
    heavy.take("b")  # another client has a bucket of its own
    now[0] = 0.5
    heavy.take("a")
    with pytest.raises(ApiError):
        heavy.take("a")


@pytest.mark.parametrize(
    ("path", "seconds"), [("/crossing", "0.01"), ("/suites/central/report", "0.02")]
)
def test_an_answer_that_takes_too_long_is_ended_and_told_its_limit(path: str, seconds: str) -> None:
    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    async def ask() -> httpx.Response:
        app = BoundedRequests(never, Limits(seconds=0.01, report_seconds=0.02))
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get(path)

    response = asyncio.run(ask())
    assert response.status_code == 504
    assert f"longer than {seconds} seconds" in response.json()["detail"]


def test_a_pool_without_a_free_connection_is_no_failure_of_the_server() -> None:
    told = translate(NoConnectionFree("QueuePool limit of size 8 overflow 10 reached"))
    assert told.status == 503
    assert told.headers["Retry-After"]


def test_places_for_exports_are_shared_between_clients_and_given_back() -> None:
    places = Exports(Limits(exports=3, exports_per_client=2))
    places.take("a")
    places.take("a")
    with pytest.raises(ApiError, match="2 exports of one client") as refused:
        places.take("a")
    assert refused.value.status == 429
    places.take("b")
    with pytest.raises(ApiError, match="as many exports as this server allows"):
        places.take("c")
    places.leave("a")
    places.take("c")
