"""How fast models of every size memorise and generalise in one cell, and where both are equal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field
from sqlalchemy import Connection

from groktime.service.analysis.capacity import BitsPerParameter
from groktime.service.analysis.crossing import (
    Advice,
    Bracket,
    Crossing,
    Direction,
    IntervalKind,
    Status,
)
from groktime.service.analysis.inputs import FirstPassages
from groktime.service.analysis.survival import SpeedCurve, Speeds, WidthSpeed
from groktime.service.analysis.survival import speeds as find_speeds
from groktime.service.answers.capacity import cell_bits
from groktime.service.answers.cell import finite
from groktime.service.answers.context import Answer, ByKind, CellContext, cell_context
from groktime.service.answers.delay import OnsetEstimate, onset_estimate
from groktime.service.answers.question import Question, Units


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """A speed at one width; `value` is None where the median (or every seed) is unreached."""

    width: int
    params: int
    value: Annotated[float | None, Field(description="centre over seeds; null: not reached")]
    seeds: int
    reached: int
    censored: int
    diverged: int
    missing: int


@dataclass(frozen=True, kw_only=True)
class CrossingEstimate:
    """P_cross with its interval: of a seed-block bootstrap, or `located` by the delta method.

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
    interval: Annotated[
        IntervalKind | None,
        Field(description="located: chosen runs, few seeds, delta method with pooled noise"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class RootPoint:
    """One sign change of log T_mem − log T_gen; `low` < `high` when it is only bracketed."""

    params: float
    low: float
    high: float
    epochs: Annotated[float | None, Field(description="both speeds there, in the answer's units")]
    direction: Direction
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
    status: Status
    p_cross: CrossingEstimate
    epochs: Annotated[float | None, Field(description="both speeds at P_cross, in `units`")]
    roots: tuple[RootPoint, ...]
    at_edge: Annotated[bool, Field(description="paper: closest approach at an end of the range")]
    unresolved_widths: Annotated[
        tuple[int, ...], Field(description="neither speed was reached there: they decide nothing")
    ]
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
    bracket: Annotated[
        Bracket | None, Field(description="the speed widths around P_cross; null without one")
    ] = None
    advice: Annotated[
        Advice | None, Field(description="what to train next; null: nothing is left to ask for")
    ] = None


def crossing(connection: Connection, question: Question) -> CrossingAnswer:
    """Where memorisation and generalisation cross in the cell asked about."""
    context = cell_context(connection, question)
    return crossing_of(context, cell_bits(connection, context))


def crossing_of(context: CellContext, c_model: BitsPerParameter) -> CrossingAnswer:
    """The answer for a cell whose runs have been read."""
    cell, mem, gen = context.cell, context.results.mem, context.results.grok.generalisation()
    found = context.results.crossing
    p_cross, p_onset = _estimate(found), onset_estimate(context.results.onset)
    head = context.head()
    if head["provenance"].precision is not None:
        reached = {"crossing": _precision(p_cross), "onset": _precision(p_onset)}
        precision = replace(head["provenance"].precision, **reached)
        head["provenance"] = replace(head["provenance"], precision=precision)
    return CrossingAnswer(
        **head,
        units=found.units,
        status=found.status,
        p_cross=p_cross,
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
        bracket=found.bracket,
        advice=found.advice,
    )


def _precision(found: CrossingEstimate | OnsetEstimate) -> float | None:
    """The standard deviation, in dex, that a normal interval of the same width would have."""
    if not found.low or not found.high or found.level is None:
        return None
    return float(np.log10(found.high / found.low)) / 2 / NormalDist().inv_cdf(0.5 + found.level / 2)


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
        interval=interval.kind if interval else None,
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


@dataclass(frozen=True, kw_only=True)
class SeedSpeed:
    """One run's first passage; `value` None: it stopped at `last` without reaching."""

    run: int
    seed: int
    value: float | None
    last: float
    diverged: bool


@dataclass(frozen=True, kw_only=True)
class SpeedPoint:
    """One width: the seeds' first passages and their centres, in the answer's units."""

    width: int
    params: int
    fraction: Annotated[float, Field(description="f = K_mem / (C_model P)")]
    median: Annotated[float | None, Field(description="Kaplan–Meier; null: not reached")]
    low: Annotated[float | None, Field(description="Brookmeyer–Crowley; null: not reached")]
    high: float | None
    mean_reached: Annotated[
        float | None, Field(description="the paper's centre: seeds that reached it only")
    ]
    restricted_mean: Annotated[
        float | None, Field(description="for information; depends on `horizon`")
    ]
    horizon: float
    seeds: int
    reached: int
    censored: int
    diverged: int
    missing: int
    values: tuple[SeedSpeed, ...]


@dataclass(frozen=True, kw_only=True)
class SpeedsAnswer(Answer):
    """T_mem(P) and T_gen(P) of one cell, per seed and centred."""

    units: Units
    level: float
    k_mem: float
    n_train: int
    c_model: BitsPerParameter
    p_mem: float
    t_mem: tuple[SpeedPoint, ...]
    t_gen: tuple[SpeedPoint, ...]
    seeds: ByKind
    censored: ByKind
    diverged: ByKind
    missing: ByKind


def speeds(connection: Connection, question: Question) -> SpeedsAnswer:
    """Both speeds of the cell asked about."""
    context = cell_context(connection, question)
    return speeds_of(context, cell_bits(connection, context))


def speeds_of(context: CellContext, c_model: BitsPerParameter) -> SpeedsAnswer:
    """The answer for a cell whose runs have been read."""
    cell, convention = context.cell, context.convention
    mem, gen = context.results.mem, context.results.grok.generalisation()
    p_mem = cell.k_mem / c_model.value

    def points(runs: FirstPassages, rows: pd.DataFrame) -> tuple[SpeedPoint, ...]:
        if not len(runs):
            return ()
        found = find_speeds(runs, units=convention.units, level=convention.level)
        ids = {
            (int(w), int(s)): int(i)
            for w, s, i in zip(rows["width"], rows["seed"], rows["run_id"], strict=True)
        }
        failed = {
            (int(w), int(s))
            for w, s, d in zip(runs.width, runs.seed, runs.diverged, strict=True)
            if d
        }
        return tuple(_point(row, found, p_mem, ids, failed) for row in found.rows)

    return SpeedsAnswer(
        **context.head(),
        units=convention.units,
        level=convention.level,
        k_mem=cell.k_mem,
        n_train=cell.n_train,
        c_model=c_model,
        p_mem=p_mem,
        t_mem=points(mem, cell.speed),
        t_gen=points(gen, cell.grok),
        seeds=ByKind(speed=len(mem.seeds), grok=len(gen.seeds)),
        censored=ByKind(speed=mem.n_censored, grok=gen.n_censored),
        diverged=ByKind(speed=mem.n_diverged, grok=gen.n_diverged),
        missing=ByKind(speed=mem.n_missing, grok=gen.n_missing),
    )


def _point(
    row: WidthSpeed,
    found: Speeds,
    p_mem: float,
    ids: dict[tuple[int, int], int],
    failed: set[tuple[int, int]],
) -> SpeedPoint:
    return SpeedPoint(
        width=row.width,
        params=int(row.params),
        fraction=p_mem / row.params,
        median=finite(row.median),
        low=finite(row.low),
        high=finite(row.high),
        mean_reached=finite(row.mean),
        restricted_mean=finite(row.restricted_mean),
        horizon=found.horizon,
        seeds=len(row.seeds),
        reached=row.n_reached,
        censored=row.n_censored,
        diverged=row.n_diverged,
        missing=row.n_missing,
        values=tuple(
            SeedSpeed(
                run=ids[row.width, seed],
                seed=seed,
                value=value,
                last=last,
                diverged=(row.width, seed) in failed,
            )
            for seed, value, last in zip(row.seeds, row.values, row.last_epochs, strict=True)
        ),
    )
