"""One suite by name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text

from service.errors import SuiteError

SUITE = """
SELECT s.id, s.name, s.spec, s.hash, s.revision, s.frozen_at, s.recorded, c.*
FROM suites s CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE NOT sr.inherited) AS runs,
        count(*) FILTER (WHERE sr.inherited) AS inherited
    FROM suite_runs sr WHERE sr.suite_id = s.id
) c
WHERE s.name = :name
"""


@dataclass(frozen=True)
class SuiteRow:
    """A suite and the numbers of its own and of its inherited runs."""

    id: int
    name: str
    spec: dict[str, Any]
    hash: str
    revision: int
    frozen_at: datetime | None
    recorded: dict[str, Any] | None
    runs: int
    inherited: int


def get_suite(connection: Connection, name: str) -> SuiteRow:
    """One suite; a name that is not there is refused with those that are."""
    row = connection.execute(text(SUITE), {"name": name}).one_or_none()
    if row is None:
        known = connection.scalars(text("SELECT name FROM suites ORDER BY name")).all()
        listed = ", ".join(known) if known else "none yet"
        raise SuiteError(f"suite: {name!r} is not in the database; there: {listed}")
    return SuiteRow(**row._mapping)
