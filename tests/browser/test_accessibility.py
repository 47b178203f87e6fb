"""The keyboard reaches everything, and keeps its place."""

from __future__ import annotations

from fixtures.visitor import Visitor

FOCUSED = "[document.activeElement.name, document.activeElement.value]"


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


def test_a_number_that_was_typed_keeps_the_focus(visitor: Visitor) -> None:
    visitor.open("/view/delay?suite=tiny&prime=23&max_width=24")
    visitor.page.click("details.more > summary")
    box = visitor.page.locator("input[name=max_width]")
    box.fill("20")
    box.press("Enter")
    visitor.shows("delay", "max_width=20")
    assert visitor.page.evaluate(FOCUSED) == ["max_width", "20"]


def test_a_run_is_chosen_with_the_space_bar_and_the_place_is_kept(visitor: Visitor) -> None:
    visitor.open("/view/runs?suite=tiny&kind=grok")
    tick = visitor.page.locator("tr[data-run] input").nth(3)
    label = tick.get_attribute("aria-label")
    tick.press("Space")
    visitor.shows("curves", "run=")
    assert visitor.page.evaluate("document.activeElement.ariaLabel") == label
    assert visitor.page.get_by_label(str(label)).is_checked()


def test_the_export_menu_opens_and_closes_from_the_keyboard(visitor: Visitor) -> None:
    visitor.open("/view/delay?suite=tiny&prime=23")
    summary = visitor.page.locator(".chart .menu summary")
    summary.press("Enter")
    visitor.page.wait_for_selector(".menu[open] .menu-panel button")
    assert visitor.serious_issues() == []
    visitor.page.keyboard.press("Escape")
    visitor.page.wait_for_selector(".menu:not([open])")
    assert visitor.page.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_means_over_seeds_and_folded_out_settings_are_accessible(visitor: Visitor) -> None:
    visitor.open("/view/runs?suite=example&group=cells&kind=grok")
    assert visitor.serious_issues() == []
    visitor.open("/view/memorisation?suite=tiny&f_min=0&f_max=0.3")
    visitor.page.click("details.more > summary")
    assert visitor.serious_issues() == []
