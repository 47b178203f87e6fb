"""Rank predictiveness: do predicted and empirical onsets order the cells alike?

With intervals that hold with few cells: of a median and of a rank correlation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from groktime.service.analysis.inputs import FloatArray
from groktime.service.analysis.ties import ROUNDING, constant, merged

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
