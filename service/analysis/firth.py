"""Firth-penalised logistic regression on grouped counts, and the interval of its midpoint.

Firth (1993), Biometrika 80, 27: the log-likelihood plus ½ log |I(β)|, finite even when the
data are separated. Heinze & Schemper (2002), Stat. Med. 21, 2409: profile intervals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats
from scipy.special import expit, log_expit

from service.analysis.inputs import FloatArray

REACH = 20.0  # how far beyond the data, in their ranges, an interval end is looked for


@dataclass(frozen=True)
class FirthFit:
    """logit P(y = 1) = intercept + slope·x, its midpoint −intercept/slope and an interval.

    An end of the interval at ∓inf means that the profile never rejects on that side.
    """

    intercept: float
    slope: float
    midpoint: float
    low: float
    high: float
    level: float
    log_likelihood: float  # penalised


def penalised_log_likelihood(
    beta: FloatArray, x: FloatArray, positive: FloatArray, total: FloatArray
) -> float:
    """Σ k log π + (n − k) log(1 − π) + ½ log |XᵀWX| with W = n π (1 − π)."""
    eta = beta[0] + beta[1] * x
    weight = total * expit(eta) * expit(-eta)
    s0, s1, s2 = weight.sum(), (weight * x).sum(), (weight * x * x).sum()
    determinant = s0 * s2 - s1 * s1
    if not determinant > 0:
        return -np.inf
    likelihood = positive * log_expit(eta) + (total - positive) * log_expit(-eta)
    return float(likelihood.sum() + 0.5 * np.log(determinant))


def firth_logit(
    x: FloatArray, positive: FloatArray, total: FloatArray, level: float = 0.95
) -> FirthFit:
    """Fit k of n positives at each x; at least two different x are needed."""
    centre, scale = float(np.mean(x)), float(np.ptp(x))
    z = (x - centre) / scale
    fit = optimize.minimize(
        lambda b: -penalised_log_likelihood(b, z, positive, total),
        np.array([0.0, 1.0]),
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-12, "maxiter": 4000, "maxfev": 4000},
    )
    intercept, slope = (float(b) for b in fit.x)
    best = -float(fit.fun)
    drop = 0.5 * float(stats.chi2.ppf(level, 1))
    middle = -intercept / slope

    def excess(c: float) -> float:
        return best - _profile(c, slope, z, positive, total) - drop

    low, high = _end(excess, middle, -1.0), _end(excess, middle, 1.0)
    return FirthFit(
        intercept=intercept - slope * centre / scale,
        slope=slope / scale,
        midpoint=centre + scale * middle,
        low=centre + scale * low,
        high=centre + scale * high,
        level=level,
        log_likelihood=best,
    )


def _profile(
    c: float, slope: float, z: FloatArray, positive: FloatArray, total: FloatArray
) -> float:
    """Penalised log-likelihood maximised over the slope, the midpoint held at c."""
    reach = 4.0 * abs(slope) + 10.0
    tries = np.linspace(-reach, reach, 81)
    values = [penalised_log_likelihood(np.array([-b * c, b]), z, positive, total) for b in tries]
    at = int(np.argmax(values))
    low, high = tries[max(at - 1, 0)], tries[min(at + 1, len(tries) - 1)]
    found = optimize.minimize_scalar(
        lambda b: -penalised_log_likelihood(np.array([-b * c, b]), z, positive, total),
        bounds=(low, high),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return max(-float(found.fun), values[at])


def _end(excess, middle: float, side: float) -> float:  # type: ignore[no-untyped-def]
    """The nearest point on one side where the profile drops by the critical amount."""
    inside, step = middle, 0.05
    while step < REACH:
        outside = middle + side * step
        if excess(outside) > 0:
            return float(optimize.brentq(excess, inside, outside, xtol=1e-9))
        inside, step = outside, step * 1.6
    return side * float(np.inf)
