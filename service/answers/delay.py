"""How long generalisation comes after fitting the training set, seed by seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from service.answers.making import Answer
from service.answers.onset import OnsetPoint


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
