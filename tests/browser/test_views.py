"""Every view loads, in both themes and on small screens, accessible and without a complaint."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from fixtures.visitor import Visitor

from groktime.dashboard.page import VIEWS

GROK = "suite=example&kind=grok&prime=139&seed=42&train_fraction=0.5"
PICTURES = {
    "delay": "/view/delay?suite=example&train_fraction=0.5&prime=113",
    "start": "/?suite=example&train_fraction=0.5&prime=113",
    "delay-all-primes": "/view/delay?suite=example&train_fraction=0.5&prime=all",
    "capacity": "/view/capacity?suite=example",
    "memorisation": "/view/memorisation?suite=example&train_fraction=0.5",
    "onset": "/view/onset?suite=example",
    "runs": f"/view/runs?{GROK}",
    "sweeps": "/view/sweeps?suite=tiny",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where pictures go: GROKTIME_SCREENSHOTS names a folder to keep them."""
    kept = os.environ.get("GROKTIME_SCREENSHOTS")
    return Path(kept) if kept else tmp_path


def with_curves(api: httpx.Client, path: str) -> str:
    if not path.startswith("/view/runs"):
        return path
    items = api.get(f"/runs?{GROK}&limit=30").json()["items"]
    return path + "".join(f"&run={run['id']}" for run in items)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", PICTURES)
def test_a_view_draws_all_its_charts_for_everybody_without_a_console_error(
    visit: Callable[..., Visitor], api: httpx.Client, folder: Path, name: str, theme: str
) -> None:
    visitor = visit(theme)
    visitor.open(with_curves(api, PICTURES[name]))
    page = visitor.page
    states = page.eval_on_selector_all(".chart", "cards => cards.map(c => c.dataset.state)")
    assert states
    assert set(states) == {"ready"}
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    page.screenshot(path=folder / f"{name}-{theme}.png", full_page=True)
    assert visitor.serious_issues() == []
    assert visitor.complaints == []


def test_the_front_page_tells_the_claim_of_the_default_suite(visitor: Visitor) -> None:
    visitor.open("/")
    visitor.shows("delay", "suite=example", "prime=113")
    assert "arXiv 2605.09724" in visitor.page.inner_text(".claim")
    assert visitor.page.locator(".answer .reading").count() == 3
    visitor.page.get_by_role("link", name="All 3 primes").click()
    visitor.page.wait_for_selector("main[data-view=onset]")


def test_every_view_is_one_click_away_and_keeps_the_suite(visitor: Visitor) -> None:
    visitor.open("/view/delay?suite=tiny&prime=29")
    for view in VIEWS[1:]:
        visitor.page.click(f'nav a[href^="/view/{view}"]')
        visitor.page.wait_for_selector(f"main[data-view={view}]")
        visitor.settled()
        assert "suite=tiny" in visitor.page.url
    assert visitor.complaints == []


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_fits_a_phone_and_a_wide_screen(visitor: Visitor, folder: Path, view: str) -> None:
    visitor.page.set_viewport_size({"width": 390, "height": 844})
    visitor.open(f"/view/{view}?suite=example")
    visitor.page.screenshot(path=folder / f"{view}-phone.png", full_page=True)
    for width in (390, 1024, 2200):
        visitor.page.set_viewport_size({"width": width, "height": 900})
        wide = visitor.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width


def test_a_theme_chosen_by_hand_is_kept_and_recolours_the_chart(visitor: Visitor) -> None:
    visitor.open(PICTURES["delay"])
    light = visitor.figure("delay")["layout"]["paper_bgcolor"]
    visitor.page.click("#theme")
    visitor.page.wait_for_function(
        "light => document.querySelector('.plot').layout.paper_bgcolor !== light", arg=light
    )
    dark = visitor.figure("delay")["layout"]["paper_bgcolor"]
    visitor.page.reload()
    visitor.settled()
    assert visitor.figure("delay")["layout"]["paper_bgcolor"] == dark


EXAMPLES = json.loads((Path(__file__).parents[1] / "fixtures" / "numbers.json").read_text("utf-8"))


@pytest.mark.parametrize("rule", list(EXAMPLES))
def test_the_page_writes_numbers_by_the_rules_of_the_server(visitor: Visitor, rule: str) -> None:
    visitor.open("/view/sweeps?suite=tiny")
    written = visitor.page.evaluate(
        """async ([rule, values]) => {
          const app = document.querySelector("script[type=module]").src;
          const rules = await import(new URL("numbers.js", app));
          return values.map((value) => rules[rule](value));
        }""",
        [rule, [value for value, _ in EXAMPLES[rule]]],
    )
    assert written == [text for _, text in EXAMPLES[rule]]
