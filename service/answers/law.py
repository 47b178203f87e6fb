"""Does memorisation time follow one law of the capacity fraction at every prime?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from sqlalchemy import Connection

from groktime.service.analysis import ANALYSIS_VERSION
from groktime.service.analysis.capacity import BitsPerParameter
from groktime.service.analysis.inputs import finite
from groktime.service.analysis.law import (
    Collapse,
    GeneralisationLaw,
    LawFit,
    generalisation_law,
    law_points,
    memorisation_law,
)
from groktime.service.analysis.survival import SpeedCurve, kaplan_meier_curve, mean_over_reached
from groktime.service.answers.capacity import bits_per_parameter
from groktime.service.answers.cell import Cell, cells, first_passages, grok_runs
from groktime.service.answers.choice import baseline_cells, choose
from groktime.service.answers.question import (
    CHOSEN,
    Choice,
    Clock,
    Method,
    NotEnough,
    Question,
    Setting,
    Thresholds,
    Units,
)
from groktime.service.answers.records import asked_runs, put, read_capacity


@dataclass(frozen=True, kw_only=True)
class LawPoint:
    """One width of one prime: its capacity fraction and its centre over seeds."""

    prime: int
    width: int
    params: int
    fraction: Annotated[float, Field(description="f = K_mem / (C_model P)")]
    value: Annotated[float, Field(description="T_mem in the answer's units")]
    fitted: Annotated[bool, Field(description="f lies inside the window of the fit")]


@dataclass(frozen=True, kw_only=True)
class LawAnswer:
    """T_mem against f over the primes of one setting, with rivals and the collapse test."""

    suite: str
    revision: int
    setting: Setting
    method: Method
    clock: Clock
    units: Units
    level: Annotated[float, Field(description="of every interval")]
    thresholds: Thresholds
    window: Annotated[tuple[float, float], Field(description="f that the fits use")]
    c_model: BitsPerParameter
    primes: tuple[int, ...]
    points: tuple[LawPoint, ...]
    pooled: LawFit | None
    rivals: Annotated[tuple[LawFit, ...], Field(description="pooled, smallest AICc first")]
    per_prime: tuple[LawFit, ...]
    collapse: Collapse
    generalisation: GeneralisationLaw | None
    analysis_version: int
    chosen: Annotated[Choice | None, CHOSEN] = None


def law(
    connection: Connection, question: Question, window: tuple[float, float] | None = None
) -> LawAnswer:
    """The laws of the setting asked about, over all its primes or the one named."""
    question = choose(connection, question, "suite")
    suite, convention = put(connection, question)
    runs = asked_runs(connection, suite, convention, question.prime)
    found, choice = baseline_cells(
        list(cells(runs, question.filters, convention.labels)), one_per_prime=True
    )
    c_model = bits_per_parameter(
        connection,
        suite,
        read_capacity(connection, suite),
        found[0].values,
        convention.method,
        convention.level,
    )
    centre = kaplan_meier_curve if convention.method == "robust" else mean_over_reached
    in_steps = convention.units == "steps"
    mem: dict[int, SpeedCurve] = {}
    gen: dict[int, SpeedCurve] = {}
    for cell in found:
        passages = first_passages(cell, convention)
        generalised = grok_runs(cell, convention).generalisation()
        mem[cell.prime] = centre(passages.in_steps() if in_steps else passages)
        gen[cell.prime] = centre(generalised.in_steps() if in_steps else generalised)
    k_mem = {cell.prime: cell.k_mem for cell in found}
    points = law_points(mem, k_mem, c_model.value)
    if not len(points.time):
        raise NotEnough("suite", suite.name, "finished speed runs", "no speed run reached T_mem")
    chosen = window or convention.fraction_window
    laws = memorisation_law(points, chosen, level=convention.level)
    generalised_law = generalisation_law(
        law_points(gen, k_mem, c_model.value), level=convention.level
    )
    return LawAnswer(
        suite=suite.name,
        revision=suite.revision,
        setting=found[0].setting,
        method=convention.method,
        clock=convention.clock,
        units=convention.units,
        level=convention.level,
        thresholds=convention.thresholds,
        window=chosen,
        c_model=c_model,
        primes=tuple(cell.prime for cell in found),
        points=_points(found, mem, c_model.value, chosen),
        pooled=laws.pooled,
        rivals=laws.rivals,
        per_prime=laws.per_prime,
        collapse=laws.collapse,
        generalisation=generalised_law,
        analysis_version=ANALYSIS_VERSION,
        chosen=question.choice | choice or None,
    )


def _points(
    found: list[Cell], mem: dict[int, SpeedCurve], c_model: float, window: tuple[float, float]
) -> tuple[LawPoint, ...]:
    points = []
    for cell in found:
        curve = mem[cell.prime]
        for width, params, value in zip(curve.width, curve.params, curve.centre, strict=True):
            reached = finite(float(value))
            if reached is None:
                continue
            fraction = cell.k_mem / (c_model * float(params))
            points.append(
                LawPoint(
                    prime=cell.prime,
                    width=int(width),
                    params=int(params),
                    fraction=fraction,
                    value=reached,
                    fitted=window[0] <= fraction <= window[1],
                )
            )
    return tuple(points)
