"""Laws of the two speeds, T_mem against the capacity fraction f and T_gen against p and P, and of
how long the delay is, on primes left out.

The norm law: once the training set is fitted, weight decay shrinks the squared norm V of the
weights as e^(−2κηλt) in optimiser steps t, and the network generalises when V reaches V*. So the
delay is ln(V_mem/V*)/(2κηλ), with V_mem the squared norm at E_train (arXiv 2605.18845). κ and V*
are calibrated on some primes; other primes are predicted.

Every law of the delay says delay = max(0, α + β·x) with its own x. A run without delay tells only
that α + β·x is at most about zero: α and β are the maximum-likelihood estimates of a Tobit model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, get_args

import numpy as np
import statsmodels.api as sm
from pydantic import Field
from scipy import optimize, stats

from groktime.service.analysis.inputs import ROUNDING, BoolArray, FloatArray, IntArray, constant
from groktime.service.analysis.regression import LAST_BATCHES_DIFFER, can_cluster, least_squares
from groktime.service.analysis.survival import SpeedCurve
from groktime.service.errors import AnalysisError

Form = Literal["exponential", "power", "stretched", "critical"]
FORMS: tuple[Form, ...] = get_args(Form)
Window = tuple[float, float]

MEMORISATION_WINDOW: Window = (0.0, 0.25)
GENERALISATION_WINDOW: Window = (0.08, 1.0)
CONTROL_DEGREE = 3  # of the curve in log f that the collapse test holds fixed
ENDLESS = 20.0  # times the largest f: a critical fraction beyond it is no end in sight
FARTHEST = 1e3  # times the largest f: a critical point there is none
LEAST_PRIMES_OF_C = 5  # fewer primes than this carry no interval of the exponent of p


@dataclass(frozen=True, eq=False)
class LawPoints:
    """Reached speeds of several primes: prime, P, f = K_mem/(C_model·P) and T, in parallel."""

    prime: IntArray
    params: FloatArray
    fraction: FloatArray
    time: FloatArray

    def inside(self, window: Window | None) -> LawPoints:
        """Only points with f inside the closed window; None keeps all (the released code)."""
        if window is None:
            return self
        # f depends on a fitted C: a point on an end of the window is inside.
        low, high = window[0] * (1 - ROUNDING), window[1] * (1 + ROUNDING)
        keep = (self.fraction >= low) & (self.fraction <= high)
        return LawPoints(self.prime[keep], self.params[keep], self.fraction[keep], self.time[keep])

    def of_prime(self, prime: int) -> LawPoints:
        keep = self.prime == prime
        return LawPoints(self.prime[keep], self.params[keep], self.fraction[keep], self.time[keep])


def law_points(
    curves: Mapping[int, SpeedCurve], k_mem: Mapping[int, float], c_model: float
) -> LawPoints:
    """Gather the reached widths of each prime's speed curve."""
    prime, params, fraction, time = [], [], [], []
    for p, curve in sorted(curves.items()):
        reached = np.isfinite(curve.centre)
        prime.append(np.full(int(reached.sum()), p, dtype=np.int64))
        params.append(curve.params[reached])
        fraction.append(k_mem[p] / (c_model * curve.params[reached]))
        time.append(curve.centre[reached])
    empty = [np.empty(0)]
    return LawPoints(
        np.concatenate(prime or [np.empty(0, dtype=np.int64)]),
        np.concatenate(params or empty),
        np.concatenate(fraction or empty),
        np.concatenate(time or empty),
    )


@dataclass(frozen=True)
class LawFit:
    """One form fitted to log T by least squares; AIC = n log(RSS/n) + 2k, k with the variance.

    AICc adds 2k(k + 1)/(n − k − 1), which small n needs; None where n leaves nothing.

    exponential b·e^{af}; power b·f^a; stretched b·e^{a f^c}; critical
    b·(1 − f/c)^−a, which ends at f = c. The interval of `a` has errors
    clustered by prime where several widths of three primes or more are pooled; the stretched
    form has none, as `a` and `c` go together.
    """

    form: Form
    prime: Annotated[int | None, Field(description="null: all primes pooled")]
    a: float
    a_low: float | None
    a_high: float | None
    b: float
    c: float | None
    r_squared: float | None
    aic: float
    n: int
    aicc: float | None = None


@dataclass(frozen=True)
class FormFit:
    """One form of T_mem over all f, alone or times a power of the last batch's share.

    `critical` is f_c, where the critical form ends, None where it runs far beyond all f and the
    form is the exponential; `exponent` is its γ, `last_batch` the power.
    """

    form: Form
    n: int
    r_squared: float
    aicc: float | None
    critical: float | None
    exponent: float | None
    last_batch: float | None


@dataclass(frozen=True)
class Collapse:
    """Does T_mem still depend on P once f is fixed?

    log T is regressed on a cubic in log f and on log10 P; `slope` is the latter's, in decades
    of T per decade of P, with errors clustered by prime on G − 1 degrees of freedom.
    """

    testable: bool
    reason: str
    slope: float | None
    se: float | None
    p: float | None
    primes: int
    unreliable: bool


@dataclass(frozen=True, eq=False)
class MemorisationLaw:
    """T_mem ≈ b·e^{af}: pooled, per prime, against its rivals, and whether primes collapse."""

    window: Window | None
    pooled: LawFit | None
    rivals: tuple[LawFit, ...]  # all forms, smallest AICc first
    per_prime: tuple[LawFit, ...]
    collapse: Collapse
    points: LawPoints


def memorisation_law(
    points: LawPoints, window: Window | None = MEMORISATION_WINDOW, *, level: float = 0.95
) -> MemorisationLaw:
    """Fit the exponential law and its rivals on a window of f."""
    inside = points.inside(window)
    fits = [fit for form in FORMS if (fit := fit_law(inside, form, level=level))]
    per_prime = tuple(
        replace(fit, prime=int(p))
        for p in np.unique(inside.prime)
        if (fit := fit_law(inside.of_prime(int(p)), "exponential", level=level))
    )
    return MemorisationLaw(
        window=window,
        pooled=next((f for f in fits if f.form == "exponential"), None),
        # With too few widths for AICc the order is AIC's.
        rivals=tuple(sorted(fits, key=lambda f: (f.aicc is None, f.aicc or f.aic))),
        per_prime=per_prime,
        collapse=collapse_test(inside),
        points=inside,
    )


def compare_forms(points: LawPoints, shares: Mapping[int, float] | None) -> tuple[FormFit, ...]:
    """Every form fitted to all points, smallest AICc first.

    With `shares`, the last batch's share of a batch by prime, T_mem is also a power of it: a small
    last batch is a full step on few examples. Empty where the points are too few, or the shares
    differ less than twofold.
    """
    f, y = points.fraction, np.log(points.time)
    beside = np.empty((len(f), 0))
    if shares is not None:
        logs = np.log([shares[int(p)] for p in points.prime])
        if not len(logs) or np.ptp(logs) < math.log(LAST_BATCHES_DIFFER):
            return ()
        beside = logs[:, None]
    if len(f) < 6 + beside.shape[1] or constant(f):
        return ()
    found = (_form(f, y, beside, form) for form in FORMS)
    return tuple(sorted(found, key=lambda fit: math.inf if fit.aicc is None else fit.aicc))


def _form(f: FloatArray, y: FloatArray, beside: FloatArray, form: Form) -> FormFit:
    """One form with its own c, if it has one, profiled out."""

    def design(c: float) -> FloatArray:
        return np.column_stack([np.ones_like(f), _argument(f, form, c), beside])

    def rss(c: float) -> float:
        columns = design(c)
        return float(np.sum((y - columns @ np.linalg.lstsq(columns, y, rcond=None)[0]) ** 2))

    c = math.nan
    if form == "stretched":
        c = _smallest(lambda z: rss(math.exp(z)), math.log(0.02), math.log(10.0))
        c = math.exp(c)
    if form == "critical":
        largest = float(f.max())
        c = _smallest(
            lambda z: rss(largest * (1 + math.exp(z))), math.log(1e-3), math.log(FARTHEST)
        )
        c = largest * (1 + math.exp(c))
    columns = design(c)
    value = np.linalg.lstsq(columns, y, rcond=None)[0]
    n, left = len(y), rss(c)
    free = columns.shape[1] + 1 + (not math.isnan(c))
    return FormFit(
        form=form,
        n=n,
        r_squared=1 - left / float(np.sum((y - y.mean()) ** 2)),
        aicc=_aicc(n * math.log(max(left / n, 1e-300)) + 2 * free, free, n),
        critical=c if form == "critical" and c < ENDLESS * float(f.max()) else None,
        exponent=float(value[1]) if form == "critical" and c < ENDLESS * float(f.max()) else None,
        last_batch=float(value[2]) if beside.shape[1] else None,
    )


def _argument(f: FloatArray, form: Form, c: float) -> FloatArray:
    """What log T is linear in."""
    if form == "exponential":
        return f
    if form == "power":
        return np.asarray(np.log(f), dtype=np.float64)
    if form == "stretched":
        return np.asarray(f**c, dtype=np.float64)
    return np.asarray(-np.log1p(-f / c), dtype=np.float64)


def _smallest(cost: Callable[[float], float], low: float, high: float) -> float:
    found = optimize.minimize_scalar(
        cost, bounds=(low, high), method="bounded", options={"xatol": 1e-6}
    )
    return float(found.x)


def _aicc(aic: float, free: int, n: int) -> float | None:
    return None if n - free < 2 else aic + 2 * free * (free + 1) / (n - free - 1)


def fit_law(points: LawPoints, form: Form, *, level: float = 0.95) -> LawFit | None:
    """Least squares of log T; None with fewer points than parameters + 1 or a single f."""
    f, y = points.fraction, np.log(points.time)
    needed = 5 if form in ("stretched", "critical") else 3
    if len(f) < needed or constant(f):
        return None
    if form == "stretched":
        c = _best_exponent(f, y)
        return _line(f**c, y, form, c, None)
    if form == "critical":
        c = _critical_fraction(f, y)
        return _line(-np.log1p(-f / c), y, form, c, None)
    x = np.log(f) if form == "power" else f
    return _line(x, y, form, None, _reach(sm.add_constant(x), y, points.prime, level)[1])


def _best_exponent(f: FloatArray, y: FloatArray) -> float:
    def rss(log_c: float) -> float:
        x = f ** np.exp(log_c)
        return float(np.sum(y**2) if constant(x) else _rss(x, y))

    def slope(log_c: float) -> float:
        x = f ** np.exp(log_c)
        return _rss_slope(x, x * np.log(f) * np.exp(log_c), y)

    found = optimize.minimize_scalar(
        rss, bounds=(np.log(0.02), np.log(10.0)), method="bounded", options={"xatol": 1e-6}
    )
    return float(np.exp(_stationary(slope, float(found.x))))


def _critical_fraction(f: FloatArray, y: FloatArray) -> float:
    """f_c of b·(1 − f/f_c)^−a, beyond the largest f; far beyond it the form is b·e^{a f/f_c}."""
    largest = float(f.max())

    def rss(log_excess: float) -> float:
        return _rss(-np.log1p(-f / (largest * (1 + np.exp(log_excess)))), y)

    def slope(log_excess: float) -> float:
        c = largest * (1 + np.exp(log_excess))
        by_c = -f / (c * (c - f))
        return _rss_slope(-np.log1p(-f / c), by_c * largest * np.exp(log_excess), y)

    found = optimize.minimize_scalar(
        rss, bounds=(np.log(1e-3), np.log(FARTHEST)), method="bounded", options={"xatol": 1e-6}
    )
    return largest * (1 + float(np.exp(_stationary(slope, float(found.x)))))


def _rss(x: FloatArray, y: FloatArray) -> float:
    slope = np.sum((x - x.mean()) * (y - y.mean())) / np.sum((x - x.mean()) ** 2)
    return float(np.sum((y - y.mean() - slope * (x - x.mean())) ** 2))


def _rss_slope(x: FloatArray, by_c: FloatArray, y: FloatArray) -> float:
    """Half the derivative of _rss by what x depends on, given dx; the line is fitted anew."""
    centred = x - x.mean()
    slope = np.sum(centred * (y - y.mean())) / np.sum(centred**2)
    residual = y - y.mean() - slope * centred
    return float(-slope * np.sum(residual * by_c))


NEAR = 1e-3  # of a minimum found to a millionth, in its logarithm


def _stationary(slope: Callable[[float], float], found: float) -> float:
    """The minimum to all its digits: where the slope is zero next to where values are lowest.

    A valley is flat, so that values tell half of the digits and the processor's rounding the rest.
    """
    low, high = found - NEAR, found + NEAR
    if not slope(low) < 0 < slope(high):
        return found  # at the end of what is looked through
    return float(optimize.brentq(slope, low, high, xtol=1e-13))


def _line(x: FloatArray, y: FloatArray, form: Form, c: float | None, half: float | None) -> LawFit:
    line = stats.linregress(x, y)
    n, rss = len(x), _rss(x, y)
    free = 3 + (c is not None)  # a, b, the residual variance, and c where it is free
    # An exact fit has no residual; the floor keeps its AIC finite and the smallest.
    aic = n * float(np.log(max(rss / n, 1e-300))) + 2 * free
    return LawFit(
        form=form,
        prime=None,
        a=float(line.slope),
        b=float(np.exp(line.intercept)),
        c=c,
        a_low=None if half is None else float(line.slope) - half,
        a_high=None if half is None else float(line.slope) + half,
        r_squared=_known(float(line.rvalue**2)),
        aic=aic,
        n=n,
        aicc=_aicc(aic, free, n),
    )


def _reach(
    design: FloatArray,
    y: FloatArray,
    prime: IntArray,
    level: float,
    between: frozenset[int] = frozenset(),
) -> list[float]:
    """Half the interval of each coefficient; widths of one prime are not independent.

    Clustered errors have t on G − 1 degrees of freedom; columns `between` differ between primes
    only, so that their slope and the intercept take two of the G.
    """
    fit = least_squares(design, y, prime if can_cluster(prime) else None)
    df = np.full(design.shape[1], fit.df)
    if fit.clusters is not None:
        df[list(between)] = fit.clusters - 2
    return [float(half) for half in stats.t.ppf(0.5 + level / 2, df) * fit.error]


def collapse_test(points: LawPoints) -> Collapse:
    """Residual dependence of T_mem on P at fixed f, clustered by prime."""
    clusters = len(np.unique(points.prime))

    def untestable(reason: str) -> Collapse:
        return Collapse(False, reason, None, None, None, clusters, True)

    if clusters < 2:
        return untestable("one prime: P is a function of f")
    log_f = np.log(points.fraction)
    control = [((log_f - log_f.mean()) ** d) for d in range(CONTROL_DEGREE + 1)]
    design = np.column_stack([*control, np.log10(points.params)])
    if len(points.time) <= design.shape[1] or np.linalg.matrix_rank(design) < design.shape[1]:
        return untestable("too few points for a cubic in log f and log P")
    fit = least_squares(design, np.log10(points.time), points.prime)
    return Collapse(
        testable=True,
        reason="",
        slope=float(fit.value[-1]),
        se=float(fit.error[-1]),
        p=float(fit.p[-1]),
        primes=clusters,
        unreliable=fit.unreliable,
    )


@dataclass(frozen=True, eq=False)
class GeneralisationLaw:
    """T_gen ≈ A·p^c·P^{−β}; with a single prime p^c is not identified and c = 0.

    c differs between primes only: its interval has t on G − 2 degrees of freedom and is None
    below five primes.
    """

    log_a: float
    c: float
    c_low: Annotated[float | None, Field(description="null: fewer than five primes")]
    c_high: float | None
    beta: float
    beta_low: float | None
    beta_high: float | None
    r_squared: float | None
    n: int
    primes: Annotated[int, Field(description="primes among the n widths")]

    def time(self, prime: float, params: FloatArray) -> FloatArray:
        """T_gen at P of one prime."""
        log_t = self.log_a + self.c * np.log(prime) - self.beta * np.log(params)
        return np.asarray(np.exp(log_t), dtype=np.float64)


def generalisation_law(
    points: LawPoints, window: Window | None = GENERALISATION_WINDOW, *, level: float = 0.95
) -> GeneralisationLaw | None:
    """Least squares of log T_gen on log p and log P inside a window of f; None if too few."""
    inside = points.inside(window)
    primes = len(np.unique(inside.prime))
    columns = [np.ones(len(inside.time)), -np.log(inside.params)]
    if primes > 1:
        columns.append(np.log(inside.prime.astype(np.float64)))
    design = np.column_stack(columns)
    if len(inside.time) <= design.shape[1] or np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    fit = sm.OLS(np.log(inside.time), design).fit()
    reach = _reach(design, np.log(inside.time), inside.prime, level, between=frozenset({2}))
    c, beta = float(fit.params[2]) if primes > 1 else 0.0, float(fit.params[1])
    bounded = primes >= LEAST_PRIMES_OF_C
    return GeneralisationLaw(
        log_a=float(fit.params[0]),
        c=c,
        c_low=_known(c - reach[2]) if bounded else None,
        c_high=_known(c + reach[2]) if bounded else None,
        beta=beta,
        beta_low=_known(beta - reach[1]),
        beta_high=_known(beta + reach[1]),
        # Equal times everywhere leave nothing to explain.
        r_squared=_known(float(fit.rsquared)) if fit.centered_tss > 0 else None,
        n=len(inside.time),
        primes=primes,
    )


def _known(value: float) -> float | None:
    """The number where there is one."""
    return value if math.isfinite(value) else None


Predictor = Literal["constant", "size", "crossing", "norm", "norm_per_parameter"]
PREDICTORS: tuple[Predictor, ...] = get_args(Predictor)
LEAST_RUNS = 4  # of the primes that a law is calibrated on


@dataclass(frozen=True, eq=False)
class DelayedRuns:
    """Runs that fitted and generalised, in parallel columns; delays in optimiser steps."""

    prime: IntArray
    params: FloatArray
    p_cross: FloatArray  # of the run's cell, NaN where it has none
    squared_norm: FloatArray  # V at E_train
    rate: FloatArray  # ηλ
    delay: FloatArray  # steps from E_train to E_val, at least 0

    def __post_init__(self) -> None:
        lengths = {len(getattr(self, name)) for name in self.__dataclass_fields__}
        if len(lengths) > 1:
            raise AnalysisError(f"columns of delayed runs differ in length: {sorted(lengths)}")
        if np.any(self.delay < 0) or np.any(self.squared_norm <= 0):
            raise AnalysisError("delays are 0 or more, and squared norms above 0")

    def __len__(self) -> int:
        return len(self.prime)

    def where(self, keep: BoolArray) -> DelayedRuns:
        return DelayedRuns(**{n: getattr(self, n)[keep] for n in self.__dataclass_fields__})


@dataclass(frozen=True)
class HeldOut:
    """One law's errors on primes that it was not calibrated on, in optimiser steps.

    `rmse_by_prime` weighs primes alike; `told_apart` is the share of runs that are rightly said
    to have a delay or none.
    """

    law: Predictor
    runs: int
    primes: int
    rmse: float
    rmse_by_prime: float
    median_error: Annotated[float, Field(description="median of |predicted − measured|")]
    told_apart: float


@dataclass(frozen=True)
class NormCalibration:
    """κ and V* of all primes together; None where delays do not grow with the norm."""

    law: Predictor
    kappa: float | None
    v_star: Annotated[
        float | None, Field(description="squared norm, or per parameter, where delays end")
    ]


@dataclass(frozen=True)
class DelayLaws:
    """Every law's held-out errors, smallest first, and the norm law calibrated on all primes."""

    runs: int
    delayed: Annotated[int, Field(description="of them with a delay above 0")]
    primes: tuple[int, ...]
    held_out: tuple[HeldOut, ...]
    calibration: tuple[NormCalibration, ...]


def delay_laws(runs: DelayedRuns) -> DelayLaws | None:
    """Predict each prime's delays by laws calibrated on the others; None with too few runs.

    All laws are compared on the same runs: those whose cell has a crossing.
    """
    known = runs.where(np.isfinite(runs.p_cross))
    primes = np.unique(known.prime)
    if len(primes) < 3 or len(known) < 2 * LEAST_RUNS:
        return None
    found = [held for law in PREDICTORS if (held := _held_out(known, law, primes)) is not None]
    return DelayLaws(
        runs=len(known),
        delayed=int(np.sum(known.delay > 0)),
        primes=tuple(int(p) for p in primes),
        held_out=tuple(sorted(found, key=lambda held: held.rmse)),
        calibration=tuple(_calibration(known, law) for law in ("norm", "norm_per_parameter")),
    )


def _x(runs: DelayedRuns, law: Predictor) -> FloatArray:
    """What the delay is linear in; the norm's carries 1/(ηλ), so that β = 1/(2κ)."""
    if law == "constant":
        return np.zeros(len(runs))
    if law == "size":
        return np.log(runs.params)
    if law == "crossing":
        return np.log(runs.params / runs.p_cross)
    volume = runs.squared_norm if law == "norm" else runs.squared_norm / runs.params
    return np.asarray(np.log(volume) / runs.rate, dtype=np.float64)


def _ones(runs: DelayedRuns, law: Predictor) -> FloatArray:
    """What α multiplies: V* is one, while ηλ may differ between runs."""
    if law in ("norm", "norm_per_parameter"):
        return np.asarray(1 / runs.rate, dtype=np.float64)
    return np.ones(len(runs))


def _held_out(runs: DelayedRuns, law: Predictor, primes: IntArray) -> HeldOut | None:
    predicted = np.full(len(runs), np.nan)
    for prime in primes:
        out = runs.prime == prime
        kept = runs.where(~out)
        fit = tobit(_ones(kept, law), _x(kept, law), kept.delay)
        if fit is None:
            return None
        own = runs.where(out)
        predicted[out] = np.maximum(0, fit[0] * _ones(own, law) + fit[1] * _x(own, law))
    errors = predicted - runs.delay
    by_prime = [float(np.mean(errors[runs.prime == p] ** 2)) for p in primes]
    return HeldOut(
        law=law,
        runs=len(runs),
        primes=len(primes),
        rmse=float(np.sqrt(np.mean(errors**2))),
        rmse_by_prime=float(np.sqrt(np.mean(by_prime))),
        median_error=float(np.median(np.abs(errors))),
        told_apart=float(np.mean((predicted > 0) == (runs.delay > 0))),
    )


def _calibration(runs: DelayedRuns, law: Predictor) -> NormCalibration:
    fit = tobit(_ones(runs, law), _x(runs, law), runs.delay)
    if fit is None or fit[1] <= 0:
        return NormCalibration(law, None, None)
    return NormCalibration(law, 1 / (2 * fit[1]), float(np.exp(-fit[0] / fit[1])))


def tobit(ones: FloatArray, x: FloatArray, y: FloatArray) -> tuple[float, float] | None:
    """α and β of y = max(0, α·ones + β·x + ε) by maximum likelihood; None if they are unknown.

    In Olsen's parameters (α/σ, β/σ, 1/σ) the likelihood has one maximum. Olsen (1978),
    Econometrica 46, 1211. A constant x leaves β at 0.
    """
    above = y > 0
    if len(y) < LEAST_RUNS or above.sum() < 2:
        return None
    level = not constant(x / ones)
    # Columns of like size, so that the search is well conditioned.
    centre = float(np.mean(x / ones)) if level else 0.0
    scale = float(np.std(x / ones)) if level else 1.0
    unit = float(np.mean(ones))
    design = np.column_stack([ones, (x - centre * ones) / scale])[:, : 1 + level] / unit
    size = float(y[above].std() or y[above].mean())
    target = y / size

    def cost(given: FloatArray) -> tuple[float, FloatArray]:
        gamma, log_theta = given[:-1], given[-1]
        theta = np.exp(log_theta)
        line = design @ gamma
        z = theta * target[above] - line[above]
        low = -line[~above]
        ratio = np.exp(stats.norm.logpdf(low) - stats.norm.logcdf(low))
        value = 0.5 * np.sum(z**2) - above.sum() * log_theta - stats.norm.logcdf(low).sum()
        slope = -design[above].T @ z + design[~above].T @ ratio
        by_theta = np.sum(z * target[above]) * theta - above.sum()
        return float(value), np.append(slope, by_theta)

    start = np.append(np.linalg.lstsq(design, target, rcond=None)[0], 0.0)
    found = optimize.minimize(cost, start, jac=True, method="BFGS", options={"gtol": 1e-8})
    gamma = found.x[:-1] * size / np.exp(found.x[-1]) / unit
    if not np.all(np.isfinite(gamma)):
        return None
    beta = float(gamma[1] / scale) if level else 0.0
    return float(gamma[0]) - beta * centre, beta
