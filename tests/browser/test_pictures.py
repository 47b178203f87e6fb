"""A chart's picture, opened by itself."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

# Elements whose own style names a fill, with what is drawn.
FILLS = """
() => [...document.querySelectorAll("[style*='fill: rgb']")].map((element) => [
  element.getAttribute("style").match(/(?:^|; ?)fill: (rgb\\([^)]*\\))/)?.[1],
  getComputedStyle(element).fill,
])
"""


def test_an_svg_chart_is_drawn_with_its_own_colours(browser: Browser, site: str) -> None:
    page = browser.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    response = page.goto(f"{site}/charts/delay?suite=tiny&prime=29&format=svg")
    assert response is not None
    assert response.status == 200
    fills = [(wanted, drawn) for wanted, drawn in page.evaluate(FILLS) if wanted is not None]
    assert len({wanted for wanted, _ in fills}) > 1
    assert all(wanted == drawn for wanted, drawn in fills)
    assert complaints == []
    page.close()
