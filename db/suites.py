"""Suites, their runs and forecasts: registering what is asked for, so that only the missing is
trained, and what was predicted before.

A suite's revision is raised whenever its runs change. Listeners (the API's /events) LISTEN on
CHANNEL and get small JSON documents {suite, revision, run, state}; a notice without a state is
progress within a run.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, text

from groktime.db.records import Design, printable
from groktime.db.schema import SPEC_COLUMNS
from groktime.service.errors import SuiteError
from groktime.service.spec import SPEC_VERSION, SUITE_NAME, RunSpec

CHANNEL = "groktime"


# Suites are locked in one order, so that closers of runs shared by suites cannot deadlock; it is
# the last statement of a transaction, so that the lock is held for no longer than a commit.
RAISE_REVISIONS = f"""
WITH locked AS (
    SELECT id FROM suites
    WHERE id IN (SELECT suite_id FROM suite_runs WHERE run_id = ANY(%(runs)s))
    ORDER BY id FOR UPDATE
), raised AS (
    UPDATE suites s SET revision = revision + 1, updated_at = clock_timestamp()
    FROM locked WHERE s.id = locked.id
    RETURNING s.id, s.name, s.revision
)
SELECT pg_notify('{CHANNEL}', json_build_object(
    'suite', raised.name, 'revision', raised.revision, 'run', r.id, 'state', r.state)::text)
FROM raised
JOIN suite_runs sr ON sr.suite_id = raised.id AND sr.run_id = ANY(%(runs)s)
JOIN runs r ON r.id = sr.run_id
"""

# Progress changes no revision: answers that count only closed runs stay cached.
NOTIFY_PROGRESS = f"""
SELECT pg_notify('{CHANNEL}', json_build_object(
    'suite', s.name, 'revision', s.revision, 'run', r.id, 'epoch', r.last_epoch)::text)
FROM runs r
JOIN suite_runs sr ON sr.run_id = r.id
JOIN suites s ON s.id = sr.suite_id
WHERE r.id = %(run)s
"""


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
INSERT INTO suites AS s (name, spec, hash, design)
VALUES (:name, CAST(:spec AS jsonb), :hash, :design)
ON CONFLICT (name) DO UPDATE SET spec = excluded.spec, hash = excluded.hash,
    design = excluded.design,
    revision = s.revision + (s.hash <> excluded.hash)::int, updated_at = now()
    WHERE s.hash <> excluded.hash OR s.spec <> excluded.spec OR s.design <> excluded.design
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


# Runs that the suite of this definition has and it had not, and the reverse.
CHANGE = """
WITH own AS (SELECT unnest(CAST(:own AS text[])) AS key),
    wanted AS (SELECT unnest(CAST(:keys AS text[])) AS key),
    had AS (
        SELECT r.id, r.key, r.last_epoch, r.closed_at, w.key IS NOT NULL AS kept
        FROM suite_runs sr JOIN runs r ON r.id = sr.run_id LEFT JOIN wanted w ON w.key = r.key
        WHERE sr.suite_id = :suite
    ), coming AS (
        SELECT own.key, r.closed_at FROM own LEFT JOIN had ON had.key = own.key
        LEFT JOIN runs r ON r.key = own.key WHERE had.key IS NULL
    )
SELECT (SELECT count(*) FROM coming) AS comes,
    (SELECT array_agg(key) FROM coming WHERE closed_at IS NULL) AS untrained,
    count(*) FILTER (WHERE NOT kept) AS goes,
    count(closed_at) FILTER (WHERE NOT kept) AS goes_closed,
    coalesce(sum(last_epoch) FILTER (WHERE NOT kept), 0) AS goes_epochs,
    coalesce(sum(last_epoch), 0) AS epochs
FROM had
"""

# The earlier version takes its runs, forecasts and sweeps with it under another name.
KEEP_VERSION = """
UPDATE suites SET name = :version, revision = revision + 1, updated_at = now() WHERE id = :suite
"""

# A revision never goes back for whoever asks by name.
NEW_VERSION = """
INSERT INTO suites (name, spec, hash, design, revision, recorded)
SELECT :name, CAST(:spec AS jsonb), :hash, :design, revision + 1, recorded
FROM suites WHERE id = :earlier
RETURNING id
"""

VERSIONS = """
SELECT coalesce(max(substring(name FROM length(:name) + 3)::int), 0) FROM suites
WHERE starts_with(name, :name || '.v') AND substring(name FROM length(:name) + 3) ~ '^[0-9]{1,6}$'
"""


DELETION = """
SELECT count(r.id) AS runs, s.frozen_at IS NOT NULL AS frozen,
    count(*) FILTER (WHERE alone) AS alone,
    count(*) FILTER (WHERE alone AND r.closed_at IS NOT NULL) AS closed,
    count(*) FILTER (WHERE r.state = 'running' AND r.lease_until > clock_timestamp()) AS running
FROM suites s LEFT JOIN suite_runs sr ON sr.suite_id = s.id LEFT JOIN runs r ON r.id = sr.run_id
CROSS JOIN LATERAL (SELECT r.id IS NOT NULL AND NOT EXISTS (
    SELECT FROM suite_runs o WHERE o.run_id = r.id AND o.suite_id <> s.id) AS alone) t
WHERE s.name = :name GROUP BY s.id
"""


@dataclass(frozen=True)
class SuiteChange:
    """How a suite's definition differs from the one in the database."""

    suite: str
    comes: int  # runs that the suite did not have
    untrained: frozenset[str]  # keys of those of them that no other suite has trained
    goes: int  # runs that it has no longer
    goes_closed: int  # of these, closed
    goes_epochs: int  # epochs recorded of these
    epochs: int  # epochs recorded of all its runs
    fields: tuple[str, ...]  # top-level fields of the file that differ

    @property
    def loses(self) -> bool:
        """Whether answers of the earlier definition could no longer be given."""
        return self.epochs > 0 and (self.goes_epochs > 0 or "analysis" in self.fields)

    def __str__(self) -> str:
        fields = ", ".join(self.fields) or "what it inherits"
        trained = self.comes - len(self.untrained)
        already = f" ({trained:,} trained already)" if trained else ""
        return (
            f"suite {self.suite} is defined otherwise than in the database ({fields}): "
            f"{self.comes:,} runs come{already}, {self.goes:,} go ({self.goes_closed:,} closed, "
            f"{self.goes_epochs:,} epochs)"
        )


class ChangedSuite(SuiteError):
    """A suite is registered with another definition than it has, and nobody said to replace it."""

    def __init__(self, change: SuiteChange) -> None:
        super().__init__(
            f"{change}; --replace takes the new definition and keeps the earlier results "
            "as a version of their own, or give the changed suite another name"
        )
        self.change = change


@dataclass(frozen=True)
class Registered:
    """A suite as the database knows it now."""

    suite_id: int
    revision: int
    created: int  # runs that no suite had asked for before
    linked: int
    unlinked: int
    earlier: str | None = None  # name that the replaced definition and its results have now


def register_suite(
    engine: Engine,
    name: str,
    spec: Mapping[str, Any],
    digest: str,
    runs: Iterable[RunSpec],
    inherited: Iterable[RunSpec] = (),
    *,
    replace: bool = False,
    design: Design = "grid",
) -> Registered:
    """Make the database hold exactly this suite: its spec, its runs and those it inherits.

    Runs that exist are shared, missing ones become pending. Inherited runs are linked for the
    suite's analyses, and trained when the suite they are inherited from is. A frozen suite is
    accepted unchanged and refused otherwise. A suite with results whose definition has changed
    is refused by `ChangedSuite` unless `replace`; what could then be asked no longer is kept as
    the suite NAME.v1, NAME.v2 and so on.
    """
    _refuse_name(name)
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": REGISTRATION_LOCK})
        _refuse_change_of_frozen(connection, name, digest, spec)
        chosen = _chosen(runs, inherited)
        known = _unchanged(connection, name, spec, digest, chosen)
        if known is not None:
            return known
        change = _change(connection, name, spec, digest, chosen)
        if change is not None and change.epochs and not replace:
            raise ChangedSuite(change)
        values = {"name": name, "spec": json.dumps(spec), "hash": digest, "design": design}
        earlier = None
        if change is not None and change.loses:
            earlier = _keep_version(connection, values)
        else:
            connection.execute(text(UPSERT_SUITE), values)
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
    return Registered(suite_id, revision, created, linked, unlinked, earlier)


def suite_change(
    engine: Engine,
    name: str,
    spec: Mapping[str, Any],
    digest: str,
    runs: Iterable[RunSpec],
    inherited: Iterable[RunSpec] = (),
) -> SuiteChange | None:
    """What registering would change of a suite that has results; None: nothing. Writes nothing."""
    with engine.connect() as connection:
        change = _change(connection, name, spec, digest, _chosen(runs, inherited))
    return change if change is not None and change.epochs else None


def _refuse_name(name: str) -> None:
    if not re.fullmatch(SUITE_NAME.rstrip("$"), name):
        raise SuiteError(
            f"suite: {name[:100]!r} is not a name; accepted: up to 100 letters A to Z, digits, "
            "- _ and ., beginning with a letter or digit"
        )


def _change(
    connection: Connection, name: str, spec: Mapping[str, Any], digest: str, chosen: Chosen
) -> SuiteChange | None:
    """How the runs and the spec differ from the suite's; None: it is new or the same."""
    had = connection.execute(
        text("SELECT id, spec, hash FROM suites WHERE name = :name"), {"name": name}
    ).one_or_none()
    if had is None or had.hash == digest:
        return None
    own = [key for key, (is_inherited, _) in chosen.items() if not is_inherited]
    values = {"suite": had.id, "own": own, "keys": list(chosen)}
    row = connection.execute(text(CHANGE), values).one()
    before = had.spec if isinstance(had.spec, dict) else {}
    after = json.loads(json.dumps(spec))
    fields = sorted(
        field
        for field in {*before, *after} - {"description"}
        if before.get(field) != after.get(field)
    )
    return SuiteChange(
        name,
        row.comes,
        frozenset(row.untrained or ()),
        row.goes,
        row.goes_closed,
        int(row.goes_epochs),
        int(row.epochs),
        tuple(fields),
    )


def _keep_version(connection: Connection, values: Mapping[str, Any]) -> str:
    """Give the definition in the database another name, and the new one its place."""
    name = values["name"]
    earlier = connection.scalar(text("SELECT id FROM suites WHERE name = :name"), {"name": name})
    number = connection.scalar(text(VERSIONS), {"name": name})
    version = f"{name}.v{(number or 0) + 1}"
    _refuse_name(version)
    connection.execute(text(KEEP_VERSION), {"suite": earlier, "version": version})
    connection.execute(text(NEW_VERSION), {**values, "earlier": earlier})
    return version


@dataclass(frozen=True)
class Deletion:
    """What deleting a suite leaves behind."""

    suite: str
    runs: int  # runs it had
    alone: int  # of these, runs that no other suite has
    closed: int  # of those alone, closed
    frozen: bool


def plan_deletion(connection: Connection, name: str) -> Deletion:
    """What `delete_suite` would do; any name is accepted, also one that no suite may have now."""
    row = connection.execute(text(DELETION), {"name": name}).one_or_none()
    if row is None:
        known = connection.scalars(text("SELECT name FROM suites ORDER BY name")).all()
        raise SuiteError(
            f"suite: {name!r} is not in the database; there: {', '.join(map(printable, known))}"
        )
    if row.running:
        raise SuiteError(f"suite: {row.running} runs of {name!r} are being trained: stop the sweep")
    return Deletion(name, row.runs, row.alone, row.closed, row.frozen)


def delete_suite(connection: Connection, name: str) -> Deletion:
    """Delete the suite, its forecasts and its links; its runs and their curves stay."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": REGISTRATION_LOCK})
    plan = plan_deletion(connection, name)
    connection.execute(text("DELETE FROM suites WHERE name = :name"), {"name": name})
    return plan


def _refuse_change_of_frozen(
    connection: Connection, name: str, digest: str, spec: Mapping[str, Any]
) -> None:
    row = connection.execute(
        text("SELECT hash, frozen_at, spec FROM suites WHERE name = :name FOR UPDATE"),
        {"name": name},
    ).one_or_none()
    if row is None or row.frozen_at is None:
        return
    before, now = _chooser(row.spec), _chooser(spec)
    if before != now and row.hash == digest:
        raise SuiteError(
            f"suite {name} was frozen at {row.frozen_at:%Y-%m-%d %H:%M} with chooser {before}, and "
            f"this version has {now}: go on with the version it was frozen with, or give it "
            "another name"
        )
    if row.hash != digest:
        raise SuiteError(
            f"suite {name} was frozen at {row.frozen_at:%Y-%m-%d %H:%M} with hash "
            f"{row.hash[:12]}, but now has {digest[:12]}: give the changed suite another name"
        )


def _chooser(spec: Any) -> str | None:
    """The hash of the code that chooses a located suite's runs; None for a grid."""
    design = spec.get("design") if isinstance(spec, Mapping) else None
    return design.get("chooser") if isinstance(design, Mapping) else None


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
        JOIN suites s ON s.id = sr.suite_id
        WHERE sr.suite_id = :suite AND NOT sr.inherited
            AND (s.design = 'grid' OR r.set_aside_epoch IS NULL)
            AND (r.state IN ('pending', 'stale', 'set_aside')
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


CLAIMED = "claimed"  # in a spec: its time is the word of whoever dumped it

SELECT_FORECASTS = """
SELECT f.id, s.name AS suite, f.created_at, f.spec, f.predictions, f.score
FROM forecasts f JOIN suites s ON s.id = f.suite_id
"""


@dataclass(frozen=True)
class ForecastRow:
    """What was fitted, what it predicts, and (once measured) how it fared."""

    id: int
    suite: str
    created_at: datetime
    spec: dict[str, Any]
    predictions: dict[str, Any]
    score: dict[str, Any] | None


def insert_forecast(
    connection: Connection, suite_id: int, spec: Mapping[str, Any], predictions: Mapping[str, Any]
) -> int:
    """Write a forecast down; it is never changed but for its score."""
    found = connection.scalar(
        text(
            "INSERT INTO forecasts (suite_id, spec, predictions) "
            "VALUES (:suite, CAST(:spec AS jsonb), CAST(:predictions AS jsonb)) RETURNING id"
        ),
        {"suite": suite_id, "spec": json.dumps(spec), "predictions": json.dumps(predictions)},
    )
    assert isinstance(found, int)
    return found


def load_forecasts(
    connection: Connection, suite_id: int, forecasts: Iterable[tuple[datetime, dict[str, Any]]]
) -> None:
    """Take a dump's forecasts as (when it was made, spec, predictions and score); each once."""
    for created_at, document in forecasts:
        spec = {**document["spec"], CLAIMED: "by the dump"}
        connection.execute(
            text(
                "INSERT INTO forecasts (suite_id, created_at, spec, predictions, score) "
                "SELECT :suite, :at, CAST(:spec AS jsonb), CAST(:predictions AS jsonb), "
                "CAST(:score AS jsonb) WHERE NOT EXISTS (SELECT FROM forecasts "
                "WHERE suite_id = :suite AND created_at = :at "
                "AND predictions = CAST(:predictions AS jsonb))"
            ),
            {
                "suite": suite_id,
                "at": created_at,
                "spec": json.dumps(spec),
                "predictions": json.dumps(document["predictions"]),
                "score": None if document["score"] is None else json.dumps(document["score"]),
            },
        )


def score_forecast(connection: Connection, forecast_id: int, score: Mapping[str, Any]) -> bool:
    """Set how the predictions compare with what was measured; False: no such forecast."""
    return bool(
        connection.execute(
            text("UPDATE forecasts SET score = CAST(:score AS jsonb) WHERE id = :id"),
            {"id": forecast_id, "score": json.dumps(score)},
        ).rowcount
    )


def get_forecast(connection: Connection, forecast_id: int) -> ForecastRow | None:
    """One forecast, or None."""
    row = connection.execute(
        text(f"{SELECT_FORECASTS} WHERE f.id = :id"), {"id": forecast_id}
    ).one_or_none()
    return None if row is None else _forecast(row)


def list_forecasts(connection: Connection, suite_id: int) -> list[ForecastRow]:
    """Forecasts of a suite, newest first."""
    query = f"{SELECT_FORECASTS} WHERE f.suite_id = :suite ORDER BY f.id DESC"
    return [_forecast(row) for row in connection.execute(text(query), {"suite": suite_id})]


def _forecast(row: Row[Any]) -> ForecastRow:
    return ForecastRow(**row._mapping)
