"""A speed curve: the centre over seeds of one cell's first passages, at every width."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.analysis.inputs import FirstPassages, FloatArray, IntArray
from service.analysis.survival import (
    CountArray,
    KaplanMeier,
    censoring_times,
    log_median_under_weights,
)


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
    width, params, members = _by_width(runs)
    time, event = censoring_times(runs), ~np.isnan(runs.epoch)
    centre = [KaplanMeier.of(time[m], event[m]).median() for m in members]
    return SpeedCurve(width, params, np.array(centre, dtype=np.float64))


def log_medians_under_weights(
    runs: FirstPassages, seeds: IntArray, weights: CountArray
) -> tuple[FloatArray, FloatArray]:
    """P of every width and the log Kaplan–Meier medians there when seeds are drawn as blocks.

    `weights` is (seeds, B), row i counting the draws of `seeds[i]`, sorted. A width uses the
    drawn seeds it has; where it has none of them it uses all its own, as the estimate does, so
    that no resample loses a width. Returns (widths,) and (widths, B).
    """
    time, event = censoring_times(runs), ~np.isnan(runs.epoch)
    a_block = np.isin(runs.seed, seeds)
    row = np.searchsorted(seeds, runs.seed)
    _, params, members = _by_width(runs)
    log_medians = np.empty((len(members), weights.shape[1]))
    for k, m in enumerate(members):
        drawn = m[a_block[m]]
        log_medians[k] = log_median_under_weights(time[drawn], event[drawn], weights[row[drawn]])
        if len(drawn) < len(seeds):  # only then can a resample have drawn none of them
            own = np.log(KaplanMeier.of(time[m], event[m]).median())
            log_medians[k][np.isnan(log_medians[k])] = own
    return params, log_medians


def _by_width(runs: FirstPassages) -> tuple[IntArray, FloatArray, list[IntArray]]:
    """Widths and P ascending in P, and the positions of each width's runs."""
    if len(runs) == 0:
        return np.empty(0, dtype=np.int64), np.empty(0), []
    order = np.argsort(runs.params, kind="stable")
    starts = np.flatnonzero(np.diff(runs.params[order])) + 1
    members = np.split(order, starts)
    first = np.array([m[0] for m in members])
    return runs.width[first], runs.params[first], members
