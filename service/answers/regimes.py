"""What happens at each parameter count: under capacity, memorised, immediate or grokking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from sqlalchemy import Connection

from service.analysis.delay import Regime
from service.analysis.delay import regimes as find_regimes
from service.answers.asking import Asked, ask
from service.answers.inputs import grok_runs
from service.answers.making import Answer
from service.answers.question import Question


@dataclass(frozen=True, kw_only=True)
class RegimePoint:
    """The regime of one width by majority of its seeds."""

    width: int
    params: int
    regime: Annotated[Regime, Field(description="mixed: no regime has most seeds")]
    under_capacity: int
    memorised_only: int
    immediate: int
    grokking: int


@dataclass(frozen=True, kw_only=True)
class RegimesAnswer(Answer):
    """The regime of every width measured, ascending in P."""

    points: tuple[RegimePoint, ...]
    seeds: int
    missing: int


def regimes(connection: Connection, question: Question) -> RegimesAnswer:
    """What happens at every width of the cell asked about."""
    return regimes_of(ask(connection, question))


def regimes_of(asked: Asked) -> RegimesAnswer:
    """The answer for a cell whose runs have been read."""
    grok = grok_runs(asked.cell, asked.convention)
    return RegimesAnswer(
        **asked.head(),
        points=tuple(
            RegimePoint(
                width=found.width,
                params=int(found.params),
                regime=found.regime,
                under_capacity=found.counts.get("under_capacity", 0),
                memorised_only=found.counts.get("memorised_only", 0),
                immediate=found.counts.get("immediate", 0),
                grokking=found.counts.get("grokking", 0),
            )
            for found in find_regimes(grok)
        ),
        seeds=len(grok.seeds),
        missing=grok.n_missing,
    )
