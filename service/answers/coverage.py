"""How far a suite is: runs by state, cell by cell, how fast it goes and what is left."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pandas as pd
from pydantic import Field
from sqlalchemy import Connection, text

from service.answers.cell import SETTING_COLUMNS, plain
from service.answers.making import Setting
from service.answers.reading import SuiteRecord


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


STATES = ("pending", "running", "stale", "done", "failed")

# A running run whose lease is over belongs to nobody any more.
STATE = "CASE WHEN r.state = 'running' AND r.lease_until < now() THEN 'stale' ELSE r.state END"

CELLS = f"""
SELECT r.kind, r.prime, r.width, {", ".join(f"r.{name}" for name in SETTING_COLUMNS)},
       {", ".join(f"count(*) FILTER (WHERE {STATE} = '{state}') AS {state}" for state in STATES)},
       count(*) FILTER (WHERE r.state = 'done' AND r.stopped_by = 'cap') AS censored,
       count(*) FILTER (WHERE r.state = 'failed' AND r.reason LIKE 'diverged%') AS diverged
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = :suite_id AND NOT sr.inherited
GROUP BY r.kind, r.prime, r.width, {", ".join(f"r.{name}" for name in SETTING_COLUMNS)}
ORDER BY r.kind, r.prime, r.width
"""

FAILURES = """
SELECT r.reason, count(*) AS runs, min(r.id) AS example
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = :suite_id AND NOT sr.inherited AND r.state = 'failed'
GROUP BY r.reason ORDER BY count(*) DESC, r.reason
"""

# Speed of work: runs closed in the last ten minutes, since the first of them.
PACE = """
SELECT count(*) AS closed, extract(epoch FROM now() - min(r.closed_at)) AS seconds
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = :suite_id AND NOT sr.inherited AND r.closed_at > now() - interval '10 minutes'
"""

TOTALS = """
SELECT count(*) FILTER (WHERE sr.inherited) AS inherited,
       coalesce(sum(r.last_epoch) FILTER (WHERE NOT sr.inherited), 0) AS epochs
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id WHERE sr.suite_id = :suite_id
"""


def coverage(connection: Connection, suite: SuiteRecord) -> CoverageAnswer:
    """Where a suite stands now."""
    asked = {"suite_id": suite.id}
    result = connection.execute(text(CELLS), asked)
    frame = pd.DataFrame(result.fetchall(), columns=list(result.keys()))
    swept = [name for name in SETTING_COLUMNS if _varies(frame, name)]
    totals = connection.execute(text(TOTALS), asked).one()
    pace = connection.execute(text(PACE), asked).one()
    states = _counts(frame)
    rate = pace.closed / float(pace.seconds) if pace.closed and pace.seconds else None
    left = states.pending + states.running + states.stale
    working = rate is not None and states.running > 0
    return CoverageAnswer(
        suite=suite.name,
        revision=suite.revision,
        states=states,
        kinds={
            kind: _counts(frame[frame["kind"] == kind]) for kind in ("capacity", "speed", "grok")
        },
        inherited=int(totals.inherited),
        cells=tuple(_cell(row, swept) for row in frame.to_dict("records")),
        failures=tuple(
            Failure(reason=row.reason, runs=row.runs, example=row.example)
            for row in connection.execute(text(FAILURES), asked)
        ),
        epochs_recorded=int(totals.epochs),
        runs_per_minute=None if rate is None else rate * 60,
        seconds_left=left / rate if working and rate is not None else None,
    )


def _varies(frame: pd.DataFrame, name: str) -> bool:
    """Several values within one kind at one prime: part of what tells its cells apart."""
    if not len(frame):
        return False
    return bool((frame.groupby(["kind", "prime"])[name].nunique(dropna=False) > 1).any())


def _counts(frame: pd.DataFrame) -> StateCounts:
    return StateCounts(**{state: int(frame[state].sum()) for state in STATES})


def _cell(row: Mapping[Hashable, Any], swept: list[str]) -> CellCoverage:
    return CellCoverage(
        kind=row["kind"],
        prime=row["prime"],
        width=row["width"],
        setting={name: plain(row[name]) for name in swept},
        states=StateCounts(**{state: row[state] for state in STATES}),
        censored=row["censored"],
        diverged=row["diverged"],
    )
