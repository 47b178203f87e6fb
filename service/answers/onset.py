"""From which parameter count on generalisation is delayed: the onset of grokking in one cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field
from sqlalchemy import Connection

from service.analysis.delay import DelayCurve
from service.analysis.onset import Onset
from service.analysis.onset import onset as find_onset
from service.answers.asking import ask
from service.answers.inputs import grok_runs
from service.answers.making import Answer, finite
from service.answers.question import Question


@dataclass(frozen=True, kw_only=True)
class OnsetEstimate:
    """P_onset; an end is None where the data do not bound it on that side."""

    estimate: Annotated[float | None, Field(description="parameters")]
    low: float | None
    high: float | None
    level: Annotated[float | None, Field(description="null: low and high are a bracket")]
    rule: str
    status: Literal[
        "exact", "fitted", "separated", "reentrant", "at_floor", "above_range", "insufficient_data"
    ]
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
    asked = ask(connection, question)
    found = find_onset(
        grok_runs(asked.cell, asked.convention),
        method=asked.convention.method,
        level=asked.convention.level,
    )
    return OnsetAnswer(
        **asked.head(),
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
