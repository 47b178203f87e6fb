"""Where two speed curves meet along log P: sign changes, and the paper's closest approach.

A speed curve is handled as its rate 1/T, which is linear in log P between neighbouring widths:
of the coordinates tried on all recordings these predict a width that was left out best (see
docs/statistics.md). A rate of 0 says that the centre was not reached: below which rate it lies is
known from how long the runs were watched. NaN says that nothing is known. A tie counts as
memorisation being as fast.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from groktime.service.analysis.inputs import (
    ROUNDING,
    BoolArray,
    FloatArray,
    IntArray,
    first_smallest,
)


@dataclass(frozen=True, eq=False)
class Rates:
    """One curve at K knots: 1/T of B resamples, (K, B), and the rate an unreached one is below."""

    rate: FloatArray
    bound: FloatArray  # (K,)

    def at(self, rows: IntArray) -> Rates:
        """The curve at some of the knots."""
        return Rates(self.rate[rows], self.bound[rows])


@dataclass(frozen=True, eq=False)
class SignChanges:
    """All sign changes of B pairs of curves at K knots; arrays are (K, B).

    Entry [k, b] describes the change that ends at knot k, and whether memorisation becomes the
    faster one there. `place` tells where it is.
    """

    log_knots: FloatArray  # (K,)
    mem: Rates
    gen: Rates
    known: BoolArray  # the order at the knot
    found: BoolArray
    downward: BoolArray
    resolved: IntArray  # (B,) knots with a known sign
    first: FloatArray  # (B,) log P of the first of them, NaN without any
    last: FloatArray  # (B,) and of the last
    any_slower: BoolArray  # (B,) memorisation slower at some knot
    any_faster: BoolArray  # (B,) memorisation at least as fast at some knot

    def place(self, k: IntArray, at: IntArray) -> tuple[FloatArray, FloatArray]:
        """log P of both ends of where the changes that end at knots `k` of resamples `at` can be.

        They are equal for an interpolated root.
        """
        before = k - 1  # the last knot of known sign: mostly the neighbour
        further = np.flatnonzero(~self.known[before, at])
        if len(further):
            known = self.known[:, at[further]] & (np.arange(len(self.known))[:, None] < k[further])
            before[further] = len(known) - 1 - np.argmax(known[::-1], axis=0)
        linear = before == k - 1
        for rate in (self.mem.rate, self.gen.rate):
            linear &= (rate[before, at] > 0) & (rate[k, at] > 0)
        d0 = self.gen.rate[before, at] - self.mem.rate[before, at]
        d1 = self.gen.rate[k, at] - self.mem.rate[k, at]
        x0, x1 = self.log_knots[before], self.log_knots[k]
        gap = np.where(linear, d0 - d1, 1.0)
        root = x0 + (x1 - x0) * np.where(linear, d0, 0.0) / gap
        return np.where(linear, root, x0), np.where(linear, root, x1)


def knots(params_mem: FloatArray, params_gen: FloatArray) -> FloatArray:
    """All measured P inside the range both curves cover; between them both are interpolated."""
    if len(params_mem) == 0 or len(params_gen) == 0:
        return np.empty(0)
    union = np.unique(np.concatenate([params_mem, params_gen]))
    low = max(params_mem.min(), params_gen.min())
    high = min(params_mem.max(), params_gen.max())
    return np.asarray(union[(union >= low) & (union <= high)], dtype=np.float64)


def at_knots(at: FloatArray, params: FloatArray, rate: FloatArray, horizon: FloatArray) -> Rates:
    """The rates (widths, B) of one curve at the knots: measured, or linear in log P.

    Between a reached and an unreached width nothing is known (NaN); between two unreached ones
    the curve is unreached (0). `horizon` is how long each width was watched. Widths are matched
    by P itself, which is a whole number.
    """
    with np.errstate(divide="ignore"):
        bound = 1 / horizon
    if len(at) == 0 or np.array_equal(params, at):
        return Rates(rate[: len(at)], bound[: len(at)])
    right = np.clip(np.searchsorted(params, at), 1, len(params) - 1)
    left = right - 1
    own = np.where(params[left] == at, left, right)
    rates, bounds = rate[own], bound[own]
    between = np.flatnonzero(params[own] != at)
    if len(between):
        left, right = left[between], right[between]
        log_params = np.log(params)
        share = (np.log(at)[between] - log_params[left]) / (log_params[right] - log_params[left])
        inside = rate[right]
        inside -= rate[left]
        inside *= share[:, None]
        inside += rate[left]
        inside[(rate[left] == 0) != (rate[right] == 0)] = np.nan
        rates[between], bounds[between] = inside, np.maximum(bound[left], bound[right])
    return Rates(rates, bounds)


def deciding_knots(mem: Rates, gen: Rates) -> BoolArray:
    """The knots that can tell resamples apart: of open sign, their neighbours and both ends.

    Both curves come as the least and the largest rate of any resample, (K, 2). In a stretch of
    knots at which all resamples have one sign nothing changes: its ends are enough.
    """
    slower = gen.rate[:, 0] > mem.rate[:, 1] * (1 + 10 * ROUNDING)
    faster = mem.rate[:, 0] > gen.rate[:, 1] * (1 + 10 * ROUNDING)
    reached = (mem.rate[:, 0] > 0) & (gen.rate[:, 0] > 0)
    keep = np.asarray(~(reached & (slower | faster)), dtype=np.bool_)
    differ = keep[1:] | keep[:-1] | (slower[1:] != slower[:-1])
    keep[1:] |= differ
    keep[:-1] |= differ
    keep[[0, -1]] = True
    return keep


def sign_changes(log_knots: FloatArray, mem: Rates, gen: Rates) -> SignChanges:
    """Every change of which curve is the faster one, its place linear in log P between knots.

    A change between neighbouring knots at which both were reached is a root; next to an
    unreached side, or across knots of unknown sign, it is only bracketed by the knots around it.
    """
    positive = gen.rate > mem.rate * (1 + ROUNDING)
    known = (mem.rate > 0) & (gen.rate > 0)
    partly = np.flatnonzero(~known.all(axis=1))
    if len(partly):
        known[partly] |= _known_beside_unreached(mem.at(partly), gen.at(partly))
        positive &= known
    found = np.zeros(known.shape, dtype=np.bool_)
    resamples = known.shape[1]
    last = np.full(resamples, len(known) - 1, dtype=np.int64)  # latest knot of known sign
    if known.all():
        np.not_equal(positive[1:], positive[:-1], out=found[1:])
    else:
        last[:] = -1
        last_positive = np.zeros(resamples, dtype=np.bool_)
        for k in range(len(known)):
            found[k] = (positive[k] != last_positive) & known[k] & (last >= 0)
            last[known[k]] = k
            last_positive = np.where(known[k], positive[k], last_positive)
    resolved = np.add.reduce(known, axis=0, dtype=np.int64)
    nothing = resolved == 0
    padded = np.append(log_knots, np.nan)  # a last entry for a resample without any known knot
    return SignChanges(
        log_knots=log_knots,
        mem=mem,
        gen=gen,
        known=known,
        found=found,
        downward=found & ~positive,
        resolved=resolved,
        first=padded[np.where(nothing, -1, np.argmax(known, axis=0) if len(known) else -1)],
        last=padded[last],
        any_slower=np.logical_or.reduce(positive, axis=0),
        any_faster=np.logical_or.reduce(known & ~positive, axis=0),
    )


def _known_beside_unreached(mem: Rates, gen: Rates) -> BoolArray:
    """One curve unreached, and watched at least as long as the other took to be reached."""
    return np.asarray(
        ((mem.rate == 0) & (gen.rate > 0) & (gen.rate >= mem.bound[:, None]))
        | ((gen.rate == 0) & (mem.rate > 0) & (mem.rate >= gen.bound[:, None])),
        dtype=np.bool_,
    )


GRID_POINTS = 1000


@dataclass(frozen=True)
class ClosestApproach:
    """A point that exists whether or not the curves cross.

    `at_edge` says that the grid's first or last point won, which happens when they never meet.
    """

    params: float
    epochs: float
    at_edge: bool


def closest_approach(
    params_mem: FloatArray, t_mem: FloatArray, params_gen: FloatArray, t_gen: FloatArray
) -> ClosestApproach | None:
    """argmin |log T_mem(P) − log T_gen(P)| over 1,000 log-spaced P of the curves' common range.

    Both curves are interpolated linearly in P and T, and the epoch is the midpoint of the two
    there. None when a curve has fewer than two points or the ranges do not overlap.
    """
    if len(params_mem) < 2 or len(params_gen) < 2:
        return None
    low = max(float(params_mem.min()), float(params_gen.min()))
    high = min(float(params_mem.max()), float(params_gen.max()))
    if high < low:
        return None
    grid = np.geomspace(low, high, GRID_POINTS)
    by_mem, by_gen = np.argsort(params_mem, kind="stable"), np.argsort(params_gen, kind="stable")
    mem = np.interp(grid, params_mem[by_mem], t_mem[by_mem])
    gen = np.interp(grid, params_gen[by_gen], t_gen[by_gen])
    at = first_smallest(np.abs(np.log(mem) - np.log(gen)), scale=1.0)
    return ClosestApproach(
        params=float(grid[at]),
        epochs=float(0.5 * (mem[at] + gen[at])),
        at_edge=at in (0, GRID_POINTS - 1),
    )
