"""Does the weight norm predict how long the delay is, better than the crossing does?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field
from sqlalchemy import Connection, text

from groktime.service.analysis import ANALYSIS_VERSION
from groktime.service.analysis.cells import make_cell
from groktime.service.analysis.delay_law import DelayedRuns, DelayLaws, delay_laws
from groktime.service.answers.cell import Cell, cells, closed, first_passages, grok_runs
from groktime.service.answers.choice import choose
from groktime.service.answers.question import (
    CHOSEN,
    Choice,
    Clock,
    Convention,
    Method,
    NotEnough,
    Question,
    Thresholds,
)
from groktime.service.answers.records import asked_runs, put

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
    analysed = make_cell(
        cell.prime,
        {},
        cell.k_mem,
        first_passages(cell, convention),
        grok_runs(cell, convention),
        method=convention.method,
        n_resamples=0,
    )
    crossing = analysed.crossing.p_cross.estimate
    return closed(cell.grok)[0].assign(
        p_cross=np.nan if crossing is None else crossing, steps=cell.steps_per_epoch
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
