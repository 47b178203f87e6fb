"""A suite that is being located: the points closing in, and what comes next."""

from __future__ import annotations

from fixtures.database import Database
from fixtures.located import small_cell, train_located
from fixtures.visitor import Visitor

SUITE = small_cell(31)
ROW = "table.located tr[data-cell='31']"


def test_points_close_in_before_a_visitor_s_eyes_until_the_cell_is_placed(
    visitor: Visitor, example_database: Database
) -> None:
    train_located(example_database.engine, SUITE, 6)
    page = visitor.page
    visitor.open(f"/view/sweeps?suite={SUITE.name}")
    visitor.shows("placement", f"suite={SUITE.name}")
    assert page.inner_text("#cells-title") == "0 of 1 cell placed"
    row = page.locator(ROW)
    assert "dex" in row.inner_text()
    answer = page.request.get(f"{visitor.site}/suites/{SUITE.name}/placement").json()
    (cell,) = answer["cells"]
    assert cell["next"][0]["why"] in row.locator(".next").inner_text()
    before = cell["onset"]["half_width"]
    assert visitor.serious_issues() == []

    visitor.open(f"/view/delay?suite={SUITE.name}&prime=31")
    assert "Being located: 6 runs so far" in page.inner_text(".chart .notes")
    shapes = visitor.figure("delay")["layout"]["shapes"]
    assert any(s["type"] == "rect" and s["line"].get("dash") == "dot" for s in shapes)

    visitor.open(f"/view/sweeps?suite={SUITE.name}")
    train_located(example_database.engine, SUITE, 60)
    page.wait_for_selector("#cells-title:text-is('1 of 1 cell placed')")
    page.wait_for_selector(f"{ROW} .next:text-is('placed')")
    (cell,) = page.request.get(f"{visitor.site}/suites/{SUITE.name}/placement").json()["cells"]
    assert cell["onset"]["half_width"] < before
    assert f"{cell['onset']['half_width']:.3f} dex" in page.inner_text(ROW)
    assert visitor.complaints == []


def test_a_located_suite_fits_a_phone(visitor: Visitor, example_database: Database) -> None:
    train_located(example_database.engine, SUITE, 6)
    visitor.page.set_viewport_size({"width": 390, "height": 844})
    visitor.open(f"/view/sweeps?suite={SUITE.name}")
    visitor.shows("placement", f"suite={SUITE.name}")
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_suite_that_lists_its_widths_shows_no_cells_to_place(visitor: Visitor) -> None:
    visitor.open("/view/sweeps?suite=tiny")
    assert visitor.page.locator("#cells-title").count() == 0
    assert visitor.page.locator(".chart[data-chart=placement]").is_hidden()
