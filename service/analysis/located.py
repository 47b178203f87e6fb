"""Intervals of a crossing and an onset whose runs were chosen as they came.

Two seeds at a width are too few to be resampled. Instead the seed noise of log T, pooled over all
widths of the cell, is carried through the interpolation by the delta method. Yes and no of a
dozen runs do not tell how steep P(ΔE > 0) is: what is known of that from recorded suites is
weighed with them. How often both intervals cover is simulated in benchmarks/locate.py, with runs
that are chosen by what earlier ones showed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from scipy.special import log_expit

from groktime.service.analysis.inputs import FirstPassages, FloatArray
from groktime.service.analysis.survival import SpeedCurve

MEDIAN_INEFFICIENCY = (1.0, 1.0, 1.35, 1.19, 1.43)  # n · Var(median) / σ², normal, n = 1, 2, …
CURVATURE = 0.08  # of the bracket: what interpolation may be off by (one standard deviation)
# Of ln T_mem − ln T_gen along ln P: at the crossings of recorded cells, how far a cell may be from
# that, and what flatter ones are taken for.
SLOPE, SLOPE_SPREAD, LEAST_SLOPE = -2.6, 0.8, 0.5
NEAR = 0.55  # ln P on both sides of the bracket, within which widths tell the slope
MOST = 3.0  # |ln T_mem − ln T_gen| that counts for the slope
# Of the logistic P(ΔE > 0) along ln P: its scale (0.06 at the ten primes, 0.12 at small ones), and
# how far ln of a cell's may be off.
ONSET_SCALE, ONSET_SCALE_SPREAD = 0.07, 0.9
BEYOND = 2.0  # ln P beyond the runs at which an onset is still looked for


@dataclass(frozen=True)
class Noise:
    """Spread over seeds of ln T_mem and ln T_gen; `weight` counts as that many runs seen.

    The defaults are those of the recorded suites.
    """

    mem: float = 0.12
    gen: float = 0.18
    weight: float = 4.0


def pooled(groups: Iterable[Sequence[float]], expected: float, weight: float) -> float:
    """Spread of ln T over seeds, pooled over widths that have several, pulled to the expected.

    A wild seed counts in full: the median of two is their mean.
    """
    total, runs = weight * expected**2, weight
    for times in groups:
        if len(times) > 1:
            centre = float(np.median(times))
            total += sum((t - centre) ** 2 for t in times)
            runs += len(times) - 1
    return math.sqrt(total / runs)


@dataclass(frozen=True)
class Side:
    """A width beside the root: its weight in the interpolation and its numbers of runs."""

    weight: float
    speed: int
    grok: int


def root_spread(sides: Sequence[Side], slope: float, gap: float, noise: Noise) -> float:
    """Standard deviation of ln P at an interpolated root; `gap` is the bracket's width in ln P."""
    variance = 0.0
    for side in sides:
        for runs, sigma in ((side.speed, noise.mem), (side.grok, noise.gen)):
            n = max(1, runs)
            factor = MEDIAN_INEFFICIENCY[min(n, len(MEDIAN_INEFFICIENCY)) - 1]
            variance += side.weight**2 * sigma**2 * factor / n
    return math.sqrt(variance / slope**2 + (CURVATURE * gap) ** 2)


def slope_at(differences: Mapping[float, float], low: float, high: float, noise: Noise) -> float:
    """Slope of ln T_mem − ln T_gen around two sizes, from the widths near them.

    `differences` are by ln P. Of noisy widths those make the bracket whose noise brought about
    the change of sign, which makes the slope between them steep: by half and more where the
    crossing lies elsewhere. So the slope is a line's through all widths near, pulled to the
    recorded slope as far as noise leaves it open.
    """
    near = [
        (x, min(max(y, -MOST), MOST))
        for x, y in differences.items()
        if not math.isnan(y) and low - NEAR < x < high + NEAR
    ]
    x, y = np.array(near).T
    apart = x - x.mean()
    # In units of 1 / variance of the slope: of the line, and of what is expected.
    line, expected = float(apart @ apart) / (noise.mem**2 + noise.gen**2), SLOPE_SPREAD**-2
    fitted = float(apart @ y) / float(apart @ apart)
    return min((line * fitted + expected * SLOPE) / (line + expected), -LEAST_SLOPE)


def located_limits(
    mem: FirstPassages,
    gen: FirstPassages,
    t_mem: SpeedCurve,
    t_gen: SpeedCurve,
    root: float,
    level: float,
) -> tuple[float, float] | None:
    """Limits of P_cross at an interpolated root; None where a width beside it lacks a kind."""
    log_gen = {float(p): math.log(t) for p, t in zip(t_gen.params, t_gen.centre, strict=True)}
    differences = {
        math.log(p): math.log(t) - log_gen[float(p)]
        for p, t in zip(t_mem.params, t_mem.centre, strict=True)
        if math.isfinite(t) and math.isfinite(log_gen.get(float(p), math.inf))
    }
    at = math.log(root)
    below = [x for x in differences if x <= at]
    above = [x for x in differences if x > at]
    if not below or not above:
        return None
    low, high = max(below), min(above)
    share = (at - low) / (high - low)
    noise = Noise()
    noise = Noise(
        pooled(_by_width(mem), noise.mem, noise.weight),
        pooled(_by_width(gen), noise.gen, noise.weight),
    )
    sides = [
        Side(weight, _count(mem, x), _count(gen, x))
        for x, weight in ((low, 1 - share), (high, share))
    ]
    spread = root_spread(sides, slope_at(differences, low, high, noise), high - low, noise)
    half = spread * NormalDist().inv_cdf(0.5 + level / 2)
    return math.exp(at - half), math.exp(at + half)


def located_onset_limits(
    x: FloatArray, positive: FloatArray, total: FloatArray, level: float
) -> tuple[float, float]:
    """Limits of the x at which half of the runs are delayed: k = `positive` of n at each x.

    A logistic whose place may be anywhere, its scale as recorded suites know it. Both yes and no
    must be among the runs.
    """
    place = np.linspace(x.min() - BEYOND, x.max() + BEYOND, 1201)[:, None]
    off = np.linspace(-2.5, 2.5, 11)  # standard deviations of ln scale
    log_weight = np.empty((len(place), len(off)))
    for column, deviation in enumerate(off):
        eta = (x - place) / (ONSET_SCALE * math.exp(deviation * ONSET_SCALE_SPREAD))
        likelihood = log_expit(eta) @ positive + log_expit(-eta) @ (total - positive)
        log_weight[:, column] = likelihood - 0.5 * deviation**2
    weight = np.exp(log_weight - log_weight.max()).sum(axis=1)
    below = (np.cumsum(weight) - 0.5 * weight) / weight.sum()
    tail = 0.5 * (1 - level)
    low, high = np.interp([tail, 1 - tail], below, place[:, 0])
    return float(low), float(high)


def _by_width(runs: FirstPassages) -> list[list[float]]:
    reached: FloatArray = runs.epoch
    return [
        [math.log(t) for t in reached[runs.params == p] if math.isfinite(t)]
        for p in np.unique(runs.params)
    ]


def _count(runs: FirstPassages, log_params: float) -> int:
    return int(np.sum(np.abs(np.log(runs.params) - log_params) < 1e-9))
