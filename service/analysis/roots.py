"""Sign changes of log T_mem − log T_gen along log P, for one curve or many resampled ones.

Infinities carry the censoring: a difference of +inf says that memorisation was not reached by
the cap while generalisation was (its sign is known, its size is not), −inf the reverse, and
NaN that nothing is known there. A tie counts as memorisation being as fast.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.analysis.inputs import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class SignChanges:
    """All sign changes of B difference curves at K knots; arrays are (K, B).

    Entry [k, b] describes the change that ends at knot k: log P of both ends of where it can
    be (equal for an interpolated root), and whether memorisation becomes the faster one.
    """

    found: BoolArray
    low: FloatArray
    high: FloatArray
    downward: BoolArray
    resolved: IntArray  # (B,) knots with a known sign
    any_slower: BoolArray  # (B,) memorisation slower at some knot
    any_faster: BoolArray  # (B,) memorisation at least as fast at some knot


def knots(params_mem: FloatArray, params_gen: FloatArray) -> FloatArray:
    """All measured log P inside the range both curves cover; between them both are linear."""
    if len(params_mem) == 0 or len(params_gen) == 0:
        return np.empty(0)
    union = np.unique(np.concatenate([params_mem, params_gen]))
    low = max(params_mem.min(), params_gen.min())
    high = min(params_mem.max(), params_gen.max())
    return np.asarray(np.log(union[(union >= low) & (union <= high)]), dtype=np.float64)


def at_knots(log_knots: FloatArray, params: FloatArray, log_t: FloatArray) -> FloatArray:
    """log T at the knots, (K, B), from log T at the widths: measured, or linear in log P.

    Between a reached and an unreached width nothing is known (NaN); between two unreached
    ones the curve is unreached (+inf).
    """
    log_params = np.log(params)
    if len(log_knots) == 0 or np.array_equal(log_params, log_knots):
        return log_t[: len(log_knots)]
    right = np.clip(np.searchsorted(log_params, log_knots), 1, len(log_params) - 1)
    share = (log_knots - log_params[right - 1]) / (log_params[right] - log_params[right - 1])
    values = np.empty((len(log_knots), log_t.shape[1]))
    for k, (r, s) in enumerate(zip(right, share, strict=True)):
        if s in (0.0, 1.0):
            values[k] = log_t[r - 1 if s == 0.0 else r]
            continue
        before, after = log_t[r - 1], log_t[r]
        with np.errstate(invalid="ignore"):  # inf − inf, replaced below
            values[k] = before + s * (after - before)
        both = np.isinf(before) & np.isinf(after)
        values[k][both] = np.inf
        values[k][(np.isinf(before) | np.isinf(after)) & ~both] = np.nan
    return values


def sign_changes(log_knots: FloatArray, difference: FloatArray) -> SignChanges:
    """Find every sign change of `difference` (K, B), linear in log P between knots.

    A change between neighbouring finite knots is a root; next to an unreached side, or across
    knots of unknown sign, it is only bracketed by the two knots around it.
    """
    known = ~np.isnan(difference)
    positive = difference > 0
    found = np.zeros(difference.shape, dtype=np.bool_)
    low = np.zeros(difference.shape)
    high = np.zeros(difference.shape)
    resamples = difference.shape[1]
    last = np.full(resamples, -1, dtype=np.int64)  # latest knot with a known sign
    last_positive = np.zeros(resamples, dtype=np.bool_)
    for k in range(len(difference)):
        all_known = bool(known[k].all())
        turned = (positive[k] != last_positive) & known[k] & (last >= 0)
        at = np.flatnonzero(turned)
        if len(at):
            found[k, at] = True
            low[k, at], high[k, at] = _locate(log_knots, difference, k, last[at], at)
        if all_known:
            last[:] = k
            last_positive = positive[k]
        else:
            last[known[k]] = k
            last_positive = np.where(known[k], positive[k], last_positive)
    return SignChanges(
        found=found,
        low=low,
        high=high,
        downward=found & ~positive,
        resolved=np.add.reduce(known, axis=0, dtype=np.int64),
        any_slower=np.logical_or.reduce(positive, axis=0),
        any_faster=np.logical_or.reduce(known & ~positive, axis=0),
    )


def _locate(
    log_knots: FloatArray, difference: FloatArray, k: int, before: IntArray, at: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Both ends of where the change between knots `before` and k lies, for resamples `at`."""
    d0, d1 = difference[before, at], difference[k, at]
    x0, x1 = log_knots[before], log_knots[k]
    linear = (before == k - 1) & np.isfinite(d0) & np.isfinite(d1)
    gap = np.where(linear, d0 - d1, 1.0)
    root = x0 + (x1 - x0) * np.where(linear, d0, 0.0) / gap
    return np.where(linear, root, x0), np.where(linear, root, np.full_like(x0, x1))
