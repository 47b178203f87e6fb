"""The figure of a located cell: both points closing in, run by run."""

from __future__ import annotations

import json
from dataclasses import replace

import plotly.graph_objects as go
from fixtures.made_up_answers import Cell

from groktime.dashboard.figures.delay import delay_figure
from groktime.dashboard.figures.progress import no_placement_figure, placement_figure
from groktime.dashboard.figures.theme import COLOURS, Figure, log_ticks
from groktime.service.answers.suites import (
    NextRun,
    PlacedCell,
    PlacedPoint,
    PlacementAnswer,
    Step,
)


def point(half: float | None, bracket: tuple[float, float]) -> PlacedPoint:
    ends = (None, None) if half is None else (40_000 * 10**-half, 40_000 * 10**half)
    return PlacedPoint(
        status="searching",
        estimate=40_000.0,
        half_width=half,
        low=ends[0],
        high=ends[1],
        bracket=bracket,
    )


FIRST = Step(runs=2, core_seconds=30, crossing=point(None, (2e4, 8e4)), onset=None)
THEN = Step(runs=3, core_seconds=50, crossing=point(0.1, (3e4, 5e4)), onset=None)
CELL = PlacedCell(
    prime=59,
    setting={"weight_decay": 0.3},
    crossing=point(0.1, (3e4, 5e4)),
    onset=None,
    runs=3,
    open=0,
    core_seconds=50,
    ended=None,
    next=(NextRun(kind="speed", width=40, seed=43, why="halves the bracket"),),
    steps=(FIRST, THEN),
)
ANSWER = PlacementAnswer(
    suite="located",
    revision=7,
    place=("crossing",),
    precision=0.03,
    max_runs=60,
    running=True,
    runs=3,
    core_seconds=50,
    cells=(CELL,),
)


def named(figure: Figure, name: str) -> dict[str, object]:
    return next(t for t in figure["data"] if t.get("name") == name)


def test_the_estimate_its_interval_and_its_bracket_are_drawn_against_the_runs() -> None:
    figure = placement_figure(ANSWER, CELL)
    go.Figure(json.loads(json.dumps(figure, allow_nan=False)))
    assert named(figure, "P<sub>cross</sub>")["x"] == [2, 3]
    upper = named(figure, "95 % interval of P<sub>cross</sub>")["y"]
    assert upper == [None, THEN.crossing and THEN.crossing.high]
    assert named(figure, "widths around P<sub>cross</sub>")["y"] == [8e4, 5e4]
    meta = figure["layout"]["meta"]
    assert meta["title"] == "p = 59 · weight decay 0.3, run by run"
    assert "Next: speed d = 40, seed 43: halves the bracket." in meta["summary"]
    assert [reading["term"] for reading in meta["readings"]] == ["P_cross"]


def test_without_a_run_it_says_what_comes_first() -> None:
    waiting = replace(CELL, steps=(), runs=0)
    assert "halves the bracket" in placement_figure(ANSWER, waiting)["layout"]["meta"]["empty"]
    assert placement_figure(ANSWER, None)["layout"]["meta"]["empty"]
    assert "lists its widths" in no_placement_figure("mini", 3)["layout"]["meta"]["empty"]


def test_the_delay_chart_shades_what_is_expected_only_while_the_search_goes_on(cell: Cell) -> None:
    answers = (cell.delay, cell.crossing, cell.speeds, cell.regimes)
    edge = {"color": COLOURS["cross"], "width": 1, "dash": "dot"}
    shapes = delay_figure(*answers, placed=CELL)["layout"]["shapes"]
    (shaded,) = [s for s in shapes if s["line"] == edge]
    assert CELL.crossing is not None
    assert (shaded["x0"], shaded["x1"]) == (CELL.crossing.low, CELL.crossing.high)
    ended = delay_figure(*answers, placed=replace(CELL, ended="placed"))
    assert not any(s["line"] == edge for s in ended["layout"]["shapes"])
    assert not any("Being located" in note["text"] for note in ended["layout"]["meta"]["notes"])


def test_a_narrow_range_has_more_than_one_tick() -> None:
    values, labels = log_ticks(36_000, 52_000)
    assert len(values) >= 3
    assert labels == ["40k", "45k", "50k"]
