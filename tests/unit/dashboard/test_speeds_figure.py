"""The speeds figure shows both speeds of a cell with every seed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import pytest
from fixtures.made_up_answers import CAP, SEEDS, WIDTHS, Cell, params

from groktime.dashboard.figures.crossing import speeds_figure
from groktime.dashboard.figures.theme import Figure


@pytest.fixture
def drawn(cell: Cell) -> Figure:
    return speeds_figure(cell.speeds)


def trace(figure: Figure, name: str) -> dict[str, Any]:
    return next(t for t in figure["data"] if t["name"].startswith(name))


def test_plotly_accepts_the_figure_and_it_survives_json(drawn: Figure) -> None:
    go.Figure(json.loads(json.dumps(drawn, allow_nan=False)))


def test_both_axes_are_logarithmic_and_hold_every_point(drawn: Figure) -> None:
    for axis in ("xaxis", "yaxis"):
        assert drawn["layout"][axis]["type"] == "log"
    assert {t.get("yaxis", "y") for t in drawn["data"]} == {"y"}


def test_every_seed_is_a_point_and_one_in_vain_a_triangle(drawn: Figure) -> None:
    seeds = trace(drawn, "T<sub>mem</sub> of each seed")
    assert len(seeds["x"]) == len(WIDTHS) * len(SEEDS)
    in_vain = [
        (x, y)
        for x, y, mark in zip(seeds["x"], seeds["y"], seeds["marker"]["symbol"], strict=True)
        if mark == "triangle-up"
    ]
    assert in_vain == [(params(WIDTHS[0]), CAP)] * len(SEEDS)


def test_the_centre_is_that_of_the_method(cell: Cell) -> None:
    points = tuple(replace(p, mean_reached=5.0) for p in cell.speeds.t_gen)
    paper = speeds_figure(replace(cell.speeds, method="paper", t_gen=points))
    assert set(trace(paper, "T<sub>gen</sub>: epochs")["y"]) == {5.0}


def test_a_diverged_run_has_no_point(cell: Cell) -> None:
    first, *others = cell.speeds.t_mem
    lost = replace(first.values[0], diverged=True)
    point = replace(first, diverged=1, values=(lost, *first.values[1:]))
    figure = speeds_figure(replace(cell.speeds, t_mem=(point, *others)))
    seeds = trace(figure, "T<sub>mem</sub> of each seed")
    assert len(seeds["x"]) == len(WIDTHS) * len(SEEDS) - 1
    assert trace(figure, "T<sub>mem</sub> diverged")["x"] == [first.params]


def test_the_words_say_what_is_shown(drawn: Figure) -> None:
    meta = drawn["layout"]["meta"]
    assert "suite central" in meta["caption"]
    assert "T_mem goes from" in meta["summary"]
    assert meta["readings"][0]["value"] == f"{len(WIDTHS) - 1} of {len(WIDTHS)} widths"
    assert meta["sources"] == [{"label": "speeds", "route": "/speeds"}]


def test_a_cell_without_runs_says_so(cell: Cell) -> None:
    figure = speeds_figure(replace(cell.speeds, t_mem=(), t_gen=()))
    go.Figure(figure)
    assert "No run" in figure["layout"]["meta"]["empty"]


def test_the_drawn_curves_follow_the_rates_between_widths(cell: Cell) -> None:
    """As the crossing is interpolated: halfway in log P the rate 1/T is the mean of the ends'."""
    traces = [t for t in speeds_figure(cell.speeds)["data"] if t["mode"] == "lines"]
    line = next(t for t in traces if t["name"].startswith("T<sub>gen</sub>: "))
    time = dict(zip(line["x"], line["y"], strict=True))
    (low, high) = cell.speeds.t_gen[:2]
    middle = min(time, key=lambda x: abs(x - math.sqrt(low.params * high.params)))
    assert middle == pytest.approx(math.sqrt(low.params * high.params))
    assert 1 / time[middle] == pytest.approx((1 / time[low.params] + 1 / time[high.params]) / 2)
