"""Deleting runs that no other suite uses, after saying what that would delete."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

from db.queries.suites import get_suite
from db.registering import REGISTRATION_LOCK
from service.errors import DatabaseError

# Runs of one suite alone; without a suite (:suite is NULL) those that no suite has any more.
CHOSEN = """
SELECT r.id FROM runs r WHERE NOT EXISTS (
    SELECT FROM suite_runs other WHERE other.run_id = r.id
    AND other.suite_id IS DISTINCT FROM CAST(:suite AS int))
AND (CAST(:suite AS int) IS NULL OR EXISTS (
    SELECT FROM suite_runs sr WHERE sr.run_id = r.id AND sr.suite_id = :suite))
"""

PLAN = f"""
SELECT count(*) AS runs, count(*) FILTER (WHERE r.state = 'done') AS done,
    count(*) FILTER (WHERE r.state = 'running' AND r.lease_until > clock_timestamp()) AS running,
    coalesce(sum(r.last_epoch), 0) AS epochs
FROM runs r WHERE r.id IN ({CHOSEN})
"""

RAISE = "UPDATE suites SET revision = revision + 1, updated_at = now() WHERE id = :suite"


@dataclass(frozen=True)
class PrunePlan:
    """What pruning would delete."""

    suite: str | None  # None: runs that no suite has
    frozen: bool  # the suite is a pre-registration
    runs: int  # runs that would go
    done: int  # of these, trained
    running: int  # of these, being trained right now
    epochs: int  # curve rows that go with them
    shared: int  # runs of the suite that stay, since other suites have them


def plan_prune(connection: Connection, name: str | None) -> PrunePlan:
    """Count what would go; changes nothing."""
    suite = None if name is None else get_suite(connection, name)
    row = connection.execute(text(PLAN), {"suite": suite.id if suite else None}).one()
    shared = suite.runs + suite.inherited - row.runs if suite else 0
    frozen = suite is not None and suite.frozen_at is not None
    return PrunePlan(name, frozen, row.runs, row.done, row.running, int(row.epochs), shared)


def prune(connection: Connection, name: str | None) -> PrunePlan:
    """Delete in the caller's transaction; refuses while a worker trains one of the runs."""
    # A registration meanwhile could give a run a suite, or take its last one away.
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": REGISTRATION_LOCK})
    parameters = {"suite": None if name is None else get_suite(connection, name).id}
    connection.execute(
        text(f"SELECT FROM runs WHERE id IN ({CHOSEN}) ORDER BY id FOR UPDATE"), parameters
    )
    plan = plan_prune(connection, name)
    if plan.running:
        raise DatabaseError(
            f"{plan.running} of the runs to prune are being trained: stop the sweep first"
        )
    connection.execute(text(f"DELETE FROM curve WHERE run_id IN ({CHOSEN})"), parameters)
    connection.execute(text(f"DELETE FROM runs WHERE id IN ({CHOSEN})"), parameters)
    # The suite itself stays, so that its revision never goes back.
    connection.execute(text(RAISE), parameters)
    return plan
