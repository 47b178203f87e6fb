"""Do predicted and empirical onsets order the cells alike, and least squares on cells: predictor
columns, ranks, and errors plain or clustered by prime.

With intervals that hold with few cells: of a median and of a rank correlation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import statsmodels.api as sm
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from scipy import stats

from groktime.service.analysis.inputs import ROUNDING, FloatArray, IntArray, constant, merged

PERFECT = 1 - ROUNDING  # a correlation above it is 1 but for rounding


@dataclass(frozen=True)
class SmallSampleInterval:
    """An interval and the level it is asked for; `low` None: these values carry none."""

    low: float | None
    high: float | None
    level: float


def median_interval(values: FloatArray, level: float = 0.95) -> SmallSampleInterval:
    """[x_(k), x_(n+1−k)] with the largest k whose binomial coverage is at least the level.

    Distribution-free; five values or fewer cannot carry 95 %. Conover (1999), Practical
    Nonparametric Statistics, section 3.2.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    tail = (1 - level) / 2 + ROUNDING
    k = int(np.sum(stats.binom.cdf(np.arange(n // 2), n, 0.5) <= tail))
    if k < 1:
        return SmallSampleInterval(None, None, level)
    return SmallSampleInterval(float(ordered[k - 1]), float(ordered[n - k]), level)


def spearman_interval(rho: float, n: int, level: float = 0.95) -> SmallSampleInterval:
    """tanh(atanh ρ ± z·√((1 + ρ²/2)/(n − 3))); none below four cells or with |ρ| = 1.

    At a perfect order the formula would claim certainty. Bonett & Wright (2000),
    Psychometrika 65, 23.
    """
    if n < 4 or abs(rho) > PERFECT:
        return SmallSampleInterval(None, None, level)
    half = float(stats.norm.ppf(0.5 + level / 2)) * float(np.sqrt((1 + rho**2 / 2) / (n - 3)))
    centre = float(np.arctanh(rho))
    return SmallSampleInterval(float(np.tanh(centre - half)), float(np.tanh(centre + half)), level)


@dataclass(frozen=True)
class Spearman:
    """ρ with its interval and its analytic and its shuffled two-sided p.

    `floor` is the smallest p to be expected of perfect order: 1/(B + 1), or 2/n! when so few
    orders exist.
    """

    rho: float
    interval: SmallSampleInterval
    p_analytic: float
    p_permutation: float
    n_permutations: int
    floor: float
    n: int


@dataclass(frozen=True)
class Kendall:
    """τ-b with its two-sided p (exact without ties at small n).

    `floor` is the p of perfect order with the same ties: 2/n! without any.
    """

    tau: float
    p_analytic: float
    floor: float
    n: int


def spearman(
    x: FloatArray,
    y: FloatArray,
    *,
    n_permutations: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Spearman | None:
    """Spearman's ρ; p_perm = (1 + #{|ρ*| ≥ |ρ|}) / (B + 1). None below 3 cells or without spread.

    Phipson & Smyth (2010), Stat. Appl. Genet. Mol. Biol. 9, 39: why one is added.
    """
    n = len(x)
    if n < 3 or constant(x) or constant(y):
        return None
    x, y = merged(x), merged(y)
    result = stats.spearmanr(x, y)
    rx = stats.rankdata(x) - (n + 1) / 2
    ry = stats.rankdata(y) - (n + 1) / 2
    rng = np.random.default_rng(seed)
    order = np.argsort(rng.random((n_permutations, n), dtype=np.float32), axis=1, kind="stable")
    shuffled = ry[order] @ rx / math.sqrt(float(rx @ rx) * float(ry @ ry))
    rho = float(result.statistic)
    hits = int(np.sum(np.abs(shuffled) >= abs(rho) - ROUNDING))
    return Spearman(
        rho=rho,
        interval=spearman_interval(rho, n, level),
        p_analytic=float(result.pvalue),
        p_permutation=(1 + hits) / (n_permutations + 1),
        n_permutations=n_permutations,
        floor=max(1 / (n_permutations + 1), 2 / math.factorial(min(n, 20))),
        n=n,
    )


def kendall(x: FloatArray, y: FloatArray) -> Kendall | None:
    """Kendall's τ-b; None below 3 cells or without spread."""
    if len(x) < 3 or constant(x) or constant(y):
        return None
    x, y = merged(x), merged(y)
    result = stats.kendalltau(x, y)
    floor = stats.kendalltau(np.sort(x), np.sort(y)).pvalue
    return Kendall(float(result.statistic), float(result.pvalue), float(floor), len(x))


LAST_BATCHES_DIFFER = 2.0  # largest over smallest share of a batch that makes them a predictor
RELIABLE_CLUSTERS = 10  # cluster-robust errors rest on many clusters; fewer are marked
LEAST_CLUSTERS = 3
DETERMINED = 1e-12  # share of a column left unexplained by others that imply it
RANK_TOLERANCE = 1e-9  # of a standardised column's norm left after projecting the others out


@dataclass(frozen=True, eq=False)
class Design:
    """Named predictor columns (n, k) without the intercept."""

    names: tuple[str, ...]
    columns: FloatArray

    def __add__(self, other: Design) -> Design:
        return Design(self.names + other.names, np.hstack([self.columns, other.columns]))

    def with_intercept(self) -> FloatArray:
        return np.hstack([np.ones((len(self.columns), 1)), self.columns])


def is_numeric_axis(column: pd.Series) -> bool:
    """Booleans are categories with two levels, everything else numeric is a number."""
    return bool(is_numeric_dtype(column)) and not is_bool_dtype(column)


def empty_design(n: int) -> Design:
    return Design((), np.empty((n, 0)))


def numeric_design(name: str, values: FloatArray) -> Design:
    return Design((name,), np.asarray(values, dtype=np.float64).reshape(-1, 1))


def axis_design(cells: pd.DataFrame, axes: Sequence[str]) -> Design:
    """Each axis as it stands: a numeric column, or indicators of all levels but the first."""
    design = empty_design(len(cells))
    for axis in axes:
        column = cells[axis]
        if is_numeric_axis(column):
            design = design + numeric_design(axis, column.to_numpy(dtype=np.float64))
            continue
        text = column.astype(str).to_numpy()
        for level in sorted(set(text))[1:]:
            indicator = (text == level).astype(np.float64)
            design = design + numeric_design(f"{axis}={level}", indicator)
    return design


def full_rank(design: Design) -> tuple[Design, tuple[str, ...]]:
    """Keep columns in order as long as each adds to the intercept and the kept ones.

    Returns the reduced design and the names left out: constant, or a combination of others.
    """
    basis = [np.full(len(design.columns), 1.0 / np.sqrt(max(len(design.columns), 1)))]
    kept, dropped = [], []
    for k, name in enumerate(design.names):
        column = design.columns[:, k]
        norm = float(np.linalg.norm(column))
        rest = column / norm if norm > 0 else column
        for _ in range(2):  # twice is enough to be orthogonal to rounding
            for direction in basis:
                rest = rest - direction * float(direction @ rest)
        size = float(np.linalg.norm(rest))
        if norm == 0 or size < RANK_TOLERANCE:
            dropped.append(name)
            continue
        basis.append(rest / size)
        kept.append(k)
    names = tuple(design.names[k] for k in kept)
    return Design(names, design.columns[:, kept]), tuple(dropped)


def variance_inflation(design: Design) -> dict[str, float]:
    """VIF_k = 1 / (1 − R²_k) of each column on the others; inf when they determine it."""
    factors = {}
    for k, name in enumerate(design.names):
        names = design.names[:k] + design.names[k + 1 :]
        others, _ = full_rank(Design(names, np.delete(design.columns, k, axis=1)))
        fit = sm.OLS(design.columns[:, k], others.with_intercept()).fit()
        spread, rss = float(fit.centered_tss), float(fit.ssr)
        factors[name] = spread / rss if rss > DETERMINED * spread else float("inf")
    return factors


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Least-squares coefficients with their standard errors, two-sided p and degrees of freedom.

    `clusters` is how many groups the errors are clustered by, None for plain ones.
    """

    value: FloatArray
    error: FloatArray
    p: FloatArray
    df: int
    clusters: int | None

    @property
    def unreliable(self) -> bool:
        """Below ten clusters the sandwich is known to be too small."""
        return self.clusters is not None and self.clusters < RELIABLE_CLUSTERS

    def reach(self, level: float) -> FloatArray:
        """Half the t interval of each coefficient."""
        return np.asarray(stats.t.ppf(0.5 + level / 2, self.df) * self.error, dtype=np.float64)


def least_squares(
    design: FloatArray, y: FloatArray, groups: IntArray | None = None
) -> Coefficients:
    """OLS of y on the design's columns; with `groups`, errors clustered by them.

    Cells and widths of one prime share its data, so they are not independent. Clustered errors
    have t on G − 1 degrees of freedom, with the usual small-sample correction.
    """
    if groups is None:
        fit = sm.OLS(y, design).fit()
        return Coefficients(fit.params, fit.bse, fit.pvalues, len(y) - design.shape[1], None)
    clusters = len(np.unique(groups))
    fit = sm.OLS(y, design).fit(cov_type="cluster", cov_kwds={"groups": groups}, use_t=True)
    return Coefficients(fit.params, fit.bse, fit.pvalues, clusters - 1, clusters)


def can_cluster(groups: IntArray) -> bool:
    """At least three groups, and some with several members."""
    return LEAST_CLUSTERS <= len(np.unique(groups)) < len(groups)
