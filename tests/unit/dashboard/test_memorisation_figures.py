"""Memorisation figures: one trace a prime, fitted forms inside their window, the collapse."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import plotly.graph_objects as go
import pytest
from fixtures.made_up_answers import C_MODEL, params

from groktime.dashboard.figures.memorisation import (
    collapse_words,
    law_value,
    memorisation_capacity_figure,
    memorisation_fraction_figure,
)
from groktime.dashboard.figures.theme import series_look
from groktime.service.analysis.laws import Collapse, LawFit
from groktime.service.answers.laws import LawAnswer, LawPoint
from groktime.service.answers.question import Thresholds

K_MEM = {97: 30_900.0, 113: 43_318.0}
WIDTHS = (40, 64, 96, 128)


def fit(form: str, aic: float, c: float | None = None) -> LawFit:
    return LawFit(
        form=form,  # type: ignore[arg-type]
        prime=None,
        a=11.0,
        a_low=10.5,
        a_high=11.5,
        b=22.0,
        c=c,
        r_squared=0.99,
        aic=aic,
        n=8,
    )


@pytest.fixture
def answer() -> LawAnswer:
    points = []
    for prime, k_mem in K_MEM.items():
        for width in WIDTHS:
            f = k_mem / (2.16 * params(width))
            points.append(
                LawPoint(
                    prime=prime,
                    width=width,
                    params=params(width),
                    fraction=f,
                    value=22 * math.exp(11 * f),
                    fitted=f <= 0.25,
                )
            )
    return LawAnswer(
        suite="central",
        revision=5,
        setting={},
        method="robust",
        clock="online",
        units="epochs",
        level=0.95,
        thresholds=Thresholds(),
        window=(0.0, 0.25),
        c_model=C_MODEL,
        primes=(97, 113),
        points=tuple(points),
        pooled=fit("exponential", -40.0),
        rivals=(fit("exponential", -40.0), fit("stretched", -38.5, 0.9), fit("power", 10.0)),
        per_prime=(),
        collapse=Collapse(
            testable=True, reason="", slope=0.02, se=0.05, p=0.7, primes=2, unreliable=True
        ),
        generalisation=None,
        analysis_version=1,
    )


def test_the_rate_has_the_level_asked_for(answer: LawAnswer) -> None:
    for level, words in ((0.95, "95 % CI"), (0.8, "80 % CI")):
        given = replace(answer, level=level)
        readings = memorisation_capacity_figure(given)["layout"]["meta"]["readings"]
        assert readings[0]["detail"].startswith(words)


def test_plotly_accepts_both_figures(answer: LawAnswer) -> None:
    for figure in (memorisation_capacity_figure(answer), memorisation_fraction_figure(answer)):
        go.Figure(json.loads(json.dumps(figure, allow_nan=False)))


def test_every_prime_has_a_colour_and_a_shape_of_its_own(answer: LawAnswer) -> None:
    primes = [
        t for t in memorisation_fraction_figure(answer)["data"] if t["name"].startswith("p = ")
    ]
    looks = {(t["marker"]["color"], t["marker"]["symbol"]) for t in primes}
    assert len(looks) == len(primes) == 2


def test_points_outside_the_window_are_pale(answer: LawAnswer) -> None:
    trace = memorisation_fraction_figure(answer)["data"][1]
    outside = [o for o, x in zip(trace["marker"]["opacity"], trace["x"], strict=True) if x > 0.25]
    assert outside
    assert set(outside) == {0.45}


def test_fitted_lines_stay_inside_the_window_and_follow_the_law(answer: LawAnswer) -> None:
    line = next(
        t
        for t in memorisation_fraction_figure(answer)["data"]
        if t["name"].startswith("b·exp(a·f)")
    )
    assert max(line["x"]) == 0.25
    assert line["y"][-1] == pytest.approx(22 * math.exp(11 * 0.25))


@pytest.mark.parametrize(
    ("form", "c", "value"),
    [
        ("exponential", None, 22 * math.exp(11 * 0.2)),
        ("power", None, 22 * 0.2**11),
        ("stretched", 0.5, 22 * math.exp(11 * 0.2**0.5)),
    ],
)
def test_each_form_is_evaluated_by_its_formula(form: str, c: float | None, value: float) -> None:
    assert law_value(fit(form, 0.0, c), 0.2) == pytest.approx(value)


def test_inverse_capacity_counts_bits(answer: LawAnswer) -> None:
    trace = memorisation_capacity_figure(answer)["data"][0]
    assert max(trace["x"]) == pytest.approx(1 / (2.16 * params(WIDTHS[0])))


def test_every_prime_has_its_own_law_against_inverse_capacity(answer: LawAnswer) -> None:
    own = replace(fit("exponential", -20.0), prime=113)
    data = memorisation_capacity_figure(replace(answer, per_prime=(own,)))["data"]
    line = next(t for t in data if t["name"] == "fit of p = 113")
    for x, y in zip(line["x"], line["y"], strict=True):
        assert y == pytest.approx(22 * math.exp(11 * x * K_MEM[113]))
    assert max(line["x"]) <= 0.25 / K_MEM[113] * (1 + 1e-9)
    modes = {t["name"]: t["mode"] for t in data}
    assert modes["p = 113"] == "markers"
    assert modes["p = 97"] == "lines+markers"  # no law of its own: its points are joined


def test_ten_primes_look_different() -> None:
    looks = {series_look(i) for i in range(10)}
    assert len(looks) == 10


def test_the_collapse_is_put_in_words(answer: LawAnswer) -> None:
    assert collapse_words(answer).startswith("That T_mem depends on P at fixed f is not shown")
    drifting = replace(answer, collapse=replace(answer.collapse, p=0.001))
    assert collapse_words(drifting).startswith("Primes do not collapse fully")
    alone = Collapse(
        testable=False, reason="one prime", slope=None, se=None, p=None, primes=1, unreliable=True
    )
    assert collapse_words(replace(answer, collapse=alone)) == "Collapse not testable: one prime."
