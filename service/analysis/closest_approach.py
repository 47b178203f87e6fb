"""The paper's crossing: where two seed-averaged speed curves come closest on a grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.analysis.inputs import FloatArray

GRID_POINTS = 1000


@dataclass(frozen=True)
class ClosestApproach:
    """A point that always exists, whether or not the curves cross; `gap` tells the difference.

    `gap` is |T_mem − T_gen| there and `at_edge` says that the grid's first or last point won,
    which is what happens when the curves never meet.
    """

    params: float
    epochs: float
    gap: float
    at_edge: bool


def closest_approach(
    params_mem: FloatArray, t_mem: FloatArray, params_gen: FloatArray, t_gen: FloatArray
) -> ClosestApproach | None:
    """argmin |T_mem(P) − T_gen(P)| over 1,000 log-spaced P of the curves' common range.

    Both curves are interpolated linearly in P and T, and the epoch is the midpoint of the two
    there. None when a curve has no point or the ranges do not overlap.
    """
    if len(params_mem) == 0 or len(params_gen) == 0:
        return None
    low = max(float(params_mem.min()), float(params_gen.min()))
    high = min(float(params_mem.max()), float(params_gen.max()))
    if high < low:
        return None
    grid = np.geomspace(low, high, GRID_POINTS)
    by_mem, by_gen = np.argsort(params_mem), np.argsort(params_gen)
    mem = np.interp(grid, params_mem[by_mem], t_mem[by_mem])
    gen = np.interp(grid, params_gen[by_gen], t_gen[by_gen])
    gap = np.abs(mem - gen)
    at = int(np.argmin(gap))
    return ClosestApproach(
        params=float(grid[at]),
        epochs=float(0.5 * (mem[at] + gen[at])),
        gap=float(gap[at]),
        at_edge=at in (0, GRID_POINTS - 1),
    )
