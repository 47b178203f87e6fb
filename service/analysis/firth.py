"""Firth-penalised logistic regression on grouped counts, and the interval of its midpoint.

Firth (1993), Biometrika 80, 27: the log-likelihood plus ½ log |I(β)|, finite even when the
data are separated. Heinze & Schemper (2002), Stat. Med. 21, 2409: profile intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import optimize
from scipy.special import expit, log_expit, ndtri

from service.analysis.inputs import FloatArray

REACH = 20.0  # how far beyond the data, in their ranges, an interval end is looked for
ITERATIONS = 200
TINY_STEP = 1e-10
SLOPES = 17  # tried at once
ZOOMS = 6  # each narrows the slope eightfold; the maximum is flat, so six are plenty


@dataclass(frozen=True, eq=False)
class Grouped:
    """k = `positive` of n = `total` at each x."""

    x: FloatArray
    positive: FloatArray
    total: FloatArray


@dataclass(frozen=True)
class FirthFit:
    """logit P(y = 1) = intercept + slope·x."""

    intercept: float
    slope: float

    @property
    def midpoint(self) -> float:
        """Where P(y = 1) = ½; NaN without a slope."""
        return -self.intercept / self.slope if self.slope else float("nan")


def penalised_log_likelihood(intercept: FloatArray, slope: FloatArray, data: Grouped) -> FloatArray:
    """Σ k log π + (n − k) log(1 − π) + ½ log |XᵀWX|, W = n π (1 − π), for many (β₀, β₁)."""
    eta = intercept[:, None] + slope[:, None] * data.x
    weight = data.total * expit(eta) * expit(-eta)
    s0, s1, s2 = weight.sum(1), weight @ data.x, weight @ (data.x * data.x)
    determinant = np.maximum(s0 * s2 - s1 * s1, 1e-300)
    likelihood = log_expit(eta) @ data.positive + log_expit(-eta) @ (data.total - data.positive)
    return np.asarray(likelihood + 0.5 * np.log(determinant), dtype=np.float64)


def firth_logit(x: FloatArray, positive: FloatArray, total: FloatArray) -> FirthFit:
    """Fit k of n positives at each x; at least two different x are needed."""
    centre, scale = float(np.mean(x)), float(np.ptp(x))
    intercept, slope = _maximise(Grouped((x - centre) / scale, positive, total))
    return FirthFit(
        intercept=intercept - slope * centre / scale,
        slope=slope / scale,
    )


def midpoint_interval(fit: FirthFit, data: Grouped, level: float) -> tuple[float, float]:
    """Profile-likelihood interval of the midpoint; ∓inf where the profile never rejects.

    It holds the c at which the best fit with P(y = 1 at c) = ½ loses less than ½ χ²₁(level).
    """
    centre, scale = float(np.mean(data.x)), float(np.ptp(data.x))
    scaled = Grouped((data.x - centre) / scale, data.positive, data.total)
    slope, middle = fit.slope * scale, (fit.midpoint - centre) / scale
    best = float(
        penalised_log_likelihood(np.array([-slope * middle]), np.array([slope]), scaled)[0]
    )
    drop = 0.5 * float(ndtri(0.5 + level / 2)) ** 2  # ½ χ²₁(level)

    def excess(c: float) -> float:
        return best - _profile(c, slope, scaled) - drop

    low, high = _end(excess, middle, -1.0), _end(excess, middle, 1.0)
    return centre + scale * low, centre + scale * high


def _maximise(data: Grouped) -> tuple[float, float]:
    """Fisher scoring on Firth's score Σ (k − nπ + h(½ − π)) x, halving steps that overshoot."""
    design = np.column_stack([np.ones_like(data.x), data.x])
    beta = np.zeros(2)
    best = float(penalised_log_likelihood(beta[:1], beta[1:], data)[0])
    for _ in range(ITERATIONS):
        pi = expit(design @ beta)
        weight = data.total * pi * (1 - pi)
        inverse = np.linalg.inv(design.T @ (weight[:, None] * design))
        hat = weight * np.einsum("ij,jk,ik->i", design, inverse, design)
        step = inverse @ (design.T @ (data.positive - data.total * pi + hat * (0.5 - pi)))
        while True:
            value = float(penalised_log_likelihood((beta + step)[:1], (beta + step)[1:], data)[0])
            if value >= best or float(np.abs(step).max()) < TINY_STEP:
                break
            step = step / 2
        beta, best = beta + step, max(value, best)
        if float(np.abs(step).max()) < TINY_STEP:
            break
    return float(beta[0]), float(beta[1])


def _profile(c: float, slope: float, data: Grouped) -> float:
    """Penalised log-likelihood maximised over the slope, the midpoint held at c.

    Zooming in on the best of a row of slopes: one array operation for each zoom.
    """
    low, high = -4.0 * abs(slope) - 10.0, 4.0 * abs(slope) + 10.0
    best = -np.inf
    for _ in range(ZOOMS):
        slopes = np.linspace(low, high, SLOPES)
        values = penalised_log_likelihood(-slopes * c, slopes, data)
        at = int(np.argmax(values))
        best = max(best, float(values[at]))
        low, high = slopes[max(at - 1, 0)], slopes[min(at + 1, SLOPES - 1)]
    return best


def _end(excess: Callable[[float], float], middle: float, side: float) -> float:
    """The nearest point on one side where the profile drops by the critical amount."""
    inside, step = middle, 0.05
    while step < REACH:
        outside = middle + side * step
        if excess(outside) > 0:
            return float(optimize.brentq(excess, inside, outside, xtol=1e-6))
        inside, step = outside, step * 1.6
    return side * float(np.inf)
