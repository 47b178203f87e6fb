"""Rank predictiveness: do predicted and empirical onsets order the cells alike?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from service.analysis.inputs import FloatArray
from service.analysis.small_samples import SmallSampleInterval, spearman_interval


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
    if n < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    result = stats.spearmanr(x, y)
    rx = stats.rankdata(x) - (n + 1) / 2
    ry = stats.rankdata(y) - (n + 1) / 2
    rng = np.random.default_rng(seed)
    order = np.argsort(rng.random((n_permutations, n), dtype=np.float32), axis=1)
    shuffled = ry[order] @ rx / math.sqrt(float(rx @ rx) * float(ry @ ry))
    rho = float(result.statistic)
    hits = int(np.sum(np.abs(shuffled) >= abs(rho) - 1e-12))
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
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    result = stats.kendalltau(x, y)
    floor = stats.kendalltau(np.sort(x), np.sort(y)).pvalue
    return Kendall(float(result.statistic), float(result.pvalue), float(floor), len(x))
