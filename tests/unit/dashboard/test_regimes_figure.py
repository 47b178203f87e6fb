"""The regimes figure shows the share of seeds in each regime and which has most."""

from __future__ import annotations

import json
from dataclasses import replace

import plotly.graph_objects as go
import pytest
from fixtures.made_up_answers import WIDTHS, Cell

from groktime.dashboard.figures.delay import regimes_figure
from groktime.dashboard.figures.theme import COLOURS
from groktime.service.answers.crossing import RegimesAnswer


@pytest.fixture
def divided(cell: Cell) -> RegimesAnswer:
    """One of three seeds groks at the smallest width, where the others generalise at once."""
    first, *others = cell.regimes.points
    return replace(cell.regimes, points=(replace(first, immediate=2, grokking=1), *others))


def test_plotly_accepts_the_figure_and_it_survives_json(divided: RegimesAnswer) -> None:
    go.Figure(json.loads(json.dumps(regimes_figure(divided), allow_nan=False)))


def test_the_shares_of_a_width_are_those_of_its_seeds(divided: RegimesAnswer) -> None:
    figure = regimes_figure(divided)
    bars = {t["name"]: t for t in figure["data"] if t["type"] == "bar"}
    assert set(bars) == {"generalises at once", "grokking"}
    assert bars["grokking"]["y"][0] == pytest.approx(1 / 3)
    assert bars["grokking"]["customdata"][0][2:] == [1, 3]
    for shares in zip(*(t["y"] for t in bars.values()), strict=True):
        assert sum(shares) == pytest.approx(1)


def test_every_width_is_marked_by_the_regime_of_most_seeds(divided: RegimesAnswer) -> None:
    *_, majority = regimes_figure(divided)["data"]
    assert len(set(majority["x"])) == len(WIDTHS)
    assert majority["marker"]["color"] == [COLOURS[f"{p.regime}_strip"] for p in divided.points]


def test_the_words_name_the_regimes_in_order(cell: Cell) -> None:
    meta = regimes_figure(cell.regimes)["layout"]["meta"]
    before, after = meta["summary"].split(", then ")
    assert "generalises at once" in before
    assert "grokking" in after
    assert "suite central" in meta["caption"]
    assert meta["sources"] == [{"label": "regimes", "route": "/regimes"}]


def test_a_cell_without_runs_says_so(cell: Cell) -> None:
    figure = regimes_figure(replace(cell.regimes, points=()))
    go.Figure(figure)
    assert "No grok run" in figure["layout"]["meta"]["empty"]
