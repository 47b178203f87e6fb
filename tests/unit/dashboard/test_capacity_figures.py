"""Capacity figures: curves under the complexity line, and a line of bits per parameter."""

from __future__ import annotations

import json
from dataclasses import replace

import plotly.graph_objects as go
import pytest
from fixtures.made_up_answers import C_MODEL, params

from groktime.dashboard.figures.capacity import capacity_curves_figure, capacity_fit_figure
from groktime.service.analysis.capacity import CapacityFit
from groktime.service.answers.capacity import (
    CapacityAnswer,
    CapacityPoint,
    PrimeThreshold,
    WidthCapacity,
)
from groktime.service.words import human

SIZES = (1000, 2601, 4917, 9300)
LABEL_BITS = 6.845


def width_capacity(width: int, *flags: str) -> WidthCapacity:
    full = 2.16 * params(width)
    return WidthCapacity(
        width=width,
        params=params(width),
        capacity=full,
        low=full * 0.97,
        high=full * 1.03,
        flags=flags,
        fitted=True,
        points=tuple(
            CapacityPoint(
                run=width + n, n=n, bits=min(full, n * LABEL_BITS), complexity=n * LABEL_BITS
            )
            for n in SIZES
        ),
    )


@pytest.fixture
def answer() -> CapacityAnswer:
    return CapacityAnswer(
        suite="central",
        revision=3,
        setting={},
        method="robust",
        prime=113,
        vocabulary=115,
        widths=(width_capacity(10), width_capacity(14), width_capacity(20, "not_saturated")),
        fit=CapacityFit(
            slope=2.16,
            low=2.1,
            high=2.2,
            level=0.95,
            interval="t",
            intercept=40.0,
            intercept_low=-20.0,
            intercept_high=100.0,
            r_squared=0.999,
            widths=3,
        ),
        c_model=C_MODEL,
        p_mem=(PrimeThreshold(prime=113, n_train=6328, k_mem=43318.0, p_mem=20055.0),),
        missing=2,
        analysis_version=1,
    )


def test_plotly_accepts_both_figures(answer: CapacityAnswer) -> None:
    for figure in (capacity_curves_figure(answer), capacity_fit_figure(answer)):
        go.Figure(json.loads(json.dumps(figure, allow_nan=False)))


def test_the_dashed_line_is_all_of_the_dataset(answer: CapacityAnswer) -> None:
    line = capacity_curves_figure(answer)["data"][0]
    assert line["x"] == line["y"]
    assert line["line"]["dash"] == "dash"


def test_every_width_has_its_curve_and_its_plateau(answer: CapacityAnswer) -> None:
    names = [t["name"] for t in capacity_curves_figure(answer)["data"]]
    for width in (10, 14, 20):
        assert f"d = {width}" in names
        assert f"plateau of d = {width}" in names


def test_the_fit_goes_through_its_intercept(answer: CapacityAnswer) -> None:
    line = capacity_fit_figure(answer)["data"][0]
    assert line["y"][0] == 40.0
    assert (line["y"][1] - line["y"][0]) / line["x"][1] == pytest.approx(2.16)


def test_a_width_that_never_filled_is_open_and_named(answer: CapacityAnswer) -> None:
    figure = capacity_fit_figure(answer)
    assert figure["data"][1]["marker"]["symbol"] == ["circle", "circle", "circle-open"]
    assert any("d = 20: never full" in n["text"] for n in figure["layout"]["meta"]["notes"])


def test_an_interval_of_three_widths_is_called_what_it_is(answer: CapacityAnswer) -> None:
    c_model = replace(C_MODEL, low=-0.4, high=4.7, level=0.95, interval="t", source="fitted")
    readings = capacity_fit_figure(replace(answer, c_model=c_model))["layout"]["meta"]["readings"]
    assert "95 % CI −0.4 to 4.7 (t, three widths)" in readings[0]["detail"]
    assert "intercept 40 (−20 to 100) bits over 3 widths" in readings[1]["detail"]
    resampled = replace(c_model, low=2.1, high=2.2, interval="bootstrap")
    readings = capacity_fit_figure(replace(answer, c_model=resampled))["layout"]["meta"]["readings"]
    assert "95 % CI 2.1 to 2.2 · " in readings[0]["detail"]


def test_missing_runs_make_it_partial(answer: CapacityAnswer) -> None:
    notes = capacity_curves_figure(answer)["layout"]["meta"]["notes"]
    assert any(n["text"] == "Partial: 2 runs not finished." for n in notes)


def test_without_runs_the_papers_constant_stands_in_and_it_says_so(answer: CapacityAnswer) -> None:
    figure = capacity_fit_figure(replace(answer, widths=(), fit=None, missing=0))
    go.Figure(figure)
    said = figure["layout"]["meta"]["empty"]
    assert "C = 2.16 bits/parameter (the paper's) stands in" in said


def test_a_borrowed_constant_is_called_what_it_is(answer: CapacityAnswer) -> None:
    borrowed = replace(C_MODEL, value=1.09, source="matched_suite", suite="central", note="central")
    figure = capacity_fit_figure(replace(answer, c_model=borrowed, widths=(), fit=None))
    meta = figure["layout"]["meta"]
    assert "C = 1.09 bits/parameter (fitted in suite central) stands in" in meta["empty"]
    assert meta["readings"][0]["detail"].endswith(" · fitted in suite central")
    own = replace(borrowed, source="fitted", note="some widths never saturated")
    meta = capacity_fit_figure(replace(answer, c_model=own))["layout"]["meta"]
    assert meta["readings"][0]["detail"].endswith(" · fitted, some widths never saturated")


def test_the_size_that_holds_the_data_is_a_row_for_every_dataset(answer: CapacityAnswer) -> None:
    only = answer.p_mem[0]
    both = replace(answer, p_mem=(only, replace(only, n_train=5062)))
    rows = capacity_fit_figure(both)["layout"]["meta"]["thresholds"]
    assert [(row["prime"], row["n"]) for row in rows] == [
        (113, f"{only.n_train:,}"),
        (113, "5,062"),
    ]
    assert {row["p_mem"] for row in rows} == {human(only.p_mem)}


def test_a_dip_at_a_small_last_batch_is_explained(answer: CapacityAnswer) -> None:
    first = answer.widths[0]
    sizes = ((512, 900.0, 512), (1024, 1800.0, 512), (1065, 1200.0, 41), (2048, 1300.0, 512))
    points = tuple(
        CapacityPoint(run=n, n=n, bits=bits, complexity=5.0 * n, batch_size=512, last_batch=last)
        for n, bits, last in sizes
    )
    given = replace(answer, widths=(replace(first, points=points), *answer.widths[1:]))
    notes = [n["text"] for n in capacity_curves_figure(given)["layout"]["meta"]["notes"]]
    assert (
        "Dips where the last batch is small (n = 1,065: 41 of 512 examples): a full step on few "
        "examples." in notes
    )
    assert not any(
        "Dips" in n["text"] for n in capacity_curves_figure(answer)["layout"]["meta"]["notes"]
    )
