"""T_mem(P) and T_gen(P) of one cell, width by width, with what was censored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.analysis.inputs import FirstPassages, Units
from service.analysis.survival import KaplanMeier, censoring_times


@dataclass(frozen=True)
class WidthSpeed:
    """One width's first passages: values per seed and three summaries of them.

    `mean` is over the seeds that reached the threshold (the paper's centre, None when none
    did); `median` the Kaplan–Meier median with its interval, +inf = above the cap;
    `restricted_mean` up to the horizon, for information only.
    """

    width: int
    params: float
    seeds: tuple[int, ...]
    values: tuple[float | None, ...]  # per seed, None = not reached
    last_epochs: tuple[float, ...]
    mean: float | None
    median: float
    low: float
    high: float
    restricted_mean: float
    n_reached: int
    n_censored: int
    n_diverged: int
    n_missing: int


@dataclass(frozen=True)
class Speeds:
    """A cell's speed curve with its making."""

    rows: tuple[WidthSpeed, ...]
    horizon: float  # of the restricted means
    level: float
    units: Units
    clock: str
    threshold: float


def common_horizon(runs: FirstPassages) -> float:
    """The latest time at which every run was still watched or had reached the threshold."""
    watched = runs.last_epoch[np.isnan(runs.epoch) & ~runs.diverged]
    if len(watched):
        return float(watched.min())
    return float(np.nanmax(np.append(runs.epoch, 1.0)))


def speeds(
    runs: FirstPassages,
    *,
    units: Units = "epochs",
    level: float = 0.95,
    horizon: float | None = None,
) -> Speeds:
    """Summaries of first passages at every width, ascending in P."""
    if units == "steps":
        runs = runs.in_steps()
    limit = common_horizon(runs) if horizon is None else horizon
    time, event = censoring_times(runs), ~np.isnan(runs.epoch)
    rows = []
    for params in np.unique(runs.params):
        here = np.flatnonzero(runs.params == params)
        here = here[np.argsort(runs.seed[here])]
        reached = runs.epoch[here][event[here]]
        curve = KaplanMeier.of(time[here], event[here])
        middle = curve.median_interval(level)
        width = int(runs.width[here[0]])
        open_ended = ~event[here]
        rows.append(
            WidthSpeed(
                width=width,
                params=float(params),
                seeds=tuple(int(s) for s in runs.seed[here]),
                values=tuple(None if np.isnan(e) else float(e) for e in runs.epoch[here]),
                last_epochs=tuple(float(e) for e in runs.last_epoch[here]),
                mean=float(reached.mean()) if len(reached) else None,
                median=middle.estimate,
                low=middle.low,
                high=middle.high,
                restricted_mean=curve.restricted_mean(limit),
                n_reached=len(reached),
                n_censored=int(np.sum(open_ended & ~runs.diverged[here])),
                n_diverged=int(np.sum(open_ended & runs.diverged[here])),
                n_missing=int(runs.missing.get(width, 0)),
            )
        )
    return Speeds(tuple(rows), limit, level, runs.units, runs.clock, runs.threshold)
