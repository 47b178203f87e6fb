"""No statistic hangs on a tie that rounding breaks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groktime.service.analysis.calibration import bca_tails, concordance, line, signed_rank
from groktime.service.analysis.inputs import constant, first_smallest, merged, share_below
from groktime.service.analysis.regression import kendall, spearman

X = np.log10(np.array([52e3, 61e3, 61e3, 75e3, 90e3, 104e3, 131e3, 160e3]))
Y = np.log10(np.array([40e3, 40e3, 55e3, 55e3, 70e3, 70e3, 99e3, 120e3]))


def rounded_otherwise(values: np.ndarray, seed: int) -> np.ndarray:
    """The same numbers as another order of adding might leave them."""
    steps = np.random.default_rng(seed).integers(-3, 4, size=np.shape(values))
    return values + steps * np.spacing(values)


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_ranks_of_ties_do_not_depend_on_rounding(seed: int) -> None:
    x, y = rounded_otherwise(X, seed), rounded_otherwise(Y, seed + 1)
    for statistic in (spearman, kendall):
        assert statistic(x, y) == statistic(X, Y)


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_signed_ranks_do_not_depend_on_rounding(seed: int) -> None:
    residual = np.array([-0.1, 0.1, 0.0, 0.2, -0.2, 0.3, 0.3, 0.0])
    other = rounded_otherwise(residual + 5, seed) - 5
    ours, theirs = signed_rank(residual), signed_rank(other)
    assert ours is not None
    assert theirs is not None
    assert (theirs.w, theirs.p, theirs.floor) == (ours.w, ours.p, ours.floor)


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_a_resample_that_is_the_sample_is_a_tie(seed: int) -> None:
    resampled = np.repeat([0.2, 0.3, 0.3, 0.4, 0.5], 40)
    jackknife = np.array([0.25, 0.3, 0.35, 0.31])
    other = rounded_otherwise(resampled, seed)
    assert bca_tails(0.3, other, jackknife, 0.025) == bca_tails(0.3, resampled, jackknife, 0.025)


@settings(max_examples=20)
@given(st.permutations(range(8)))
def test_the_limits_of_concordance_do_not_jump_with_rounding(order: list[int]) -> None:
    ours = concordance(X, Y, n_bootstrap=2000)
    theirs = concordance(rounded_otherwise(X, order[0]), rounded_otherwise(Y, order[1]),
                         n_bootstrap=2000)  # fmt: skip
    assert ours is not None
    assert theirs is not None
    assert (theirs.low, theirs.high) == pytest.approx((ours.low, ours.high), rel=1e-9)


def test_one_cell_drawn_again_and_again_has_no_concordance_made_of_rounding() -> None:
    found = concordance(X[:6], X[:6], n_bootstrap=5000)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((1.0, 1.0))


def test_an_exact_fit_has_no_f_made_of_rounding() -> None:
    on_the_line = line(X, X)
    assert on_the_line is not None
    assert (on_the_line.f, on_the_line.p) == (0.0, 1.0)
    beside_it = line(X, 2 * X)
    assert beside_it is not None
    assert beside_it.f == float("inf")


def test_ties_are_merged_and_the_rest_is_left_alone() -> None:
    values = np.array([3.0, 1.0, 1.0 + 1e-15, 2.0, 1.0 - 1e-15])
    found = merged(values)
    assert len(set(found[[1, 2, 4]])) == 1
    assert found[[0, 3]].tolist() == [3.0, 2.0]


def test_half_of_the_ties_count_as_below() -> None:
    assert share_below(np.array([1.0, 2.0, 2.0 + 1e-15, 3.0]), 2.0) == 0.5


def test_the_first_of_equal_values_is_the_smallest() -> None:
    assert first_smallest(np.array([2.0, 1.0 + 1e-15, 1.0])) == 1


def test_values_a_rounding_apart_are_constant() -> None:
    assert constant(np.array([5.1, 5.1 + 1e-15]))
    assert not constant(np.array([5.1, 5.1001]))
