"""A speed curve: the centre over seeds of one cell's first passages, at every width."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.analysis.inputs import FirstPassages, FloatArray, IntArray
from service.analysis.survival import CountArray, censoring_times, median_under_weights


@dataclass(frozen=True, eq=False)
class SpeedCurve:
    """Parallel arrays over widths, ascending in P; `centre` is +inf where not reached."""

    width: IntArray
    params: FloatArray
    centre: FloatArray


def mean_over_reached(runs: FirstPassages) -> SpeedCurve:
    """The paper's centre: the mean over seeds that reached the threshold; other widths vanish.

    Dropping the seeds that never reached it is survivorship bias: kept to reproduce.
    """
    width, params, centre = [], [], []
    for w in np.unique(runs.width):
        here = (runs.width == w) & ~np.isnan(runs.epoch)
        if np.any(here):
            width.append(w)
            params.append(runs.params[here][0])
            centre.append(runs.epoch[here].mean())
    order = np.argsort(np.array(params)) if params else np.array([], dtype=np.int64)
    return SpeedCurve(
        np.array(width, dtype=np.int64)[order],
        np.array(params, dtype=np.float64)[order],
        np.array(centre, dtype=np.float64)[order],
    )


def kaplan_meier_curve(runs: FirstPassages) -> SpeedCurve:
    """The robust centre: the Kaplan–Meier median over seeds at each width."""
    curve, medians = medians_under_weights(
        runs, np.array(runs.seeds), np.ones((len(runs.seeds), 1), dtype=np.uint8)
    )
    return SpeedCurve(curve.width, curve.params, medians[:, 0])


def medians_under_weights(
    runs: FirstPassages, seeds: IntArray, weights: CountArray
) -> tuple[SpeedCurve, FloatArray]:
    """Kaplan–Meier medians of every width when seeds are drawn as blocks.

    `weights` is (seeds, B), row i counting the draws of `seeds[i]`; a width uses the drawn
    seeds it has. Returns the widths (their centre unset, NaN) and medians (widths, B).
    """
    time, event = censoring_times(runs), ~np.isnan(runs.epoch)
    position = {int(s): i for i, s in enumerate(seeds)}
    known = np.array([int(s) in position for s in runs.seed], dtype=np.bool_)
    width, first = np.unique(runs.width[known], return_index=True)
    params = runs.params[known][first]
    order = np.argsort(params, kind="stable")
    width, params = width[order], params[order]
    medians = np.empty((len(width), weights.shape[1]))
    for k, w in enumerate(width):
        here = known & (runs.width == w)
        rows = np.array([position[int(s)] for s in runs.seed[here]])
        medians[k] = median_under_weights(time[here], event[here], weights[rows])
    unset = np.full(len(width), np.nan)
    return SpeedCurve(width, params, unset), medians
