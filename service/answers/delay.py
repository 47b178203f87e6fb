"""How long generalisation comes after fitting in one cell, from where on, and in which regime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from sqlalchemy import Connection

from groktime.service.analysis.delay import OnsetPoint, WidthRegime, delay_curve, delays
from groktime.service.analysis.delay import regimes as find_regimes
from groktime.service.analysis.inputs import finite
from groktime.service.analysis.onset import Onset
from groktime.service.answers.context import Answer, CellContext, cell_context
from groktime.service.answers.question import Question


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
