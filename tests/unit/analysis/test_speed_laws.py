from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from groktime.service.analysis.forecast import (
    Predicted,
    PrimeEvidence,
    PrimeForecast,
    forecast,
    law_crossing,
    prime_evidence,
    score_forecast,
)
from groktime.service.analysis.laws import (
    GENERALISATION_WINDOW,
    Form,
    LawPoints,
    compare_forms,
    fit_law,
    generalisation_law,
    law_points,
    memorisation_law,
)
from groktime.service.analysis.survival import SpeedCurve, kaplan_meier_curve, speeds
from groktime.service.errors import AnalysisError

PRIMES = (97, 101, 103, 107, 109, 113, 127, 131, 137, 139)
C = 2.16


def k_mem(prime: int) -> float:
    return int(0.5 * prime * (prime - 1)) * float(np.log2(prime + 2))


def points(
    time: Callable[[int, np.ndarray, np.ndarray], np.ndarray],
    primes: tuple[int, ...] = PRIMES,
    noise: float = 0.0,
    seed: int = 0,
) -> LawPoints:
    """Points of a law time(p, P, f) on 44 sizes."""
    rng = np.random.default_rng(seed)
    curves = {}
    for p in primes:
        params = np.geomspace(2e4, 2.2e6, 44)
        f = k_mem(p) / (C * params)
        centre = time(p, params, f) * np.exp(noise * rng.normal(size=44))
        curves[p] = SpeedCurve(np.arange(44), params, centre)
    return law_points(curves, {p: k_mem(p) for p in primes}, C)


def exponential(p: int, params: np.ndarray, f: np.ndarray) -> np.ndarray:
    return 40 * np.exp(12 * f)


def test_exponential_law_is_recovered() -> None:
    law = memorisation_law(points(exponential, noise=0.02))
    assert law.pooled is not None
    assert law.pooled.a == pytest.approx(12, rel=0.02)
    assert law.pooled.b == pytest.approx(40, rel=0.02)
    assert law.pooled.r_squared > 0.99
    assert law.rivals[0].form == "exponential"
    assert {fit.prime for fit in law.per_prime} == set(PRIMES)


def test_widths_of_one_prime_do_not_count_as_independent() -> None:
    """A shift that all widths of a prime share must widen the interval of a."""
    shift = {
        p: float(s) for p, s in zip(PRIMES, np.random.default_rng(0).normal(size=10), strict=True)
    }
    data = points(lambda p, params, f: 40 * np.exp(12 * f + 0.3 * shift[p] * f / 0.1), noise=0.01)
    fit = memorisation_law(data).pooled
    assert fit is not None
    assert fit.a_low is not None
    assert fit.a_high is not None
    inside = data.inside((0.0, 0.25))
    naive = sm.OLS(np.log(inside.time), sm.add_constant(inside.fraction)).fit()
    low, high = naive.conf_int()[1]
    assert fit.a == pytest.approx(naive.params[1])
    assert fit.a_high - fit.a_low > 2 * (high - low)


def test_one_prime_has_the_interval_of_least_squares() -> None:
    data = points(exponential, primes=(113,), noise=0.05)
    fit = fit_law(data, "exponential")
    assert fit is not None
    low, high = sm.OLS(np.log(data.time), sm.add_constant(data.fraction)).fit().conf_int()[1]
    assert (fit.a_low, fit.a_high) == pytest.approx((low, high))


def test_every_interval_has_the_level_asked_for() -> None:
    data = points(exponential, noise=0.05)
    laws = [memorisation_law(data, level=level).pooled for level in (0.95, 0.5)]
    assert laws[0] is not None
    assert laws[1] is not None
    wide, narrow = (law.a_high - law.a for law in laws if law and law.a_high is not None)
    t = stats.t.ppf([0.975, 0.75], len(PRIMES) - 1)
    assert wide / narrow == pytest.approx(t[0] / t[1])
    both = [generalisation_law(data, None, level=level) for level in (0.95, 0.5)]
    reach = [law.beta_high - law.beta for law in both if law is not None]
    assert reach[0] / reach[1] == pytest.approx(t[0] / t[1])


def test_rival_wins_where_it_is_the_truth() -> None:
    law = memorisation_law(points(lambda p, params, f: 3000 * f**1.3, noise=0.02))
    assert law.rivals[0].form == "power"


def test_the_critical_law_finds_where_memorising_ends() -> None:
    end = 1.2 * float(points(lambda p, params, f: 20 + f).fraction.max())
    drawn = points(lambda p, params, f: 20 * (1 - f / end) ** -3.7)
    fit = fit_law(drawn, "critical")
    assert fit is not None
    assert (fit.a, fit.b, fit.c) == pytest.approx((3.7, 20, end), rel=1e-3)
    law = memorisation_law(drawn, None)
    assert law.rivals[0].form == "critical"


def test_a_critical_law_that_ends_nowhere_is_the_exponential() -> None:
    drawn = points(lambda p, params, f: 20 * np.exp(8 * f))
    critical, exponential = fit_law(drawn, "critical"), fit_law(drawn, "exponential")
    assert critical is not None
    assert exponential is not None
    assert critical.c is not None
    assert critical.a / critical.c == pytest.approx(exponential.a, rel=0.01)


def test_stretched_form_finds_its_exponent() -> None:
    fit = fit_law(points(lambda p, params, f: 20 * np.exp(8 * f**0.5)), "stretched")
    assert fit is not None
    assert fit.c == pytest.approx(0.5, abs=1e-3)
    assert (fit.a, fit.b) == pytest.approx((8, 20), rel=1e-2)
    assert (fit.a_low, fit.a_high) == (None, None)  # c was chosen to suit a


@pytest.mark.parametrize(
    ("form", "law", "constants"),
    [
        ("stretched", lambda p, params, f: 0.14 * np.exp(15 * f**0.31), (15, 0.14, 0.31)),
        ("critical", lambda p, params, f: 30 * (1 - f / 2.0) ** -3.5, (3.5, 30, 2.0)),
    ],
)
def test_a_law_is_found_to_its_last_digits(
    form: Form, law: Any, constants: tuple[float, float, float]
) -> None:
    """Digits that lowest values cannot tell would be those of the processor's rounding."""
    fit = fit_law(points(law), form)
    assert fit is not None
    assert (fit.a, fit.b, fit.c) == pytest.approx(constants, rel=1e-9)


def test_window_limits_the_fit_and_none_takes_everything() -> None:
    data = points(exponential)
    inside, everything = memorisation_law(data), memorisation_law(data, None)
    assert inside.points.fraction.max() <= 0.25
    assert len(everything.points.time) == len(data.time)


def test_primes_on_one_curve_collapse() -> None:
    test = memorisation_law(points(exponential, noise=0.02)).collapse
    assert test.testable
    assert test.p is not None
    assert test.p > 0.01
    assert abs(test.slope or 0) < 0.15


def test_dependence_on_size_at_fixed_fraction_is_found() -> None:
    data = points(lambda p, params, f: 40 * np.exp(12 * f) * (params / 1e5) ** 0.4, noise=0.02)
    test = memorisation_law(data).collapse
    assert test.slope == pytest.approx(0.4, abs=0.15)
    assert test.p is not None
    assert test.p < 0.001


def test_collapse_of_one_prime_is_not_testable() -> None:
    test = memorisation_law(points(exponential, primes=(113,))).collapse
    assert not test.testable
    assert "one prime" in test.reason


def test_few_primes_are_marked_unreliable() -> None:
    assert memorisation_law(points(exponential, (97, 113, 139), noise=0.02)).collapse.unreliable


def test_generalisation_law_is_recovered() -> None:
    law = generalisation_law(points(lambda p, params, f: 7 * p**1.5 * params**-0.45))
    assert law is not None
    assert (np.exp(law.log_a), law.c, law.beta) == pytest.approx((7, 1.5, 0.45))
    assert (law.c_high, law.beta_high) == pytest.approx((1.5, 0.45), abs=1e-9)


def shifted_primes(primes: tuple[int, ...]) -> LawPoints:
    """T_gen of a law that every prime follows at a distance of its own."""
    shift = dict(zip(primes, np.random.default_rng(3).normal(size=len(primes)), strict=True))
    return points(
        lambda p, params, f: 7 * p**1.5 * params**-0.45 * np.exp(0.1 * shift[p]), primes, noise=0.02
    )


def test_the_exponent_of_the_prime_has_two_degrees_of_freedom_fewer_than_primes() -> None:
    """Errors clustered by hand; a line through G primes leaves G − 2 degrees of freedom."""
    data = shifted_primes(PRIMES[:6])
    law = generalisation_law(data)
    assert law is not None
    inside = data.inside(GENERALISATION_WINDOW)
    x = np.column_stack(
        [np.ones(len(inside.time)), -np.log(inside.params), np.log(inside.prime.astype(float))]
    )
    y = np.log(inside.time)
    bread = np.linalg.inv(x.T @ x)
    residual = y - x @ (bread @ x.T @ y)
    scores = np.array([x[inside.prime == p].T @ residual[inside.prime == p] for p in PRIMES[:6]])
    n, g = len(y), law.primes
    small = g / (g - 1) * (n - 1) / (n - 3)
    errors = np.sqrt(np.diag(bread @ scores.T @ scores @ bread) * small)
    assert law.c_high - law.c == pytest.approx(stats.t.ppf(0.975, g - 2) * errors[2])
    assert law.beta_high - law.beta == pytest.approx(stats.t.ppf(0.975, g - 1) * errors[1])


@pytest.mark.parametrize(("primes", "has"), [(1, False), (2, False), (4, False), (5, True)])
def test_the_exponent_of_the_prime_has_an_interval_from_five_primes_on(
    primes: int, has: bool
) -> None:
    law = generalisation_law(shifted_primes(PRIMES[:primes]))
    assert law is not None
    assert (law.c_high is not None) is has
    assert law.beta_high > law.beta


def test_too_few_points_give_no_law() -> None:
    assert generalisation_law(points(exponential), window=(5.0, 6.0)) is None
    assert memorisation_law(points(exponential), (5.0, 6.0)).pooled is None


def general(p: int, params: np.ndarray, f: np.ndarray) -> np.ndarray:
    return 25 * p**1.5 * params**-0.4


def evidence(
    primes: tuple[int, ...], noise: float = 0.03, offset: float = 0.7
) -> list[PrimeEvidence]:
    gathered = []
    for i, p in enumerate(primes):
        mem = points(exponential, (p,), noise, seed=2 * i)
        gen = points(general, (p,), noise, seed=2 * i + 1)
        fit, law = fit_law(points(exponential, (p,)), "exponential"), true_generalisation()
        assert fit is not None
        cross = law_crossing(fit, law, p, k_mem(p), C)
        assert cross is not None
        cross *= 1 + 0.01 * (-1) ** i
        gathered.append(PrimeEvidence(p, k_mem(p), mem, gen, cross, offset * cross))
    return gathered


def true_generalisation():  # type: ignore[no-untyped-def]
    law = generalisation_law(points(general))
    assert law is not None
    return law


def test_laws_cross_where_both_are_equal() -> None:
    fit = fit_law(points(exponential), "exponential")
    assert fit is not None
    law = true_generalisation()
    cross = law_crossing(fit, law, 113, k_mem(113), C)
    assert cross is not None
    mem = 40 * np.exp(12 * k_mem(113) / (C * cross))
    assert mem == pytest.approx(float(law.time(113, np.array([cross]))[0]))


def test_laws_that_never_meet_have_no_crossing() -> None:
    fit = fit_law(points(lambda p, params, f: 1e-6 * np.exp(1e-9 * f)), "exponential")
    assert fit is not None
    slow = generalisation_law(points(lambda p, params, f: 1e6 * p**0.1 * params**-0.001))
    assert slow is not None
    assert law_crossing(fit, slow, 113, k_mem(113), C) is None


def test_forecast_of_unseen_primes_holds_them() -> None:
    known = evidence((97, 103, 113, 127))
    unseen = evidence((107, 139))
    made = forecast(known, {e.prime: e.k_mem for e in unseen}, C)
    assert made.fitted_primes == (97, 103, 113, 127)
    scored = score_forecast(made.predictions, {e.prime: (e.p_cross, e.p_onset) for e in unseen})
    assert scored.coverage == 1.0
    assert scored.rmse is not None
    assert scored.rmse < 0.05
    assert scored.unscored == 0


def test_forecast_onset_carries_the_offset_of_the_fitted_primes() -> None:
    made = forecast(evidence((97, 103, 113, 127)), {139: k_mem(139)}, C)
    prediction = made.predictions[0]
    assert prediction.p_cross is not None
    assert prediction.p_onset is not None
    ratio = prediction.p_onset.estimate / prediction.p_cross.estimate
    assert ratio == pytest.approx(0.7, rel=0.01)
    assert prediction.p_onset.low < prediction.p_onset.estimate < prediction.p_onset.high


def test_forecast_refuses_a_prime_it_was_fitted_on() -> None:
    with pytest.raises(AnalysisError, match="predict: 97 is also fitted"):
        forecast(evidence((97, 103, 113)), {97: k_mem(97)}, C)


def test_evidence_is_gathered_from_speed_curves(cells: Callable[..., Any]) -> None:
    mem, gen = cells(cap=600.0).pair()
    curves = kaplan_meier_curve(mem), kaplan_meier_curve(gen)
    gathered = prime_evidence(113, k_mem(113), C, *curves, 1.5e5, None)
    reached = np.isfinite(curves[0].centre)
    assert gathered.t_mem.time.tolist() == curves[0].centre[reached].tolist()
    assert gathered.t_gen.fraction[-1] == pytest.approx(k_mem(113) / (C * curves[1].params[-1]))
    assert set(gathered.t_gen.prime) == {113}


def test_forecast_refuses_a_single_prime() -> None:
    with pytest.raises(AnalysisError, match="at least 2 are needed"):
        forecast(evidence((97,)), {113: k_mem(113)}, C)


def test_forecast_refuses_windows_without_points() -> None:
    with pytest.raises(AnalysisError, match="too few reached widths"):
        forecast(evidence((97, 103)), {113: k_mem(113)}, C, memorisation_window=(7.0, 8.0))


def test_score_by_hand() -> None:
    prediction = PrimeForecast(
        113, 1e5, Predicted(1e5, 5e4, 2e5, 0.9), None, baseline_cross=1e6, baseline_onset=None
    )
    scored = score_forecast([prediction], {113: (4e5, 1e5)})
    (only,) = scored.scores
    assert only.error == pytest.approx(np.log10(4))
    assert not only.inside
    assert only.interval_score == pytest.approx(np.log10(4) + 20 * np.log10(2))
    assert only.baseline_error == pytest.approx(np.log10(0.4))
    assert only.beats_baseline is False
    assert scored.unscored == 1


def test_speeds_show_three_summaries_and_what_was_lost(cells: Callable[..., Any]) -> None:
    mem, _ = cells(cap=400.0, mem_noise=0.2).pair()
    mem = replace(mem, missing={20: 3})
    found = speeds(mem, p_mem=5e4)
    assert [r.params for r in found] == sorted(r.params for r in found)
    smallest, largest = found[0], found[-1]
    assert (smallest.reached, smallest.censored, smallest.missing) == (0, 10, 3)
    assert (smallest.mean_reached, smallest.median) == (None, None)
    assert smallest.restricted_mean == smallest.horizon == 400
    assert smallest.fraction == 5e4 / smallest.params
    values = [v.value for v in largest.values if v.value is not None]
    assert len(values) == largest.reached == 10
    assert largest.mean_reached == pytest.approx(np.mean(values))
    assert largest.median == pytest.approx(np.median(values))
    assert (largest.low or 0) <= (largest.median or 0) <= (largest.high or np.inf)
    centres = kaplan_meier_curve(mem).centre
    assert [r.median or np.inf for r in found] == centres.tolist()


def test_speeds_name_the_runs_they_come_from(cells: Callable[..., Any]) -> None:
    mem, _ = cells().pair()
    ids = 1000 + np.arange(len(mem))[::-1]
    by_seed = {(int(w), int(s)): int(i) for w, s, i in zip(mem.width, mem.seed, ids, strict=True)}
    for point in speeds(replace(mem, run=ids), p_mem=1.0):
        assert [v.run for v in point.values] == [by_seed[point.width, v.seed] for v in point.values]


def test_speeds_in_steps(cells: Callable[..., Any]) -> None:
    mem, _ = cells().pair()
    mem = replace(mem, steps_per_epoch=13)
    epochs, steps = speeds(mem, p_mem=1.0), speeds(mem, p_mem=1.0, units="steps")
    assert steps[-1].median == pytest.approx(13 * (epochs[-1].median or 0))


def made_points(shares: dict[int, float], power: float, critical: float | None) -> LawPoints:
    """T_mem of four primes: critical or exponential in f, times a power of the last batch."""
    f = np.tile(np.linspace(0.05, 0.35, 12), len(shares))
    prime = np.repeat(np.array(list(shares)), 12)
    share = np.array([shares[int(p)] for p in prime])
    law = 30 * np.exp(9 * f) if critical is None else 30 * (1 - f / critical) ** -3.5
    noise = np.exp(0.02 * np.random.default_rng(3).standard_normal(len(f)))
    return LawPoints(prime, 1e5 / f, f, law * share**power * noise)


SHARES = {97: 0.1, 101: 0.9, 103: 0.25, 107: 0.08}


def test_a_law_that_ends_is_told_from_one_that_does_not_beside_the_last_batch() -> None:
    ends = compare_forms(made_points(SHARES, -0.25, 0.45), SHARES)
    assert ends[0].form == "critical"
    assert ends[0].critical == pytest.approx(0.45, rel=0.05)
    assert ends[0].exponent == pytest.approx(3.5, rel=0.1)
    assert ends[0].last_batch == pytest.approx(-0.25, abs=0.02)
    endless = {fit.form: fit for fit in compare_forms(made_points(SHARES, -0.25, None), SHARES)}
    assert endless["critical"].aicc > endless["exponential"].aicc
    assert endless["critical"].critical is None or endless["critical"].critical > 2


def test_the_last_batch_left_out_is_noise_and_one_that_hardly_differs_is_not_fitted() -> None:
    points = made_points(SHARES, -0.25, 0.45)
    with_it, without = compare_forms(points, SHARES)[0], compare_forms(points, None)[0]
    assert with_it.aicc < without.aicc
    assert without.last_batch is None
    assert compare_forms(points, dict.fromkeys(SHARES, 0.5) | {97: 0.6}) == ()


def test_aicc_is_aic_and_a_penalty_for_few_points() -> None:
    fit = fit_law(made_points({97: 1.0}, 0.0, None), "exponential")
    assert fit is not None
    assert fit.aicc == pytest.approx(fit.aic + 2 * 3 * 4 / (12 - 3 - 1))


def test_three_widths_are_too_few_for_aicc_and_their_forms_are_ordered_by_aic() -> None:
    f = np.array([0.05, 0.1, 0.2])
    law = memorisation_law(LawPoints(np.full(3, 97), 1e4 / f, f, 500 * f**1.03))
    assert [fit.aicc for fit in law.rivals] == [None, None]
    assert [fit.form for fit in law.rivals] == ["power", "exponential"]
