"""Opened without any parameter, every view of the demo's database shows a drawn figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest
from fixtures.database import Database
from fixtures.http import serving, settings_for
from fixtures.visitor import Visitor
from playwright.sync_api import Browser

from groktime.api.app import create_app
from groktime.api.middleware import Limits

FIGURES = {
    "/": ("delay",),
    "/view/delay": ("delay",),
    "/view/capacity": ("capacity", "capacity_fit"),
    "/view/memorisation": ("memorisation", "memorisation_inverse"),
    "/view/onset": ("onset", "residual"),
    "/view/runs": ("curves",),
    "/view/sweeps": ("coverage",),
}


@pytest.fixture(scope="module")
def demo_site(browser: Browser, demo_state: Database) -> Iterator[str]:
    """The dashboard as `groktime demo` serves it."""
    settings = settings_for(demo_state.url).model_copy(update={"default_suite": "central"})
    with serving(create_app(settings, Limits(heavy_burst=100_000))) as address:
        yield address


@pytest.mark.parametrize("path", FIGURES)
def test_a_view_without_parameters_draws_its_figures(
    visit: Callable[..., Visitor], demo_site: str, path: str
) -> None:
    visitor = visit(at=demo_site)
    visitor.open(path)
    for chart in FIGURES[path]:
        visitor.shows(chart)
        assert visitor.figure(chart)["data"], chart
    assert visitor.complaints == []
    start = httpx.get(f"{demo_site}/start", timeout=60).json()
    assert f"suite={start['suite']}" in visitor.page.url


def test_a_swept_suite_opens_on_its_baseline(visit: Callable[..., Visitor], demo_site: str) -> None:
    visitor = visit(at=demo_site)
    visitor.open("/view/delay?suite=weight_decay-two-cores-released")
    visitor.shows("delay", "weight_decay=1", "prime=113")


def test_a_link_to_a_suite_that_is_not_there_says_so(
    visit: Callable[..., Visitor], demo_site: str
) -> None:
    visitor = visit(at=demo_site)
    visitor.open("/view/delay?suite=centrall")
    main = visitor.page.inner_text("main")
    assert "There is no suite centrall here" in main
    visitor.page.click("main a.chip >> text='mini-released'")
    visitor.shows("delay", "suite=mini-released")


def test_untrained_primes_are_marked_in_the_picker(
    visit: Callable[..., Visitor], demo_site: str
) -> None:
    visitor = visit(at=demo_site)
    visitor.open("/view/delay?suite=central-two-cores")
    visitor.shows("delay", "prime=113")
    assert visitor.page.get_by_text("109 · untrained").count() == 1
    assert visitor.page.get_by_text("113 · untrained").count() == 0
