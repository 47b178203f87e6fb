"""Prediction, runs and sweeps: tables, curves and live progress."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from fixtures.database import Database
from fixtures.seeded import record, register
from fixtures.visitor import Visitor

from db.claims import claim
from db.registering import open_runs
from service.suites import load_suite


def test_residuals_can_be_set_against_any_axis(visitor: Visitor, api: httpx.Client) -> None:
    visitor.open("/view/onset?suite=example&axis=train_fraction")
    visitor.page.select_option("select[name=axis]", "prime")
    visitor.shows("residual", "axis=prime")
    answer = api.get(f"/charts/residual?{visitor.query('residual')}").json()
    assert visitor.figure("residual")["data"][0]["x"] == answer["data"][0]["x"]


def test_every_test_has_a_row_with_a_verdict(visitor: Visitor, api: httpx.Client) -> None:
    visitor.open("/view/onset?suite=example")
    rows = visitor.page.locator("section[aria-labelledby=tests-title] tbody tr")
    pooled = api.get("/tests?suite=example").json()["pooled"]
    assert rows.count() == len(pooled)
    assert all(text.strip() for text in rows.locator(".verdict").all_inner_texts())


def column(visitor: Visitor, number: int) -> list[str]:
    return visitor.page.locator(f"tbody tr td:nth-child({number})").all_inner_texts()


def test_runs_are_filtered_and_sorted_by_the_server(visitor: Visitor, api: httpx.Client) -> None:
    visitor.open("/view/runs?suite=example")
    visitor.page.select_option("select[name=kind]", "grok")
    visitor.page.wait_for_selector("[data-table][data-state=ready]")
    visitor.page.get_by_role("button", name="Width d").click()
    visitor.page.wait_for_selector('th[aria-sort=ascending]:has-text("Width d")')
    visitor.page.get_by_role("button", name="Width d").click()
    visitor.page.wait_for_selector('th[aria-sort=descending]:has-text("Width d")')
    answer = api.get("/runs?suite=example&kind=grok&sort=width&order=desc&limit=100").json()
    assert column(visitor, 2) == [str(run["id"]) for run in answer["items"]]
    assert visitor.page.locator("#runs-title").inner_text() == f"{answer['total']} runs"


def test_the_next_page_goes_on_where_the_first_ended(visitor: Visitor, api: httpx.Client) -> None:
    visitor.open("/view/runs?suite=example")
    first = column(visitor, 2)
    visitor.page.get_by_role("button", name="Next").click()
    visitor.page.wait_for_selector(f'tr[data-run="{int(first[-1]) + 1}"]')
    assert not set(first) & set(column(visitor, 2))


def test_a_click_draws_a_run_and_a_second_lays_another_over_it(
    visitor: Visitor, api: httpx.Client
) -> None:
    visitor.open("/view/runs?suite=example&kind=grok")
    runs = column(visitor, 2)[:2]
    for run in runs:
        visitor.page.click(f'tr[data-run="{run}"] td:nth-child(3)')
        visitor.shows("curves", f"run={run}")
    lines = [t for t in visitor.figure("curves")["data"] if t["mode"] == "lines"]
    assert len(lines) == 4
    curve = api.get(f"/runs/{runs[0]}/curve?points=400").json()
    assert lines[0]["y"] == curve["train_accuracy"]
    assert lines[1]["y"] == curve["val_accuracy"]


def test_cells_show_means_over_seeds(visitor: Visitor, api: httpx.Client) -> None:
    visitor.open("/view/runs?suite=example&group=cells&kind=grok")
    cells = api.get("/suites/example/cells?kind=grok").json()["items"]
    assert visitor.page.locator("tbody tr").count() == len(cells)
    visitor.page.get_by_role("link", name="runs", exact=True).first.click()
    visitor.page.wait_for_selector("tr[data-run]")
    assert visitor.page.locator("tr[data-run]").count() == cells[0]["runs"]


def test_failures_are_listed_with_their_reason_and_lead_to_a_run(visitor: Visitor) -> None:
    visitor.open("/view/sweeps?suite=tiny")
    failures = visitor.page.locator("section[aria-labelledby=failures-title]")
    assert "diverged" in failures.inner_text()
    failures.get_by_role("link").click()
    visitor.page.wait_for_selector("main[data-view=runs] .chart[data-chart=curves]")


def test_a_sweep_needs_the_right_token(visitor: Visitor) -> None:
    visitor.open("/view/sweeps?suite=tiny")
    visitor.page.fill("#sweep-suite", "demo")
    visitor.page.fill("#token", "wrong")
    visitor.page.get_by_role("button", name="Start a sweep").click()
    said = visitor.page.locator("section[aria-labelledby=jobs-title] .note.bad")
    said.wait_for()
    assert "not accepted" in said.inner_text()


@pytest.mark.parametrize("kind", ["speed", "capacity"])
def test_coverage_is_shown_by_kind(visitor: Visitor, kind: str) -> None:
    visitor.open("/view/sweeps?suite=example")
    visitor.choose("kind", kind)
    visitor.shows("coverage", f"kind={kind}")


LIVE = """
description: A few runs that are recorded while somebody looks.
primes: [23]
seeds: [101, 102]
stop: {max_epochs: 600}
speed:
  widths: [24]
grok:
  widths: [20, 24]
"""


def test_live_progress_appears_while_a_worker_records(
    visitor: Visitor, example_database: Database, tmp_path: Path
) -> None:
    path = tmp_path / "live.yaml"
    path.write_text(LIVE)
    engine = example_database.engine
    ids = list(open_runs(engine, register(engine, load_suite(path))).values())
    visitor.open("/view/sweeps?suite=live")
    done = '[data-tile="Runs done"] .value:text-is("{} of 6")'
    visitor.page.wait_for_selector(done.format(0))
    record(engine, claim(engine, ids[:4], "worker", 60))
    visitor.page.wait_for_selector(done.format(4))
    record(engine, claim(engine, ids[4:], "worker", 60))
    visitor.page.wait_for_selector(done.format(6))
    visitor.page.wait_for_selector('[data-tile="Time left"] .value:text-is("done")')
