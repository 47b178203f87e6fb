"""Answers are computed once per revision and found again by their tag."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio.to_thread
import httpx
import pytest
from fixtures.commands import wait_until
from fixtures.database import Database
from fixtures.http import serving, settings_for
from fixtures.seeded import PENDING, made_up_run, register
from sqlalchemy import event, text

from groktime.api.app import create_app
from groktime.api.database import LAG_SECONDS
from groktime.db import frames
from groktime.db.claims import Claim, claim
from groktime.db.recorder import Recorder
from groktime.db.suites import CHANNEL
from groktime.service.suites import load_suite

PATH = "/crossing?prime=31"


def train_pending(database: Database) -> None:
    """Close the run that is pending, as a worker does."""
    (claimed,) = claim_pending(database)
    with Recorder(database.engine, [claimed], lease_seconds=60) as recorder:
        rows, ended = made_up_run(claimed.spec)
        recorder.record(0, 1, rows)
        recorder.finish(0, ended)


def claim_pending(database: Database) -> list[Claim]:
    kind, prime, width, seed = PENDING
    query = text(
        "SELECT id FROM runs WHERE kind = :kind AND prime = :prime AND width = :width "
        "AND seed = :seed AND state = 'pending'"
    )
    asked = {"kind": kind, "prime": prime, "width": width, "seed": seed}
    with database.engine.connect() as connection:
        number = connection.scalar(query, asked)
    return claim(database.engine, [number], "test", 60)


def after_a_change(api: httpx.Client, path: str, before: httpx.Response) -> httpx.Response:
    """The first answer with another tag; an answer may lag a commit by a second."""
    known = {"If-None-Match": before.headers["etag"]}
    while (answer := api.get(path, headers=known)).status_code == 304:
        pass
    assert answer.status_code == 200
    return answer


def test_who_has_the_answer_already_gets_a_304(api: httpx.Client) -> None:
    first = api.get(PATH)
    again = api.get(PATH, headers={"If-None-Match": f'W/"other", {first.headers["etag"]}'})
    assert again.status_code == 304
    assert again.content == b""
    assert again.headers["etag"] == first.headers["etag"]


def test_forms_and_parameters_have_tags_of_their_own(api: httpx.Client) -> None:
    paths = (PATH, f"{PATH}&format=csv", f"{PATH}&method=paper", "/onset?prime=31")
    assert len({api.get(path).headers["etag"] for path in paths}) == len(paths)


def test_a_finished_suite_may_be_kept_and_an_open_one_is_asked_about(api: httpx.Client) -> None:
    finished = api.get("/crossing?suite=decay&prime=23&weight_decay=1")
    assert finished.headers["cache-control"] == "private, max-age=60"
    assert api.get(PATH).headers["cache-control"] == "private, no-cache"


def test_a_stampede_computes_once(seeded: Database) -> None:
    app = create_app(settings_for(seeded.url), prepare=False)
    with serving(app) as address, httpx.Client(base_url=address, timeout=60) as api:
        with ThreadPoolExecutor(16) as threads:
            answers = list(threads.map(lambda _: api.get(PATH).content, range(32)))
        assert len(set(answers)) == 1
        assert app.state.answers.computed == 1


def test_a_closed_run_changes_the_answer_and_its_tag(seeded: Database) -> None:
    app = create_app(settings_for(seeded.url), prepare=False)
    with serving(app) as address, httpx.Client(base_url=address, timeout=60) as api:
        before = api.get(PATH)
        assert before.json()["missing"]["grok"] == 1
        train_pending(seeded)
        after = after_a_change(api, PATH, before)
        assert after.json()["missing"]["grok"] == 0
        assert after.json()["revision"] > before.json()["revision"]
        assert after.headers["cache-control"] == "private, max-age=60"


def test_another_suite_may_have_trained_the_capacity_runs(seeded: Database) -> None:
    path = "/crossing?suite=decay&prime=23&weight_decay=1"
    with (
        serving(create_app(settings_for(seeded.url), prepare=False)) as address,
        httpx.Client(base_url=address, timeout=60) as client,
    ):
        before = client.get(path)
        register(seeded.engine, load_suite("demo"))
        after = after_a_change(client, path, before)
    assert after.json() == before.json()
    assert after.headers["etag"] != before.headers["etag"]


def test_while_a_sweep_runs_a_changed_answer_is_held_for_a_moment(seeded: Database) -> None:
    app = create_app(settings_for(seeded.url), prepare=False)
    with serving(app) as address, httpx.Client(base_url=address, timeout=60) as api:
        claim_pending(seeded)  # a run of the suite is being trained now
        app.state.answers.hold_seconds = math.inf  # however slow this machine is
        first = api.get(PATH)
        wait_until(lambda: app.state.stamps.version() is not None)
        counted = app.state.stamps.counted()
        with seeded.engine.begin() as connection:
            connection.execute(text("UPDATE suites SET revision = revision + 1"))
        wait_until(lambda: app.state.stamps.counted() > counted)
        held = api.get(PATH)
        assert held.headers["etag"] == first.headers["etag"]
        assert app.state.answers.computed == 1
        app.state.answers.hold_seconds = 0.0  # the moment is over
        assert api.get(PATH).json()["revision"] == first.json()["revision"] + 1


def test_two_processes_give_the_same_tag(seeded: Database) -> None:
    tags = set()
    for _ in range(2):
        with (
            serving(create_app(settings_for(seeded.url), prepare=False)) as address,
            httpx.Client(base_url=address, timeout=60) as api,
        ):
            tags.add(api.get(PATH).headers["etag"])
    assert len(tags) == 1


def test_a_warm_answer_asks_no_database(seeded: Database) -> None:
    app = create_app(settings_for(seeded.url), prepare=False)
    with serving(app) as address, httpx.Client(base_url=address, timeout=60) as api:
        first = api.get(PATH)
        wait_until(lambda: app.state.stamps.version() is not None)
        api.get(PATH)
        taken: list[object] = []
        event.listen(app.state.database.engine(), "checkout", lambda *got: taken.append(got))
        for headers in ({}, {"If-None-Match": first.headers["etag"]}, {"Accept": "text/html"}):
            api.get(PATH, headers=headers)
        assert taken == []


def test_the_runs_of_all_changed_suites_are_counted_by_one_statement(seeded: Database) -> None:
    app = create_app(settings_for(seeded.url), prepare=False)
    with serving(app) as address, httpx.Client(base_url=address, timeout=60) as api:
        before = api.get("/suites").json()["items"]
        with seeded.engine.begin() as connection:
            connection.execute(text("UPDATE suites SET revision = revision + 1"))
        asked: list[str] = []
        read_table = frames.read_table

        def counted(connection: Any, query: str, *rest: Any) -> Any:
            asked.append(query)
            return read_table(connection, query, *rest)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(frames, "read_table", counted)
            after = api.get("/suites").json()["items"]
    assert sum("sr.suite_id = ANY" in query for query in asked) == 1
    assert after == [{**suite, "revision": suite["revision"] + 1} for suite in before]


def test_a_change_without_a_notice_is_seen(seeded: Database) -> None:
    app = create_app(settings_for(seeded.url), prepare=False)
    with serving(app) as address, httpx.Client(base_url=address, timeout=60) as api:
        before = api.get(PATH)
        wait_until(lambda: app.state.stamps.version() is not None)
        with seeded.engine.begin() as connection:
            connection.execute(text("UPDATE suites SET revision = revision + 1"))
        after = after_a_change(api, PATH, before)
        assert after.json()["revision"] == before.json()["revision"] + 1


def test_nothing_is_served_from_memory_once_the_server_is_not_heard(seeded: Database) -> None:
    app = create_app(settings_for(seeded.url), prepare=False)
    with serving(app) as address, httpx.Client(base_url=address, timeout=60) as api:
        api.get(PATH)
        wait_until(lambda: app.state.stamps.version() is not None)
        app.state.stamps.stop()
        wait_until(lambda: app.state.stamps.version() is None)
        assert api.get(PATH).status_code == 200


def test_an_answer_is_sent_compressed_to_who_takes_it(api: httpx.Client) -> None:
    plain = api.get(PATH, headers={"Accept-Encoding": "identity"})
    small = api.get(PATH, headers={"Accept-Encoding": "br, gzip;q=0.5"})
    refused = api.get(PATH, headers={"Accept-Encoding": "gzip;q=0"})
    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in refused.headers
    assert small.headers["content-encoding"] == "gzip"
    assert small.content == plain.content
    assert int(small.headers["content-length"]) < int(plain.headers["content-length"])
    assert small.headers["etag"] != plain.headers["etag"]
    for answer in (plain, small):
        again = api.get(PATH, headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304


def test_the_same_request_again_has_the_same_headers(api: httpx.Client) -> None:
    path = "/charts/delay?prime=31&format=html"
    first, again, third = (api.get(path) for _ in range(3))
    ignored = {"date", "x-request-id"}
    for answer in (again, third):
        assert answer.content == first.content
        assert {k: v for k, v in answer.headers.items() if k not in ignored} == {
            k: v for k, v in first.headers.items() if k not in ignored
        }


def first_answers(api: httpx.Client) -> set[str]:
    """Tags of what the first page shows, asked as the page does."""
    found = api.get("/start?of=cell").json()
    cell = {"suite": found["suite"], "prime": found["prime"], **found["setting"]}
    named = {"method": "robust", "clock": "online"}
    every = {"suite": found["suite"], "prime": "all", **found["setting"], **named}
    asked = (
        api.get("/charts/delay", params=cell),
        api.get("/crossing"),
        api.get("/charts/delay", params={**cell, **named}),
        api.get("/charts/delay/primes", params=every),
    )
    return {answer.headers["etag"] for answer in asked}


def test_the_first_views_are_computed_before_anybody_asks(seeded: Database) -> None:
    app = create_app(settings_for(seeded.url))
    with serving(app) as address, httpx.Client(base_url=address, timeout=60) as api:
        answers, ahead = app.state.answers, app.state.ahead
        wait_until(lambda: ahead.rounds == 1)
        computed = answers.computed
        before = first_answers(api)
        assert answers.computed == computed
        with seeded.engine.begin() as connection:  # one change, told once
            connection.execute(text("UPDATE suites SET revision = revision + 1"))
            told = json.dumps({"suite": "tiny", "revision": 1_000_000})
            connection.execute(text("SELECT pg_notify(:c, :t)"), {"c": CHANNEL, "t": told})
        wait_until(lambda: ahead.rounds == 2)
        computed = answers.computed
        after = first_answers(api)
        assert answers.computed == computed
        assert after.isdisjoint(before)


def test_a_change_ends_a_round_that_prepares_older_answers(seeded: Database) -> None:
    app = create_app(settings_for(seeded.url), prepare=False)
    ahead, asked = app.state.ahead, []

    async def put_questions() -> None:
        ahead._changed = asyncio.Event()
        ask = ahead._ask

        async def and_change(path: str, query: Mapping[str, Any]) -> Any:
            asked.append(path)
            if path == "/charts/delay":
                ahead.notice(None)
            return await ask(path, query)

        ahead._ask = and_change
        await ahead._put_questions()

    app.middleware_stack = app.build_middleware_stack()
    with ThreadPoolExecutor(1) as pool:  # a browser's loop may be running in this thread
        pool.submit(lambda: asyncio.run(put_questions())).result()
    app.state.database.close()
    assert asked == ["/start", "/charts/delay"]
    assert ahead.rounds == 0


def test_a_304_takes_no_thread(seeded: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    app = create_app(settings_for(seeded.url), prepare=False)
    with serving(app) as address, httpx.Client(base_url=address, timeout=60) as api:
        wait_until(lambda: app.state.stamps.version() is not None)
        tag = api.get(PATH).headers["etag"]
        taken: list[object] = []
        run_sync = anyio.to_thread.run_sync

        async def counted(*arguments: Any, **options: Any) -> Any:
            taken.append(arguments)
            return await run_sync(*arguments, **options)

        def without_a_thread() -> bool:
            taken.clear()
            assert api.get(PATH, headers={"If-None-Match": tag}).status_code == 304
            return not taken

        monkeypatch.setattr(anyio.to_thread, "run_sync", counted)
        api.get(f"{PATH}&method=paper")
        assert taken != []
        wait_until(without_a_thread)  # while heartbeats are on time


def test_within_a_process_no_answer_is_older_than_one_before_it(seeded: Database) -> None:
    app = create_app(settings_for(seeded.url), prepare=False)
    with serving(app) as address, httpx.Client(base_url=address, timeout=60) as api:
        api.get(PATH)
        wait_until(lambda: app.state.stamps.version() is not None)
        for _ in range(3):
            with seeded.engine.begin() as connection:
                connection.execute(text("UPDATE suites SET revision = revision + 1"))
            # This one is read from the database, the other would be served from memory.
            seen = api.get("/suites/tiny").json()["summary"]["revision"]
            assert api.get(PATH).json()["revision"] == seen


def test_a_change_at_one_prime_is_told_by_the_charts_of_all(seeded: Database) -> None:
    app = create_app(settings_for(seeded.url), prepare=False)
    with serving(app) as address, httpx.Client(base_url=address, timeout=60) as api:
        path = "/charts/delay/primes?suite=tiny"
        before = api.get(path)
        train_pending(seeded)
        after = after_a_change(api, path, before)
    assert [_drawn(chart) for chart in before.json()["charts"] if chart["prime"] != PENDING[1]] == [
        _drawn(chart) for chart in after.json()["charts"] if chart["prime"] != PENDING[1]
    ]
    for answer in (before.json(), after.json()):
        for chart in answer["charts"]:
            revision = f"revision {answer['revision']} "
            assert revision in chart["figure"]["layout"]["meta"]["caption"]
    changed = [_one(answer.json()["charts"], PENDING[1]) for answer in (before, after)]
    assert _drawn(changed[0]) != _drawn(changed[1])


def _one(charts: list[Any], prime: int) -> Any:
    return next(chart for chart in charts if chart["prime"] == prime)


def _drawn(chart: Any) -> Any:
    """All of a chart but its caption, which names the revision."""
    meta = {**chart["figure"]["layout"]["meta"], "caption": ""}
    return chart["figure"]["data"], {**chart["figure"]["layout"], "meta": meta}


def test_another_process_knows_of_a_commit_once_it_has_looked(seeded: Database) -> None:
    apps = [create_app(settings_for(seeded.url), prepare=False) for _ in range(2)]
    with (
        serving(apps[0]) as first,
        serving(apps[1]) as second,
        httpx.Client(timeout=60) as client,
    ):
        client.get(first + PATH)
        client.get(second + PATH)
        wait_until(lambda: all(app.state.stamps.version() is not None for app in apps))
        with seeded.engine.begin() as connection:
            connection.execute(text("UPDATE suites SET revision = revision + 1"))
        committed = time.monotonic()
        told = client.get(first + "/suites/tiny").json()["summary"]["revision"]
        while (answer := client.get(second + PATH).json()["revision"]) < told:
            began = time.monotonic()  # what was asked after the lag is over may not be older
            answer = client.get(second + PATH).json()["revision"]
            assert answer == told or began - committed <= LAG_SECONDS
        assert answer == told
