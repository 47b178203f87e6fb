"""One cell: how fast models of every size memorise and generalise, where both are equal, how long
generalisation comes after fitting, from where on, and in which regime.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Annotated

from pydantic import Field
from sqlalchemy import Connection

from groktime.service.analysis import Units
from groktime.service.analysis.capacity import BitsPerParameter
from groktime.service.analysis.cells import residual
from groktime.service.analysis.crossing import (
    Advice,
    Bracket,
    CrossingEstimate,
    Root,
    Status,
    counts,
)
from groktime.service.analysis.delay import (
    Onset,
    OnsetEstimate,
    OnsetPoint,
    WidthRegime,
    delay_curve,
    delays,
)
from groktime.service.analysis.delay import regimes as find_regimes
from groktime.service.analysis.inputs import ByKind, FirstPassages, finite
from groktime.service.analysis.survival import SpeedCurves, SpeedPoint
from groktime.service.analysis.survival import speeds as find_speeds
from groktime.service.answers.capacity import cell_bits
from groktime.service.answers.context import Answer, CellContext, cell_context
from groktime.service.answers.question import Question


@dataclass(frozen=True, kw_only=True)
class CrossingAnswer(Answer):
    """P_cross beside P_onset, and everything that they rest on."""

    units: Units
    status: Status
    p_cross: CrossingEstimate
    epochs: Annotated[float | None, Field(description="both speeds at P_cross, in `units`")]
    roots: tuple[Root, ...]
    at_edge: Annotated[bool, Field(description="paper: closest approach at an end of the range")]
    unresolved_widths: Annotated[
        tuple[int, ...],
        Field(description="which speed is the faster is not known there: they decide nothing"),
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
    cell, found, p_onset = context.cell, context.results.crossing, context.results.onset.p_onset
    head = context.head()
    if head["provenance"].precision is not None:
        reached = {"crossing": _precision(found.p_cross), "onset": _precision(p_onset)}
        precision = replace(head["provenance"].precision, **reached)
        head["provenance"] = replace(head["provenance"], precision=precision)
    return CrossingAnswer(
        **head,
        **vars(found),
        p_onset=p_onset,
        residual=residual(p_onset.estimate, found.p_cross.estimate),
        k_mem=cell.k_mem,
        n_train=cell.n_train,
        p_mem=cell.k_mem / c_model.value,
        c_model=c_model,
    )


def _precision(found: CrossingEstimate | OnsetEstimate) -> float | None:
    """The standard deviation, in dex, that a normal interval of the same width would have."""
    if not found.low or not found.high or found.level is None:
        return None
    return math.log10(found.high / found.low) / 2 / NormalDist().inv_cdf(0.5 + found.level / 2)


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

    def points(runs: FirstPassages) -> tuple[SpeedPoint, ...]:
        if not len(runs):
            return ()
        return find_speeds(runs, p_mem=p_mem, units=convention.units, level=convention.level)

    return SpeedsAnswer(
        **context.head(),
        units=convention.units,
        level=convention.level,
        k_mem=cell.k_mem,
        n_train=cell.n_train,
        c_model=c_model,
        p_mem=p_mem,
        t_mem=points(mem),
        t_gen=points(gen),
        **counts(mem, gen),
    )


@dataclass(frozen=True, kw_only=True)
class OnsetAnswer(Onset, Answer):
    """P_onset with the delay curve it was read from."""


def onset(connection: Connection, question: Question) -> OnsetAnswer:
    """From where on the cell asked about groks."""
    context = cell_context(connection, question)
    return OnsetAnswer(**context.head(), **vars(context.results.onset))


@dataclass(frozen=True, kw_only=True)
class DelayPoint:
    """One run's delay ΔE; `censored`: a lower bound, validation had not got there."""

    run: Annotated[int, Field(description="id for /runs/{id}")]
    width: int
    params: int
    seed: int
    e_train: Annotated[float | None, Field(description="epoch; null: never")]
    e_val: Annotated[float | None, Field(description="epoch; null: never")]
    delay: float
    censored: bool


@dataclass(frozen=True, kw_only=True)
class DelayAnswer(Answer):
    """Every run's delay and the seed minimum at each width (the paper's figure 1)."""

    points: tuple[DelayPoint, ...]
    minimum: tuple[OnsetPoint, ...]
    seeds: int
    censored: int
    untrained: int
    undetermined: int
    missing: int


def delay(connection: Connection, question: Question) -> DelayAnswer:
    """The delay of every run of the cell asked about."""
    return delay_of(cell_context(connection, question))


def delay_of(context: CellContext) -> DelayAnswer:
    """The answer for a cell whose runs have been read."""
    grok = context.results.grok
    found = delays(grok, method=context.convention.method)
    points = tuple(
        DelayPoint(
            run=int(found.run[i]),
            width=int(found.width[i]),
            params=int(found.params[i]),
            seed=int(found.seed[i]),
            e_train=finite(found.e_train[i]),
            e_val=finite(found.e_val[i]),
            delay=float(found.delay[i]),
            censored=bool(found.censored[i]),
        )
        for i in range(len(found.delay))
    )
    return DelayAnswer(
        **context.head(),
        points=points,
        minimum=delay_curve(found.width, found.params, found.counted()),
        seeds=len(grok.seeds),
        censored=int(found.censored.sum()),
        untrained=found.n_untrained,
        undetermined=found.n_undetermined,
        missing=grok.n_missing,
    )


@dataclass(frozen=True, kw_only=True)
class RegimesAnswer(Answer):
    """The regime of every width measured, ascending in P."""

    points: tuple[WidthRegime, ...]
    seeds: int
    missing: int


def regimes(connection: Connection, question: Question) -> RegimesAnswer:
    """What happens at every width of the cell asked about."""
    return regimes_of(cell_context(connection, question))


def regimes_of(context: CellContext) -> RegimesAnswer:
    """The answer for a cell whose runs have been read."""
    grok = context.results.grok
    return RegimesAnswer(
        **context.head(),
        points=find_regimes(grok),
        seeds=len(grok.seeds),
        missing=grok.n_missing,
    )
