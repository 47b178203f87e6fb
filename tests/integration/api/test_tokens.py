"""Who may read and who may start sweeps."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import httpx
import pytest
from fixtures.database import Database
from fixtures.http import asking

from groktime.api.middleware import Limits

READ, WRITE = "read-secret-1", "write-secret-2"
NOWHERE = "http://127.0.0.1:9"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def closed(shared_seeded: Database) -> Iterator[httpx.Client]:
    """An API whose reading needs a token, too."""
    many = Limits(wrong_tokens=1_000)  # the tests of this module are one client
    with asking(
        shared_seeded.url, many, read_token=READ, api_token=WRITE, ray_jobs_address=NOWHERE
    ) as client:
        yield client


@pytest.mark.parametrize(
    "path",
    [
        "/crossing?prime=29",
        "/suites",
        "/runs",
        "/charts/delay?prime=29",
        "/metrics",
        "/events",
        "/sweeps",
        "/export/tiny.csv",
    ],
)
def test_closed_reading_needs_the_token(closed: httpx.Client, path: str) -> None:
    refused = closed.get(path)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Bearer")
    assert closed.get(path, headers=bearer("wrong")).status_code == 401


def test_either_token_reads(closed: httpx.Client) -> None:
    assert closed.get("/suites", headers=bearer(READ)).status_code == 200
    assert closed.get("/suites", headers=bearer(WRITE)).status_code == 200


def test_health_needs_no_token(closed: httpx.Client) -> None:
    assert closed.get("/health").status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Basic d3JpdGU6c2VjcmV0",
        f"bearer{WRITE}",
        f"Bearer {WRITE.upper()}",
        f"Bearer {READ}",
        "Bearer \xff\xfe",
    ],
)
def test_only_the_writing_token_writes(closed: httpx.Client, header: str) -> None:
    headers = {"Authorization": header.encode("latin-1")} if header else {}
    response = closed.post("/sweeps", json={"suite": "demo"}, headers=headers)
    assert response.status_code == 401


def test_without_a_configured_token_writing_is_off_and_says_so(api: httpx.Client) -> None:
    response = api.post("/sweeps", json={"suite": "demo"}, headers=bearer("anything"))
    assert response.status_code == 403
    assert "GROKTIME_API_TOKEN" in response.json()["detail"]
    assert api.delete("/sweeps/1", headers=bearer("x")).status_code == 403


def test_the_writing_token_is_let_through_to_the_cluster(closed: httpx.Client) -> None:
    response = closed.post("/sweeps", json={"suite": "demo"}, headers=bearer(WRITE))
    assert response.status_code == 503  # which is not there


def test_an_empty_token_is_no_token(shared_seeded: Database) -> None:
    with asking(shared_seeded.url, api_token="") as api:
        refused = api.post("/sweeps", json={"suite": "demo"}, headers=bearer("x"))
        assert refused.status_code == 403


def test_tokens_never_reach_the_log(closed: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        closed.get("/suites", headers=bearer(READ))
        closed.get("/suites", headers=bearer("a-wrong-secret"))
    assert caplog.text
    for secret in (READ, WRITE, "a-wrong-secret"):
        assert secret not in caplog.text


def test_wrong_tokens_are_slowed_and_others_are_not(shared_seeded: Database) -> None:
    limits = Limits(wrong_tokens=3, wrong_token_seconds=1000.0)
    with asking(shared_seeded.url, limits, read_token=READ, api_token=WRITE) as api:
        for guess in ("a", "b", "c"):
            assert api.get("/suites", headers=bearer(READ)).status_code == 200
            assert api.get("/suites", headers=bearer(guess)).status_code == 401
        for path, guess in (("/suites", "d"), ("/suites", READ), ("/metrics", WRITE)):
            slowed = api.get(path, headers=bearer(guess))
            assert slowed.status_code == 429
            assert int(slowed.headers["retry-after"]) > 0
        assert api.get("/health").status_code == 200
