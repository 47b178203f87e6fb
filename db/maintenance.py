"""Finding damage that no constraint can forbid, and deleting runs that no other suite uses."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

from groktime.db.records import get_suite
from groktime.db.suites import REGISTRATION_LOCK
from groktime.service.errors import DatabaseError

# One pass over the curve's primary key; the rest is arithmetic on its sums.
COUNTED = """
CREATE TEMP TABLE counted ON COMMIT DROP AS
SELECT run_id, count(*) AS epochs, count(DISTINCT epoch) AS different, min(epoch) AS first,
    max(epoch) AS last
FROM curve GROUP BY run_id
"""

CHECKS = {
    "orphans": (
        "curve rows of runs that do not exist",
        "SELECT c.run_id FROM counted c LEFT JOIN runs r ON r.id = c.run_id WHERE r.id IS NULL",
    ),
    "repeats": (
        "runs with an epoch twice",
        "SELECT run_id FROM counted WHERE epochs <> different",
    ),
    "beyond": (
        "runs with rows beyond last_epoch, or before epoch 1",
        "SELECT c.run_id FROM counted c JOIN runs r ON r.id = c.run_id "
        "WHERE c.last > coalesce(r.set_aside_epoch, r.last_epoch) OR c.first < 1",
    ),
    "gaps": (
        "runs whose curve misses epochs up to last_epoch",
        "SELECT r.id FROM runs r LEFT JOIN counted c ON c.run_id = r.id "
        "WHERE NOT r.thinned AND coalesce(c.different, 0) < "
        "coalesce(r.set_aside_epoch, r.last_epoch) "
        "AND coalesce(c.last, 0) <= coalesce(r.set_aside_epoch, r.last_epoch)",
    ),
    "unsummarised": (
        "runs done or set aside without their summary",
        "SELECT id FROM runs WHERE (state = 'done' OR set_aside_epoch IS NOT NULL) "
        "AND (first_online IS NULL OR first_eval IS NULL "
        "OR first_val IS NULL OR final_train_correct IS NULL OR stopped_by IS NULL)",
    ),
    "passages": (
        "runs done or set aside whose 99 % first passages are not those of their curve",
        """
        SELECT r.id FROM runs r WHERE r.state IN ('done', 'set_aside') AND NOT r.thinned AND (
            r.first_online[50] IS DISTINCT FROM (
                SELECT min(c.epoch) FROM curve c WHERE c.run_id = r.id
                AND c.train_correct >= (990 * r.n_train::bigint + 999) / 1000
                AND c.train_loss > '-Infinity' AND c.train_loss < 'Infinity')
            OR r.first_val[50] IS DISTINCT FROM (
                SELECT min(c.epoch) FROM curve c WHERE c.run_id = r.id
                AND c.val_correct >= (990 * r.n_val::bigint + 999) / 1000
                AND c.val_loss > '-Infinity' AND c.val_loss < 'Infinity'))
        """,
    ),
    "attempts": (
        "closed runs with an attempt still running, or running ones without",
        "SELECT r.id FROM runs r LEFT JOIN attempts a ON a.run_id = r.id "
        "AND a.attempt = r.attempt AND a.state = 'running' "
        "WHERE (r.state = 'running') <> (a.run_id IS NOT NULL)",
    ),
}

# Not damage, but worth knowing: nobody has taken these back yet, or asks for these any more.
UNLINKED = """
SELECT count(*) FROM runs r
WHERE NOT EXISTS (SELECT FROM suite_runs sr WHERE sr.run_id = r.id)
"""
EXPIRED = "SELECT count(*) FROM runs WHERE state = 'running' AND lease_until < clock_timestamp()"

EXAMPLES = 10


@dataclass(frozen=True)
class Finding:
    """Runs that one check found at fault."""

    check: str
    meaning: str
    count: int
    runs: list[int]  # ids of some of them


@dataclass(frozen=True)
class Report:
    """All findings; none means that the database is sound."""

    runs: int
    curve_rows: int
    expired: int  # running runs whose lease is over
    unlinked: int  # runs that no suite has
    findings: list[Finding]


def check(connection: Connection) -> Report:
    """Look at every run and every curve row; changes nothing (a temporary table goes away)."""
    connection.execute(text(COUNTED))
    connection.execute(text("ANALYZE counted"))
    findings = []
    for name, (meaning, query) in CHECKS.items():
        found = text(
            f"SELECT count(*), (array_agg(id ORDER BY id))[1:{EXAMPLES}] FROM ({query}) f(id)"
        )
        count, examples = connection.execute(found).one()
        if count:
            findings.append(Finding(name, meaning, count, list(examples)))
    totals = text(
        "SELECT (SELECT count(*) FROM runs), (SELECT coalesce(sum(epochs), 0) FROM counted), "
        f"({EXPIRED}), ({UNLINKED})"
    )
    runs, rows, expired, unlinked = connection.execute(totals).one()
    connection.execute(text("DROP TABLE counted"))
    return Report(runs, int(rows), expired, unlinked, findings)


# Runs of one suite alone; without a suite (:suite is NULL) those that no suite has any more.
CHOSEN = """
SELECT r.id FROM runs r WHERE NOT EXISTS (
    SELECT FROM suite_runs other WHERE other.run_id = r.id
    AND other.suite_id IS DISTINCT FROM CAST(:suite AS int))
AND (CAST(:suite AS int) IS NULL OR EXISTS (
    SELECT FROM suite_runs sr WHERE sr.run_id = r.id AND sr.suite_id = :suite))
"""

PLAN = f"""
SELECT count(*) AS runs, count(*) FILTER (WHERE r.state IN ('done', 'set_aside')) AS done,
    count(*) FILTER (WHERE r.state = 'running' AND r.lease_until > clock_timestamp()) AS running,
    coalesce(sum(r.last_epoch), 0) AS epochs,
    (SELECT count(*) FROM suite_runs WHERE suite_id = :suite) AS linked
FROM runs r WHERE r.id IN ({CHOSEN})
"""

RAISE = "UPDATE suites SET revision = revision + 1, updated_at = now() WHERE id = :suite"


@dataclass(frozen=True)
class PrunePlan:
    """What pruning would delete."""

    suite: str | None  # None: runs that no suite has
    frozen: bool  # the suite is a pre-registration
    runs: int  # runs that would go
    done: int  # of these, trained or set aside
    running: int  # of these, being trained right now
    epochs: int  # curve rows that go with them
    shared: int  # runs of the suite that stay, since other suites have them


def plan_prune(connection: Connection, name: str | None) -> PrunePlan:
    """Count what would go; changes nothing."""
    suite = None if name is None else get_suite(connection, name)
    row = connection.execute(text(PLAN), {"suite": suite.id if suite else None}).one()
    frozen = suite is not None and suite.frozen
    shared = row.linked - row.runs if suite else 0
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
