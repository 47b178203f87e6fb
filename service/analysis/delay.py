"""ΔE: how long generalisation comes after fitting the training set, and the regime of every P."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from groktime.service.analysis.conventions import Method, check_method
from groktime.service.analysis.inputs import BoolArray, FloatArray, GrokRuns, IntArray
from groktime.service.analysis.ties import ROUNDING

Regime = Literal["under_capacity", "memorised_only", "immediate", "grokking", "mixed"]


@dataclass(frozen=True, eq=False)
class Delays:
    """Per-run delays ΔE = max(0, E_val − E_train), epochs; one entry per run with a delay.

    A censored delay is a lower bound: validation had not reached its threshold when the run
    stopped. `delayed`: it is at least the minimum that the runs are asked for. Runs that never
    reached the training threshold have no delay and are counted in
    `n_untrained`; runs stopped before the minimum delay after they fitted training, in
    `n_undetermined`.
    """

    method: Method
    width: IntArray
    params: FloatArray
    seed: IntArray
    run: IntArray  # ids
    e_train: FloatArray
    e_val: FloatArray  # NaN: not reached
    delay: FloatArray
    delayed: BoolArray
    censored: BoolArray
    n_untrained: int
    n_undetermined: int

    def counted(self) -> FloatArray:
        """The delays with those below the minimum as 0."""
        return np.where(self.delayed, self.delay, 0.0)


@dataclass(frozen=True, kw_only=True)
class OnsetPoint:
    """Delays at one width: how many seeds have one, and how many of these are positive."""

    width: int
    params: int
    minimum: Annotated[float, Field(description="least delay over seeds, epochs")]
    positive: int
    seeds: int


@dataclass(frozen=True)
class WidthRegime:
    """The regime of one width by majority of its seeds, and how many seeds are in each.

    A diverged run counts as one that never got further.
    """

    width: int
    params: int
    regime: Annotated[Regime, Field(description="mixed: no regime has most seeds")]
    under_capacity: int
    memorised_only: int
    immediate: int
    grokking: int


def delays(runs: GrokRuns, *, method: str = "robust") -> Delays:
    """ΔE of every run that reached the training threshold.

    paper: a run whose validation never got there counts as last epoch − E_train + 1 exactly.
    robust: the same number as a lower bound, marked censored, and only when the run went on
    long enough to be delayed.
    """
    chosen = check_method(method)
    trained = ~np.isnan(runs.e_train)
    open_ended = trained & np.isnan(runs.e_val)
    least = runs.min_delay.after(runs.e_train) * (1 - ROUNDING)
    undetermined = open_ended & (runs.last_epoch + 1 - runs.e_train < np.maximum(least, 1.5))
    if chosen == "paper":
        undetermined = np.zeros_like(undetermined)
    kept = trained & ~undetermined
    e_val = np.where(np.isnan(runs.e_val), runs.last_epoch + 1, runs.e_val)
    delay = np.maximum(0.0, e_val[kept] - runs.e_train[kept])
    return Delays(
        method=chosen,
        width=runs.width[kept],
        params=runs.params[kept],
        seed=runs.seed[kept],
        run=runs.run[kept],
        e_train=runs.e_train[kept],
        e_val=runs.e_val[kept],
        delay=delay,
        delayed=delay >= least[kept],
        censored=open_ended[kept] & (chosen == "robust"),
        n_untrained=int(np.sum(~trained)),
        n_undetermined=int(np.sum(undetermined)),
    )


def delay_curve(width: IntArray, params: FloatArray, delay: FloatArray) -> tuple[OnsetPoint, ...]:
    """Minimum of ΔE over the seeds of each P, ascending (a lower bound counts as its bound)."""
    points = []
    for size in np.unique(params):
        here = params == size
        points.append(
            OnsetPoint(
                width=int(width[here][0]),
                params=int(size),
                minimum=float(delay[here].min()),
                positive=int(np.sum(delay[here] > 0)),
                seeds=int(here.sum()),
            )
        )
    return tuple(points)


def run_regimes(runs: GrokRuns) -> list[Regime]:
    """The regime of every single run.

    under-capacity: training never fitted; memorised only: fitted, validation never followed;
    immediate: ΔE below the minimum delay; grokking: at least that.
    """
    labels: list[Regime] = []
    least = runs.min_delay.after(runs.e_train) * (1 - ROUNDING)
    for e_train, e_val, enough in zip(runs.e_train, runs.e_val, least, strict=True):
        if np.isnan(e_train):
            labels.append("under_capacity")
        elif np.isnan(e_val):
            labels.append("memorised_only")
        else:
            labels.append("grokking" if e_val - e_train >= enough else "immediate")
    return labels


def regimes(runs: GrokRuns) -> tuple[WidthRegime, ...]:
    """The regime of every P, by majority of its seeds, ascending in P."""
    labels = np.array(run_regimes(runs))
    rows = []
    for params in np.unique(runs.params):
        here = runs.params == params
        counts = Counter(str(label) for label in labels[here])
        (top, most), *rest = counts.most_common()
        tied = bool(rest) and rest[0][1] == most
        rows.append(
            WidthRegime(
                width=int(runs.width[here][0]),
                params=int(params),
                regime="mixed" if tied else top,  # type: ignore[arg-type]
                under_capacity=counts["under_capacity"],
                memorised_only=counts["memorised_only"],
                immediate=counts["immediate"],
                grokking=counts["grokking"],
            )
        )
    return tuple(rows)
