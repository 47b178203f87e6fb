"""Intervals of a median and of a rank correlation with few cells."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from groktime.service.analysis.regression import median_interval, spearman_interval


def test_ten_values_give_the_second_and_the_ninth() -> None:
    found = median_interval(np.arange(1.0, 11.0))
    assert (found.low, found.high) == (2.0, 9.0)


@pytest.mark.parametrize("n", range(6))
def test_five_values_or_fewer_cannot_carry_95_per_cent(n: int) -> None:
    assert median_interval(np.arange(float(n))).low is None


@pytest.mark.parametrize("n", [6, 9, 10, 17, 40])
def test_the_coverage_is_at_least_the_level_and_no_narrower_pair_has_it(n: int) -> None:
    found = median_interval(np.arange(1.0, n + 1.0))
    assert found.low is not None
    k = int(found.low)
    assert 1 - 2 * stats.binom.cdf(k - 1, n, 0.5) >= 0.95
    assert 1 - 2 * stats.binom.cdf(k, n, 0.5) < 0.95


def test_the_order_of_values_does_not_matter() -> None:
    values = np.random.default_rng(1).normal(size=12)
    assert median_interval(values) == median_interval(np.sort(values))


def test_a_rank_interval_holds_the_estimate_and_narrows_with_n() -> None:
    few, many = spearman_interval(0.9, 10), spearman_interval(0.9, 40)
    assert few.low is not None
    assert few.high is not None
    assert many.low is not None
    assert few.low < many.low < 0.9 < few.high
    assert few.low == pytest.approx(
        np.tanh(np.arctanh(0.9) - 1.959964 * np.sqrt(1.405 / 7)), rel=1e-6
    )


def test_three_cells_or_a_perfect_order_carry_no_interval() -> None:
    assert spearman_interval(0.5, 3).low is None
    assert spearman_interval(1.0, 10).low is None
    assert spearman_interval(-1.0, 10).high is None


@pytest.mark.parametrize("n", range(4, 41))
def test_a_perfect_order_is_one_whatever_rounding_makes_of_it(n: int) -> None:
    rho = float(stats.spearmanr(np.arange(n), np.arange(n) ** 2).statistic)
    assert spearman_interval(rho, n).low is None
