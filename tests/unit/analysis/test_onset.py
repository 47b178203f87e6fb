from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st

from groktime.service.analysis import MinimumDelay
from groktime.service.analysis.delay import (
    Grouped,
    delays,
    firth_logit,
    midpoint_interval,
    onset,
    paper_onset,
    penalised_log_likelihood,
    regimes,
)
from groktime.service.analysis.inputs import GrokRuns
from groktime.service.errors import AnalysisError

P6 = [1e4, 2e4, 4e4, 8e4, 16e4, 32e4]


def runs(positives: list[int], seeds: int = 4, params: list[float] = P6) -> GrokRuns:
    """At each P so many of the seeds generalise ten epochs late, the others at once."""
    n = len(params)
    seed = np.tile(np.arange(seeds), n)
    late = seed < np.repeat(positives, seeds)
    e_train = np.full(n * seeds, 100.0)
    e_val = e_train + np.where(late, 10.0, 0.0)
    return GrokRuns(
        np.repeat(np.arange(20, 20 + n), seeds),
        np.repeat(params, seeds),
        seed,
        e_train,
        e_val,
        e_val + 5,
        e_val + 5,
    )


def test_paper_onset_is_the_smallest_size_above_the_last_zero() -> None:
    found = onset(runs([0, 0, 3, 4, 3, 4]), method="paper").p_onset
    assert found.estimate == 32e4
    assert found.at_cap
    assert not found.at_floor


def test_paper_onset_without_any_zero_is_at_the_floor() -> None:
    found = onset(runs([4] * 6), method="paper").p_onset
    assert (found.estimate, found.at_floor, found.status) == (1e4, True, "at_floor")


def test_paper_onset_with_a_zero_at_the_top_does_not_exist() -> None:
    found = onset(runs([0, 0, 4, 4, 4, 3]), method="paper").p_onset
    assert (found.estimate, found.at_cap, found.status) == (None, True, "above_range")


def test_paper_onset_of_nothing_is_nothing() -> None:
    assert paper_onset(np.empty(0), np.empty(0)) == (None, False, False)


def test_more_seeds_can_only_move_the_papers_onset_up() -> None:
    few, many = runs([0, 0, 0, 2, 4, 4], seeds=4), runs([0, 0, 0, 9, 9, 10], seeds=10)
    first = onset(many.first_seeds(4), method="paper").p_onset
    assert onset(few, method="paper").p_onset.estimate == 16e4
    assert (onset(many, method="paper").p_onset.estimate or 0) >= (first.estimate or 0)


def test_separated_data_give_their_bracket() -> None:
    found = onset(runs([0, 0, 0, 4, 4, 4])).p_onset
    assert found.status == "separated"
    assert (found.low, found.high) == (4e4, 8e4)
    assert found.estimate == pytest.approx(np.sqrt(4e4 * 8e4))
    assert found.level is None


def test_mixed_widths_are_fitted() -> None:
    found = onset(runs([0, 1, 2, 3, 4, 4])).p_onset
    assert found.status == "fitted"
    assert found.low is not None
    assert found.high is not None
    assert found.low < (found.estimate or 0) < found.high


def test_symmetric_data_have_their_midpoint_in_the_middle() -> None:
    found = onset(runs([0, 1, 3, 4], params=[1e4, 1e5, 1e6, 1e7])).p_onset
    assert found.estimate == pytest.approx(np.sqrt(1e11), rel=1e-6)


def test_grokking_that_stops_again_is_reentrant() -> None:
    assert onset(runs([0, 4, 4, 0, 4, 4])).p_onset.status == "reentrant"
    assert onset(runs([4, 4, 3, 1, 0, 0])).p_onset.status == "reentrant"


def test_noise_in_the_shares_is_not_reentrance() -> None:
    assert onset(runs([0, 2, 1, 3, 4, 4])).p_onset.status == "fitted"


def test_half_the_seeds_outside_the_measured_sizes_have_no_estimate() -> None:
    above = onset(runs([0, 0, 0, 1, 0, 1])).p_onset
    below = onset(runs([3, 4, 3, 4, 4, 4])).p_onset
    assert (above.status, above.estimate, above.low, above.at_cap) == (
        "above_range",
        None,
        32e4,
        True,
    )
    assert (below.status, below.estimate, below.high, below.at_floor) == (
        "at_floor",
        None,
        1e4,
        True,
    )


def test_always_or_never_delayed_has_no_estimate() -> None:
    always, never = onset(runs([4] * 6)).p_onset, onset(runs([0] * 6)).p_onset
    assert (always.status, always.estimate, always.high) == ("at_floor", None, 1e4)
    assert (never.status, never.estimate, never.low) == ("above_range", None, 32e4)


def with_clocks(e_train: list[float], e_val: list[float], last: list[float]) -> GrokRuns:
    n = len(e_train)
    return GrokRuns(
        np.arange(20, 20 + n), np.geomspace(1e4, 1e5, n), np.zeros(n), e_train, e_val, e_val, last
    )


def test_validation_before_training_is_no_delay() -> None:
    assert delays(with_clocks([50], [40], [60])).delay.tolist() == [0]


def test_unfinished_validation_is_a_censored_positive_delay() -> None:
    found = delays(with_clocks([50], [np.nan], [1000]))
    assert found.delay.tolist() == [951]
    assert found.censored.tolist() == [True]


def test_the_paper_takes_unfinished_validation_as_exact() -> None:
    found = delays(with_clocks([50], [np.nan], [1000]), method="paper")
    assert found.delay.tolist() == [951]
    assert found.censored.tolist() == [False]


def test_runs_that_never_fitted_training_have_no_delay_and_are_counted() -> None:
    found = delays(with_clocks([np.nan, 50], [70, 60], [1000, 60]))
    assert found.delay.tolist() == [10]
    assert found.n_untrained == 1


def test_a_run_stopped_when_it_fitted_training_decides_nothing() -> None:
    found = delays(with_clocks([1000], [np.nan], [1000]))
    assert len(found.delay) == 0
    assert found.n_undetermined == 1


def test_regimes_by_majority() -> None:
    clocks = GrokRuns(
        width=[20, 20, 20, 22, 22, 22, 24, 24],
        params=[1e4] * 3 + [2e4] * 3 + [3e4] * 2,
        seed=[1, 2, 3, 1, 2, 3, 1, 2],
        e_train=[np.nan, np.nan, 90, 90, 90, 90, 90, 90],
        e_val=[np.nan, np.nan, 90, 120, 90, 130, np.nan, 100],
        t_gen=[np.nan] * 8,
        last_epoch=[500] * 8,
        diverged=[True] + [False] * 7,
    )
    found = regimes(clocks)
    assert [r.regime for r in found] == ["under_capacity", "grokking", "mixed"]
    assert (found[1].grokking, found[1].immediate, found[1].memorised_only) == (2, 1, 0)
    assert found[0].under_capacity == 2


def test_firth_maximum_is_a_maximum() -> None:
    x = np.log(np.array(P6))
    k, n = np.array([0.0, 1, 2, 3, 4, 4]), np.full(6, 4.0)
    fit = firth_logit(x, k, n)
    data = Grouped(x, k, n)
    own = penalised_log_likelihood(np.array([fit.intercept]), np.array([fit.slope]), data)[0]
    for d0, d1 in [(0.1, 0), (-0.1, 0), (0, 0.01), (0, -0.01)]:
        near = penalised_log_likelihood(
            np.array([fit.intercept + d0]), np.array([fit.slope + d1]), data
        )
        assert near[0] < own


def test_firth_on_one_binary_covariate_adds_a_half_to_every_count() -> None:
    # The saturated 2 × 2 case has a closed form: log odds of (k + ½) / (n − k + ½).
    k, n = np.array([2.0, 7.0]), np.array([9.0, 10.0])
    fit = firth_logit(np.array([0.0, 1.0]), k, n)
    odds = np.log((k + 0.5) / (n - k + 0.5))
    assert fit.intercept == pytest.approx(odds[0], abs=1e-6)
    assert fit.slope == pytest.approx(odds[1] - odds[0], abs=1e-6)


def test_firth_approaches_plain_logit_with_many_runs() -> None:
    x = np.linspace(-2, 2, 9)
    n = np.full(9, 100_000.0)
    k = np.round(n / (1 + np.exp(-(0.3 + 1.5 * x))))
    plain = sm.GLM(
        np.column_stack([k, n - k]), sm.add_constant(x), family=sm.families.Binomial()
    ).fit()
    fit = firth_logit(x, k, n)
    assert [fit.intercept, fit.slope] == pytest.approx(list(plain.params), abs=1e-3)
    # Delta method for −β₀/β₁ against the profile interval.
    gradient = np.array([-1 / fit.slope, fit.intercept / fit.slope**2])
    se = float(np.sqrt(gradient @ plain.cov_params() @ gradient))
    low, high = midpoint_interval(fit, Grouped(x, k, n), 0.95)
    assert high - low == pytest.approx(2 * 1.96 * se, rel=0.01)


def test_firth_on_separated_data_is_finite() -> None:
    fit = firth_logit(np.arange(6.0), np.array([0.0, 0, 0, 4, 4, 4]), np.full(6, 4.0))
    assert fit.midpoint == pytest.approx(2.5, abs=1e-6)
    assert np.isfinite(fit.slope)


@given(st.lists(st.integers(0, 5), min_size=6, max_size=6), st.integers(1, 50))
@settings(max_examples=25)
def test_scaling_params_scales_the_onset(positives: list[int], factor: int) -> None:
    one = onset(runs(positives, seeds=5)).p_onset
    other = onset(runs(positives, seeds=5, params=[p * factor for p in P6])).p_onset
    assert other.status == one.status
    if one.estimate is None:
        assert other.estimate is None
    else:
        assert other.estimate == pytest.approx(one.estimate * factor, rel=1e-4)


@pytest.mark.slow
def test_profile_interval_covers_the_truth(cells: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    params = np.geomspace(1e4, 1e6, 15)
    truth, slope = np.log(1e5), 3.0
    hits = trials = 0
    for _ in range(200):
        k = rng.binomial(10, 1 / (1 + np.exp(-slope * (np.log(params) - truth))))
        found = onset(runs(list(k), seeds=10, params=list(params))).p_onset
        if found.status == "fitted":
            assert found.low is not None
            assert found.high is not None
            trials += 1
            hits += found.low <= 1e5 <= found.high
    assert trials > 150
    assert hits / trials > 0.90


def test_a_minimum_delay_is_in_epochs_or_a_share_of_training() -> None:
    runs = with_clocks([50, 50, 200], [53, 56, 210], [60, 60, 210])
    assert delays(runs).delayed.tolist() == [True, True, True]
    five = replace(runs, min_delay=MinimumDelay(epochs=5))
    assert delays(five).delayed.tolist() == [False, True, True]
    assert delays(five).counted().tolist() == [0, 6, 10]
    tenth = replace(runs, min_delay=MinimumDelay(share=0.1))
    assert delays(tenth).delayed.tolist() == [False, True, False]


def test_a_run_stopped_before_the_minimum_delay_decides_nothing() -> None:
    runs = with_clocks([50, 50], [np.nan, np.nan], [52, 1000])
    found = delays(replace(runs, min_delay=MinimumDelay(epochs=5)))
    assert (found.n_undetermined, found.delayed.tolist()) == (1, [True])


def test_a_larger_minimum_delay_never_lowers_the_onset(cells: Callable[..., Any]) -> None:
    runs = cells(rng=np.random.default_rng(5)).grok(onset=0.7e5)
    points = [
        onset(replace(runs, min_delay=MinimumDelay(share=share))).p_onset.estimate or np.inf
        for share in (0.0, 0.02, 0.05, 0.1)
    ]
    assert points == sorted(points)


def test_regimes_follow_the_minimum_delay() -> None:
    runs = with_clocks([50], [53], [60])
    assert [r.regime for r in regimes(runs)] == ["grokking"]
    asked = replace(runs, min_delay=MinimumDelay(epochs=5))
    assert [r.regime for r in regimes(asked)] == ["immediate"]


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"share": -0.1}, {"epochs": np.nan}])
def test_an_impossible_minimum_delay_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(AnalysisError, match="accepted"):
        MinimumDelay(**wrong)


def test_an_end_that_the_runs_leave_open_is_none() -> None:
    found = onset(runs([1, 2, 2, 3], seeds=4, params=[1e4, 2e4, 4e4, 8e4])).p_onset
    assert found.estimate is not None
    assert (found.low, found.high, found.level) == (None, None, 0.95)
