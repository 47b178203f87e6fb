"""How long generalisation comes after fitting in one cell, from where on, and in which regime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from sqlalchemy import Connection

from groktime.service.analysis.delay import DelayCurve, WidthRegime, delay_curve, delays
from groktime.service.analysis.delay import regimes as find_regimes
from groktime.service.analysis.onset import Onset, OnsetStatus
from groktime.service.answers.cell import closed, finite
from groktime.service.answers.context import Answer, CellContext, cell_context
from groktime.service.answers.question import Question


@dataclass(frozen=True, kw_only=True)
class OnsetEstimate:
    """P_onset; an end is None where the data do not bound it on that side."""

    estimate: Annotated[float | None, Field(description="parameters")]
    low: float | None
    high: float | None
    level: Annotated[float | None, Field(description="null: low and high are a bracket")]
    rule: str
    status: OnsetStatus
    at_floor: Annotated[bool, Field(description="already grokking at the smallest P measured")]
    at_cap: Annotated[bool, Field(description="only at the largest P measured, or not there")]


@dataclass(frozen=True, kw_only=True)
class OnsetPoint:
    """Delays at one width: how many seeds have one, and how many of these are positive."""

    width: int
    params: int
    minimum: Annotated[float, Field(description="least delay over seeds, epochs")]
    positive: int
    seeds: int


@dataclass(frozen=True, kw_only=True)
class OnsetAnswer(Answer):
    """P_onset with the delay curve it was read from."""

    p_onset: OnsetEstimate
    points: tuple[OnsetPoint, ...]
    seeds: int
    censored: Annotated[int, Field(description="delays that are lower bounds")]
    untrained: Annotated[int, Field(description="runs that never fitted the training set")]
    undetermined: Annotated[int, Field(description="runs stopped in the epoch they fitted it")]
    missing: int


def onset(connection: Connection, question: Question) -> OnsetAnswer:
    """From where on the cell asked about groks."""
    context = cell_context(connection, question)
    found = context.results.onset
    return OnsetAnswer(
        **context.head(),
        p_onset=onset_estimate(found),
        points=delay_points(found.curve),
        seeds=found.seeds,
        censored=found.n_censored,
        untrained=found.n_untrained,
        undetermined=found.n_undetermined,
        missing=found.missing,
    )


def onset_estimate(found: Onset) -> OnsetEstimate:
    """The analysis's onset in plain values."""
    return OnsetEstimate(
        estimate=finite(found.params),
        low=finite(found.low) or None,  # exp(−∞): open
        high=finite(found.high),
        level=found.level,
        rule=found.rule,
        status=found.status,
        at_floor=bool(found.at_floor),
        at_cap=bool(found.at_cap),
    )


def delay_points(curve: DelayCurve) -> tuple[OnsetPoint, ...]:
    """The seed minimum at each width, ascending in P."""
    return tuple(
        OnsetPoint(
            width=int(curve.width[i]),
            params=int(curve.params[i]),
            minimum=float(curve.minimum[i]),
            positive=int(curve.positive[i]),
            seeds=int(curve.seeds[i]),
        )
        for i in range(len(curve.params))
    )


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
    rows, _ = closed(context.cell.grok)
    run = {
        (int(w), int(s)): (int(i), float(t), float(v))
        for w, s, i, t, v in zip(
            rows["width"], rows["seed"], rows["run_id"], grok.e_train, grok.e_val, strict=True
        )
    }
    points = []
    for i in range(len(found.delay)):
        width, seed = int(found.width[i]), int(found.seed[i])
        number, e_train, e_val = run[width, seed]
        points.append(
            DelayPoint(
                run=number,
                width=width,
                params=int(found.params[i]),
                seed=seed,
                e_train=finite(e_train),
                e_val=finite(e_val),
                delay=float(found.delay[i]),
                censored=bool(found.censored[i]),
            )
        )
    return DelayAnswer(
        **context.head(),
        points=tuple(points),
        minimum=delay_points(delay_curve(found.params, found.counted(), found.width)),
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
