"""Sentences that follow from numbers: yes, no, not shown and not testable."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from service.answers.cell_tests import CellRow, Statistic, TestsAnswer
from service.answers.making import BitsPerParameter, ByKind, Thresholds
from service.report.verdict import _calibration, _capacity, _limits, _prediction


def rank(value: float, p: float, n: int, floor: float = 1e-4) -> Statistic:
    return Statistic(
        test="rank",
        statistic="spearman",
        value=value,
        low=None,
        high=None,
        p=p,
        floor=floor,
        df="",
        n=n,
        testable=True,
        note="",
    )


def cell(prime: int, residual: float | None) -> CellRow:
    return CellRow(
        prime=prime,
        setting={},
        p_cross=1e5,
        p_cross_low=9e4,
        p_cross_high=1.1e5,
        crossing_status="crossed",
        few_seeds=False,
        p_onset=None if residual is None else 1e5 * 10**residual,
        p_onset_low=None,
        p_onset_high=None,
        onset_status="separated",
        at_floor=False,
        at_cap=False,
        residual=residual,
        k_mem=4e4,
        seeds=ByKind(speed=5, grok=5),
        censored=ByKind(speed=0, grok=0),
        missing=ByKind(speed=0, grok=0),
        inherited=False,
    )


def answer(*pooled: Statistic, residuals: tuple[float | None, ...] = ()) -> TestsAnswer:
    cells = tuple(cell(97 + i, r) for i, r in enumerate(residuals))
    return TestsAnswer(
        suite="made-up",
        revision=1,
        method="robust",
        clock="online",
        units="epochs",
        level=0.95,
        thresholds=Thresholds(),
        max_width=None,
        axes=(),
        n=sum(r is not None for r in residuals),
        n_total=len(residuals),
        n_at_floor=0,
        n_at_cap=0,
        cells=cells,
        pooled=pooled,
        models=(),
        within=(),
        notes=(),
        analysis_version=1,
    )


@pytest.mark.parametrize(
    ("statistic", "words"),
    [
        (rank(0.97, 0.0001, 10), "In rank, yes: Spearman ρ over 10 cells, 95 % interval 0.97 ["),
        (rank(-0.97, 0.0001, 10), "No, the order is reversed"),
        (rank(0.3, 0.4, 10), "Not shown: Spearman ρ over 10 cells"),
        (rank(1.0, 0.33, 3, floor=0.333), "Not testable: with 3 cells no order can give p below"),
        (replace(rank(0, 1, 2), testable=False, value=None), "Not testable: 0 cells of 0"),
    ],
)
def test_the_first_sentence_says_whether_the_order_is_predicted(
    statistic: Statistic, words: str
) -> None:
    (sentence,) = _prediction(answer(statistic))
    assert sentence.startswith("Does the crossing predict the onset? ")
    assert words in sentence


def test_a_steady_offset_is_named_with_its_side_and_interval() -> None:
    residuals = (-0.17, -0.15, -0.14, -0.18, -0.13, -0.16, -0.2, -0.15)
    first, *_ = _calibration(answer(residuals=residuals))
    # Eight values: all of them are needed for 95 %.
    assert "−0.155 dex, 95 % interval −0.200 to −0.130" in first
    assert "onsets come earlier than the crossing" in first


def test_residuals_of_both_signs_show_no_offset() -> None:
    first, *_ = _calibration(answer(residuals=(-0.1, 0.1, -0.05, 0.05, -0.02, 0.03, 0.01)))
    assert "no offset can be told" in first


def slope(name: str, low: float | None, high: float | None) -> Statistic:
    given = replace(rank(1.1, 1.0, 5), test="calibration", statistic=name, p=None, floor=None)
    return replace(given, low=low, high=high)


@pytest.mark.parametrize(
    ("slopes", "words"),
    [
        ([slope("slope", 0.2, 2.0)], "1.1 [0.2, 2]: its interval contains 1"),
        (
            [slope("slope", 1.05, 1.2), slope("slope, clustered", 0.9, 1.3)],
            "1.1 [0.9, 1.3]: its interval contains 1",
        ),
        (
            [slope("slope", 1.05, 1.2), slope("slope, theil sen", None, 1.3)],
            "1.1 [1.05, 1.2]: its interval excludes 1",
        ),
        ([slope("slope", None, None)], "these cells cannot carry its interval"),
        ([], "The slope is not testable with these cells."),
    ],
)
def test_the_slope_comes_with_the_safest_interval_there_is(
    slopes: list[Statistic], words: str
) -> None:
    sentences = list(_calibration(answer(*slopes, residuals=(0.1, 0.0, 0.2, 0.1, 0.1, 0.1))))
    assert words in sentences[1]


def test_no_residual_is_not_a_verdict() -> None:
    assert list(_calibration(answer(residuals=(None, None)))) == [
        "Calibration is not testable: no cell has a residual."
    ]


def limits(given: TestsAnswer) -> list[str]:
    nothing = SimpleNamespace(pending=0, running=0, stale=0)
    content: Any = SimpleNamespace(coverage=SimpleNamespace(states=nothing))
    return list(_limits(content, given))


def test_a_cell_whose_crossing_rests_on_few_seeds_is_counted() -> None:
    """Five seeds in all, but not at every width."""
    given = answer(residuals=(0.1, 0.2))
    assert limits(given) == []
    thin = replace(given, cells=(given.cells[0], replace(given.cells[1], few_seeds=True)))
    (sentence,) = limits(thin)
    assert sentence.startswith("1 cell with fewer than 5 seeds at a width that the crossing rests")


def test_a_c_model_of_another_suite_is_not_called_measured() -> None:
    bits = BitsPerParameter(
        value=0.674,
        low=0.638,
        high=0.703,
        level=0.95,
        interval="bootstrap",
        source="matched_suite",
        suite="mini-released",
        note="",
    )
    part = SimpleNamespace(setting={}, c_model={"robust": bits})
    content: Any = SimpleNamespace(settings=[part], main=("robust", "online"))
    (said,) = _capacity(content)
    assert said.startswith("C_model is not measured here; 0.674")
    assert said.endswith("of mini-released is used.")
