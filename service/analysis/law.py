"""Laws of the two speeds: T_mem against the capacity fraction f, T_gen against p and P."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import statsmodels.api as sm
from scipy import optimize, stats

from service.analysis.inputs import FloatArray, IntArray
from service.analysis.speed_curve import SpeedCurve

Form = Literal["exponential", "power", "stretched"]
Window = tuple[float, float]

MEMORISATION_WINDOW: Window = (0.0, 0.25)
GENERALISATION_WINDOW: Window = (0.08, 1.0)
CONTROL_DEGREE = 3  # of the curve in log f that the collapse test holds fixed
RELIABLE_CLUSTERS = 10
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
        keep = (self.fraction >= window[0]) & (self.fraction <= window[1])
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

    exponential b·e^{af}; power b·f^a; stretched b·e^{a f^c}. The interval of `a` has errors
    clustered by prime where several widths of three primes or more are pooled; the stretched
    form has none, as `a` and `c` go together.
    """

    form: Form
    a: float
    b: float
    c: float | None
    a_low: float | None
    a_high: float | None
    r2: float
    rss: float
    aic: float
    n: int


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
    clusters: int
    unreliable: bool


@dataclass(frozen=True, eq=False)
class MemorisationLaw:
    """T_mem ≈ b·e^{af}: pooled, per prime, against its rivals, and whether primes collapse."""

    window: Window | None
    pooled: LawFit | None
    rivals: tuple[LawFit, ...]  # all forms, smallest AIC first
    per_prime: dict[int, LawFit]
    collapse: Collapse
    points: LawPoints


def memorisation_law(
    points: LawPoints, window: Window | None = MEMORISATION_WINDOW, *, level: float = 0.95
) -> MemorisationLaw:
    """Fit the exponential law and its rivals on a window of f."""
    inside = points.inside(window)
    forms: tuple[Form, ...] = ("exponential", "power", "stretched")
    fits = [fit for form in forms if (fit := fit_law(inside, form, level=level))]
    per_prime = {
        int(p): fit
        for p in np.unique(inside.prime)
        if (fit := fit_law(inside.of_prime(int(p)), "exponential", level=level))
    }
    return MemorisationLaw(
        window=window,
        pooled=next((f for f in fits if f.form == "exponential"), None),
        rivals=tuple(sorted(fits, key=lambda f: f.aic)),
        per_prime=per_prime,
        collapse=collapse_test(inside),
        points=inside,
    )


def fit_law(points: LawPoints, form: Form, *, level: float = 0.95) -> LawFit | None:
    """Least squares of log T; None with fewer points than parameters + 1 or a single f."""
    f, y = points.fraction, np.log(points.time)
    needed = 5 if form == "stretched" else 3
    if len(f) < needed or np.ptp(f) == 0:
        return None
    if form == "stretched":
        c = _best_exponent(f, y)
        return _line(f**c, y, form, c, None)
    x = np.log(f) if form == "power" else f
    return _line(x, y, form, None, _reach(sm.add_constant(x), y, points.prime, level)[1])


def _best_exponent(f: FloatArray, y: FloatArray) -> float:
    def rss(log_c: float) -> float:
        x = f ** np.exp(log_c)
        return float(np.sum(y**2) if np.ptp(x) == 0 else _rss(x, y))

    found = optimize.minimize_scalar(
        rss, bounds=(np.log(0.02), np.log(10.0)), method="bounded", options={"xatol": 1e-6}
    )
    return float(np.exp(found.x))


def _rss(x: FloatArray, y: FloatArray) -> float:
    slope = np.sum((x - x.mean()) * (y - y.mean())) / np.sum((x - x.mean()) ** 2)
    return float(np.sum((y - y.mean() - slope * (x - x.mean())) ** 2))


def _line(x: FloatArray, y: FloatArray, form: Form, c: float | None, half: float | None) -> LawFit:
    line = stats.linregress(x, y)
    n, rss = len(x), _rss(x, y)
    free = 3 + (c is not None)  # a, b, the residual variance, and c where it is free
    # An exact fit has no residual; the floor keeps its AIC finite and the smallest.
    aic = n * float(np.log(max(rss / n, 1e-300))) + 2 * free
    return LawFit(
        form=form,
        a=float(line.slope),
        b=float(np.exp(line.intercept)),
        c=c,
        a_low=None if half is None else float(line.slope) - half,
        a_high=None if half is None else float(line.slope) + half,
        r2=float(line.rvalue**2),
        rss=rss,
        aic=aic,
        n=n,
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
    clusters = len(np.unique(prime))
    if 3 <= clusters < len(y):
        fit = sm.OLS(y, design).fit(cov_type="cluster", cov_kwds={"groups": prime}, use_t=True)
        df = [clusters - 2 if i in between else clusters - 1 for i in range(design.shape[1])]
    else:
        fit = sm.OLS(y, design).fit()
        df = [len(y) - design.shape[1]] * design.shape[1]
    reach = stats.t.ppf(0.5 + level / 2, df) * fit.bse
    return [float(half) for half in reach]


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
    fit = sm.OLS(np.log10(points.time), design).fit(
        cov_type="cluster",
        cov_kwds={"groups": points.prime, "use_correction": True, "df_correction": True},
        use_t=True,
    )
    return Collapse(
        testable=True,
        reason="",
        slope=float(fit.params[-1]),
        se=float(fit.bse[-1]),
        p=float(fit.pvalues[-1]),
        clusters=clusters,
        unreliable=clusters < RELIABLE_CLUSTERS,
    )


@dataclass(frozen=True, eq=False)
class GeneralisationLaw:
    """T_gen ≈ A·p^c·P^{−β}; with a single prime p^c is not identified and c = 0.

    `c_reach` and `beta_reach` are half their intervals. c differs between primes only: its
    interval has t on G − 2 degrees of freedom and is None below five primes.
    """

    window: Window | None
    log_a: float
    c: float
    beta: float
    c_reach: float | None
    beta_reach: float
    r2: float
    n: int
    primes: tuple[int, ...]

    def time(self, prime: float, params: FloatArray) -> FloatArray:
        """T_gen at P of one prime."""
        log_t = self.log_a + self.c * np.log(prime) - self.beta * np.log(params)
        return np.asarray(np.exp(log_t), dtype=np.float64)


def generalisation_law(
    points: LawPoints, window: Window | None = GENERALISATION_WINDOW, *, level: float = 0.95
) -> GeneralisationLaw | None:
    """Least squares of log T_gen on log p and log P inside a window of f; None if too few."""
    inside = points.inside(window)
    primes = tuple(int(p) for p in np.unique(inside.prime))
    columns = [np.ones(len(inside.time)), -np.log(inside.params)]
    if len(primes) > 1:
        columns.append(np.log(inside.prime.astype(np.float64)))
    design = np.column_stack(columns)
    if len(inside.time) <= design.shape[1] or np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    fit = sm.OLS(np.log(inside.time), design).fit()
    reach = _reach(design, np.log(inside.time), inside.prime, level, between=frozenset({2}))
    return GeneralisationLaw(
        window=window,
        log_a=float(fit.params[0]),
        c=float(fit.params[2]) if len(primes) > 1 else 0.0,
        beta=float(fit.params[1]),
        c_reach=reach[2] if len(primes) >= LEAST_PRIMES_OF_C else None,
        beta_reach=reach[1],
        # Equal times everywhere leave nothing to explain.
        r2=float(fit.rsquared) if fit.centered_tss > 0 else float("nan"),
        n=len(inside.time),
        primes=primes,
    )
