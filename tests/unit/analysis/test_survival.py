from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.duration.survfunc import SurvfuncRight

from groktime.service.analysis.inputs import FirstPassages
from groktime.service.analysis.survival import (
    KaplanMeier,
    ResampledMedians,
    censoring_times,
)

# Remission times (weeks) of the 6-MP arm in Freireich et al. (1963), the textbook example.
SIX_MP = [6, 6, 6, 7, 10, 13, 16, 22, 23, 6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
SIX_MP_EVENT = [True] * 9 + [False] * 12


def arrays(times: list[float], events: list[bool]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(times, dtype=float), np.array(events, dtype=bool)


observations = st.lists(
    st.tuples(st.integers(1, 30).map(float), st.booleans()), min_size=1, max_size=14
).map(lambda rows: arrays([t for t, _ in rows], [e for _, e in rows]))


def test_textbook_survival_curve() -> None:
    curve = KaplanMeier.of(*arrays(SIX_MP, SIX_MP_EVENT))
    assert curve.at == (6, 7, 10, 13, 16, 22, 23)
    published = [0.8571, 0.8067, 0.7529, 0.6902, 0.6275, 0.5378, 0.4482]
    assert curve.survival == pytest.approx(published, abs=5e-5)


def test_textbook_median_with_its_interval() -> None:
    # R: survfit(Surv(time, status) ~ 1, conf.type = "log-log") prints 23, 13, NA.
    middle = KaplanMeier.of(*arrays(SIX_MP, SIX_MP_EVENT)).median_interval()
    assert (middle.estimate, middle.low, middle.high) == (23.0, 13.0, np.inf)


@given(observations)
def test_survival_agrees_with_scipy(data: tuple[np.ndarray, np.ndarray]) -> None:
    time, event = data
    censored = stats.CensoredData(uncensored=time[event], right=time[~event])
    curve = KaplanMeier.of(time, event)
    reference = stats.ecdf(censored).sf
    assert curve.survival == pytest.approx(reference.evaluate(np.array(curve.at)))


@given(observations)
def test_median_agrees_with_statsmodels_except_on_flat_halves(
    data: tuple[np.ndarray, np.ndarray],
) -> None:
    time, event = data
    survival = np.array(KaplanMeier.of(time, event).survival)
    if np.any(np.abs(survival - 0.5) < 1e-9) or not np.any(event):
        return
    reference = SurvfuncRight(time, event).quantile(0.5)
    expected = np.inf if np.isnan(reference) else reference
    assert KaplanMeier.of(time, event).median() == expected


@given(st.lists(st.integers(1, 50).map(float), min_size=1, max_size=20))
def test_without_censoring_it_is_the_ordinary_median(times: list[float]) -> None:
    time, event = arrays(times, [True] * len(times))
    assert KaplanMeier.of(time, event).median() == np.median(times)


def test_half_reached_and_half_censored_at_the_cap_is_not_reached() -> None:
    assert (
        KaplanMeier.of(*arrays([100, 200, 500, 500], [True, True, False, False])).median() == np.inf
    )


def test_a_majority_reached_is_reached() -> None:
    time, event = arrays([100, 200, 300, 500], [True, True, True, False])
    assert KaplanMeier.of(time, event).median() == 250


def rate_of_draws(time: np.ndarray, event: np.ndarray, counts: np.ndarray) -> float:
    """1 / median of one width when each of its seeds is drawn so often."""
    seeds, one = np.arange(len(time)), np.ones(len(time), dtype=int)
    runs = FirstPassages(one, one.astype(float), seeds, np.where(event, time, np.nan), time)
    medians = ResampledMedians.of(runs, seeds, counts[:, None].astype(np.uint8))
    return float(medians.rates()(slice(None))[0, 0])


@given(observations, st.randoms(use_true_random=False))
def test_weights_are_repetitions(data: tuple[np.ndarray, np.ndarray], random: object) -> None:
    time, event = data
    counts = np.array([random.randint(0, 3) for _ in time])
    rate = rate_of_draws(time, event, counts)
    if counts.sum() == 0:
        assert np.isnan(rate)
        return
    repeated = KaplanMeier.of(np.repeat(time, counts), np.repeat(event, counts)).median()
    assert rate == pytest.approx(1 / repeated)


def test_weights_of_many_seeds_do_not_overflow() -> None:
    time, event = arrays(list(range(1, 202)), [True] * 201)
    assert rate_of_draws(time, event, np.ones(201)) == pytest.approx(1 / 101)


@given(observations, st.integers(1, 40))
def test_restricted_mean_agrees_with_the_integral(
    data: tuple[np.ndarray, np.ndarray], horizon: int
) -> None:
    time, event = data
    curve = KaplanMeier.of(time, event)
    fine = np.arange(0, horizon, 1.0)  # S is constant between integers here
    heights = np.array([1.0, *curve.survival])[np.searchsorted(curve.at, fine, side="right")]
    assert KaplanMeier.of(time, event).restricted_mean(float(horizon)) == pytest.approx(
        heights.sum()
    )


@given(observations, st.integers(1, 40), st.data())
def test_censoring_an_event_never_lowers_the_restricted_mean(
    data: tuple[np.ndarray, np.ndarray], horizon: int, draw: st.DataObject
) -> None:
    time, event = data
    if not np.any(event):
        return
    chosen = draw.draw(st.sampled_from(np.flatnonzero(event).tolist()))
    censored = event.copy()
    censored[chosen] = False
    before = KaplanMeier.of(time, event).restricted_mean(float(horizon))
    assert KaplanMeier.of(time, censored).restricted_mean(float(horizon)) >= before - 1e-9


def test_a_diverged_run_stays_at_risk_for_ever() -> None:
    runs = FirstPassages(
        width=[20, 20, 20],
        params=[1e4] * 3,
        seed=[1, 2, 3],
        epoch=[50, 90, np.nan],
        last_epoch=[50, 90, 7],
        diverged=[False, False, True],
    )
    time = censoring_times(runs)
    assert time.tolist() == [50, 90, np.inf]
    # Censored at 7 instead, the median would be the mean of 50 and 90.
    assert KaplanMeier.of(time, ~np.isnan(runs.epoch)).median() == 90
