"""ΔE: how long generalisation comes after fitting the training set, and the regime of every P."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np

from service.analysis.inputs import BoolArray, FloatArray, GrokRuns, IntArray, Method, check_method

Regime = Literal["under_capacity", "memorised_only", "immediate", "grokking", "mixed"]


@dataclass(frozen=True, eq=False)
class Delays:
    """Per-run delays ΔE = max(0, E_val − E_train), epochs; one entry per run with a delay.

    A censored delay is a lower bound: validation had not reached its threshold when the run
    stopped. Runs that never reached the training threshold have no delay and are counted in
    `n_untrained`; runs stopped in the very epoch they fitted training, in `n_undetermined`.
    """

    method: Method
    width: IntArray
    params: FloatArray
    seed: IntArray
    delay: FloatArray
    censored: BoolArray
    n_untrained: int
    n_undetermined: int


@dataclass(frozen=True, eq=False)
class DelayCurve:
    """Seed minimum of ΔE at each width, ascending in P, with how many seeds stand behind it."""

    width: IntArray
    params: FloatArray
    minimum: FloatArray
    positive: IntArray  # seeds with ΔE > 0
    seeds: IntArray  # seeds with a ΔE


@dataclass(frozen=True)
class WidthRegime:
    """The regime of one width by majority of seeds; `mixed` when two regimes tie.

    A diverged run counts as one that never got further; how many there are is told apart.
    """

    width: int
    params: float
    regime: Regime
    counts: dict[str, int]
    n_diverged: int


def delays(runs: GrokRuns, *, method: str = "robust") -> Delays:
    """ΔE of every run that reached the training threshold.

    paper: a run whose validation never got there counts as last epoch − E_train + 1 exactly.
    robust: the same number as a lower bound, marked censored, and only when the run went on
    past E_train.
    """
    chosen = check_method(method)
    trained = ~np.isnan(runs.e_train)
    open_ended = trained & np.isnan(runs.e_val)
    undetermined = open_ended & (runs.last_epoch <= runs.e_train)
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
        delay=delay,
        censored=open_ended[kept] & (chosen == "robust"),
        n_untrained=int(np.sum(~trained)),
        n_undetermined=int(np.sum(undetermined)),
    )


def delay_curve(params: FloatArray, delay: FloatArray, width: IntArray | None = None) -> DelayCurve:
    """Minimum of ΔE over the seeds of each P (a lower bound counts as its bound)."""
    sizes, first, inverse = np.unique(params, return_index=True, return_inverse=True)
    minimum = np.full(len(sizes), np.inf)
    np.minimum.at(minimum, inverse, delay)
    return DelayCurve(
        width=np.zeros(len(sizes), dtype=np.int64) if width is None else width[first],
        params=sizes,
        minimum=minimum,
        positive=np.bincount(inverse, weights=delay > 0, minlength=len(sizes)).astype(np.int64),
        seeds=np.bincount(inverse, minlength=len(sizes)).astype(np.int64),
    )


def run_regimes(runs: GrokRuns) -> list[Regime]:
    """The regime of every single run.

    under-capacity: training never fitted; memorised only: fitted, validation never followed;
    immediate: ΔE = 0; grokking: ΔE > 0.
    """
    labels: list[Regime] = []
    for e_train, e_val in zip(runs.e_train, runs.e_val, strict=True):
        if np.isnan(e_train):
            labels.append("under_capacity")
        elif np.isnan(e_val):
            labels.append("memorised_only")
        else:
            labels.append("grokking" if e_val > e_train else "immediate")
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
                params=float(params),
                regime="mixed" if tied else top,  # type: ignore[arg-type]
                counts=dict(counts),
                n_diverged=int(np.sum(runs.diverged[here] & np.isnan(runs.t_gen[here]))),
            )
        )
    return tuple(rows)
