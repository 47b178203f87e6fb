"""Suites as the database has them, and how far each is: runs by state, what failed, the speed and
the time left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from sqlalchemy import Connection, text

from groktime.service.errors import InputError, SuiteError
from groktime.service.spec import SETTING_COLUMNS, SUITE_NAME

if TYPE_CHECKING:
    import pandas as pd

Design = Literal["grid", "locate"]

LAST_YEAR = 9999  # how the driver reads Postgres's infinity

SUITES = """
SELECT s.id, s.name, s.spec, s.hash, s.design, s.revision,
       -- Python has no years before 1: such a row is damaged, and is told so below
       CASE WHEN s.frozen_at < '0001-01-02Z' THEN '0001-01-02Z' ELSE s.frozen_at END AS frozen_at,
       s.recorded,
       EXISTS (SELECT FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
               WHERE sr.suite_id = s.id AND r.state = 'running') AS running,
       EXISTS (SELECT FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
               WHERE sr.suite_id = s.id
                 AND r.state IN ('pending', 'running', 'stale')) AS open
FROM suites s
"""


@dataclass(frozen=True, kw_only=True)
class SuiteRecord:
    """A suite as the database has it.

    `running`: a worker trains one of its runs now; `open`: some of its runs are not closed;
    `recorded`: of a suite loaded from a dump, how that was made.
    """

    id: int
    name: str
    spec: Mapping[str, Any]
    hash: str
    design: Design
    revision: int
    frozen_at: datetime | None
    recorded: Mapping[str, Any] | None
    running: bool
    open: bool

    @property
    def frozen(self) -> bool:
        """The suite can no longer change."""
        return self.frozen_at is not None

    @property
    def is_located(self) -> bool:
        """Whether the suite chooses its runs as it goes."""
        return self.design == "locate"

    @property
    def damage(self) -> str | None:
        """What makes the stored suite unreadable, such as a dump that was written by hand."""
        if not isinstance(self.spec, Mapping):
            return f"its spec is a {type(self.spec).__name__}, not an object"
        if not isinstance(self.recorded, Mapping | None):
            return f"`recorded` is a {type(self.recorded).__name__}, not an object"
        if self.frozen_at is not None and not 1970 <= self.frozen_at.year < LAST_YEAR:
            return "frozen_at is no time at which it could have been frozen"
        if not isinstance((self.recorded or {}).get("versions"), Mapping | None):
            return "`recorded.versions` is not an object"
        return None

    @property
    def prior(self) -> tuple[str, ...]:
        """Earlier suites whose cells told this one where to look."""
        design = self.spec.get("design") if self.is_located else None
        return tuple(design.get("prior") or ()) if isinstance(design, Mapping) else ()

    @property
    def analysis(self) -> Mapping[str, Any]:
        """How the suite means to be analysed; empty where its file does not say."""
        written = self.spec.get("analysis")
        return written if isinstance(written, Mapping) else {}


def printable(name: str) -> str:
    """A name as it may be printed, whatever it holds."""
    return name if re.fullmatch(SUITE_NAME.rstrip("$"), name) else ascii(name[:100])


def suite_names(connection: Connection) -> list[str]:
    return list(connection.scalars(text("SELECT name FROM suites ORDER BY name")))


def find_suite(connection: Connection, name: str) -> SuiteRecord | None:
    """The suite of this name, or None."""
    found = connection.execute(text(f"{SUITES} WHERE s.name = :name"), {"name": name})
    row = found.mappings().one_or_none()
    return None if row is None else SuiteRecord(**row)


def get_suite(connection: Connection, name: str) -> SuiteRecord:
    """One suite; a name that is not there is refused with those that are."""
    suite = find_suite(connection, name)
    if suite is None:
        known = suite_names(connection)
        listed = ", ".join(map(printable, known)) if known else "none yet"
        raise SuiteError(f"suite: {name!r} is not in the database; there: {listed}")
    return suite


def read_suites(connection: Connection) -> list[SuiteRecord]:
    """All suites, by name; damaged ones, too."""
    rows = connection.execute(text(f"{SUITES} ORDER BY s.name")).mappings()
    return [SuiteRecord(**row) for row in rows]


COUNTED_BY = ("prime", "n_train", "width", *SETTING_COLUMNS)

COVERAGE = """
SELECT sr.suite_id, r.kind, sr.inherited {by}, count(*),
    count(*) FILTER (WHERE r.state = 'pending'),
    count(*) FILTER (WHERE r.state = 'running' AND r.lease_until >= now()),
    count(*) FILTER (WHERE r.state = 'stale' OR r.state = 'running' AND r.lease_until < now()),
    count(*) FILTER (WHERE r.state = 'done'),
    count(*) FILTER (WHERE r.state = 'failed'),
    count(*) FILTER (WHERE r.state = 'set_aside'),
    count(*) FILTER (WHERE r.state = 'done' AND r.stopped_by = 'cap'),
    count(*) FILTER (WHERE r.reason = 'diverged'), sum(r.last_epoch)::bigint
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = ANY(%(suites)s)
GROUP BY sr.suite_id, r.kind, sr.inherited {by} ORDER BY sr.suite_id, r.kind, sr.inherited {by}
"""

COUNTS = (
    "runs",
    "pending",
    "running",
    "stale",
    "done",
    "failed",
    "set_aside",
    "censored",
    "diverged",
    "epochs",
)

FAILURES = """
SELECT r.reason, count(*) AS runs, min(r.id) AS example
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = :suite AND NOT sr.inherited AND r.state = 'failed'
GROUP BY r.reason ORDER BY runs DESC, r.reason
"""

PROGRESS = """
SELECT count(*) FILTER (WHERE CASE WHEN s.design = 'locate' AND r.set_aside_epoch IS NOT NULL
        THEN false ELSE r.state NOT IN ('done', 'failed') END) AS open,
    coalesce(sum(r.last_epoch), 0) AS epochs,
    count(*) FILTER (WHERE r.closed_at > now() - make_interval(secs => :window)) AS closed,
    extract(epoch FROM now() - greatest(now() - make_interval(secs => :window), (
        SELECT min(a.started_at) FROM attempts a JOIN suite_runs l ON l.run_id = a.run_id
        WHERE l.suite_id = :suite AND a.started_at > now() - make_interval(secs => :window)
    ))) AS seconds
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id JOIN suites s ON s.id = sr.suite_id
WHERE sr.suite_id = :suite AND NOT sr.inherited
"""

THROUGHPUT_SECONDS = 600.0


@dataclass(frozen=True)
class Failure:
    """Failed runs of one reason."""

    reason: str
    runs: int
    example: Annotated[int, Field(description="id of one of them, for /runs/{id}")]


@dataclass(frozen=True)
class Progress:
    """The suite's own runs; rates are over the last ten minutes."""

    epochs: int  # recorded so far, by closed and open runs
    runs_per_minute: float | None  # None: no run closed lately
    seconds_left: float | None  # None: unknown; 0: nothing is open


def coverage_frame(
    connection: Connection, suite_id: int, by: Sequence[str] = ("prime", "width")
) -> pd.DataFrame:
    """Runs counted by kind, inheritance, the columns named and state.

    `censored` are done runs that the cap stopped; `epochs` the epochs recorded.
    """
    return coverage_frames(connection, [suite_id], by)[suite_id]


def coverage_frames(
    connection: Connection, suite_ids: Sequence[int], by: Sequence[str]
) -> dict[int, pd.DataFrame]:
    """The same of several suites: most of the time goes to reading runs, which they share."""
    from groktime.db.frames import read_frame
    from groktime.db.runs import column_kind

    types = {"suite_id": "int", "kind": "text", "inherited": "bool"}
    types |= {name: column_kind(name) for name in by} | {name: "int" for name in COUNTS}
    frame = read_frame(connection, _query(by), {"suites": list(suite_ids)}, types)
    own = frame.drop(columns="suite_id")
    return {one: own[frame["suite_id"] == one].reset_index(drop=True) for one in suite_ids}


def coverage_rows(
    connection: Connection, suite_id: int, by: Sequence[str] = ("prime", "width")
) -> list[dict[str, Any]]:
    """The same as plain rows, for a command that does without pandas."""
    names = ("kind", "inherited", *by, *COUNTS)
    rows = connection.exec_driver_sql(_query(by), {"suites": [suite_id]})
    return [dict(zip(names, row[1:], strict=True)) for row in rows]


def _query(by: Sequence[str]) -> str:
    for name in by:
        if name not in COUNTED_BY:
            raise InputError(f"by: {name!r} is not accepted; accepted: {', '.join(COUNTED_BY)}")
    return COVERAGE.format(by="".join(f", r.{name}" for name in by))


def failures(connection: Connection, suite_id: int) -> list[Failure]:
    """Why runs failed, the commonest reason first."""
    rows = connection.execute(text(FAILURES), {"suite": suite_id})
    return [Failure(row.reason, row.runs, row.example) for row in rows]


def progress(connection: Connection, suite_id: int) -> Progress:
    """How fast runs close (since the sweep began, at most ten minutes) and the time left."""
    values = {"suite": suite_id, "window": THROUGHPUT_SECONDS}
    row = connection.execute(text(PROGRESS), values).one()
    rate = None
    if row.closed and row.seconds:
        rate = 60 * row.closed / max(float(row.seconds), 1.0)
    left = 0.0 if row.open == 0 else None if rate is None else 60 * row.open / rate
    return Progress(int(row.epochs), rate, left)
