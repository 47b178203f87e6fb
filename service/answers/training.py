"""With what, where and at what cost a suite's runs were trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Connection, text

from service.answers.making import finite
from service.answers.reading import SuiteRecord

# A run's seconds are its share of its stack's time; the fingerprint says how many threads that
# stack had, and one without threads (a GPU's) counts the device as one core.
COST = """
SELECT coalesce(sum(r.seconds), 0) AS seconds,
    coalesce(sum(r.seconds * coalesce(
        CAST(substring(r.fingerprint FROM 'threads ([0-9]+)') AS integer), 1)), 0) AS core_seconds,
    coalesce(sum(r.last_epoch), 0) AS epochs,
    min(r.closed_at) AS first_closed, max(r.closed_at) AS last_closed,
    min(r.width) AS narrowest, max(r.width) AS widest
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = :suite_id AND NOT sr.inherited
"""

ENGINES = """
SELECT r.engine, r.device, r.fingerprint, count(*) AS runs
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = :suite_id AND r.fingerprint IS NOT NULL
GROUP BY r.engine, r.device, r.fingerprint ORDER BY runs DESC, r.fingerprint
"""

CODE = """
SELECT a.git_commit, a.git_dirty, a.versions, count(*) AS runs
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
JOIN attempts a ON a.run_id = r.id AND a.attempt = r.attempt
WHERE sr.suite_id = :suite_id
GROUP BY a.git_commit, a.git_dirty, a.versions ORDER BY runs DESC, a.git_commit
"""

HOSTS = """
SELECT count(DISTINCT a.host) FROM suite_runs sr JOIN attempts a ON a.run_id = sr.run_id
WHERE sr.suite_id = :suite_id
"""


@dataclass(frozen=True, kw_only=True)
class EngineUse:
    """Runs trained by one engine build on one kind of processor."""

    engine: str | None
    device: str | None
    fingerprint: str
    runs: int


@dataclass(frozen=True, kw_only=True)
class CodeUse:
    """Runs trained by one state of the code with one set of packages."""

    commit: Annotated[str | None, Field(description="null: not from a checkout")]
    dirty: bool | None
    versions: Mapping[str, Any]
    runs: int


@dataclass(frozen=True, kw_only=True)
class TrainingAnswer:
    """Cost and provenance of a suite's runs; cost counts its own runs, not inherited ones."""

    suite: str
    revision: int
    hours: Annotated[float | None, Field(description="training time, hours of one worker")]
    core_hours: Annotated[float | None, Field(description="times the threads of each stack")]
    epochs: int
    first_closed: datetime | None
    last_closed: datetime | None
    widths: Annotated[tuple[int, int] | None, Field(description="narrowest and widest")]
    hosts: int
    engines: tuple[EngineUse, ...]
    code: tuple[CodeUse, ...]
    recorded: Annotated[
        Mapping[str, Any] | None, Field(description="of a suite loaded from a dump: its making")
    ]


def training(connection: Connection, suite: SuiteRecord) -> TrainingAnswer:
    """What it took to train the suite."""
    asked = {"suite_id": suite.id}
    cost = connection.execute(text(COST), asked).one()
    return TrainingAnswer(
        suite=suite.name,
        revision=suite.revision,
        hours=finite(float(cost.seconds) / 3600),
        core_hours=finite(float(cost.core_seconds) / 3600),
        epochs=int(cost.epochs),
        first_closed=cost.first_closed,
        last_closed=cost.last_closed,
        widths=None if cost.narrowest is None else (cost.narrowest, cost.widest),
        hosts=int(connection.scalar(text(HOSTS), asked) or 0),
        engines=tuple(
            EngineUse(engine=r.engine, device=r.device, fingerprint=r.fingerprint, runs=r.runs)
            for r in connection.execute(text(ENGINES), asked)
        ),
        code=tuple(
            CodeUse(commit=r.git_commit, dirty=r.git_dirty, versions=r.versions, runs=r.runs)
            for r in connection.execute(text(CODE), asked)
        ),
        recorded=suite.recorded,
    )
