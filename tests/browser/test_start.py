"""The first page of recorded results: the claim, both points with their intervals, the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlparse

import httpx
import pytest
from fixtures.database import Server, scratch_database
from fixtures.http import serving, settings_for
from fixtures.visitor import Visitor
from playwright.sync_api import Browser

from groktime.api.app import create_app
from groktime.db.load import load_dump
from groktime.service.commands.serve import RECORDINGS
from groktime.service.suites.loader import check_stored
from groktime.service.words import human, interval

SUITE = "central-two-cores-released"


@pytest.fixture(scope="module")
def recorded_site(
    browser: Browser, database_server: Server, template_database: str
) -> Iterator[str]:
    """A server on a database that holds the recording of the paper's ten primes."""
    with scratch_database(database_server, template_database) as database:
        load_dump(database.engine, RECORDINGS / f"{SUITE}.groktime", check_stored)
        with serving(create_app(settings_for(database.url))) as address:
            yield address


def test_the_first_page_shows_the_claim_both_points_with_intervals_and_the_verdict(
    visit: Callable[..., Visitor], recorded_site: str
) -> None:
    visitor = visit(at=recorded_site)
    visitor.open("/")
    page = visitor.page
    asked = parse_qs(urlparse(page.url).query)
    assert (asked["suite"], asked["prime"]) == ([SUITE], ["113"])
    assert "at the size Pcross where the two speeds cross" in page.inner_text(".claim")
    answer = httpx.get(f"{recorded_site}/crossing?suite={SUITE}&prime=113", timeout=60).json()
    for term in ("p_cross", "p_onset"):
        reading = page.locator(f'.answer .reading[data-term="{term.replace("p_", "P_")}"]')
        found = answer[term]
        assert reading.locator(".value").inner_text() == human(found["estimate"])
        assert interval(found["low"], found["high"]) in reading.locator(".detail").inner_text()
    verdict = page.inner_text(".verdict-line")
    assert f"at {10 ** answer['residual']:.2f} × Pcross" in verdict
    chart = page.locator(".chart[data-chart=delay] .plot").bounding_box()
    assert chart is not None
    assert chart["y"] < 300  # the figure is on the first screen
    assert visitor.serious_issues() == []
    assert visitor.complaints == []


def test_the_first_page_leads_to_all_primes(
    visit: Callable[..., Visitor], recorded_site: str
) -> None:
    visitor = visit(at=recorded_site)
    visitor.open("/")
    visitor.page.get_by_role("link", name="All 10 primes").click()
    visitor.shows("onset", f"suite={SUITE}")
    claims = visitor.page.locator(".claim-part")
    assert claims.count() == 3
    assert claims.locator(".badge").all_inner_texts()[0] == "holds"


@pytest.mark.parametrize("view", ["delay", "onset", "capacity", "memorisation", "runs", "sweeps"])
def test_no_view_of_a_recorded_suite_scrolls_sideways_on_a_phone(
    visit: Callable[..., Visitor], recorded_site: str, view: str
) -> None:
    visitor = visit(at=recorded_site)
    visitor.page.set_viewport_size({"width": 390, "height": 844})
    visitor.open(f"/view/{view}?suite={SUITE}")
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 390
