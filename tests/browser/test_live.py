"""Progress as it happens: while a worker records, on a closed server, and after a break."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fixtures.database import Database
from fixtures.http import serving, settings_for
from fixtures.seeded import record, register
from fixtures.visitor import Visitor
from playwright.sync_api import Route
from sqlalchemy import Engine

from groktime.api.app import create_app
from groktime.db.claims import claim
from groktime.db.suites import open_runs
from groktime.service.suites import load_suite

LIVE = """
description: A few runs that are recorded while somebody looks.
primes: [{prime}]
seeds: [101, 102]
stop: {{max_epochs: 600}}
speed:
  widths: [24]
grok:
  widths: [20, 24]
"""
DONE = '[data-tile="Runs done"] .value:text-is("{} of 6")'


def six_runs(engine: Engine, folder: Path, name: str, prime: int) -> list[int]:
    """Ids of the runs of a new suite, all waiting."""
    path = folder / f"{name}.yaml"
    path.write_text(LIVE.format(prime=prime))
    return list(open_runs(engine, register(engine, load_suite(path))).values())


def test_progress_appears_while_a_worker_records(
    visitor: Visitor, example_database: Database, tmp_path: Path
) -> None:
    engine = example_database.engine
    ids = six_runs(engine, tmp_path, "live", 23)
    visitor.open("/view/sweeps?suite=live")
    visitor.page.wait_for_selector(DONE.format(0))
    record(engine, claim(engine, ids[:4], "worker", 60))
    visitor.page.wait_for_selector(DONE.format(4))
    record(engine, claim(engine, ids[4:], "worker", 60))
    visitor.page.wait_for_selector(DONE.format(6))
    visitor.page.wait_for_selector('[data-tile="Time left"] .value:text-is("done")')


def test_charts_that_cost_much_offer_new_results(
    visitor: Visitor, example_database: Database, tmp_path: Path
) -> None:
    engine = example_database.engine
    ids = six_runs(engine, tmp_path, "offered", 29)
    visitor.open("/view/runs?suite=offered&state=done")
    record(engine, claim(engine, ids, "worker", 60))
    visitor.page.click("#news")
    visitor.page.wait_for_selector("#runs-title:text-is('6 runs')")
    assert visitor.page.locator("#news").is_hidden()


def test_results_from_before_the_stream_began_are_offered(
    visitor: Visitor, example_database: Database, tmp_path: Path
) -> None:
    engine = example_database.engine
    ids = six_runs(engine, tmp_path, "overtaken", 31)
    waiting: list[Route] = []
    visitor.page.route("**/events", lambda route: waiting.append(route))
    visitor.open("/view/runs?suite=overtaken&state=done")
    record(engine, claim(engine, ids, "worker", 60))
    assert visitor.page.locator("#news").is_hidden()
    waiting[-1].continue_()
    visitor.page.click("#news")
    visitor.page.wait_for_selector("#runs-title:text-is('6 runs')")


def test_a_new_suite_appears_in_the_picker(
    visitor: Visitor, example_database: Database, tmp_path: Path
) -> None:
    engine = example_database.engine
    visitor.open("/view/sweeps?suite=tiny")
    ids = six_runs(engine, tmp_path, "newcomer", 37)
    record(engine, claim(engine, ids[:1], "worker", 60))
    visitor.page.wait_for_selector('select[name=suite] option[value="newcomer"]', state="attached")
    assert visitor.page.input_value("select[name=suite]") == "tiny"


def test_progress_is_live_on_a_server_that_is_closed_by_a_token(
    inside: Visitor, example_database: Database, tmp_path: Path
) -> None:
    engine = example_database.engine
    ids = six_runs(engine, tmp_path, "behind-a-token", 41)
    inside.open("/view/sweeps?suite=behind-a-token")
    inside.page.wait_for_selector(DONE.format(0))
    record(engine, claim(engine, ids, "worker", 60))
    inside.page.wait_for_selector(DONE.format(6))


def test_a_wrong_token_is_asked_for_again_and_nothing_is_streamed(
    visit: Callable[..., Visitor], closed_site: str
) -> None:
    visitor = visit(at=closed_site)
    statuses: list[int] = []
    visitor.page.on(
        "response", lambda r: statuses.append(r.status) if r.url.endswith("/events") else None
    )
    visitor.open("/")
    visitor.page.fill("#read-token", "wrong")
    visitor.page.get_by_role("button", name="Read").click()
    visitor.page.wait_for_selector("main:has-text('not accepted')[data-state=settled]")
    assert set(statuses) == {401}


def test_a_broken_stream_goes_on_where_it_ended(
    visit: Callable[..., Visitor], example_database: Database, tmp_path: Path
) -> None:
    engine = example_database.engine
    ids = six_runs(engine, tmp_path, "broken", 43)
    settings = settings_for(example_database.url)
    seen: list[str | None] = []
    with serving(create_app(settings)) as address:
        visitor = visit(at=address)
        visitor.page.on(
            "request",
            lambda r: (
                seen.append(r.headers.get("last-event-id")) if r.url.endswith("/events") else None
            ),
        )
        visitor.open("/view/sweeps?suite=broken")
        visitor.page.wait_for_selector(DONE.format(0))
        visitor.page.wait_for_selector("#live[data-suite]", state="attached")  # it has heard
        port = int(address.rpartition(":")[2])
    record(engine, claim(engine, ids, "worker", 60))
    with serving(create_app(settings), port):
        visitor.page.wait_for_selector(DONE.format(6))
    assert seen[0] is None
    assert seen[-1]  # what it had seen last


READ_EVENTS = """
async (pieces) => {
    const { Parser } = await import("/static/stream.js");
    const found = [];
    const parser = new Parser((event) => found.push(event), (ms) => found.push(ms));
    for (const piece of pieces) parser.feed(piece);
    return found;
}
"""


WAITS = """
async () => {
    const { backOff } = await import("/static/stream.js");
    return [1, 2, 3, 6, 99].map((n) => [backOff(1000, n, 0), backOff(1000, n, 1)]);
}
"""


def test_events_are_read_whatever_the_pieces_and_tries_grow_patient(visitor: Visitor) -> None:
    visitor.open("/view/sweeps?suite=tiny")
    text = "retry: 250\n\n: still here\n\nid: 1.4\r\nevent: progress\rdata: a\ndata: b\n\ndata\n\n"
    expected = [
        250,
        {"event": "progress", "data": "a\nb", "id": "1.4"},
        {"event": "message", "data": "", "id": "1.4"},
    ]
    for size in (1, 2, 7, len(text)):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        assert visitor.page.evaluate(READ_EVENTS, pieces) == expected
    waits = visitor.page.evaluate(WAITS)
    # From a second on each try waits twice as long, up to half a minute; luck spreads the tries.
    assert waits == [[500, 1000], [1000, 2000], [2000, 4000], [15000, 30000], [15000, 30000]]
