"""axe-core finds nothing serious in any view, and the keyboard reaches everything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures.visitor import Visitor

from dashboard.page import VIEWS

AXE = (Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js").read_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_has_no_serious_accessibility_issue(
    visit: Callable[..., Visitor], view: str, theme: str
) -> None:
    visitor = visit(theme)
    visitor.open(f"/view/{view}?suite=tiny")
    visitor.page.evaluate(AXE)
    found = visitor.page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    serious = [
        f"{issue['id']}: {node['html'][:160]} {node['failureSummary']}"
        for issue in found["violations"]
        if issue["impact"] in ("serious", "critical")
        for node in issue["nodes"]
    ]
    assert not serious, "\n".join(serious)


def test_the_keyboard_opens_a_view_and_changes_a_setting(visitor: Visitor) -> None:
    visitor.open("/view/delay?suite=tiny&prime=23")
    page = visitor.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator('input[data-setting="prime"][value="23"]').focus()
    page.keyboard.press("ArrowRight")
    visitor.shows("delay", "prime=29")
    focused = page.evaluate(
        "[document.activeElement.dataset.setting, document.activeElement.value]"
    )
    assert focused == ["prime", "29"]


def test_the_export_menu_closes_with_escape(visitor: Visitor) -> None:
    visitor.open("/view/delay?suite=tiny&prime=23")
    summary = visitor.page.locator(".chart .menu summary")
    summary.press("Enter")
    visitor.page.wait_for_selector(".menu[open] .menu-panel button")
    visitor.page.keyboard.press("Escape")
    visitor.page.wait_for_selector(".menu:not([open])")
