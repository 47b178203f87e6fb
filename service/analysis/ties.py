"""Numbers that are equal but for rounding.

Processors and libraries add in different orders, so that two sums of the same terms may differ
in their last digits. Wherever an answer hangs on which of two numbers is larger, numbers that
close are taken as equal: otherwise the answer would change with the machine.
"""

from __future__ import annotations

import numpy as np

from groktime.service.analysis.inputs import FloatArray

ROUNDING = 1e-10  # of the numbers' size: far above rounding, far below any real difference


def constant(values: FloatArray) -> bool:
    """All values equal but for rounding; true of none or one."""
    return len(values) < 2 or float(np.ptp(values)) <= ROUNDING * float(np.abs(values).max())


def merged(values: FloatArray, scale: float | None = None) -> FloatArray:
    """The values with those of one tie made exactly equal, so that ranks are shared.

    Neighbours in order that differ by less than rounding of `scale` (by default the largest
    value's size) are one tie, and get its smallest value.
    """
    values = np.asarray(values, dtype=np.float64)
    if len(values) < 2:
        return values
    reach = ROUNDING * (float(np.abs(values).max()) if scale is None else scale)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.concatenate([[True], np.diff(ordered) > reach])
    result = np.empty_like(values)
    result[order] = ordered[starts][np.cumsum(starts) - 1]
    return result


def share_below(values: FloatArray, reference: float) -> float:
    """The share of values below a reference, a tie counting one half."""
    reach = ROUNDING * max(abs(reference), float(np.abs(values).max(initial=0.0)))
    below = np.sum(values < reference - reach)
    tied = np.sum(np.abs(values - reference) <= reach)
    return float((below + 0.5 * tied) / len(values))


def first_smallest(values: FloatArray, scale: float | None = None) -> int:
    """The index of the first value that is the smallest but for rounding of `scale`."""
    least = float(np.min(values))
    reach = ROUNDING * (abs(least) if scale is None else scale)
    return int(np.argmax(values <= least + reach))
