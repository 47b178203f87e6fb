"""How far a suite is: runs by state, cell by cell, how fast it goes and what is left."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pandas as pd
from pydantic import Field
from sqlalchemy import Connection

from db.queries.coverage import coverage_frame, failures, progress
from db.schema import RUN_STATES
from service.answers.cell import SETTING_COLUMNS, plain
from service.answers.making import Setting
from service.answers.reading import SuiteRecord
from service.spec import KINDS


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
    seconds_left: Annotated[float | None, Field(description="null: no run closed lately")]


def coverage(connection: Connection, suite: SuiteRecord) -> CoverageAnswer:
    """Where a suite stands now."""
    counted = coverage_frame(connection, suite.id, ("prime", "width", *SETTING_COLUMNS))
    frame = counted[~counted["inherited"]]
    swept = [name for name in SETTING_COLUMNS if _varies(frame, name)]
    pace = progress(connection, suite.id)
    return CoverageAnswer(
        suite=suite.name,
        revision=suite.revision,
        states=_counts(frame),
        kinds={kind: _counts(frame[frame["kind"] == kind]) for kind in KINDS},
        inherited=int(counted.loc[counted["inherited"], "runs"].sum()),
        cells=tuple(_cell(row, swept) for row in frame.to_dict("records")),
        failures=tuple(
            Failure(reason=found.reason, runs=found.runs, example=found.example)
            for found in failures(connection, suite.id)
        ),
        epochs_recorded=pace.epochs,
        runs_per_minute=pace.runs_per_minute,
        seconds_left=pace.seconds_left,
    )


def _varies(frame: pd.DataFrame, name: str) -> bool:
    """Several values within one kind at one prime: part of what tells its cells apart."""
    if not len(frame):
        return False
    return bool((frame.groupby(["kind", "prime"])[name].nunique(dropna=False) > 1).any())


def _counts(frame: pd.DataFrame) -> StateCounts:
    return StateCounts(**{state: int(frame[state].sum()) for state in RUN_STATES})


def _cell(row: Mapping[Hashable, Any], swept: list[str]) -> CellCoverage:
    return CellCoverage(
        kind=row["kind"],
        prime=row["prime"],
        width=row["width"],
        setting={name: plain(row[name]) for name in swept},
        states=StateCounts(**{state: row[state] for state in RUN_STATES}),
        censored=row["censored"],
        diverged=row["diverged"],
    )
