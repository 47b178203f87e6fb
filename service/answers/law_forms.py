"""Which law T_mem follows by each clock and threshold, and how far the crossing moves with them.

Online training accuracy is counted with dropout on and may stay below 99 % for long: a law that
ends at a finite size there and not on the eval clock is the plateau's, not memorising's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import Field
from sqlalchemy import Connection

from groktime.service.analysis.cells import make_cell
from groktime.service.analysis.law import FormFit, compare_forms, law_points
from groktime.service.analysis.survival import kaplan_meier_curve, mean_over_reached
from groktime.service.answers.capacity import bits_per_parameter
from groktime.service.answers.cell import Cell, cells, first_passages, grok_runs
from groktime.service.answers.choice import baseline_cells
from groktime.service.answers.question import Clock, Convention, Question, QuestionError
from groktime.service.answers.records import asked_runs, put, read_capacity

THRESHOLDS = (0.95, 0.97, 0.98, 0.99)
CLOCKS: tuple[Clock, ...] = ("online", "eval")


@dataclass(frozen=True, kw_only=True)
class LawForms:
    """T_mem's forms by one clock and threshold, smallest AICc first."""

    clock: Clock
    t_mem: float
    alone: tuple[FormFit, ...]
    with_last_batch: tuple[FormFit, ...]
    crossings: Annotated[int, Field(description="cells that cross here and by the suite's rule")]
    shift: Annotated[
        float | None, Field(description="median of log10(P_cross here / P_cross by that rule)")
    ]


def law_forms(connection: Connection, question: Question) -> tuple[LawForms, ...]:
    """One row for each clock and threshold that the suite's runs can answer."""
    usual = _crossings(_found(connection, question))
    rows = []
    for clock in CLOCKS:
        for t_mem in THRESHOLDS:
            asked = replace(question, clock=clock, t_mem=t_mem)
            try:
                rows.append(_row(connection, asked, usual))
            except QuestionError:
                continue  # a clock that was not recorded, a threshold above the runs' own
    return tuple(rows)


@dataclass(frozen=True)
class _Found:
    cells: list[Cell]
    convention: Convention
    c_model: float


def _found(connection: Connection, question: Question) -> _Found:
    suite, convention = put(connection, question)
    runs = asked_runs(connection, suite, convention, question.prime)
    found, _ = baseline_cells(
        list(cells(runs, question.filters, convention.labels)), one_per_prime=True
    )
    bits = bits_per_parameter(
        connection,
        suite,
        read_capacity(connection, suite),
        found[0].values,
        convention.method,
        convention.level,
    )
    return _Found(found, convention, bits.value)


def _row(connection: Connection, question: Question, usual: Mapping[int, float]) -> LawForms:
    found = _found(connection, question)
    convention = found.convention
    centre = kaplan_meier_curve if convention.method == "robust" else mean_over_reached
    points = law_points(
        {cell.prime: centre(first_passages(cell, convention)) for cell in found.cells},
        {cell.prime: cell.k_mem for cell in found.cells},
        found.c_model,
    )
    shares = {cell.prime: cell.last_batch / cell.batch_size for cell in found.cells}
    here = _crossings(found)
    both = [np.log10(here[prime] / usual[prime]) for prime in here.keys() & usual.keys()]
    return LawForms(
        clock=convention.clock,
        t_mem=convention.thresholds.t_mem,
        alone=compare_forms(points, None),
        with_last_batch=compare_forms(points, shares),
        crossings=len(both),
        shift=float(np.median(both)) if both else None,
    )


def _crossings(found: _Found) -> dict[int, float]:
    """P_cross by prime, where there is one."""
    crossings: dict[int, float] = {}
    for cell in found.cells:
        analysed = make_cell(
            cell.prime,
            {},
            cell.k_mem,
            first_passages(cell, found.convention),
            grok_runs(cell, found.convention),
            method=found.convention.method,
            n_resamples=0,
        )
        if analysed.crossing.p_cross.estimate is not None:
            crossings[cell.prime] = analysed.crossing.p_cross.estimate
    return crossings
