"""One suite by name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from service.errors import SuiteError

SUITE = """
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
WHERE s.name = :name
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


def get_suite(connection: Connection, name: str) -> SuiteRow:
    """One suite; a name that is not there is refused with those that are."""
    row = connection.execute(text(SUITE), {"name": name}).one_or_none()
    if row is None:
        known = connection.scalars(text("SELECT name FROM suites ORDER BY name")).all()
        listed = ", ".join(known) if known else "none yet"
        raise SuiteError(f"suite: {name!r} is not in the database; there: {listed}")
    return SuiteRow(**row._mapping)
