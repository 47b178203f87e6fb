"""Cells of many settings at once: is the order kept within each, and does the offset drift?

Three primes cannot test an order by themselves (a perfect one comes by chance once in six), so
the order is tested over all settings together, with onsets exchanged only within a setting.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats
from statsmodels.regression.mixed_linear_model import MixedLM
from statsmodels.tools.sm_exceptions import ConvergenceWarning

from groktime.service.analysis.cells import log_pair, usable
from groktime.service.analysis.inputs import FloatArray
from groktime.service.analysis.ties import constant, merged

ENUMERATED = 7  # cells of a setting with ties whose orders are all counted
SHUFFLES = 20_000  # beyond that
POWER = 0.8


@dataclass(frozen=True)
class StratumOrder:
    """One setting: pairs of cells whose onsets lie as their crossings do, and the other way.

    `p` is that of Kendall's S, two-sided; None below `FEWEST_TESTED` cells.
    """

    stratum: str
    n: int
    in_order: int
    out_of_order: int
    p: float | None


@dataclass(frozen=True)
class StratifiedOrder:
    """All settings together: S = pairs in order − pairs out of order, permuted within settings.

    `floor` is the p of an order kept everywhere.
    """

    strata: tuple[StratumOrder, ...]
    in_order: int
    out_of_order: int
    p: float
    floor: float
    n: int


FEWEST_TESTED = 5


def stratified_order(cells: pd.DataFrame, stratum: str) -> StratifiedOrder | None:
    """Kendall's S summed over the strata, with its exact permutation distribution.

    Strata are independent under the null, so their distributions are convolved. Korn (1984),
    Am. Stat. 38, 61. None where no stratum has two cells that differ in both points.
    """
    rows: list[StratumOrder] = []
    total = np.ones(1)
    best = 0
    for name, group in usable(cells).groupby(stratum, sort=True):
        x, y = (merged(values) for values in log_pair(group))
        if len(x) < 2 or constant(x) or constant(y):
            continue
        signs = _signs(x, y)
        in_order, out = int(np.sum(signs > 0)), int(np.sum(signs < 0))
        null = _null(x, y)
        p = _two_sided(null, in_order - out) if len(x) >= FEWEST_TESTED else None
        rows.append(StratumOrder(str(name), len(x), in_order, out, p))
        total = np.convolve(total, null)
        best += (len(null) - 1) // 2
    if not rows:
        return None
    in_order, out = (sum(getattr(r, n) for r in rows) for n in ("in_order", "out_of_order"))
    return StratifiedOrder(
        strata=tuple(rows),
        in_order=in_order,
        out_of_order=out,
        p=_two_sided(total, in_order - out),
        floor=_two_sided(total, best),
        n=sum(row.n for row in rows),
    )


def _signs(x: FloatArray, y: FloatArray) -> FloatArray:
    first, second = np.triu_indices(len(x), 1)
    return np.asarray(np.sign(x[second] - x[first]) * np.sign(y[second] - y[first]))


def _null(x: FloatArray, y: FloatArray) -> FloatArray:
    """Probabilities of S = −m … m when the onsets stand in any order; m: the largest |S|."""
    n = len(x)
    if len(np.unique(x)) == n and len(np.unique(y)) == n:
        counts = np.ones(1)  # of orders with 0, 1, … pairs out of order
        for size in range(2, n + 1):
            counts = np.convolve(counts, np.ones(size))
        spread = np.zeros(2 * len(counts) - 1)  # S = m − 2·(pairs out of order)
        spread[::2] = counts[::-1]
        return np.asarray(spread / spread.sum())
    if n <= ENUMERATED:
        orders: Sequence[Sequence[int]] = list(itertools.permutations(range(n)))
    else:
        rng = np.random.default_rng(0)
        orders = [rng.permutation(n).tolist() for _ in range(SHUFFLES)]
    sums = np.array([int(_signs(x, y[list(order)]).sum()) for order in orders])
    most = int(abs(_signs(np.sort(x), np.sort(y))).sum())
    return np.bincount(sums + most, minlength=2 * most + 1) / len(orders)


def _two_sided(null: FloatArray, observed: int) -> float:
    values = np.arange(len(null)) - (len(null) - 1) // 2
    return float(min(1.0, null[np.abs(values) >= abs(observed)].sum()))


@dataclass(frozen=True)
class OffsetModel:
    """residual = prime (fixed) + setting (random) + noise, by restricted likelihood.

    `between` and `within` are standard deviations in dex: of the settings, and of a cell around
    its prime and setting. `share` of the variance that lies between settings. `converged` False:
    the numbers are rough.
    """

    between: float
    within: float
    share: float
    n: int
    n_settings: int
    n_primes: int
    converged: bool


def offset_model(cells: pd.DataFrame, stratum: str) -> OffsetModel | None:
    """How much of the offset belongs to the setting; None where nothing is left to tell them apart.

    Laird & Ware (1982), Biometrics 38, 963.
    """
    good = usable(cells)
    settings, primes = good[stratum].astype(str), good["p"]
    n, n_settings, n_primes = len(good), settings.nunique(), primes.nunique()
    if n_settings < 3 or n - n_primes - n_settings < 1:
        return None
    x, y = log_pair(good)
    design = pd.get_dummies(primes, drop_first=True, dtype=float).to_numpy()
    design = np.column_stack([np.ones(n), design])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit = MixedLM(y - x, design, groups=settings.to_numpy()).fit(reml=True)
    between = max(0.0, float(np.asarray(fit.cov_re).ravel()[0]))
    within = float(fit.scale)
    return OffsetModel(
        between=math.sqrt(between),
        within=math.sqrt(within),
        share=between / (between + within),
        n=n,
        n_settings=n_settings,
        n_primes=n_primes,
        converged=bool(fit.converged)
        and not any(issubclass(w.category, ConvergenceWarning) for w in said),
    )


def detectable_slope(
    values: Sequence[float], spread: float, *, level: float = 0.95, power: float = POWER
) -> float | None:
    """The smallest drift (dex a unit) that cells at these values would show with this power.

    `spread`: standard deviation of residuals around the line. None below three cells or where
    all values are equal.
    """
    x = np.asarray(values, dtype=np.float64)
    df = len(x) - 2
    if df < 1 or constant(x):
        return None
    error = spread / math.sqrt(float(np.sum((x - x.mean()) ** 2)))
    return float((stats.t.ppf(0.5 + level / 2, df) + stats.t.ppf(power, df)) * error)
