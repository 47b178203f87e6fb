"""Which suites there are, and one suite by name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, text

from service.errors import SuiteError

SUITES = """
SELECT s.id, s.name, s.spec, s.hash, s.revision, s.frozen_at, s.recorded, s.created_at,
    s.updated_at, c.*
FROM suites s CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE NOT sr.inherited) AS runs,
        count(*) FILTER (WHERE sr.inherited) AS inherited,
        count(*) FILTER (WHERE NOT sr.inherited AND r.state = 'pending') AS pending,
        count(*) FILTER (WHERE NOT sr.inherited AND r.state = 'running') AS running,
        count(*) FILTER (WHERE NOT sr.inherited AND r.state = 'stale') AS stale,
        count(*) FILTER (WHERE NOT sr.inherited AND r.state = 'done') AS done,
        count(*) FILTER (WHERE NOT sr.inherited AND r.state = 'failed') AS failed,
        max(r.closed_at) AS last_closed_at
    FROM suite_runs sr JOIN runs r ON r.id = sr.run_id WHERE sr.suite_id = s.id
) c
{where}
ORDER BY s.name
"""


@dataclass(frozen=True)
class SuiteRow:
    """A suite and how many of its own runs are in each state."""

    id: int
    name: str
    spec: dict[str, Any]
    hash: str
    revision: int
    frozen_at: datetime | None
    recorded: dict[str, Any] | None
    created_at: datetime
    updated_at: datetime
    runs: int
    inherited: int
    pending: int
    running: int
    stale: int
    done: int
    failed: int
    last_closed_at: datetime | None

    @property
    def open(self) -> int:
        """Runs not closed yet."""
        return self.pending + self.running + self.stale


def list_suites(connection: Connection) -> list[SuiteRow]:
    """All suites by name."""
    return [_suite(row) for row in connection.execute(text(SUITES.format(where="")))]


def get_suite(connection: Connection, name: str) -> SuiteRow:
    """One suite; a name that is not there is refused with those that are."""
    query = text(SUITES.format(where="WHERE s.name = :name"))
    row = connection.execute(query, {"name": name}).one_or_none()
    if row is None:
        raise _unknown(connection, name)
    return _suite(row)


def suite_revision(connection: Connection, name: str) -> tuple[int, int]:
    """Id and revision of a suite: what caches look at, in one index lookup."""
    query = text("SELECT id, revision FROM suites WHERE name = :name")
    row = connection.execute(query, {"name": name}).one_or_none()
    if row is None:
        raise _unknown(connection, name)
    return row.id, row.revision


def _unknown(connection: Connection, name: str) -> SuiteError:
    known = connection.scalars(text("SELECT name FROM suites ORDER BY name")).all()
    listed = ", ".join(known) if known else "none yet"
    return SuiteError(f"suite: {name!r} is not in the database; there: {listed}")


def _suite(row: Row[Any]) -> SuiteRow:
    return SuiteRow(**row._mapping)
