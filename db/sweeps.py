"""Sweeps submitted as Ray jobs: who asked for what, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field
from sqlalchemy import Connection, Row, text

SweepState = Literal["submitted", "running", "done", "failed", "stopped"]

SELECT = """
SELECT id, suite, job_id, submitted_by, filters, state, message, created_at, updated_at FROM sweeps
"""


@dataclass(frozen=True, kw_only=True)
class SweepRow:
    """One sweep and how it stands."""

    id: int
    suite: str
    job_id: Annotated[str | None, Field(description="Ray's submission id")]
    submitted_by: str
    filters: dict[str, Any]
    state: SweepState
    message: str | None
    created_at: datetime
    updated_at: datetime


def insert_sweep(
    connection: Connection,
    suite: str,
    *,
    submitted_by: str,
    filters: Mapping[str, Any] | None = None,
) -> int:
    """Note a submission; the suite may still be unknown here."""
    found = connection.scalar(
        text(
            "INSERT INTO sweeps (suite_id, suite, submitted_by, filters) VALUES ("
            "(SELECT id FROM suites WHERE name = :suite), :suite, :by, "
            "CAST(:filters AS jsonb)) RETURNING id"
        ),
        {"suite": suite, "by": submitted_by, "filters": json.dumps(dict(filters or {}))},
    )
    assert isinstance(found, int)
    return found


def update_sweep(
    connection: Connection,
    sweep_id: int,
    *,
    state: SweepState | None = None,
    job_id: str | None = None,
    message: str | None = None,
) -> bool:
    """Note a new state, job id or message, whichever is given; False: no such sweep."""
    return bool(
        connection.execute(
            text(
                "UPDATE sweeps SET state = coalesce(:state, state), "
                "job_id = coalesce(:job, job_id), "
                "message = coalesce(:message, message), updated_at = now() WHERE id = :id"
            ),
            {"id": sweep_id, "state": state, "job": job_id, "message": message},
        ).rowcount
    )


def get_sweep(connection: Connection, sweep_id: int) -> SweepRow | None:
    """One sweep, or None."""
    row = connection.execute(text(f"{SELECT} WHERE id = :id"), {"id": sweep_id}).one_or_none()
    return None if row is None else _sweep(row)


def list_sweeps(
    connection: Connection, *, suite: str | None = None, limit: int = 100
) -> list[SweepRow]:
    """The latest sweeps, newest first."""
    wanted = "CAST(:suite AS text) IS NULL OR suite = :suite"
    query = f"{SELECT} WHERE {wanted} ORDER BY id DESC LIMIT :limit"
    return [
        _sweep(row) for row in connection.execute(text(query), {"suite": suite, "limit": limit})
    ]


def _sweep(row: Row[Any]) -> SweepRow:
    # A row that somebody damaged is shown without what cannot be read.
    filters = row.filters if isinstance(row.filters, dict) else {}
    return SweepRow(**{**row._mapping, "filters": filters})
