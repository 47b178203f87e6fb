"""The law of the weight norm, on runs made by it and on runs made by the crossing."""

from __future__ import annotations

import numpy as np
import pytest

from groktime.service.analysis.laws import DelayedRuns, DelayLaws, delay_laws, tobit
from groktime.service.errors import AnalysisError

PRIMES = (97, 101, 103, 107, 109, 113)
ETA_LAMBDA = 1e-3


def runs(kappa: float, v_star: float, noise: float = 0.0, by: str = "norm") -> DelayedRuns:
    """Eight widths of six primes whose delays follow the norm, or else the crossing."""
    rng = np.random.default_rng(1)
    prime = np.repeat(PRIMES, 8)
    params = np.tile(np.geomspace(3e4, 4e5, 8), len(PRIMES))
    p_cross = np.repeat(np.geomspace(8e4, 2e5, len(PRIMES)), 8)
    squared = params**0.5 * rng.uniform(3, 9, len(prime))
    if by == "norm":
        delay = np.log(squared / v_star) / (2 * kappa * ETA_LAMBDA)
    else:
        delay = 900 * np.log(params / p_cross)
    delay = np.maximum(0, delay + noise * rng.standard_normal(len(prime)))
    rate = np.full(len(prime), ETA_LAMBDA)
    return DelayedRuns(prime, params, p_cross, squared, rate, delay)


def laws(given: DelayedRuns) -> DelayLaws:
    found = delay_laws(given)
    assert found is not None
    return found


def test_where_the_norm_law_holds_it_gives_back_kappa_and_v_star_and_predicts_other_primes() -> (
    None
):
    given = runs(kappa=0.7, v_star=1200.0, noise=10.0)
    found = laws(given)
    calibrated = {c.law: c for c in found.calibration}["norm"]
    assert calibrated.kappa == pytest.approx(0.7, rel=0.02)
    assert calibrated.v_star == pytest.approx(1200.0, rel=0.02)
    assert found.held_out[0].law == "norm"
    assert found.held_out[0].rmse < 15
    errors = {held.law: held.rmse for held in found.held_out}
    assert errors["norm"] < 0.2 * errors["crossing"]
    assert errors["norm"] < 0.2 * errors["constant"]


def test_where_the_crossing_decides_the_norm_law_does_not_win() -> None:
    found = laws(runs(kappa=0.7, v_star=1200.0, noise=10.0, by="crossing"))
    assert found.held_out[0].law == "crossing"
    assert found.held_out[0].told_apart > 0.95
    assert found.primes == PRIMES


def test_every_law_is_scored_on_the_same_runs_those_whose_cell_has_a_crossing() -> None:
    given = runs(kappa=0.7, v_star=1200.0, noise=10.0)
    given.p_cross[given.prime == 97] = np.nan
    found = laws(given)
    assert found.primes == PRIMES[1:]
    assert {held.runs for held in found.held_out} == {40}


def test_delays_that_fall_with_the_norm_have_no_kappa() -> None:
    found = laws(runs(kappa=-0.7, v_star=4000.0, noise=1.0))
    assert {c.law: c.kappa for c in found.calibration}["norm"] is None


def test_runs_without_delay_do_not_flatten_the_line() -> None:
    """Least squares of max(0, line) would halve the slope here."""
    x = np.linspace(-1, 1, 200)
    noise = 0.05 * np.random.default_rng(2).standard_normal(200)
    fit = tobit(np.ones(200), x, np.maximum(0, 2 * x + noise))
    assert fit == pytest.approx((0.0, 2.0), abs=0.03)


def test_too_few_primes_and_wrong_columns_are_told() -> None:
    given = runs(kappa=0.7, v_star=1200.0)
    assert delay_laws(given.where(given.prime < 103)) is None
    with pytest.raises(AnalysisError, match="0 or more"):
        DelayedRuns(*(np.ones(3) for _ in range(5)), delay=-np.ones(3))
    with pytest.raises(AnalysisError, match="differ in length"):
        DelayedRuns(*(np.ones(3) for _ in range(5)), delay=np.ones(2))
