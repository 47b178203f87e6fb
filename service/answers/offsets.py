"""How far onset and crossing lie apart under other conventions: what of the offset is choice.

The median of log10(P_onset / P_cross) moves with the delay that counts, with the thresholds and
with the clock; the order of the primes hardly does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field
from sqlalchemy import Connection

from groktime.service.analysis.cells import Cell as AnalysedCell
from groktime.service.analysis.cells import cells_frame, make_cell
from groktime.service.analysis.conventions import MinimumDelay
from groktime.service.analysis.robustness import within_setting
from groktime.service.answers.cell import Cell, cells, first_passages, grok_runs
from groktime.service.answers.question import (
    Clock,
    Convention,
    Question,
    QuestionError,
    Setting,
    Thresholds,
)
from groktime.service.answers.records import asked_runs, put
from groktime.service.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Offset:
    """The residuals of a suite's cells by one convention; `varied` says what is unusual in it."""

    varied: str
    clock: Clock
    thresholds: Thresholds
    min_delay: MinimumDelay
    n: Annotated[int, Field(description="cells with a crossing and an onset")]
    n_total: int
    median_residual: Annotated[float | None, Field(description="log10(P_onset / P_cross)")]
    std: float | None
    rho: Annotated[float | None, Field(description="Spearman's, of P_cross with P_onset")]


# What is varied, one thing at a time; everything else is the suite's own.
VARIED: dict[str, dict[str, float | str]] = {
    "as the suite": {},
    "delay from 95 to 95 %": {"e_train": 0.95, "e_val": 0.95},
    "delay from 99 to 99 %": {"e_train": 0.99, "e_val": 0.99},
    "delay of 5 epochs": {"min_delay": 5.0},
    "delay of 5 % of E_train": {"min_delay_share": 0.05},
    "delay of 10 % of E_train": {"min_delay_share": 0.1},
    "memorised at 98.5 %": {"t_mem": 0.985},
    "memorised at 98 %": {"t_mem": 0.98},
    "memorised at 97 %": {"t_mem": 0.97},
    "memorised at 95 %": {"t_mem": 0.95},
    "eval clock": {"clock": "eval"},
    "eval clock, memorised at 95 %": {"clock": "eval", "t_mem": 0.95},
    "the paper's estimators": {"method": "paper"},
}


T_MEM = (0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99)  # accuracies that count as memorised

# A threshold above the one at which runs stopped, or between those that a thinned recording keeps,
# a clock that was not recorded.
UNANSWERABLE = (QuestionError, InputError)


def offsets(connection: Connection, question: Question) -> tuple[Offset, ...]:
    """One row for each convention; those that the suite's runs cannot answer are left out."""
    found = []
    for varied, changed in VARIED.items():
        asked = replace(question, **changed)  # type: ignore[arg-type]
        try:
            found.append(_offset(connection, asked, varied))
        except UNANSWERABLE:
            continue
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class ThresholdResidual:
    """One cell's residual with T_mem read at one threshold."""

    t_mem: float
    prime: int
    setting: Setting
    residual: float


def residuals_by_threshold(
    connection: Connection, question: Question
) -> tuple[ThresholdResidual, ...]:
    """Every cell's residual by the accuracy that counts as memorised; none where it lacks one."""
    found = []
    for t_mem in T_MEM:
        try:
            _, analysed = _cells(connection, replace(question, t_mem=t_mem))
        except UNANSWERABLE:
            continue  # above the threshold at which runs stopped
        found += [
            ThresholdResidual(
                t_mem=t_mem, prime=cell.prime, setting=cell.setting, residual=point.residual
            )
            for cell, point in analysed
            if point.residual is not None
        ]
    return tuple(found)


def _cells(
    connection: Connection, question: Question
) -> tuple[Convention, list[tuple[Cell, AnalysedCell]]]:
    """The cells with their two points, without intervals."""
    suite, convention = put(connection, question)
    runs = asked_runs(connection, suite, convention, question.prime)
    found = list(cells(runs, question.filters, convention.labels))
    analysed = (
        make_cell(
            cell.prime,
            {},
            cell.k_mem,
            first_passages(cell, convention),
            grok_runs(cell, convention),
            method=convention.method,
            units=convention.units,
            n_resamples=0,
        )
        for cell in found
    )
    return convention, list(zip(found, analysed, strict=True))


def _offset(connection: Connection, question: Question, varied: str) -> Offset:
    convention, analysed = _cells(connection, question)
    (row,) = within_setting(cells_frame([cell for _, cell in analysed]), ())
    return Offset(
        varied=varied,
        clock=convention.clock,
        thresholds=convention.thresholds,
        min_delay=convention.min_delay,
        n=row.n,
        n_total=row.n_total,
        median_residual=row.median_residual,
        std=row.std,
        rho=row.rho,
    )
