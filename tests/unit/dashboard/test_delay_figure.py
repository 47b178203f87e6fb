"""The delay figure shows the cell's runs, both speeds and the crossing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import pytest
from fixtures.made_up_answers import CAP, SEEDS, WIDTHS, Cell, params

from groktime.dashboard.figures import crossing as crossing_words
from groktime.dashboard.figures.delay import delay_figure
from groktime.dashboard.figures.theme import COLOURS, Figure
from groktime.service.analysis.crossing import Advice, Bracket
from groktime.service.analysis.survival import SpeedPoint


@pytest.fixture
def drawn(cell: Cell) -> Figure:
    return delay_figure(cell.delay, cell.crossing, cell.speeds, cell.regimes)


def trace(figure: Figure, name: str) -> dict[str, Any]:
    return next(t for t in figure["data"] if t["name"].startswith(name))


def test_plotly_accepts_the_figure_and_it_survives_json(drawn: Figure) -> None:
    go.Figure(json.loads(json.dumps(drawn, allow_nan=False)))


def test_every_seed_is_a_point_and_every_width_a_minimum(drawn: Figure, cell: Cell) -> None:
    assert len(trace(drawn, "ΔE of each seed")["x"]) == len(WIDTHS) * len(SEEDS)
    minimum = trace(drawn, "least ΔE")
    assert minimum["x"] == [params(w) for w in WIDTHS]
    assert minimum["y"] == [p.minimum for p in cell.delay.minimum]


def test_a_minimum_knows_the_runs_behind_it(drawn: Figure, cell: Cell) -> None:
    for width, _, seeds, runs in trace(drawn, "least ΔE")["customdata"]:
        assert len(runs) == seeds
        assert runs == [p.run for p in cell.delay.points if p.width == width]


def test_a_censored_delay_is_marked_as_a_lower_bound(drawn: Figure, cell: Cell) -> None:
    seeds = trace(drawn, "ΔE of each seed")
    marked = [s for s, p in zip(seeds["marker"]["symbol"], cell.delay.points, strict=True)]
    assert marked.count("triangle-up") == sum(p.censored for p in cell.delay.points) == 1


def test_an_unreached_speed_is_a_gap_with_an_arrow_not_a_value(drawn: Figure) -> None:
    curve = trace(drawn, "T<sub>mem</sub>: epochs")
    assert curve["y"][0] is None
    arrow = trace(drawn, "T<sub>mem</sub> not reached")
    assert (arrow["x"], arrow["y"]) == ([params(WIDTHS[0])], [CAP])


def test_the_band_reaches_from_the_fastest_to_the_slowest_seed(drawn: Figure, cell: Cell) -> None:
    band = trace(drawn, "T<sub>gen</sub> fastest")
    values = [[s.value for s in p.values] for p in cell.speeds.t_gen]
    assert band["y"][: len(WIDTHS)] == [max(v) for v in values]  # type: ignore[type-var]
    assert band["y"][len(WIDTHS) :] == [min(v) for v in reversed(values)]  # type: ignore[type-var]


@pytest.fixture
def with_divergence(cell: Cell) -> Cell:
    """One seed diverged in its third epoch at the second width, all of them at the last."""

    def lost(point: SpeedPoint, *seeds: int) -> SpeedPoint:
        values = tuple(
            replace(s, value=None, last=3.0, diverged=True) if s.seed in seeds else s
            for s in point.values
        )
        return replace(point, values=values, diverged=len(seeds))

    first, second, *others, last = cell.speeds.t_mem
    points = (first, lost(second, SEEDS[0]), *others, replace(lost(last, *SEEDS), median=None))
    return replace(cell, speeds=replace(cell.speeds, t_mem=points))


def test_a_diverged_run_is_neither_fast_nor_slow(with_divergence: Cell) -> None:
    cell = with_divergence
    figure = delay_figure(cell.delay, cell.crossing, cell.speeds, cell.regimes)
    band = trace(figure, "T<sub>mem</sub> fastest")
    assert min(band["y"]) > 3
    assert params(WIDTHS[1]) in band["x"]
    assert params(WIDTHS[-1]) not in band["x"]  # nothing was watched there
    assert 10 ** figure["layout"]["yaxis2"]["range"][0] > 3
    assert params(WIDTHS[-1]) not in trace(figure, "T<sub>mem</sub> not reached")["x"]


def test_diverged_runs_are_crosses_at_the_top(with_divergence: Cell) -> None:
    cell = with_divergence
    figure = delay_figure(cell.delay, cell.crossing, cell.speeds, cell.regimes)
    crosses = trace(figure, "T<sub>mem</sub> diverged")
    assert crosses["x"] == [params(WIDTHS[1]), params(WIDTHS[-1])]
    assert set(crosses["y"]) == {CAP}
    assert [row[1:] for row in crosses["customdata"]] == [[1, 3], [3, 3]]
    go.Figure(json.loads(json.dumps(figure, allow_nan=False)))


def test_without_divergence_there_is_no_cross(drawn: Figure) -> None:
    assert not [t for t in drawn["data"] if t["name"].endswith("diverged")]


def test_the_crosshair_stands_at_the_crossing(drawn: Figure, cell: Cell) -> None:
    dashed = [s for s in drawn["layout"]["shapes"] if s["line"].get("dash") == "dash"]
    assert {s["x0"] for s in dashed} == {cell.crossing.p_cross.estimate, 0}
    assert cell.crossing.epochs in {s["y0"] for s in dashed}


def test_the_interval_is_shaded_between_its_ends(drawn: Figure, cell: Cell) -> None:
    cross = cell.crossing.p_cross
    assert (cross.low, cross.high) in {(s["x0"], s["x1"]) for s in drawn["layout"]["shapes"]}


def test_an_onset_open_below_is_shaded_from_the_edge(drawn: Figure, cell: Cell) -> None:
    def bands(figure: Figure) -> list[tuple[float, float]]:
        shapes = figure["layout"]["shapes"]
        return [(s["x0"], s["x1"]) for s in shapes if s.get("fillcolor") == COLOURS["onset_band"]]

    onset = replace(cell.crossing.p_onset, low=None)
    given = replace(cell.crossing, p_onset=onset)
    ((low, high),) = bands(delay_figure(cell.delay, given, cell.speeds, cell.regimes))
    ((closed, same),) = bands(drawn)
    assert low < closed
    assert high == same
    nowhere = replace(given, p_onset=replace(onset, estimate=None))
    assert bands(delay_figure(cell.delay, nowhere, cell.speeds, cell.regimes)) == []


def test_regimes_meet_half_way_between_widths(drawn: Figure) -> None:
    full = [
        s
        for s in drawn["layout"]["shapes"]
        if s["type"] == "rect" and s["y0"] == 0 and s["y1"] == 1
    ]
    ends = [s["x1"] for s in full if s["x1"] < params(WIDTHS[-1])]
    assert any(params(a) < e < params(b) for e in ends for a, b in [(40, 48), (48, 64), (64, 96)])


def test_the_figure_says_suite_revision_method_and_n(drawn: Figure) -> None:
    caption = drawn["layout"]["meta"]["caption"]
    for part in ("suite central", "revision 7", "method robust", "n = 48 runs", "online clock"):
        assert part in caption


def test_the_readings_are_for_people(drawn: Figure) -> None:
    cross = drawn["layout"]["meta"]["readings"][0]
    assert cross["term"] == "P_cross"
    assert cross["value"].endswith("k")
    assert cross["detail"].startswith("95 % CI ")


def test_without_a_crossing_there_is_no_crosshair_and_the_reason_is_said(cell: Cell) -> None:
    nowhere = replace(
        cell.crossing,
        status="mem_always_slower",
        epochs=None,
        roots=(),
        residual=None,
        p_cross=replace(cell.crossing.p_cross, estimate=None, low=None, high=None, level=None),
    )
    figure = delay_figure(cell.delay, nowhere, cell.speeds, cell.regimes)
    assert not [s for s in figure["layout"]["shapes"] if s["line"].get("dash") == "dash"]
    notes = [n["text"] for n in figure["layout"]["meta"]["notes"]]
    assert any("slower at every measured width" in text for text in notes)


@pytest.mark.parametrize(
    ("level", "words"),
    [(0.95, "take the interval as a rough guide"), (None, "beside the crossing: no interval")],
)
def test_few_seeds_are_said_with_and_without_an_interval(
    cell: Cell, level: float | None, words: str
) -> None:
    given = replace(cell.crossing, p_cross=replace(cell.crossing.p_cross, level=level))
    notes = [note["text"] for note in crossing_words.notes(given, cell.delay)]
    assert any(words in note for note in notes)


def test_widths_at_which_nothing_was_reached_are_named_and_no_crossing_is_denied(
    cell: Cell,
) -> None:
    nowhere = replace(cell.crossing.p_cross, estimate=None, level=None)
    given = replace(
        cell.crossing,
        status="mem_always_faster",
        p_cross=nowhere,
        residual=None,
        unresolved_widths=(12, 16),
    )
    told = [
        crossing_words.summary(given),
        crossing_words.verdict(given)["text"],
        crossing_words.notes(given, cell.delay)[0]["text"],
    ]
    for text in told:
        assert "at d = 12, 16 it is not, and the crossing may be there" in text
        assert "no crossing" not in text


def test_a_coarse_bracket_and_the_next_width_are_told(cell: Cell) -> None:
    coarse = Bracket(80_000.0, 110_000.0, 48, 56, 4.2, coarse=True)
    advice = Advice("speed", 52, "T_mem changes 4.2-fold between the widths around the crossing")
    told = replace(cell.crossing, bracket=coarse, advice=advice)
    notes = [note["text"] for note in crossing_words.notes(told, cell.delay)]
    assert any(n.startswith("Coarse: T_mem changes more than 3-fold over the") for n in notes)
    assert any(
        n.startswith("To train next: speed runs at d = 52: T_mem changes 4.2") for n in notes
    )
    assert crossing_words.readings(told)[0]["detail"].endswith("between d = 48 and 56")


def test_a_cell_without_runs_says_so(cell: Cell) -> None:
    figure = delay_figure(
        replace(cell.delay, points=(), minimum=()),
        cell.crossing,
        replace(cell.speeds, t_mem=(), t_gen=()),
        replace(cell.regimes, points=()),
    )
    go.Figure(figure)
    assert "No run" in figure["layout"]["meta"]["empty"]


def test_where_no_run_is_delayed_the_axis_still_has_whole_epochs(cell: Cell) -> None:
    points = tuple(replace(p, delay=0.0) for p in cell.delay.points)
    figure = delay_figure(
        replace(cell.delay, points=points), cell.crossing, cell.speeds, cell.regimes
    )
    assert figure["layout"]["yaxis"]["range"][1] > 10


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("fitted", "(fitted)"),
        ("matched_suite", "(fitted in suite central)"),
        ("paper", "(the paper's)"),
    ],
)
def test_the_caption_says_where_the_bits_per_parameter_came_from(
    cell: Cell, source: str, words: str
) -> None:
    bits = replace(cell.speeds.c_model, source=source, suite="central")
    speeds = replace(cell.speeds, c_model=bits)
    figure = delay_figure(cell.delay, cell.crossing, speeds, cell.regimes)
    assert words in figure["layout"]["meta"]["caption"]


def test_panels_stand_above_each_other_and_the_papers_figure_is_one(cell: Cell) -> None:
    answers = cell.delay, cell.crossing, cell.speeds, cell.regimes
    above, below = (
        delay_figure(*answers)["layout"][name]["domain"] for name in ("yaxis", "yaxis2")
    )
    assert above[0] > below[1]
    twin = delay_figure(*answers, "twin")["layout"]
    assert twin["yaxis2"]["overlaying"] == "y"
    assert "domain" not in twin["yaxis"]


def test_the_story_is_told_with_the_numbers_of_the_chart(drawn: Figure, cell: Cell) -> None:
    meta = drawn["layout"]["meta"]
    told = " ".join(meta["story"])
    assert f"P_cross = {meta['readings'][0]['value']}" in told
    assert f"P_onset = {meta['readings'][1]['value']}" in told
    onset = cell.crossing.p_onset.estimate
    assert onset is not None
    below = [p for p in cell.delay.minimum if p.params < onset]
    assert f"zero at {sum(p.minimum == 0 for p in below)} of {len(below)} widths" in told


@pytest.mark.parametrize(
    ("residual", "words", "tone"),
    [
        (0.02, "Yes: grokking starts at 1.05 × P_cross", "good"),
        (-0.3, "Not quite: grokking starts below the crossing, at 0.50 × P_cross", "warn"),
        (0.3, "Not quite: grokking starts above the crossing, at 2.00 × P_cross", "warn"),
        (None, "This cell cannot tell.", "plain"),
    ],
)
def test_a_cell_has_its_verdict(cell: Cell, residual: float, words: str, tone: str) -> None:
    said = crossing_words.verdict(replace(cell.crossing, residual=residual))
    assert said["text"].startswith(words)
    assert said["tone"] == tone


def small(cell: Cell, **changed: Any) -> Figure:
    speeds = replace(cell.speeds, **changed)
    return delay_figure(cell.delay, cell.crossing, speeds, cell.regimes, small=True)


def many(points: tuple[SpeedPoint, ...], times: int) -> tuple[SpeedPoint, ...]:
    return tuple(
        replace(point, width=point.width + 2 * i, params=params(point.width + 2 * i))
        for point in points[1:]
        for i in range(times)
    )


def test_a_small_multiple_leaves_out_single_seeds(drawn: Figure, cell: Cell) -> None:
    names = [trace["name"] for trace in small(cell)["data"]]
    assert names == [t["name"] for t in drawn["data"] if t["name"] != "ΔE of each seed"]


def test_a_small_multiple_of_many_widths_has_one_line_through_them(cell: Cell) -> None:
    crowd = many(cell.speeds.t_gen, 4)
    (line,) = (
        t for t in small(cell, t_gen=crowd)["data"] if t["name"].startswith("T<sub>gen</sub>: ")
    )
    assert (line["mode"], line["x"]) == ("lines", [p.params for p in crowd])
    assert len(line["customdata"]) == len(crowd)  # its points can still be asked


def test_a_width_that_no_line_would_show_stays_a_point(cell: Cell) -> None:
    crowd = many(cell.speeds.t_gen, 4)
    alone = tuple(
        replace(point, median=None, mean_reached=None) if i in (4, 6) else point
        for i, point in enumerate(crowd)
    )
    modes = [
        t["mode"]
        for t in small(cell, t_gen=alone)["data"]
        if t["name"].startswith("T<sub>gen</sub>: ")
    ]
    assert modes == ["lines", "markers"]
