"""What happens at each parameter count: under capacity, memorised, immediate or grokking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from service.answers.making import Answer

RegimeName = Literal["under_capacity", "memorised_only", "immediate", "grokking", "mixed"]


@dataclass(frozen=True, kw_only=True)
class RegimePoint:
    """The regime of one width by majority of its seeds."""

    width: int
    params: int
    regime: Annotated[RegimeName, Field(description="mixed: no regime has most seeds")]
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
