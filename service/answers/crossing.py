"""Where memorisation and generalisation cross in one cell, and whether grokking starts there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from sqlalchemy import Connection

from service.analysis.crossing import Crossing
from service.analysis.crossing import crossing as find_crossing
from service.analysis.inputs import FirstPassages
from service.analysis.onset import onset as find_onset
from service.analysis.speed_curve import SpeedCurve
from service.answers.asking import Asked, ask
from service.answers.bits import cell_bits
from service.answers.inputs import first_passages, grok_runs
from service.answers.making import Answer, BitsPerParameter, ByKind, CurvePoint, Units, finite
from service.answers.onset import OnsetEstimate, onset_estimate
from service.answers.question import Question


@dataclass(frozen=True, kw_only=True)
class CrossingEstimate:
    """P_cross with its seed-block bootstrap interval.

    `level` None: no interval (fewer than 3 common seeds, fewer than 2 of them at a width beside
    the crossing, or the paper's method). An end that is None beside a level is open: too many
    resamples cross beyond the measured widths.
    """

    estimate: Annotated[float | None, Field(description="parameters")]
    low: float | None
    high: float | None
    level: float | None
    few_seeds: Annotated[
        bool, Field(description="fewer than 5 common seeds at a width that the interval rests on")
    ]
    resamples: int
    probability: Annotated[
        float | None, Field(description="share of resamples in which the curves cross")
    ]


@dataclass(frozen=True, kw_only=True)
class RootPoint:
    """One sign change of log T_mem − log T_gen; `low` < `high` when it is only bracketed."""

    params: float
    low: float
    high: float
    epochs: Annotated[float | None, Field(description="both speeds there, in the answer's units")]
    direction: Literal["mem_becomes_faster", "mem_becomes_slower"]
    bracketed: bool


@dataclass(frozen=True, kw_only=True)
class SpeedCurves:
    """Both curves whose crossing was sought."""

    t_mem: tuple[CurvePoint, ...]
    t_gen: tuple[CurvePoint, ...]


@dataclass(frozen=True, kw_only=True)
class CrossingAnswer(Answer):
    """P_cross beside P_onset, and everything that they rest on."""

    units: Units
    status: Literal[
        "crossed",
        "bracketed",
        "mem_always_slower",
        "mem_always_faster",
        "unresolved",
        "insufficient_data",
        "closest_approach",
    ]
    p_cross: CrossingEstimate
    epochs: Annotated[float | None, Field(description="both speeds at P_cross, in `units`")]
    roots: tuple[RootPoint, ...]
    at_edge: Annotated[bool, Field(description="paper: closest approach at an end of the range")]
    unresolved_widths: tuple[int, ...]
    p_onset: OnsetEstimate
    residual: Annotated[float | None, Field(description="log10(P_onset / P_cross)")]
    k_mem: Annotated[float, Field(description="dataset complexity, bits")]
    n_train: int
    p_mem: Annotated[float, Field(description="K_mem / C_model, parameters")]
    c_model: BitsPerParameter
    seeds: ByKind
    censored: ByKind
    diverged: ByKind
    missing: ByKind
    curves: SpeedCurves


def crossing(connection: Connection, question: Question) -> CrossingAnswer:
    """Where memorisation and generalisation cross in the cell asked about."""
    asked = ask(connection, question)
    return crossing_of(asked, cell_bits(connection, asked))


def crossing_of(asked: Asked, c_model: BitsPerParameter) -> CrossingAnswer:
    """The answer for a cell whose runs have been read."""
    cell, convention = asked.cell, asked.convention
    grok = grok_runs(cell, convention)
    mem, gen = first_passages(cell, convention), grok.generalisation()
    found = find_crossing(
        mem, gen, method=convention.method, units=convention.units, level=convention.level
    )
    p_onset = onset_estimate(find_onset(grok, method=convention.method, level=convention.level))
    return CrossingAnswer(
        **asked.head(),
        units=found.units,
        status=found.status,
        p_cross=_estimate(found),
        epochs=finite(found.epochs),
        roots=tuple(
            RootPoint(
                params=root.params,
                low=root.low,
                high=root.high,
                epochs=finite(root.epochs),
                direction=root.direction,
                bracketed=root.bracketed,
            )
            for root in found.roots
        ),
        at_edge=found.at_edge,
        unresolved_widths=found.unresolved_widths,
        p_onset=p_onset,
        residual=residual(p_onset.estimate, found.params),
        k_mem=cell.k_mem,
        n_train=cell.n_train,
        p_mem=cell.k_mem / c_model.value,
        c_model=c_model,
        seeds=_by_kind(found.seeds),
        censored=_by_kind(found.censored),
        diverged=_by_kind(found.diverged),
        missing=_by_kind(found.missing),
        curves=SpeedCurves(t_mem=_points(found.t_mem, mem), t_gen=_points(found.t_gen, gen)),
    )


def residual(p_onset: float | None, p_cross: float | None) -> float | None:
    """log10(P_onset / P_cross): how far the prediction is off, in decades."""
    if p_onset is None or p_cross is None:
        return None
    return float(np.log10(p_onset / p_cross))


def _estimate(found: Crossing) -> CrossingEstimate:
    interval = found.interval
    return CrossingEstimate(
        estimate=finite(found.params),
        # The interval is open where the analysis says 0 or infinity.
        low=finite(interval.low) or None if interval else None,
        high=finite(interval.high) if interval else None,
        level=interval.level if interval else None,
        few_seeds=found.few_seeds,
        resamples=interval.n_resamples if interval else 0,
        probability=finite(found.p_crosses),
    )


def _by_kind(pair: tuple[int, int]) -> ByKind:
    return ByKind(speed=pair[0], grok=pair[1])


def _points(curve: SpeedCurve, runs: FirstPassages) -> tuple[CurvePoint, ...]:
    """The centre of every width that has finished runs, ascending in P."""
    centre = {int(w): float(c) for w, c in zip(curve.width, curve.centre, strict=True)}
    points = []
    for params in np.unique(runs.params):
        here = runs.params == params
        width = int(runs.width[here][0])
        open_ended = np.isnan(runs.epoch[here])
        points.append(
            CurvePoint(
                width=width,
                params=int(params),
                value=finite(centre.get(width)),
                seeds=int(here.sum()),
                reached=int(np.sum(~open_ended)),
                censored=int(np.sum(open_ended & ~runs.diverged[here])),
                diverged=int(np.sum(open_ended & runs.diverged[here])),
                missing=int(runs.missing.get(width, 0)),
            )
        )
    return tuple(points)
