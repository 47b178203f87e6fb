"""The laws over primes: of memorisation time by the capacity fraction, and of the delay.

T_mem's law is asked by each clock and threshold. Online training accuracy is counted with dropout
on and may stay below 99 % for long: a law that ends at a finite size there and not on the eval
clock is the plateau's, not memorising's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field
from sqlalchemy import Connection, text

from groktime.service.analysis import ANALYSIS_VERSION
from groktime.service.analysis.capacity import BitsPerParameter
from groktime.service.analysis.crossing import crossing
from groktime.service.analysis.inputs import finite
from groktime.service.analysis.laws import (
    Collapse,
    DelayedRuns,
    DelayLaws,
    FormFit,
    GeneralisationLaw,
    LawFit,
    compare_forms,
    delay_laws,
    generalisation_law,
    law_points,
    memorisation_law,
)
from groktime.service.analysis.survival import SpeedCurve, kaplan_meier_curve, mean_over_reached
from groktime.service.answers.capacity import bits_per_parameter
from groktime.service.answers.cell import Cell, cells, closed, first_passages, grok_runs
from groktime.service.answers.choice import baseline_cells, choose
from groktime.service.answers.question import (
    CHOSEN,
    Choice,
    Clock,
    Convention,
    Method,
    NotEnough,
    Question,
    QuestionError,
    Setting,
    Thresholds,
    Units,
    asked_runs,
    put,
    read_capacity,
)


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
    by_prime = {cell.prime: _crossing(cell, found.convention) for cell in found.cells}
    return {prime: params for prime, params in by_prime.items() if params is not None}


def _crossing(cell: Cell, convention: Convention) -> float | None:
    """P_cross of the cell, without its interval."""
    found = crossing(
        first_passages(cell, convention),
        grok_runs(cell, convention).generalisation(),
        method=convention.method,
        n_resamples=0,
    )
    return found.p_cross.estimate


NORMS = """
SELECT asked.run_id, c.weight_norm
FROM unnest(CAST(:runs AS integer[]), CAST(:epochs AS integer[])) AS asked (run_id, epoch)
JOIN curve c ON c.run_id = asked.run_id AND c.epoch = asked.epoch
WHERE c.weight_norm > 0
"""


@dataclass(frozen=True, kw_only=True)
class DelayLawAnswer:
    """Held-out errors of laws of the delay, in optimiser steps, over a suite's primes."""

    suite: str
    revision: int
    method: Method
    clock: Clock
    thresholds: Thresholds
    laws: DelayLaws
    left_out: Annotated[
        int,
        Field(description="runs without E_train, E_val, a norm at E_train or weight decay"),
    ]
    analysis_version: int
    chosen: Annotated[Choice | None, CHOSEN] = None


def delay_law(connection: Connection, question: Question) -> DelayLawAnswer:
    """The law of the weight norm beside the crossing, the size and a constant."""
    question = choose(connection, question, "suite")
    suite, convention = put(connection, question)
    runs = asked_runs(connection, suite, convention, question.prime)
    found = list(cells(runs, question.filters, convention.labels))
    tables = [_delays(cell, convention) for cell in found]
    table = pd.concat(tables) if tables else pd.DataFrame()
    fit = table[_usable(table)] if len(table) else table
    norms = _norms(connection, fit)
    known = fit.assign(norm=fit["run_id"].map(norms)).dropna(subset="norm") if len(fit) else fit
    laws = delay_laws(_inputs(known)) if len(known) else None
    if laws is None:
        raise NotEnough(
            "suite",
            suite.name,
            "a suite with delays at three primes whose curves cross",
            f"{suite.name} has too few primes with delays and a crossing for a law of the delay",
        )
    return DelayLawAnswer(
        suite=suite.name,
        revision=suite.revision,
        method=convention.method,
        clock=convention.clock,
        thresholds=convention.thresholds,
        laws=laws,
        left_out=len(table) - len(known),
        analysis_version=ANALYSIS_VERSION,
        chosen=question.choice or None,
    )


def _delays(cell: Cell, convention: Convention) -> pd.DataFrame:
    """The cell's runs with the crossing they lie around."""
    found = _crossing(cell, convention)
    return closed(cell.grok)[0].assign(
        p_cross=np.nan if found is None else found, steps=cell.steps_per_epoch
    )


def _usable(table: pd.DataFrame) -> pd.Series[bool]:
    return table["e_train"].notna() & table["e_val"].notna() & (table["weight_decay"] > 0)


def _norms(connection: Connection, runs: pd.DataFrame) -> dict[int, float]:
    """The weight norm of each run at its E_train."""
    if not len(runs):
        return {}
    asked = {
        "runs": [int(run) for run in runs["run_id"]],
        "epochs": [int(epoch) for epoch in runs["e_train"]],
    }
    return {row.run_id: float(row.weight_norm) for row in connection.execute(text(NORMS), asked)}


def _inputs(runs: pd.DataFrame) -> DelayedRuns:
    delay = np.maximum(0, (runs["e_val"] - runs["e_train"]).to_numpy(dtype=float))
    return DelayedRuns(
        prime=runs["prime"].to_numpy(dtype=np.int64),
        params=runs["params"].to_numpy(dtype=float),
        p_cross=runs["p_cross"].to_numpy(dtype=float),
        squared_norm=runs["norm"].to_numpy(dtype=float) ** 2,
        rate=(runs["lr"] * runs["weight_decay"]).to_numpy(dtype=float),
        delay=delay * runs["steps"].to_numpy(dtype=float),
    )
