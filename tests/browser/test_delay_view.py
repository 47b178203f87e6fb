"""The delay view: what its pickers, switches and sliders show is what the API says."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import httpx
from fixtures.visitor import Visitor

START = "/view/delay?suite=example&train_fraction=0.5&prime=113"


def drawn_as_asked(visitor: Visitor, api: httpx.Client) -> dict[str, Any]:
    """Compare what is drawn with the API's answer to the chart's own query; returns it."""
    answer = api.get(f"/charts/delay?{visitor.query('delay')}").json()
    drawn = visitor.figure("delay")
    for ours, theirs in zip(drawn["data"], answer["data"], strict=True):
        assert (ours["name"], ours["x"], ours["y"]) == (theirs["name"], theirs["x"], theirs["y"])
    panel = visitor.page.locator(".reading .value").all_inner_texts()
    assert panel == [reading["value"] for reading in answer["layout"]["meta"]["readings"]]
    return dict(answer)


def test_every_choice_changes_the_figure_as_the_api_says(
    visitor: Visitor, api: httpx.Client
) -> None:
    visitor.open(START)
    before = drawn_as_asked(visitor, api)
    for setting, value in (
        ("prime", "139"),
        ("method", "paper"),
        ("clock", "eval"),
        ("units", "steps"),
    ):
        visitor.choose(setting, value)
        visitor.shows("delay", f"{setting}={value}")
        assert f"{setting}={value}" in visitor.page.url
        after = drawn_as_asked(visitor, api)
        assert after != before
        before = after


def test_the_swept_axis_and_the_suite_are_pickers(visitor: Visitor, api: httpx.Client) -> None:
    visitor.open(START)
    visitor.page.select_option("select[name=train_fraction]", "0.4")
    visitor.shows("delay", "train_fraction=0.4")
    drawn_as_asked(visitor, api)
    visitor.page.select_option("select[name=suite]", "tiny")
    visitor.shows("delay", "suite=tiny", "prime=29")
    assert "train_fraction" not in visitor.page.url
    drawn_as_asked(visitor, api)


def test_a_slider_moves_on_the_ladder_and_the_crossing_follows(
    visitor: Visitor, api: httpx.Client
) -> None:
    visitor.open(START)
    before = drawn_as_asked(visitor, api)["layout"]["meta"]["readings"][0]
    visitor.page.click("details.more > summary")
    slider = visitor.page.locator("input[name=t_mem]")
    slider.focus()
    for _ in range(9):
        slider.press("ArrowLeft")
    visitor.shows("delay", "t_mem=0.9")
    assert visitor.page.locator("input[name=t_mem] + output").inner_text() == "90 %"
    after = drawn_as_asked(visitor, api)["layout"]["meta"]["readings"][0]
    assert after["value"] != before["value"]


def test_a_slider_reaches_the_top_of_the_ladder(visitor: Visitor, api: httpx.Client) -> None:
    visitor.open(START)
    visitor.page.click("details.more > summary")
    for name in ("t_mem", "t_gen", "e_train", "e_val"):
        slider = visitor.page.locator(f"input[name={name}]")
        slider.press("End")
        visitor.shows("delay", f"{name}=0.999")
        assert slider.get_attribute("aria-valuetext") == "99.9 %"
    drawn_as_asked(visitor, api)
    visitor.page.get_by_role("button", name="Reset to the suite's defaults").click()
    visitor.page.wait_for_url(lambda url: "0.999" not in url)


def test_a_threshold_above_the_stop_is_refused_with_a_way_back(visitor: Visitor) -> None:
    visitor.open("/view/delay?suite=tiny&prime=29&t_mem=0.995")
    card = visitor.page.locator(".chart[data-chart=delay]")
    assert card.get_attribute("data-state") == "refused"
    assert "0.995 is above 0.99, where runs stopped" in card.inner_text()
    card.get_by_role("link", name="without t_mem").click()
    visitor.shows("delay", "prime=29")


def test_the_widths_and_the_level_of_intervals_can_be_chosen(
    visitor: Visitor, api: httpx.Client
) -> None:
    visitor.open(START)
    visitor.page.click("details.more > summary")
    visitor.page.fill("input[name=max_width]", "128")
    visitor.page.press("input[name=max_width]", "Enter")
    visitor.shows("delay", "max_width=128")
    visitor.page.select_option("select[name=level]", "0.8")
    visitor.shows("delay", "max_width=128", "level=0.8")
    drawn_as_asked(visitor, api)
    assert "80 % CI" in visitor.page.locator(".reading .detail").first.inner_text()


def test_the_least_delay_that_counts_can_be_chosen(visitor: Visitor, api: httpx.Client) -> None:
    visitor.open(START)
    visitor.page.click("details.more > summary")
    visitor.page.fill("input[name=min_delay]", "7")
    visitor.page.press("input[name=min_delay]", "Enter")
    visitor.shows("delay", "min_delay=7")
    visitor.page.fill("input[name=min_delay_share]", "0.2")
    visitor.page.press("input[name=min_delay_share]", "Enter")
    visitor.shows("delay", "min_delay=7", "min_delay_share=0.2")
    drawn_as_asked(visitor, api)


def test_a_log_axis_gives_zero_a_place_of_its_own(visitor: Visitor) -> None:
    visitor.open(START + "&scale=log")
    figure = visitor.figure("delay")
    axis = figure["layout"]["yaxis"]
    assert axis["type"] == "log"
    assert axis["ticktext"][0] == "0"
    minimum = next(t for t in figure["data"] if t["name"] == "least ΔE over seeds")
    assert min(minimum["y"]) == axis["tickvals"][0]


def test_all_primes_are_small_multiples_that_lead_to_each(visitor: Visitor) -> None:
    visitor.open(START.replace("prime=113", "prime=all"))
    cards = visitor.page.locator(".multiple[data-state=ready]")
    assert cards.count() == 3
    said = visitor.page.locator(".multiples + .caption").inner_text()
    assert said.startswith("suite example · revision ")
    assert "method robust" in said
    cards.first.locator("summary").click()
    cards.first.get_by_role("button", name="PNG picture").wait_for()
    visitor.page.get_by_role("link", name="p = 139").click()
    visitor.page.wait_for_selector(".multiple", state="detached")
    visitor.shows("delay", "prime=139")


def test_a_point_leads_to_the_curves_behind_it(visitor: Visitor, api: httpx.Client) -> None:
    visitor.open(START)
    least = visitor.page.locator(".chart[data-chart=delay] .overplot > .xy .trace").last
    point = least.locator("path.point").last.bounding_box()
    assert point is not None
    visitor.page.mouse.click(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    widest = "suite=example&kind=grok&prime=113&width=160&train_fraction=0.5"
    runs = {str(run["id"]) for run in api.get(f"/runs?{widest}").json()["items"]}
    visitor.shows("curves", "run=")
    shown = set(parse_qs(visitor.query("curves"))["run"])
    assert shown <= runs  # one seed's point lies below that of the least delay


def test_a_link_restores_the_view(visitor: Visitor, api: httpx.Client) -> None:
    settings = "suite=example&train_fraction=0.4&prime=139&method=paper&clock=eval&scale=log"
    visitor.open(f"/view/delay?{settings}")
    checked = visitor.page.eval_on_selector_all(
        "input[type=radio]:checked", "boxes => boxes.map(b => [b.dataset.setting, b.value])"
    )
    wanted = {"prime": "139", "method": "paper", "clock": "eval", "scale": "log"}
    assert wanted.items() <= dict(checked).items()
    assert visitor.page.input_value("select[name=train_fraction]") == "0.4"
    for part in settings.replace("&scale=log", "").split("&"):
        assert part in visitor.query("delay")


def test_going_back_restores_the_view_before(visitor: Visitor) -> None:
    visitor.open(START)
    visitor.choose("prime", "139")
    visitor.shows("delay", "prime=139")
    visitor.page.go_back()
    visitor.shows("delay", "prime=113")


def test_the_chart_tells_a_screen_reader_what_it_shows(visitor: Visitor) -> None:
    visitor.open(START)
    label = visitor.page.locator(".chart[data-chart=delay] .plot").get_attribute("aria-label")
    assert label is not None
    assert "P_cross is" in label


def test_words_of_the_method_explain_themselves_on_hover_and_focus(visitor: Visitor) -> None:
    visitor.open("/view/delay?suite=tiny&prime=23")
    page = visitor.page
    summary = page.locator("details.more > summary")
    shown = "node => getComputedStyle(node, '::before').content"
    assert summary.evaluate(shown) == "none"
    summary.hover()
    said = summary.evaluate(shown)
    assert "Robust: medians over all seeds" in said
    assert "Online: training accuracy is read during the epoch" in said
    page.mouse.move(0, 0)
    assert summary.evaluate(shown) == "none"
    page.locator("select[name=suite]").focus()
    while not summary.evaluate("node => node === document.activeElement"):
        page.keyboard.press("Tab")
    assert "Robust: medians over all seeds" in summary.evaluate(shown)
    assert summary.get_attribute("aria-describedby") == "measured-words"
    summary.press("Enter")
    paper = page.locator("label", has_text="Paper").first
    assert "the released code's rules" in str(paper.get_attribute("title"))
    assert visitor.serious_issues() == []
