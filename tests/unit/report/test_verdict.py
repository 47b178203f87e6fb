"""Sentences that follow from numbers: yes, no, not shown and not testable."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fixtures.made_up_tests import (
    answer,
    cell,
    clustered,
    line,
    model,
    nested_test,
    rank,
    robust_slope,
    sufficiency,
)

from groktime.service.analysis.capacity import BitsPerParameter
from groktime.service.analysis.crossing import Advice, Bracket
from groktime.service.analysis.hypotheses import NestedTest, SeedsApart, Slope
from groktime.service.analysis.regression import Spearman
from groktime.service.answers.cell_tests import CellTests
from groktime.service.report.predictions import (
    apart,
    baselines,
    calibration,
    last_batch,
    prediction,
)
from groktime.service.report.tables import crossing_words
from groktime.service.report.verdict import capacity, limits, other_clock, papers_way


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            rank(0.97, 0.0001, 10, low=0.8, high=0.99),
            "In rank, yes: Spearman ρ 0.97 [0.8, 0.99] over 10 cells",
        ),
        (rank(-0.97, 0.0001, 10), "No, the order is reversed"),
        (rank(0.3, 0.4, 10), "It is not shown to: Spearman ρ 0.3 over 10 cells"),
        (rank(1.0, 0.33, 3, floor=0.333), "Not testable: with 3 cells no order can give p below"),
        (None, "Not testable: 0 of 0 cells"),
    ],
)
def test_the_first_sentence_says_whether_the_order_is_predicted(
    found: Spearman | None, words: str
) -> None:
    (sentence,) = prediction(answer(spearman=found))
    assert sentence.startswith("Does the crossing predict the onset? ")
    assert words in sentence


def test_a_steady_offset_is_named_with_its_side_and_interval() -> None:
    residuals = (-0.17, -0.15, -0.14, -0.18, -0.13, -0.16, -0.2, -0.15)
    first, *_ = calibration(answer(residuals=residuals))
    # Eight values: all of them are needed for 95 %.
    assert "−0.155 dex, 95 % interval −0.200 to −0.130" in first
    assert "onsets are smaller than crossings" in first


def test_residuals_of_both_signs_show_no_offset() -> None:
    first, *_ = calibration(answer(residuals=(-0.1, 0.1, -0.05, 0.05, -0.02, 0.03, 0.01)))
    assert "the interval contains zero" in first


@pytest.mark.parametrize(
    ("slopes", "words"),
    [
        ({"line": line(low=0.2, high=2.0)}, "1.1 [0.2, 2]: its interval contains 1"),
        (
            {"line": line(low=1.05, high=1.2), "clustered": clustered(1.1, 0.9, 1.3)},
            "1.1 [0.9, 1.3]: its interval contains 1",
        ),
        (
            {
                "line": line(low=1.05, high=1.2),
                "theil_sen": robust_slope("theil_sen", math.nan, 1.3),
            },
            "1.1 [1.05, 1.2]: its interval excludes 1",
        ),
        ({"line": line()}, "too few cells for its interval"),
        ({}, "The slope is not testable with these cells."),
    ],
)
def test_the_slope_comes_with_the_safest_interval_there_is(
    slopes: dict[str, Any], words: str
) -> None:
    sentences = list(calibration(answer(residuals=(0.1, 0.0, 0.2, 0.1, 0.1, 0.1), **slopes)))
    assert words in sentences[1]


def test_no_residual_is_not_a_verdict() -> None:
    assert list(calibration(answer(residuals=(None, None)))) == [
        "Calibration is not testable: no cell has a residual."
    ]
    assert list(calibration(answer(residuals=(0.0, 0.0)))) == [
        "Calibration is not testable: every residual is zero."
    ]


def test_a_cell_whose_crossing_rests_on_few_seeds_is_counted() -> None:
    """Five seeds in all, but not at every width."""
    content: Any = SimpleNamespace(coverage=SimpleNamespace(cells=()))
    cells = [cell(97), cell(101)]
    assert list(limits(content, answer(cells=cells))) == []
    thin = answer(cells=[cells[0], replace(cells[1], few_seeds=True)])
    (sentence,) = limits(content, thin)
    assert sentence.startswith("1 cell with fewer than 5 seeds at a width beside the crossing")


def test_coarse_crossings_open_widths_and_the_next_runs_are_told() -> None:
    coarse = Bracket(8e4, 1.1e5, 48, 56, 4.2, coarse=True)
    advice = Advice("speed", 52, "T_mem changes 4.2-fold between the widths around the crossing")
    cells = (
        cell(97, bracket=coarse, advice=advice),
        cell(101, bracket=replace(coarse, coarse=False)),
        cell(103, cross=None, onset=None, unresolved_widths=(12, 16)),
    )
    content: Any = SimpleNamespace(coverage=SimpleNamespace(cells=()))
    said = " ".join(limits(content, answer(cells=list(cells))))
    assert "1 of 2 crossings are coarse (p = 97)" in said
    assert "train next: p = 97, speed runs at d = 52: T_mem changes 4.2-fold" in said
    assert crossing_words(cells[0]) == "crossed, d 48–56, coarse"
    assert crossing_words(cells[1]) == "crossed, d 48–56"
    assert crossing_words(cells[2]).endswith("known, order not known at d 12, 16")


def test_cells_that_need_the_same_are_told_together() -> None:
    few = Advice("seeds", 44, "few seeds beside the crossing")
    cells = [
        cell(97, advice=few),
        cell(101, advice=replace(few, width=46)),
        cell(103, advice=Advice("both", 200, "a crossing would lie above")),
    ]
    content: Any = SimpleNamespace(coverage=SimpleNamespace(cells=()))
    assert list(limits(content, answer(cells=cells))) == [
        "To place crossings better, train next: more seeds (few seeds beside the crossing): "
        "p = 97 at d = 44, p = 101 at d = 46; p = 103, runs of both kinds at d = 200: "
        "a crossing would lie above."
    ]


LENT = BitsPerParameter(
    value=0.674,
    low=0.638,
    high=0.703,
    level=0.95,
    interval="bootstrap",
    source="matched_suite",
    suite="mini-released",
    note="",
)


def test_settings_without_a_c_model_are_named_together() -> None:
    bits = replace(LENT, source="paper", value=2.16, low=None, high=None)
    parts = [
        SimpleNamespace(setting={"weight_decay": value}, c_model={"robust": bits})
        for value in (0.1, 3.0)
    ]
    content: Any = SimpleNamespace(settings=parts, main=("robust", "online"))
    assert list(capacity(content)) == [
        "C_model at weight decay 0.1, weight decay 3 is not measured; the paper's 2.16 is used."
    ]


def test_a_c_model_of_another_suite_is_not_called_measured() -> None:
    part = SimpleNamespace(setting={}, c_model={"robust": LENT}, capacity="no capacity runs")
    content: Any = SimpleNamespace(settings=[part], main=("robust", "online"))
    (said,) = capacity(content)
    assert said.startswith("C_model is not measured here; 0.674")
    assert said.endswith("of mini-released is used.")


def test_settings_that_borrow_the_same_c_model_share_a_sentence() -> None:
    parts = [
        SimpleNamespace(
            setting={"dropout": value}, c_model={"robust": LENT}, capacity="no capacity runs"
        )
        for value in (0.1, 0.4)
    ]
    content: Any = SimpleNamespace(settings=parts, main=("robust", "online"))
    (said,) = capacity(content)
    assert said.startswith("C_model at dropout 0.1, dropout 0.4 is not measured here; 0.674")


def test_the_prime_alone_stands_beside_the_crossing() -> None:
    """Onsets that follow the prime are ordered as well without any crossing."""
    given = answer(spearman=rank(1.0, 0.001, 4), residuals=(-0.3, -0.2, -0.1, 0.1))
    _, second = prediction(given)
    assert second == "The prime alone orders the same onsets with ρ 1."


@pytest.mark.parametrize(
    ("p", "words"),
    [
        (0.2, "The crossing is not shown to add information beyond log p (F = 9, p = 0.2)."),
        (0.03, "The crossing may add information beyond log p (F = 9, p = 0.03)."),
        (0.001, "The crossing adds information beyond log p (F = 9, p = 0.001)."),
    ],
)
def test_a_weak_difference_is_called_a_possibility(p: float, words: str) -> None:
    found = sufficiency(nested_test("MP+", "MP", p))
    assert list(baselines(answer(nested=found))) == [words]


def test_a_complexity_that_follows_the_prime_is_not_a_second_witness() -> None:
    found = sufficiency(nested_test("MP+", "MP", 0.2), nested_test("MK+", "MK", 0.2))
    given = answer(nested=found, residuals=(0.1, 0.2, 0.3))
    assert len(list(baselines(given))) == 2
    same = tuple(replace(c, k_mem=7.0 * c.prime**2) for c in given.cells)
    (said,) = baselines(replace(given, cells=same))
    assert "beyond log p (or log K_mem, here nearly a function of it)" in said


def last_batch_tests(beside: float, back: float, n: int = 10) -> CellTests:
    """Three cells, of which the third has no residual; a model of n."""
    found: list[NestedTest] = [
        nested_test(larger, smaller, p)
        for larger, smaller, p in (
            ("MB", "MP", 0.001),
            ("MB+", "MB", beside),
            ("MB+", "M1", back),
        )
    ]
    predictors = ("log10(P_cross)", "log10(p)", "log10(last_batch)")
    largest = model("MB+", predictors=predictors, n=n, largest_vif=77.4, collinear=True)
    sizes = zip((0.1, 0.2, None), (442, 39, 4), strict=True)
    return answer(
        nested=sufficiency(*found, models=[largest], last_batch=Slope(-0.2, -0.3, -0.1)),
        cells=[
            cell(97 + i, 1e5, None if r is None else 1e5 * 10**r, last_batch=size)
            for i, (r, size) in enumerate(sizes)
        ],
    )


def test_the_last_batch_is_told_where_cells_differ_in_it() -> None:
    size, told = last_batch(last_batch_tests(beside=0.4, back=0.6))
    assert "39 to 442 examples, all others 512." in size
    assert "Its size adds information beyond log p alone (F = 9, p = 0.001)." in size
    assert "P_onset goes as that size to the power −0.2 [−0.3, −0.1]" in size
    assert "cannot separate the crossing from log p with the last batch" in told
    assert "(VIF 77): the first beside the second F = 9, p = 0.4, the second" in told
    assert list(last_batch(answer(residuals=(0.1, 0.2)))) == []


def test_the_slope_is_of_the_share_where_batches_differ() -> None:
    given = last_batch_tests(beside=0.4, back=0.6)
    first, *others = given.cells
    size, _ = last_batch(replace(given, cells=(replace(first, batch_size=100), *others)))
    assert "all others 100 to 512." in size
    assert "P_onset goes as that share of a batch to the power −0.2" in size


def test_a_model_that_fits_nearly_every_cell_is_not_told() -> None:
    assert len(list(last_batch(last_batch_tests(beside=0.001, back=0.001, n=7)))) == 3
    assert len(list(last_batch(last_batch_tests(beside=0.001, back=0.001, n=6)))) == 1


def test_what_adds_information_of_crossing_and_last_batch_is_said() -> None:
    _, crossing, batch = last_batch(last_batch_tests(beside=0.4, back=0.001))
    assert crossing.startswith("The crossing is not shown to add information beyond log p and the")
    assert batch.startswith("Log p with the last batch adds information beyond the crossing")


def test_seeds_apart_are_told_both_ways() -> None:
    way = SeedsApart(
        n=9, rho=0.9, median_residual=-0.2, loo_crossing=0.1, loo_prime=0.12, f=3.0, p=0.1
    )
    other = replace(way, n=8, loo_crossing=0.2, p=0.4)
    (said,) = apart((way, other))
    assert "leave-one-out error 0.1 and 0.2 dex by the crossing against 0.12 and 0.12 by" in said
    assert "p = 0.1 and p = 0.4, on 9 and 8 cells with both points" in said
    assert said.endswith("the crossing is not shown to add information beyond log p.")
    (said,) = apart((replace(way, p=0.01), replace(way, p=0.02)))
    assert said.endswith("This way, too, the crossing adds information beyond log p.")
    assert list(apart(())) == []


def content(**tests: CellTests) -> Any:
    names = {"robust_eval": ("robust", "eval"), "paper_online": ("paper", "online")}
    found = {names[name]: given for name, given in tests.items()}
    return SimpleNamespace(by=found.get, main=("robust", "online"), reference=None)


def test_a_clock_whose_onsets_lie_at_an_end_is_not_testable() -> None:
    residuals = (-0.17, -0.15, -0.14, -0.18, -0.13, -0.16, -0.2, -0.15)
    given = answer(spearman=rank(0.9, 0.01, 8), residuals=residuals)
    (said,) = other_clock(content(robust_eval=given))
    assert said.startswith("By the robust method, eval clock: ρ 0.9, median residual −0.155 [")
    floor = tuple(replace(c, at_floor=i < 5, at_cap=i < 1) for i, c in enumerate(given.cells))
    (said,) = other_clock(content(robust_eval=replace(given, n_at_floor=5, cells=floor)))
    assert "clock, not testable with these widths: 8 of 8 cells have a crossing and an" in said
    assert said.endswith(
        "the delay is there at the narrowest width that fits its training set in 5."
    )
    few = tuple(replace(c, at_floor=i < 4, at_cap=i < 4) for i, c in enumerate(given.cells))
    (said,) = other_clock(content(robust_eval=replace(given, n_at_floor=4, n_at_cap=4, cells=few)))
    assert "not testable" not in said  # four of eight, each at both ends of a single width
    faster = tuple(
        replace(c, crossing_status="mem_always_faster", at_cap=i < 5)
        for i, c in enumerate(given.cells[:6])
    )
    edges = tuple(replace(c, at_edge=True) for c in given.cells)
    (said,) = other_clock(content(robust_eval=replace(given, n_at_cap=5, cells=faster)))
    assert said.endswith("the order is known in 6; no delay is seen below the widest width in 5.")
    (said,) = other_clock(content(paper_online=given, robust_eval=replace(given, cells=edges)))
    assert said.endswith("onset; the closest approach is at an end of the widths in 8.")


@pytest.mark.parametrize(
    ("floor", "words"),
    [(0.0167, "clock: ρ 1, median residual"), (0.083, "clock, not testable with")],
)
def test_another_clock_is_testable_where_its_order_is(floor: float, words: str) -> None:
    given = answer(
        spearman=rank(1.0, 0.017, 5, floor=floor), residuals=(-0.1, -0.2, -0.3, -0.2, -0.1)
    )
    (said,) = other_clock(content(robust_eval=given))
    assert words in said


def test_the_papers_way_says_how_coarse_its_onset_is() -> None:
    given = answer(spearman=rank(0.9, 0.01, 3), residuals=(-0.1, -0.2, -0.3))
    steps = tuple(
        replace(c, onset_step=step) for c, step in zip(given.cells, (0.1, 0.3, None), strict=True)
    )
    (said,) = papers_way(content(paper_online=replace(given, cells=steps)))
    assert said.startswith("By the paper's conventions: ρ 0.9, median residual −0.200 (3 of 3")
    assert "is always a trained width, 0.10 to 0.30 dex above the next, and moves up" in said
    assert "with the number of seeds (5 here)" in said
