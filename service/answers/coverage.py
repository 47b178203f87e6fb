"""How far a suite is: runs by state, cell by cell, how fast it goes and what is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from service.answers.making import Setting


@dataclass(frozen=True, kw_only=True)
class StateCounts:
    """Runs by state; they add up to the runs planned."""

    pending: int
    running: int
    stale: int
    done: int
    failed: int


@dataclass(frozen=True, kw_only=True)
class CellCoverage:
    """One kind of run at one prime, width and setting: its seeds by state."""

    kind: str
    prime: int
    width: int
    setting: Setting
    states: StateCounts
    censored: Annotated[int, Field(description="done runs that never reached their threshold")]
    diverged: int


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Failed runs of one reason."""

    reason: str
    runs: int
    example: Annotated[int, Field(description="id of one of them, for /runs/{id}")]


@dataclass(frozen=True, kw_only=True)
class CoverageAnswer:
    """Progress of a suite's own runs; inherited ones are counted apart."""

    suite: str
    revision: int
    states: StateCounts
    kinds: Annotated[Mapping[str, StateCounts], Field(description="the same by kind of run")]
    inherited: int
    cells: tuple[CellCoverage, ...]
    failures: tuple[Failure, ...]
    epochs_recorded: int
    runs_per_minute: Annotated[float | None, Field(description="over the last ten minutes")]
    seconds_left: Annotated[float | None, Field(description="null: nothing runs or none closed")]
