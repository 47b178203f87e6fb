"""How the first page arrives: what it needs is asked early, and nothing twice."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Request

pytestmark = pytest.mark.browser


def test_the_first_page_asks_early_and_nothing_twice(browser: Browser, site: str) -> None:
    page = browser.new_page()
    asked: list[str] = []

    def note(request: Request) -> None:
        parts = urlsplit(request.url)
        asked.append(f"{parts.path}?{parts.query}" if parts.query else parts.path)

    page.on("request", note)
    page.goto(f"{site}/")
    page.wait_for_selector("main[data-state=settled]")
    page.close()
    data = [path for path in asked if not path.startswith("/static/") and path != "/events"]
    assert len(data) == len(set(data))
    assert "/start?of=cell" in data
    view = next(i for i, path in enumerate(asked) if "/views/" in path)
    assert asked.index("/suites") < view
    assert asked.index("/start?of=cell") < view


def test_an_address_that_names_its_cell_asks_for_no_other(browser: Browser, site: str) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    page.goto(f"{site}/view/delay?suite=tiny&prime=29")
    page.wait_for_selector("main[data-state=settled]")
    page.close()
    assert asked.count("/suites") == 1
    assert "/start" not in asked
