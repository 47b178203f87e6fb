"""Order within settings and offsets across them, beside counts made by hand or by simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from groktime.service.analysis.robustness import (
    detectable_slope,
    holm,
    offset_model,
    setting_law,
    stratified_order,
)


def cells(*strata: tuple[list[float], list[float]]) -> pd.DataFrame:
    rows = [
        {"p": 97 + index, "p_cross": 10.0**x, "p_onset": 10.0**y, "setting": f"s{number}"}
        for number, (xs, ys) in enumerate(strata)
        for index, (x, y) in enumerate(zip(xs, ys, strict=True))
    ]
    return pd.DataFrame(rows)


def signs(x: list[float], y: tuple[float, ...]) -> int:
    pairs = itertools.combinations(range(len(x)), 2)
    return int(sum(np.sign(x[j] - x[i]) * np.sign(y[j] - y[i]) for i, j in pairs))


def test_one_setting_of_five_has_kendalls_exact_p() -> None:
    x, y = [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 3.0, 2.0, 4.0, 5.0]
    found = stratified_order(cells((x, y)), "setting")
    assert found is not None
    assert (found.in_order, found.out_of_order) == (9, 1)
    expected = stats.kendalltau(x, y, method="exact").pvalue
    assert found.p == pytest.approx(expected)
    assert found.strata[0].p == pytest.approx(expected)


def test_three_primes_have_no_p_of_their_own_and_four_such_settings_together_do() -> None:
    right = ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    found = stratified_order(cells(right, right, right, right), "setting")
    assert found is not None
    assert [row.p for row in found.strata] == [None] * 4
    assert found.p == pytest.approx(2 / 6**4)
    assert found.floor == pytest.approx(found.p)


values = st.integers(0, 4).map(float)
small = st.integers(2, 4).flatmap(
    lambda n: st.tuples(st.lists(values, min_size=n, max_size=n), st.permutations(range(n)))
)


@given(st.lists(small, min_size=1, max_size=3))
def test_p_is_that_of_counting_every_order_within_the_settings(
    strata: list[tuple[list[float], list[int]]],
) -> None:
    pairs = [(x, [float(v) for v in order]) for x, order in strata]
    told = [(x, y) for x, y in pairs if len(set(x)) > 1]
    found = stratified_order(cells(*pairs), "setting")
    if not told:
        assert found is None
        return
    observed = abs(sum(signs(x, tuple(y)) for x, y in told))
    orders = itertools.product(*(itertools.permutations(y) for _, y in told))
    sums = [
        abs(sum(signs(x, y) for (x, _), y in zip(told, order, strict=True))) for order in orders
    ]
    assert found is not None
    assert found.p == pytest.approx(np.mean(np.array(sums) >= observed))


def test_the_offset_model_finds_the_spread_of_settings_and_of_cells() -> None:
    rng = np.random.default_rng(5)
    strata = []
    for _ in range(40):
        shift = rng.normal(0, 0.2)
        cross = np.linspace(5.0, 5.6, 10)
        strata.append((list(cross), list(cross + shift + rng.normal(0, 0.05, 10))))
    found = offset_model(cells(*strata), "setting")
    assert found is not None
    assert found.between == pytest.approx(0.2, rel=0.3)
    assert found.within == pytest.approx(0.05, rel=0.15)
    assert (found.n, found.n_settings, found.n_primes) == (400, 40, 10)


def test_two_settings_are_too_few_for_a_spread_of_settings() -> None:
    both = ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.1, 4.0])
    assert offset_model(cells(both, both), "setting") is None


def test_a_drift_of_the_detectable_size_is_found_as_often_as_the_power_says() -> None:
    x = np.repeat([0.1, 0.3, 1.0], 3)
    slope = detectable_slope(list(x), 0.1)
    assert slope is not None
    rng = np.random.default_rng(2)
    found = [
        stats.linregress(x, slope * x + rng.normal(0, 0.1, len(x))).pvalue < 0.05
        for _ in range(2_000)
    ]
    assert np.mean(found) == pytest.approx(0.8, abs=0.04)


def test_no_drift_can_be_detected_at_one_value() -> None:
    assert detectable_slope([1.0, 1.0, 1.0], 0.1) is None


def test_the_law_of_settings_has_the_errors_of_leaving_each_one_out() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=6)
    y = 0.3 * x - 0.2 + rng.normal(0, 0.1, 6)
    rows = [
        {"p": 97, "p_cross": 1e5, "p_onset": 1e5 * 10**b, "setting": f"s{i}", "epochs": a}
        for i, (a, b) in enumerate(zip(x, y, strict=True))
    ]
    found = setting_law(pd.DataFrame(rows), "setting", "epochs")
    by_line, by_mean = [], []
    for left in range(6):
        others = np.arange(6) != left
        slope, intercept = np.polyfit(x[others], y[others], 1)
        by_line.append(y[left] - slope * x[left] - intercept)
        by_mean.append(y[left] - y[others].mean())
    assert found is not None
    assert found.n == 6
    assert found.slope == pytest.approx(np.polyfit(x, y, 1)[0])
    assert found.error == pytest.approx(np.sqrt(np.mean(np.square(by_line))))
    assert found.constant_error == pytest.approx(np.sqrt(np.mean(np.square(by_mean))))


def test_a_setting_counts_once_however_many_primes_it_has() -> None:
    def table(primes: int) -> pd.DataFrame:
        rows = [
            {"p": 97 + i, "p_cross": 1e5, "p_onset": 5e4 + s * 1e4, "setting": f"s{s}", "load": s}
            for s in range(4)
            for i in range(primes if s == 0 else 1)
        ]
        return pd.DataFrame(rows)

    assert setting_law(table(1), "setting", "load") == setting_law(table(9), "setting", "load")
    assert setting_law(table(1).iloc[:3], "setting", "load") is None


@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_holms_correction_is_that_of_statsmodels(n: int) -> None:
    p = [*np.random.default_rng(n).uniform(0, 0.2, n), 0.04, 0.04]
    assert holm(p) == pytest.approx(list(multipletests(p, method="holm")[1]))
