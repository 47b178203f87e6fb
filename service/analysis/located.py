"""The interval of a crossing whose runs were chosen as they came, below five common seeds.

Two seeds at a width are too few to be resampled. Instead the seed noise of log T, pooled over all
widths of the cell, is carried through the interpolation by the delta method. The factor between
that standard deviation and the interval is calibrated by simulation, for runs that are chosen by
what earlier ones showed (benchmarks/locate.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from groktime.service.analysis.inputs import FirstPassages, FloatArray
from groktime.service.analysis.survival import SpeedCurve

MEDIAN_INEFFICIENCY = (1.0, 1.0, 1.35, 1.19, 1.43)  # n · Var(median) / σ², normal, n = 1, 2, …
CURVATURE = 0.08  # of the bracket: what interpolation may be off by (one standard deviation)
FACTOR = 1.9  # half of a 95 % interval in standard deviations
LEAST_SLOPE = 0.5  # of ln T_mem − ln T_gen along ln P: flatter ones are taken as this flat
NEAR = 0.55  # ln P on both sides of the bracket, within which widths tell the slope
MOST = 3.0  # |ln T_mem − ln T_gen| that counts for the slope
WILD = 2.5  # spreads from the median beyond which a seed tells no more about the noise


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

    Medians are reported, which one wild seed does not move: nor does it here.
    """
    total, runs = weight * expected**2, weight
    for times in groups:
        if len(times) > 1:
            centre = float(np.median(times))
            total += sum(min(abs(t - centre), WILD * expected) ** 2 for t in times)
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


def slope_at(differences: Mapping[float, float], low: float, high: float) -> float:
    """Slope of ln T_mem − ln T_gen between two sizes, the flatter of two ways to tell it.

    `differences` are by ln P, the two among them. Two noisy neighbours make any slope steep, so
    widths near them are asked as well.
    """
    chord = (differences[high] - differences[low]) / (high - low)
    near = [
        (x, min(max(y, -MOST), MOST))
        for x, y in differences.items()
        if not math.isnan(y) and low - NEAR < x < high + NEAR
    ]
    fitted = -math.inf
    if len(near) > 2:
        x, y = np.array(near).T
        fitted = float(np.polyfit(x, y, 1)[0])
    return min(max(chord, fitted), -LEAST_SLOPE)


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
    spread = root_spread(sides, slope_at(differences, low, high), high - low, noise)
    half = FACTOR * spread * NormalDist().inv_cdf(0.5 + level / 2) / NormalDist().inv_cdf(0.975)
    return math.exp(at - half), math.exp(at + half)


def _by_width(runs: FirstPassages) -> list[list[float]]:
    reached: FloatArray = runs.epoch
    return [
        [math.log(t) for t in reached[runs.params == p] if math.isfinite(t)]
        for p in np.unique(runs.params)
    ]


def _count(runs: FirstPassages, log_params: float) -> int:
    return int(np.sum(np.abs(np.log(runs.params) - log_params) < 1e-9))
