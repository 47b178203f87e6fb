"""Memorisation, prediction, runs and sweeps: their settings, tables and curves."""

from __future__ import annotations

import io
from pathlib import Path

import httpx
import pandas as pd
import pytest
from fixtures.visitor import Visitor
from playwright.sync_api import Browser


def test_the_window_of_the_law_can_be_chosen(visitor: Visitor, api: httpx.Client) -> None:
    visitor.open("/view/memorisation?suite=example&train_fraction=0.5")
    visitor.page.click("details.more > summary")
    visitor.page.fill("input[name=f_max]", "0.1")
    visitor.page.press("input[name=f_max]", "Enter")
    visitor.shows("memorisation", "f_min=0", "f_max=0.1")
    answer = api.get(f"/law?{visitor.query('memorisation')}").json()
    assert answer["window"] == [0.0, 0.1]
    shown = visitor.page.locator(".reading .value").first.inner_text()
    assert float(shown) == pytest.approx(answer["pooled"]["a"], rel=0.01)
    visitor.page.get_by_role("button", name="Reset to the suite's defaults").click()
    visitor.page.wait_for_url(lambda url: "f_max" not in url)


def test_residuals_can_be_set_against_any_axis(visitor: Visitor, api: httpx.Client) -> None:
    visitor.open("/view/onset?suite=example&axis=train_fraction")
    visitor.page.select_option("select[name=axis]", "prime")
    visitor.shows("residual", "axis=prime")
    answer = api.get(f"/charts/residual?{visitor.query('residual')}").json()
    assert visitor.figure("residual")["data"][0]["x"] == answer["data"][0]["x"]


def test_the_papers_values_stand_beside_a_suite_that_sweeps_the_same(visitor: Visitor) -> None:
    visitor.open("/view/onset?suite=decay")
    tests = visitor.page.locator("section[aria-labelledby=tests-title]")
    assert "table for weight_decay" in tests.inner_text()
    tests.get_by_text("Does a larger crossing mean a larger onset?").click()
    heading = tests.locator("details[open] th").last
    assert heading.inner_text() == "Paper (another model)"
    spearman = tests.locator("tr", has_text="Spearman").locator("td").last
    assert "cells)" in spearman.inner_text()
    within = visitor.page.locator("section[aria-labelledby=within-title] tbody tr")
    assert all("primes)" in text for text in within.all_inner_texts())


def test_a_cells_point_leads_to_its_chart(visitor: Visitor) -> None:
    visitor.open("/view/onset?suite=example&method=paper")
    point = visitor.page.locator(".chart[data-chart=onset] .points path").last.bounding_box()
    assert point is not None
    visitor.page.mouse.click(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    visitor.page.wait_for_selector("main[data-view=delay][data-state=settled]")
    visitor.shows("delay", "suite=example", "prime=139", "train_fraction=0.5", "method=paper")


def test_every_test_has_a_row_with_a_verdict(visitor: Visitor, api: httpx.Client) -> None:
    visitor.open("/view/onset?suite=example")
    rows = visitor.page.locator("section[aria-labelledby=tests-title] tbody tr")
    answer = api.get("/tests?suite=example").json()
    alone = ("M0", "M1", "M2", "MP", "MK")  # predictors whose errors on cells left out are compared
    compared = [model for model in answer["models"] if model["name"] in alone]
    assert len(compared) == 5
    assert len(answer["apart"]) == 2  # both ways of dealing the seeds are one row
    assert rows.count() == len(answer["pooled"]) + len(compared) + 1
    assert all(text.strip() for text in rows.locator(".verdict").all_text_contents())


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


def test_pages_lead_forth_and_back_even_when_runs_were_chosen(visitor: Visitor) -> None:
    visitor.open("/view/runs?suite=example")
    first = column(visitor, 2)
    visitor.page.get_by_role("button", name="Next").click()
    visitor.page.wait_for_selector(f'tr[data-run="{int(first[-1]) + 1}"]')
    visitor.page.locator("tr[data-run] input").first.click()
    visitor.shows("curves", "run=")
    visitor.page.get_by_role("button", name="Back", exact=True).click()
    visitor.page.wait_for_selector(f'tr[data-run="{first[0]}"]')
    assert column(visitor, 2) == first


def test_the_curves_say_whose_runs_they_are(visitor: Visitor, api: httpx.Client) -> None:
    run = api.get("/runs?suite=tiny&kind=grok&limit=1").json()["items"][0]["id"]
    visitor.open(f"/view/runs?suite=tiny&kind=grok&run={run}")
    caption = visitor.page.locator(".chart[data-chart=curves] .caption").inner_text()
    assert caption.startswith("suite tiny · revision ")


def test_cells_show_means_with_intervals_and_lead_to_their_runs(
    visitor: Visitor, api: httpx.Client
) -> None:
    visitor.open("/view/runs?suite=example&group=cells&kind=grok")
    cells = api.get("/suites/example/cells?kind=grok").json()["items"]
    assert visitor.page.locator("tbody tr").count() == len(cells)
    mean = cells[0]["e_train_99"]
    assert f"{mean['mean']:.3g} ({mean['low']:.3g}–{mean['high']:.3g})" in column(visitor, 7)[0]
    visitor.page.get_by_role("link", name="runs", exact=True).first.click()
    visitor.page.wait_for_selector("tr[data-run]")
    assert visitor.page.locator("tr[data-run]").count() == cells[0]["runs"]


def test_cells_are_filtered_sorted_and_saved(
    visitor: Visitor, api: httpx.Client, tmp_path: Path
) -> None:
    visitor.open("/view/runs?suite=example&group=cells&kind=grok")
    visitor.page.select_option("select[name=train_fraction]", "0.4")
    visitor.page.wait_for_selector("#runs-title:text-is('27 groups of seeds')")
    visitor.page.get_by_role("button", name="Val 99 %").click()
    visitor.page.wait_for_selector('th[aria-sort=ascending]:has-text("Val 99 %")')
    means = [float(text.split()[0]) for text in column(visitor, 8)]
    assert means == sorted(means)
    assert set(column(visitor, 3)) == {"0.4"}
    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("link", name="CSV of the means over seeds").click()
    download.value.save_as(tmp_path / "cells.csv")
    answer = api.get("/suites/example/cells?kind=grok&format=csv")
    pd.testing.assert_frame_equal(
        pd.read_csv(tmp_path / "cells.csv"), pd.read_csv(io.StringIO(answer.text))
    )


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


def test_on_a_phone_validation_stands_below_training(visitor: Visitor, api: httpx.Client) -> None:
    run = api.get("/runs?suite=tiny&kind=grok&state=done&limit=1").json()["items"][0]["id"]
    visitor.page.set_viewport_size({"width": 390, "height": 844})
    visitor.open(f"/view/runs?suite=tiny&kind=grok&run={run}")
    visitor.shows("curves", f"run={run}")
    layout = visitor.figure("curves")["layout"]
    assert layout["xaxis2"]["domain"] == [0, 1]
    assert layout["yaxis2"]["domain"][1] < layout["yaxis"]["domain"][0]


def test_on_a_small_laptop_the_runs_have_one_row_of_controls(browser: Browser, site: str) -> None:
    page = browser.new_page(viewport={"width": 1024, "height": 768})
    page.goto(f"{site}/view/runs?suite=example")
    page.wait_for_selector("main[data-state=settled]")
    bottoms = page.locator(".controls > *").evaluate_all(
        "(parts) => parts.map((part) => Math.round(part.getBoundingClientRect().bottom))"
    )
    page.close()
    assert len(bottoms) > 5
    assert max(bottoms) - min(bottoms) < 10


def test_the_map_of_a_sweep_is_lower_in_a_low_window(browser: Browser, site: str) -> None:
    heights = []
    for height in (900, 560):
        page = browser.new_page(viewport={"width": 1024, "height": height})
        page.goto(f"{site}/view/sweeps?suite=example")
        page.wait_for_selector("main[data-state=settled] .chart[data-state=ready]")
        heights.append(page.locator(".chart[data-chart=coverage] .plot").bounding_box())
        page.close()
    high, low = heights
    assert high is not None
    assert low is not None
    assert low["height"] < high["height"]
