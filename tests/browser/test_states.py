"""Nothing to draw, part of it, a refusal, a server that is gone: each is told, with a way on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures.database import Database
from fixtures.http import serving, settings_for
from fixtures.seeded import record, register
from fixtures.visitor import Visitor

from groktime.api.app import create_app
from groktime.db.claims import claim
from groktime.db.suites import open_runs
from groktime.service.suites import load_suite

DELAY = "/view/delay?suite=example&train_fraction=0.5&prime=113"


def test_an_unknown_prime_is_refused_with_the_primes_there_are(visitor: Visitor) -> None:
    visitor.open("/view/delay?suite=tiny&prime=7")
    card = visitor.page.locator(".chart[data-chart=delay]")
    assert card.get_attribute("data-state") == "refused"
    assert visitor.serious_issues() == []
    card.get_by_role("link", name="prime 29").click()
    visitor.shows("delay", "prime=29")


def test_a_suite_without_capacity_runs_says_so(visitor: Visitor) -> None:
    visitor.open("/view/capacity?suite=decay")
    card = visitor.page.locator(".chart[data-chart=capacity]")
    assert card.get_attribute("data-state") == "empty"
    text = card.locator(".overlay-text").inner_text()
    assert "decay has no capacity runs" in text
    assert "suite:" not in text
    card.get_by_role("link", name="another suite").click()
    visitor.page.wait_for_selector(".chart[data-chart=capacity][data-state=ready]")


def test_an_axis_of_the_data_does_not_narrow_capacity(visitor: Visitor) -> None:
    visitor.open("/view/capacity?suite=example&train_fraction=0.4")
    visitor.shows("capacity_fit", "suite=example")


def test_a_cell_with_missing_runs_is_marked_partial(visitor: Visitor) -> None:
    visitor.open("/view/delay?suite=tiny&prime=31")
    assert "Partial: 1 run" in visitor.page.locator(".chart[data-chart=delay] .notes").inner_text()


def test_a_diverged_run_is_marked_and_does_not_stretch_the_band(visitor: Visitor) -> None:
    visitor.open("/view/delay?suite=tiny&prime=29")
    drawn = {trace["name"]: trace for trace in visitor.figure("delay")["data"]}
    assert len(drawn["T<sub>mem</sub> diverged"]["x"]) == 1
    assert min(drawn["T<sub>mem</sub> fastest to slowest seed"]["y"]) > 7  # where it ended


def test_filters_that_no_run_passes_say_so(visitor: Visitor) -> None:
    visitor.open("/view/runs?suite=tiny&seed=99")
    table = visitor.page.locator("[data-table]")
    assert table.get_attribute("data-state") == "empty"
    assert "Remove a filter" in table.inner_text()


def test_a_server_that_is_gone_is_told_to_the_visitor(visitor: Visitor) -> None:
    visitor.open(DELAY)
    visitor.page.route("**/charts/**", lambda route: route.abort())
    visitor.choose("prime", "139")
    visitor.page.wait_for_selector(".chart[data-chart=delay][data-state=refused]")
    assert "cannot be reached" in visitor.page.locator(".overlay-text").inner_text()
    visitor.page.unroute("**/charts/**")
    visitor.choose("prime", "113")
    visitor.shows("delay", "prime=113")


def test_an_empty_database_welcomes_and_goes_on_by_itself(
    visit: Callable[..., Visitor], database: Database, tmp_path: Path
) -> None:
    path = tmp_path / "first.yaml"
    path.write_text(
        "description: The first runs.\nprimes: [23]\nseeds: [1, 2]\nstop: {max_epochs: 600}\n"
        "speed: {widths: [16, 24]}\ngrok: {widths: [16, 24]}\n"
    )
    with serving(create_app(settings_for(database.url))) as address:
        visitor = visit(at=address)
        visitor.open("/")
        assert "No suite has been trained yet" in visitor.page.inner_text("main h1")
        assert visitor.serious_issues() == []
        engine = database.engine
        ids = list(open_runs(engine, register(engine, load_suite(path))).values())
        record(engine, claim(engine, ids, "worker", 60))
        visitor.page.wait_for_selector("main[data-view=start] .chart[data-state=ready]")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_chart_is_explained_with_its_own_numbers(
    visit: Callable[..., Visitor], theme: str
) -> None:
    visitor = visit(theme)
    visitor.open("/view/delay?suite=demo")
    meta = visitor.figure("delay")["layout"]["meta"]
    told = visitor.page.locator(".story li").all_text_contents()
    assert [text.replace("_", "") for text in told] == [
        text.replace("_", "") for text in meta["story"]
    ]
    assert visitor.serious_issues() == []


def test_a_view_that_is_not_there_says_so_and_leads_back(visitor: Visitor) -> None:
    visitor.page.goto(f"{visitor.site}/view/nope")
    visitor.settled()
    assert "There is no such view" in visitor.page.inner_text("main h1")
    visitor.page.get_by_role("link", name="To the first page").click()
    visitor.page.wait_for_selector("main[data-view=start][data-state=settled]")


def test_the_api_page_follows_the_theme_and_leads_back(visit: Callable[..., Visitor]) -> None:
    visitor = visit("dark")
    visitor.page.goto(f"{visitor.site}/docs")
    assert visitor.page.evaluate("document.documentElement.dataset.theme") == "dark"
    visitor.page.get_by_role("link", name="groktime").click()
    visitor.settled()


def test_a_recorded_suite_says_when_where_and_with_what_it_was_trained(visitor: Visitor) -> None:
    visitor.open("/view/delay?suite=recorded")
    marking = visitor.page.locator("details.about .recorded")
    visitor.page.click("details.about > summary")
    words = marking.inner_text()
    assert "recorded on " in words
    for part in ("cpu", "torch", "groktime", "python", "curves keep epochs up to 20"):
        assert part in words
    assert visitor.serious_issues() == []
    visitor.open("/view/delay?suite=tiny&prime=29")
    assert marking.count() == 0
