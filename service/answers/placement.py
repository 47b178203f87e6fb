"""How far the cells of a located suite are placed: what is known of each, and what comes next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from groktime.service.answers.question import Setting


@dataclass(frozen=True, kw_only=True)
class PlacedPoint:
    """P_cross or P_onset as the model that chooses runs sees it; answers do not rest on it."""

    status: Annotated[str, Field(description="searching, placed, or why it cannot be placed")]
    estimate: Annotated[float | None, Field(description="parameters; null: not seen yet")]
    half_width: Annotated[float | None, Field(description="of the 95 % interval, dex")]
    low: Annotated[float | None, Field(description="of the 95 % interval, parameters")]
    high: float | None
    bracket: Annotated[
        tuple[float, float] | None, Field(description="sizes on both sides that were trained")
    ]


@dataclass(frozen=True, kw_only=True)
class NextRun:
    """A run that is wanted next."""

    kind: Literal["speed", "grok"]
    width: int
    seed: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Step:
    """What the first runs of a cell say without the others."""

    runs: int
    core_seconds: Annotated[float, Field(description="spent on these runs")]
    crossing: PlacedPoint | None
    onset: PlacedPoint | None


@dataclass(frozen=True, kw_only=True)
class PlacedCell:
    """One prime at one setting."""

    prime: int
    setting: Setting
    crossing: Annotated[PlacedPoint | None, Field(description="null: not asked for")]
    onset: Annotated[PlacedPoint | None, Field(description="null: not asked for")]
    runs: Annotated[int, Field(description="trained: done, set aside or diverged")]
    open: Annotated[int, Field(description="chosen and not closed yet")]
    core_seconds: Annotated[float, Field(description="spent on the trained runs")]
    ended: Annotated[str | None, Field(description="why no more runs are wanted; null: some are")]
    next: Annotated[tuple[NextRun, ...], Field(description="wanted runs, best first")]
    steps: Annotated[tuple[Step, ...], Field(description="run by run, in the order chosen")]


@dataclass(frozen=True, kw_only=True)
class PlacementAnswer:
    """Every cell of a suite with `design: locate`."""

    suite: str
    revision: int
    place: Annotated[tuple[str, ...], Field(description="what is to be placed in every cell")]
    precision: Annotated[
        float, Field(description="standard deviation of each point that is enough, dex")
    ]
    max_runs: Annotated[int, Field(description="most runs of one cell")]
    running: Annotated[bool, Field(description="a worker trains one of its runs now")]
    runs: int
    core_seconds: float
    cells: tuple[PlacedCell, ...]
