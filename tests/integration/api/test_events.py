"""Progress as server-sent events: at once, once for all clients, and resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest
from fixtures.database import Database
from fixtures.http import asking
from fixtures.seeded import PENDING, made_up_run
from sqlalchemy import text

from groktime.api.middleware import Limits
from groktime.db.claims import claim
from groktime.db.recorder import Recorder


@dataclass(frozen=True)
class Event:
    id: str
    data: dict[str, object]


@contextmanager
def listening(
    api: httpx.Client, path: str = "/events", **headers: str
) -> Iterator[Iterator[Event]]:
    with api.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield _events(response.iter_lines())


def _events(lines: Iterator[str]) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield Event(fields["id"], json.loads(fields["data"]))
            fields = {}
        else:
            fields = {}


@pytest.fixture
def api(seeded: Database) -> Iterator[httpx.Client]:
    with asking(seeded.url) as client:
        yield client


def close_pending(database: Database) -> None:
    kind, prime, width, seed = PENDING
    query = text(
        "SELECT id FROM runs WHERE kind = :kind AND prime = :prime AND width = :width "
        "AND seed = :seed AND state = 'pending'"
    )
    with database.engine.connect() as connection:
        asked = {"kind": kind, "prime": prime, "width": width, "seed": seed}
        number = connection.scalar(query, asked)
    (claimed,) = claim(database.engine, [number], "test", 60)
    with Recorder(database.engine, [claimed], lease_seconds=60) as recorder:
        rows, ended = made_up_run(claimed.spec)
        recorder.record(0, 1, rows)
        recorder.finish(0, ended)


def test_a_new_client_hears_where_every_suite_stands(api: httpx.Client) -> None:
    with listening(api) as events:
        heard = {str(e.data["suite"]): e.data for e in (next(events), next(events))}
    assert heard["tiny"]["states"] == {
        "pending": 1,
        "running": 0,
        "stale": 0,
        "done": 202,
        "failed": 1,
        "set_aside": 0,
    }
    assert heard["decay"]["runs"] == 144


def test_one_suite_can_be_listened_to(api: httpx.Client) -> None:
    with listening(api, "/events?suite=decay") as events:
        assert next(events).data["suite"] == "decay"


def test_every_client_hears_that_a_run_closed(api: httpx.Client, seeded: Database) -> None:
    with (
        listening(api, "/events?suite=tiny") as one,
        listening(api, "/events?suite=tiny") as other,
    ):
        before = next(one).data["revision"], next(other).data["revision"]
        close_pending(seeded)
        for events, revision in zip((one, other), before, strict=True):
            change = next(e for e in events if e.data["states"]["pending"] == 0)  # type: ignore[index]
            done = next(
                iter([change]) if change.data["revision"] > revision else events  # type: ignore[operator]
            )
            assert done.data["suite"] == "tiny"


def test_who_comes_back_hears_only_what_changed(api: httpx.Client, seeded: Database) -> None:
    with listening(api) as events:
        next(events)
        last = next(events).id
    close_pending(seeded)
    with listening(api, **{"Last-Event-ID": last}) as events:
        assert next(events).data["suite"] == "tiny"


def test_an_id_of_another_server_starts_anew(api: httpx.Client) -> None:
    with listening(api, **{"Last-Event-ID": "not-ours"}) as events:
        assert {next(events).data["suite"], next(events).data["suite"]} == {"tiny", "decay"}


def test_many_listeners_share_one_connection(api: httpx.Client, seeded: Database) -> None:
    count = text(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name = 'groktime events'"
    )
    with listening(api) as one, listening(api) as two, listening(api) as three:
        for events in (one, two, three):
            next(events)
        with seeded.engine.connect() as connection:
            assert connection.scalar(count) == 1


def test_a_suite_that_does_not_exist_is_not_found(api: httpx.Client) -> None:
    for method in ("GET", "HEAD"):
        refused = api.request(method, "/events?suite=nope")
        assert refused.status_code == 404
    assert api.get("/events?suite=nope").json()["accepted"] == ["decay", "tiny"]


def test_one_client_cannot_take_every_stream(seeded: Database) -> None:
    limits = Limits(events_clients=10, events_per_client=1)
    with asking(seeded.url, limits) as api:
        with listening(api) as events:
            next(events)
            assert api.get("/events").status_code == 429
        while True:  # the server notices that the stream was left
            with api.stream("GET", "/events") as again:
                if again.status_code == 200:
                    break


def test_more_clients_than_the_limit_are_turned_away(seeded: Database) -> None:
    with asking(seeded.url, Limits(events_clients=1)) as api, listening(api) as events:
        next(events)
        assert api.get("/events").status_code == 503
