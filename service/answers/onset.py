"""From which parameter count on generalisation is delayed: the onset of grokking in one cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from service.answers.making import Answer


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
