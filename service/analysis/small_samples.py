"""Intervals that hold with few cells: of a median and of a rank correlation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from service.analysis.inputs import FloatArray

PERFECT = 1 - 1e-12  # a correlation above it is 1 but for rounding


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
    k = int(stats.binom.ppf((1 - level) / 2, n, 0.5)) if n else 0
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
