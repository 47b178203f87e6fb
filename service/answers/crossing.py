"""How fast models of every size memorise and generalise in one cell, and where both are equal."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Annotated

from pydantic import Field
from sqlalchemy import Connection

from groktime.service.analysis.capacity import BitsPerParameter
from groktime.service.analysis.cells import residual
from groktime.service.analysis.conventions import Units
from groktime.service.analysis.crossing import (
    Advice,
    Bracket,
    CrossingEstimate,
    Root,
    Status,
    counts,
)
from groktime.service.analysis.inputs import ByKind, FirstPassages
from groktime.service.analysis.onset import OnsetEstimate
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
