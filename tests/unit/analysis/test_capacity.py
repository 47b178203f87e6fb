from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm

from groktime.service.analysis.capacity import (
    PAPER_C_MODEL,
    capacity,
    choose_c_model,
    hinge,
    p_mem,
)
from groktime.service.analysis.inputs import CapacityRuns
from groktime.service.errors import AnalysisError
from groktime.service.spec import ModularData

N8 = np.array([1000, 1374, 1891, 2601, 3576, 4917, 6761, 9300])
WIDTHS = np.array([10, 12, 14, 16, 18, 20, 22])
BITS = float(np.log2(115))


def hinge_runs(
    c_model: float = 2.0, share: float = 0.95, noise: float = 0.0, sizes: np.ndarray = N8
) -> CapacityRuns:
    rng = np.random.default_rng(0)
    width = np.repeat(WIDTHS, len(sizes))
    n = np.tile(sizes, len(WIDTHS))
    params = 2 * 115 * width + 2 * (16 * width**2 + 2 * width) + width
    bits = np.minimum(share * n * BITS, c_model * params + 300)
    return CapacityRuns(width, params, n, bits * (1 + noise * rng.normal(size=len(n))), 115)


def test_hinge_finds_slope_and_plateaus() -> None:
    found = capacity(hinge_runs())
    assert found.c_model is not None
    assert found.c_model.value == pytest.approx(2.0, rel=1e-4)
    assert found.c_model.source == "fitted"
    assert found.fit.intercept == pytest.approx(300, rel=0.02)
    assert found.fit.r_squared == pytest.approx(1.0)
    assert not any(p.flags for p in found.plateaus)


def test_the_hinge_rises_by_the_share_of_a_label_that_is_memorised() -> None:
    runs = hinge_runs()
    here = runs.width == WIDTHS[0]
    assert hinge(runs.n[here] * BITS, runs.bits[here])[0] == pytest.approx(0.95, rel=1e-3)


def test_intervals_hold_the_truth_under_noise() -> None:
    found = capacity(hinge_runs(noise=0.01))
    assert found.c_model is not None
    assert found.c_model.low is not None
    assert found.c_model.high is not None
    assert found.c_model.low < 2.0 < found.c_model.high
    assert found.c_model.high - found.c_model.low < 0.3


def test_one_wild_run_does_not_move_the_hinge() -> None:
    runs = hinge_runs()
    runs.bits[5] *= 0.5
    first = capacity(runs).plateaus[0]
    assert first.capacity == pytest.approx(2.0 * first.params + 300, rel=0.01)


def test_a_curve_still_growing_is_not_saturated_and_left_out() -> None:
    found = capacity(hinge_runs(sizes=N8[:5]))
    flags = {p.width: "not_saturated" in p.flags for p in found.plateaus}
    assert flags[22]
    assert not flags[10]
    assert 22 not in found.used
    assert found.c_model is not None
    assert found.c_model.value == pytest.approx(2.0, rel=1e-3)
    assert found.c_model.note == "some widths never saturated"


def test_a_falling_curve_is_sagging() -> None:
    runs = hinge_runs()
    runs.bits[7] *= 0.9
    assert capacity(runs).plateaus[0].flags == ("sagging",)


def test_paper_takes_the_maximum_over_n() -> None:
    runs = hinge_runs()
    runs.bits[6] *= 1.2
    assert capacity(runs, method="paper").plateaus[0].capacity == runs.bits[6]


def test_one_width_has_no_line() -> None:
    runs = hinge_runs()
    keep = runs.width == 10
    one = CapacityRuns(runs.width[keep], runs.params[keep], runs.n[keep], runs.bits[keep], 115)
    assert capacity(one).c_model is None


def test_three_widths_have_least_squares_own_interval() -> None:
    """Too few to resample; one degree of freedom, so it is wide and says what it is."""
    runs = hinge_runs(noise=0.01)
    keep = runs.width <= 14
    few = CapacityRuns(runs.width[keep], runs.params[keep], runs.n[keep], runs.bits[keep], 115)
    found = capacity(few)
    assert found.c_model is not None
    assert found.used == (10, 12, 14)
    assert (found.fit.interval, found.c_model.interval) == ("t", "t")
    params = np.array([p.params for p in found.plateaus])
    caps = np.array([p.capacity for p in found.plateaus])
    fit = sm.OLS(caps, sm.add_constant(params)).fit()
    (i_low, i_high), (s_low, s_high) = fit.conf_int(0.05).tolist()
    assert (found.c_model.low, found.c_model.high) == pytest.approx((s_low, s_high))
    assert (found.fit.intercept_low, found.fit.intercept_high) == pytest.approx((i_low, i_high))
    assert choose_c_model(None, found, "other").interval == "t"


@pytest.mark.parametrize(("largest", "kind"), [(12, None), (14, "t"), (16, "bootstrap")])
def test_the_number_of_widths_decides_the_interval(largest: int, kind: str | None) -> None:
    runs = hinge_runs(noise=0.01)
    keep = runs.width <= largest
    few = CapacityRuns(runs.width[keep], runs.params[keep], runs.n[keep], runs.bits[keep], 115)
    found = capacity(few, n_resamples=200)
    assert found.fit.interval == kind
    assert (found.fit.intercept_low is None) == (kind is None)


def test_source_of_c_is_the_fit_then_a_matched_suite_then_the_paper() -> None:
    fit = capacity(hinge_runs())
    assert choose_c_model(fit).source == "fitted"
    matched = choose_c_model(None, fit, "central")
    assert (matched.source, matched.note) == ("matched_suite", "central")
    paper = choose_c_model(None)
    assert (paper.value, paper.source) == (PAPER_C_MODEL, "paper")


def test_check_values_of_the_central_prime() -> None:
    k_mem = ModularData(prime=113).n_train * np.log2(115)
    assert k_mem == pytest.approx(43_318, abs=0.5)
    assert p_mem(k_mem, choose_c_model(None)) == pytest.approx(20_055, abs=0.5)


def test_no_runs_are_refused() -> None:
    with pytest.raises(AnalysisError, match="capacity: no runs"):
        capacity(CapacityRuns([], [], [], [], 115))


def test_the_interval_carries_seeds_and_sizes_not_the_widths_alone() -> None:
    """Plateaus that lie on one line though their points scatter still leave C uncertain."""
    runs = hinge_runs()
    order = np.arange(len(runs))
    first = np.where(order % 2 == 0, 1.1, 0.9)  # two seeds, as far above as below
    twice = CapacityRuns(
        np.tile(runs.width, 2),
        np.tile(runs.params, 2),
        np.tile(runs.n, 2),
        np.concatenate([runs.bits * first, runs.bits * (2 - first)]),
        115,
    )
    exact, found = capacity(runs).fit, capacity(twice).fit
    assert exact is not None
    assert found is not None
    assert exact.high - exact.low < 0.01
    assert found.high - found.low > 0.1
    assert found.low < 2.0 < found.high
