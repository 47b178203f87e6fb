"""Suites and their runs: registering what is asked for, so that only the missing is trained."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, text

from db.schema import SPEC_COLUMNS
from service.errors import SuiteError
from service.spec import SPEC_VERSION, RunSpec

# Registrations wait for each other: two of one suite would otherwise undo each other's links.
REGISTRATION_LOCK = 0x73756974  # "suit"

CREATE_INCOMING = """
CREATE TEMP TABLE incoming ON COMMIT DROP AS
SELECT 0 AS position, false AS inherited, key, spec, {columns} FROM runs WITH NO DATA
"""

INSERT_RUNS = """
INSERT INTO runs (key, spec, {columns})
SELECT key, spec, {columns} FROM incoming i
WHERE NOT EXISTS (SELECT FROM runs r WHERE r.key = i.key)
ORDER BY position
ON CONFLICT (key) DO NOTHING
"""

LINK_RUNS = """
INSERT INTO suite_runs AS linked (suite_id, run_id, inherited)
SELECT :suite, r.id, i.inherited FROM incoming i JOIN runs r USING (key)
ON CONFLICT (suite_id, run_id) DO UPDATE SET inherited = excluded.inherited
    WHERE linked.inherited <> excluded.inherited
"""

UNLINK_RUNS = """
DELETE FROM suite_runs sr USING runs r
WHERE sr.suite_id = :suite AND r.id = sr.run_id
    AND NOT EXISTS (SELECT FROM incoming i WHERE i.key = r.key)
"""

UPSERT_SUITE = """
INSERT INTO suites AS s (name, spec, hash) VALUES (:name, CAST(:spec AS jsonb), :hash)
ON CONFLICT (name) DO UPDATE SET spec = excluded.spec, hash = excluded.hash,
    revision = s.revision + (s.hash <> excluded.hash)::int, updated_at = now()
    WHERE s.hash <> excluded.hash OR s.spec <> excluded.spec
"""

UNCHANGED = """
SELECT s.id, s.revision, count(sr.run_id) AS links,
    count(*) FILTER (WHERE sr.inherited) AS inherited
FROM suites s LEFT JOIN suite_runs sr ON sr.suite_id = s.id
WHERE s.name = :name AND s.hash = :hash AND s.spec = CAST(:spec AS jsonb)
GROUP BY s.id
"""

RAISE_REVISION = """
UPDATE suites SET revision = revision + 1, updated_at = now() WHERE id = :suite
"""


@dataclass(frozen=True)
class Registered:
    """A suite as the database knows it now."""

    suite_id: int
    revision: int
    created: int  # runs that no suite had asked for before
    linked: int
    unlinked: int


def register_suite(
    engine: Engine,
    name: str,
    spec: Mapping[str, Any],
    digest: str,
    runs: Iterable[RunSpec],
    inherited: Iterable[RunSpec] = (),
) -> Registered:
    """Make the database hold exactly this suite: its spec, its runs and those it inherits.

    Runs that exist are shared, missing ones become pending. Inherited runs are linked for the
    suite's analyses, and trained when the suite they are inherited from is. A frozen suite is
    accepted unchanged and refused otherwise.
    """
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": REGISTRATION_LOCK})
        _refuse_change_of_frozen(connection, name, digest)
        chosen = _chosen(runs, inherited)
        known = _unchanged(connection, name, spec, digest, chosen)
        if known is not None:
            return known
        connection.execute(
            text(UPSERT_SUITE), {"name": name, "spec": json.dumps(spec), "hash": digest}
        )
        suite_id = connection.scalar(text("SELECT id FROM suites WHERE name = :n"), {"n": name})
        assert suite_id is not None
        _copy_incoming(connection, chosen)
        created, linked, unlinked = _link_incoming(connection, suite_id)
        if linked or unlinked:
            connection.execute(text(RAISE_REVISION), {"suite": suite_id})
        revision = connection.scalar(
            text("SELECT revision FROM suites WHERE id = :suite"), {"suite": suite_id}
        )
    assert revision is not None
    return Registered(suite_id, revision, created, linked, unlinked)


def _refuse_change_of_frozen(connection: Connection, name: str, digest: str) -> None:
    row = connection.execute(
        text("SELECT hash, frozen_at FROM suites WHERE name = :name FOR UPDATE"), {"name": name}
    ).one_or_none()
    if row is not None and row.frozen_at is not None and row.hash != digest:
        raise SuiteError(
            f"suite {name} was frozen at {row.frozen_at:%Y-%m-%d %H:%M} with hash "
            f"{row.hash[:12]}, but now has {digest[:12]}: give the changed suite another name"
        )


Chosen = dict[str, tuple[bool, RunSpec]]  # by key: whether inherited, and the spec


def _chosen(runs: Iterable[RunSpec], inherited: Iterable[RunSpec]) -> Chosen:
    """Each run once; one that the suite both has and inherits is its own."""
    chosen: Chosen = {}
    for spec in runs:
        chosen.setdefault(spec.key, (False, spec))
    for spec in inherited:
        chosen.setdefault(spec.key, (True, spec))
    return chosen


def _unchanged(
    connection: Connection, name: str, spec: Mapping[str, Any], digest: str, chosen: Chosen
) -> Registered | None:
    """The suite as it is, if it is registered so already: the digest covers the runs' keys."""
    row = connection.execute(
        text(UNCHANGED), {"name": name, "spec": json.dumps(spec), "hash": digest}
    ).one_or_none()
    inherited = sum(is_inherited for is_inherited, _ in chosen.values())
    if row is None or (row.links, row.inherited) != (len(chosen), inherited):
        return None
    return Registered(row.id, row.revision, created=0, linked=0, unlinked=0)


def _copy_incoming(connection: Connection, chosen: Chosen) -> None:
    """Bring specs into a temporary table in one COPY: thousands of runs take a second."""
    columns = ", ".join(SPEC_COLUMNS)
    connection.execute(text(CREATE_INCOMING.format(columns=columns)))
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    for position, (key, (is_inherited, spec)) in enumerate(chosen.items()):
        values = spec.columns()
        writer.writerow(
            [position, is_inherited, key, spec.canonical_json, *(values[c] for c in SPEC_COLUMNS)]
        )
    buffer.seek(0)
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor:
        cursor.copy_expert(
            f"COPY incoming (position, inherited, key, spec, {columns}) FROM STDIN CSV", buffer
        )
    connection.execute(text("CREATE INDEX ON incoming (key)"))
    connection.execute(text("ANALYZE incoming (key)"))


def _link_incoming(connection: Connection, suite_id: int) -> tuple[int, int, int]:
    """Insert missing runs, then make the suite's links those of the temporary table."""
    columns = ", ".join(SPEC_COLUMNS)
    created = connection.execute(text(INSERT_RUNS.format(columns=columns))).rowcount
    linked = connection.execute(text(LINK_RUNS), {"suite": suite_id}).rowcount
    unlinked = connection.execute(text(UNLINK_RUNS), {"suite": suite_id}).rowcount
    return created, linked, unlinked


def freeze_suite(engine: Engine, name: str) -> str:
    """Pre-register: from now on the suite's spec cannot change. Returns the frozen hash."""
    with engine.begin() as connection:
        frozen: str | None = connection.scalar(
            text(
                "UPDATE suites SET frozen_at = coalesce(frozen_at, now()) "
                "WHERE name = :name RETURNING hash"
            ),
            {"name": name},
        )
    if frozen is None:
        raise SuiteError(f"suite {name!r} is not in the database: register it by `groktime sweep`")
    return frozen


def open_runs(engine: Engine, suite_id: int) -> dict[str, int]:
    """Key and id of the suite's own runs that can be claimed now, in the order of its grid."""
    query = text(
        """
        SELECT r.key, r.id FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
        WHERE sr.suite_id = :suite AND NOT sr.inherited AND (r.state IN ('pending', 'stale')
            OR r.state = 'running' AND r.lease_until < clock_timestamp())
        ORDER BY r.id
        """
    )
    with engine.connect() as connection:
        return {row.key: row.id for row in connection.execute(query, {"suite": suite_id})}


def spec_from_json(document: Mapping[str, Any]) -> RunSpec:
    """The spec of a stored run; its version is checked, since it is part of the key."""
    fields = dict(document)
    stored = fields.pop("version", None)
    if stored != SPEC_VERSION:
        raise SuiteError(f"run spec version: {stored!r} is not {SPEC_VERSION}, the one known here")
    return RunSpec.model_validate(fields)
