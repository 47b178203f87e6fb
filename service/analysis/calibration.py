"""Calibration: is the empirical onset equal to the predicted one, in log10 coordinates?

Absence of a rejection does not say so: an equivalence test asks whether the slope is 1 within a
stated margin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from groktime.service.analysis.inputs import (
    ROUNDING,
    FloatArray,
    IntArray,
    constant,
    merged,
    share_below,
)
from groktime.service.analysis.regression import (
    LEAST_CLUSTERS,
    SmallSampleInterval,
    least_squares,
    median_interval,
)

LOG_P = 10.0  # the size of log10 P, which the rounding of a residual goes by
FEWEST_RESAMPLED = 6  # cells: fewer have too few distinct resamples for an interval


@dataclass(frozen=True)
class Concordance:
    """Lin's concordance with a bootstrap interval over cells, none with fewer than six."""

    value: float
    low: float | None
    high: float | None
    level: float
    interval: Literal["percentile", "bca"]
    n_bootstrap: int
    n: int


@dataclass(frozen=True)
class Line:
    """OLS log10 P_onset = intercept + slope·log10 P_cross and the joint F-test of (0, 1).

    The intervals are t intervals on `df_den` degrees of freedom.
    """

    slope: float
    intercept: float
    slope_se: float
    slope_low: float
    slope_high: float
    intercept_se: float
    intercept_low: float
    intercept_high: float
    level: float
    f: float
    df_num: int
    df_den: int
    p: float
    rss_full: float
    rss_restricted: float


@dataclass(frozen=True)
class ClusteredLine:
    """The same slope with errors clustered by prime, t on G − 1 degrees of freedom.

    Cells of one prime share its data, so they are not independent. Below ten primes the
    sandwich is known to be too small: `unreliable`.
    """

    slope: float
    slope_se: float
    low: float
    high: float
    level: float
    clusters: int
    df: int
    unreliable: bool


@dataclass(frozen=True)
class RobustSlope:
    """A slope that outliers (Theil–Sen) or noise in the predictor (Deming) do not bend."""

    estimator: Literal["theil_sen", "deming"]
    slope: float
    intercept: float
    low: float
    high: float
    level: float


@dataclass(frozen=True)
class SignedRank:
    """Wilcoxon's signed-rank test of the residuals against 0; `floor` is its smallest p."""

    median_residual: float
    interval: SmallSampleInterval  # of the median
    w: float
    p: float
    floor: float
    n: int


def concordance_coefficient(x: FloatArray, y: FloatArray) -> FloatArray:
    """CCC = 2 s_xy / (s_x² + s_y² + (x̄ − ȳ)²) along the last axis, with 1/n moments.

    Lin (1989), Biometrics 45, 255.
    """
    mx, my = x.mean(axis=-1), y.mean(axis=-1)
    cov = (x * y).mean(axis=-1) - mx * my
    denominator = np.asarray(x.var(axis=-1) + y.var(axis=-1) + (mx - my) ** 2)
    # Equal constants have no concordance; rounding must not make one up.
    size = ROUNDING * max(float(np.abs(x).max()), float(np.abs(y).max()))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(denominator > size**2, 2 * cov / denominator, np.nan)


def concordance(
    x: FloatArray,
    y: FloatArray,
    *,
    interval: Literal["percentile", "bca"] = "bca",
    level: float = 0.95,
    n_bootstrap: int = 10_000,
    seed: int = 0,
) -> Concordance | None:
    """Lin's CCC with an interval over resampled cells; None below 3 cells or without spread."""
    n = len(x)
    if n < 3 or (constant(x) and constant(y)):
        return None
    # Moments are taken about a common centre: log10 P is near 5 with a spread near 0.1.
    centre = float(x.mean())
    x, y = x - centre, y - centre
    value = float(concordance_coefficient(x, y))
    if n < FEWEST_RESAMPLED:
        return Concordance(value, None, None, level, interval, 0, n)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, n, size=(n_bootstrap, n))
    resampled = concordance_coefficient(x[drawn], y[drawn])
    resampled = resampled[np.isfinite(resampled)]
    tail = 0.5 * (1 - level)
    tails = (tail, 1 - tail)
    if interval == "bca":
        left_out = np.array([[j for j in range(n) if j != i] for i in range(n)])
        jackknife = concordance_coefficient(x[left_out], y[left_out])
        tails = bca_tails(value, resampled, jackknife, tail)
    low, high = np.quantile(resampled, tails)
    return Concordance(value, float(low), float(high), level, interval, n_bootstrap, n)


def bca_tails(
    value: float, resampled: FloatArray, jackknife: FloatArray, tail: float
) -> tuple[float, float]:
    """The two quantiles a bias-corrected accelerated interval reads off the resamples.

    Efron (1987), J. Am. Stat. Assoc. 82, 171.
    """
    # A resample that is the sample in another order has its value, but for rounding.
    share = np.clip(share_below(resampled, value), 1 / len(resampled), 1 - 1 / len(resampled))
    bias = float(stats.norm.ppf(share))
    pull = jackknife.mean() - jackknife
    spread = float(np.sum(pull**2)) ** 1.5
    acceleration = 0.0 if constant(jackknife) else float(np.sum(pull**3)) / (6 * spread)

    def moved(q: float) -> float:
        z = bias + float(stats.norm.ppf(q))
        return float(stats.norm.cdf(bias + z / (1 - acceleration * z)))

    return moved(tail), moved(1 - tail)


def line(x: FloatArray, y: FloatArray, level: float = 0.95) -> Line | None:
    """OLS and the joint F = ((RSS₀ − RSS)/2) / (RSS/(n − 2)) of slope 1, intercept 0."""
    n = len(x)
    if n < 3 or constant(x):
        return None
    fit = stats.linregress(x, y)
    rss = float(np.sum((y - fit.intercept - fit.slope * x) ** 2))
    restricted = float(np.sum((y - x) ** 2))
    exact = n * (ROUNDING * float(np.abs(y).max())) ** 2  # residuals that are only rounding
    f = ((restricted - rss) / 2) / (rss / (n - 2)) if rss > exact else float("inf")
    f = 0.0 if restricted <= exact else f
    slope, slope_se = float(fit.slope), float(fit.stderr)
    intercept, intercept_se = float(fit.intercept), float(fit.intercept_stderr)
    reach = float(stats.t.ppf(0.5 + level / 2, n - 2))
    return Line(
        slope=slope,
        intercept=intercept,
        slope_se=slope_se,
        slope_low=slope - reach * slope_se,
        slope_high=slope + reach * slope_se,
        intercept_se=intercept_se,
        intercept_low=intercept - reach * intercept_se,
        intercept_high=intercept + reach * intercept_se,
        level=level,
        f=float(f),
        df_num=2,
        df_den=n - 2,
        p=float(stats.f.sf(f, 2, n - 2)),
        rss_full=rss,
        rss_restricted=restricted,
    )


def clustered_line(
    x: FloatArray, y: FloatArray, prime: IntArray, level: float = 0.95
) -> ClusteredLine | None:
    """OLS slope with errors clustered by prime; None with fewer than 3 primes."""
    if len(np.unique(prime)) < LEAST_CLUSTERS or len(x) < 4 or constant(x):
        return None
    fit = least_squares(np.column_stack([np.ones_like(x), x]), y, prime)
    slope, half = float(fit.value[1]), float(fit.reach(level)[1])
    return ClusteredLine(
        slope=slope,
        slope_se=float(fit.error[1]),
        low=slope - half,
        high=slope + half,
        level=level,
        clusters=fit.df + 1,
        df=fit.df,
        unreliable=fit.unreliable,
    )


def theil_sen(x: FloatArray, y: FloatArray, level: float = 0.95) -> RobustSlope | None:
    """Median of pairwise slopes; nearly all x tied leaves no interval, so it is unbounded.

    Sen (1968), J. Am. Stat. Assoc. 63, 1379.
    """
    if len(x) < 3 or constant(x):
        return None
    with np.errstate(invalid="ignore"):
        fit = stats.theilslopes(y, merged(x), alpha=level)
    return RobustSlope(
        "theil_sen",
        float(fit.slope),
        float(fit.intercept),
        float(np.nan_to_num(fit.low_slope, nan=-np.inf)),
        float(np.nan_to_num(fit.high_slope, nan=np.inf)),
        level,
    )


def deming(x: FloatArray, y: FloatArray, level: float = 0.95) -> RobustSlope | None:
    """Orthogonal regression: both coordinates are measured, with noise taken as equal.

    b = (s_yy − s_xx + √((s_yy − s_xx)² + 4 s_xy²)) / 2 s_xy; interval by the jackknife.
    Linnet (1990), Stat. Med. 9, 1463.
    """
    n = len(x)
    if n < 4 or constant(x):
        return None
    left_out = np.array([[j for j in range(n) if j != i] for i in range(n)])
    slope = float(_deming_slope(x, y))
    jackknife = _deming_slope(x[left_out], y[left_out])
    if not (np.isfinite(slope) and np.all(np.isfinite(jackknife))):
        return None
    pseudo = n * slope - (n - 1) * jackknife
    half = float(stats.t.ppf(0.5 + level / 2, n - 2) * pseudo.std(ddof=1) / np.sqrt(n))
    intercept = float(y.mean() - slope * x.mean())
    return RobustSlope("deming", slope, intercept, slope - half, slope + half, level)


def _deming_slope(x: FloatArray, y: FloatArray) -> FloatArray:
    dx = x - x.mean(axis=-1, keepdims=True)
    dy = y - y.mean(axis=-1, keepdims=True)
    sxx, syy, sxy = (dx * dx).sum(-1), (dy * dy).sum(-1), (dx * dy).sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = (syy - sxx + np.sqrt((syy - sxx) ** 2 + 4 * sxy**2)) / (2 * sxy)
    return np.asarray(slope, dtype=np.float64)


def signed_rank(residual: FloatArray, level: float = 0.95) -> SignedRank | None:
    """Wilcoxon signed-rank of log10(P_onset/P_cross) against 0; None when all are zero.

    n residuals of one sign give the smallest two-sided p there is, 2^(1 − n).
    """
    # Residuals are differences of log10 P: zeros and ties are those but for their rounding.
    size = merged(np.append(np.abs(residual), 0.0), scale=LOG_P)[:-1]
    nonzero = int(np.sum(size != 0))
    if nonzero == 0:
        return None
    result = stats.wilcoxon(np.copysign(size, residual))
    return SignedRank(
        median_residual=float(np.median(residual)),
        interval=median_interval(residual, level),
        w=float(result.statistic),
        p=float(result.pvalue),
        floor=float(2.0 ** (1 - nonzero)),
        n=len(residual),
    )


SLOPE_MARGIN = 0.05


@dataclass(frozen=True)
class Equivalence:
    """Two one-sided tests of slope inside 1 ± margin: equivalent when `p` is below α."""

    estimate: float
    low_bound: float
    high_bound: float
    p_lower: float
    p_upper: float
    p: float
    df: int
    errors: str  # which standard error: ols, or clustered by prime


def tost(
    estimate: float,
    se: float,
    df: int,
    *,
    target: float = 1.0,
    margin: float = SLOPE_MARGIN,
    errors: str = "ols",
) -> Equivalence:
    """Schuirmann (1987), J. Pharmacokinet. Biopharm. 15, 657: p is the larger one-sided p."""
    low, high = target - margin, target + margin
    if se > 0:
        p_lower = float(stats.t.sf((estimate - low) / se, df))
        p_upper = float(stats.t.cdf((estimate - high) / se, df))
    else:
        p_lower, p_upper = float(estimate <= low), float(estimate >= high)
    return Equivalence(estimate, low, high, p_lower, p_upper, max(p_lower, p_upper), df, errors)
