"""Loading a dump: merged by run key, all or nothing, and the second time nothing.

Runs that are done or failed here stay as they are; runs that are missing or waiting here take
the dump's results; a run that a worker is training right now is left to that worker.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from db.check import CHECKS
from db.curve_rows import COLUMNS
from db.dump_file import CURVE, MANIFEST, RUNS, damage_is_refused, opened
from db.lasting import first_line
from db.migrating import known_revisions
from db.registering import REGISTRATION_LOCK, spec_from_json
from db.schema import SPEC_COLUMNS, Run
from service.errors import DumpError, SuiteError

CREATE_LOADING = """
CREATE TEMP TABLE loading (
    line int PRIMARY KEY, key text, inherited boolean, run jsonb, attempts jsonb,
    run_id int, attempts_before int
) ON COMMIT DROP
"""

# Columns that a dumped run brings; identity and leases are this database's own.
CARRIED = tuple(
    c.name for c in Run.__table__.columns if c.name not in ("id", "owner", "lease_until")
)
RESULTS = tuple(name for name in CARRIED if name not in ("key", "spec", *SPEC_COLUMNS))

# What is open in the dump and missing here becomes pending; its columns come from its spec.
INSERT_RUNS = """
INSERT INTO runs ({columns})
SELECT {values} FROM loading l, jsonb_populate_record(NULL::runs, l.run) d
WHERE NOT EXISTS (SELECT FROM runs r WHERE r.key = l.key)
ORDER BY l.line
"""

# run_id marks the runs whose results are taken: closed in the dump and waiting here.
TAKE = """
UPDATE loading l SET run_id = r.id, attempts_before = r.attempt
FROM runs r WHERE r.key = l.key AND l.run->>'state' <> 'pending'
    AND r.state IN ('pending', 'stale')
"""

LOCK_TAKEN = """
SELECT count(*) FROM (SELECT FROM runs r JOIN loading l ON l.key = r.key
    WHERE r.state IN ('pending', 'stale') ORDER BY r.id FOR UPDATE OF r) locked
"""

UPDATE_RUNS = """
UPDATE runs r SET {assignments}, attempt = l.attempts_before + d.attempt
FROM loading l, jsonb_populate_record(NULL::runs, l.run) d
WHERE r.id = l.run_id
"""

INSERT_ATTEMPTS = """
INSERT INTO attempts
SELECT d.* FROM loading l, jsonb_array_elements(l.attempts) element,
    jsonb_populate_record(NULL::attempts, element || jsonb_build_object('run_id', l.run_id,
        'attempt', (element->>'attempt')::int + l.attempts_before)) d
WHERE l.run_id IS NOT NULL
"""

UPSERT_SUITE = """
INSERT INTO suites (name, spec, hash, frozen_at, recorded)
VALUES (:name, CAST(:spec AS jsonb), :hash, CAST(:frozen_at AS timestamptz),
    CAST(:recorded AS jsonb))
ON CONFLICT (name) DO NOTHING
"""

LINK = """
INSERT INTO suite_runs (suite_id, run_id, inherited)
SELECT :suite, r.id, l.inherited FROM loading l JOIN runs r ON r.key = l.key
ON CONFLICT DO NOTHING
"""

INCOMPLETE = """
SELECT l.line FROM loading l JOIN runs r ON r.id = l.run_id
LEFT JOIN curve c ON c.run_id = r.id
GROUP BY l.line, r.id HAVING count(c.epoch) > r.last_epoch OR max(c.epoch) <> r.last_epoch
    OR min(c.epoch) < 1 OR (NOT r.thinned AND count(c.epoch) <> r.last_epoch) LIMIT 1
"""

# What `groktime db check` would find at fault afterwards is not let in.
UNSOUND = " UNION ".join(
    f"SELECT line FROM loading WHERE run_id IN ({CHECKS[name][1]} "
    f"AND {run} IN (SELECT run_id FROM loading))"
    for name, run in (("unsummarised", "id"), ("passages", "r.id"))
)


@dataclass(frozen=True)
class Loaded:
    """What a load did."""

    suite: str
    created: int  # runs that were not here
    taken: int  # runs whose results came from the dump
    kept: int  # runs left as they were here
    curve_rows: int


def load_dump(engine: Engine, path: Path) -> Loaded:
    """Merge the dump into the database in one transaction."""
    with opened(path) as archive, damage_is_refused(path):
        manifest = _manifest(archive, path)
        try:
            with engine.begin() as connection:
                return _merge(connection, archive, manifest, path)
        except (DBAPIError, psycopg2.Error) as error:  # COPY's errors come from the driver
            said = first_line(error.orig if isinstance(error, DBAPIError) else error)
            raise DumpError(f"{path} was not loaded, nothing was changed: {said}") from error


def _manifest(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    manifest = json.loads(archive.read(MANIFEST))
    if manifest["schema"] not in known_revisions():
        raise DumpError(
            f"{path} was written from schema {manifest['schema']}, which this groktime does not "
            "know: install the groktime that wrote it, or a later one"
        )
    found: dict[str, Any] = manifest
    return found


def _merge(
    connection: Connection, archive: zipfile.ZipFile, manifest: dict[str, Any], path: Path
) -> Loaded:
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": REGISTRATION_LOCK})
    suite_id = _suite(connection, manifest)
    connection.execute(text(CREATE_LOADING))
    lines = _copy_runs(connection, archive)
    if lines != manifest["runs"]:
        raise DumpError(f"{path} holds {lines} runs, but says {manifest['runs']}")
    created = _insert_runs(connection)
    connection.execute(text(LOCK_TAKEN))
    taken = connection.execute(text(TAKE)).rowcount
    rows = 0
    if taken:
        rows = _take_results(connection, archive)
    bad = connection.scalar(text(INCOMPLETE))
    if bad is not None:
        raise DumpError(f"{path}: the curve of its run {bad} has gaps; nothing was changed")
    bad = connection.scalar(text(f"SELECT min(line) FROM ({UNSOUND}) unsound"))
    if bad is not None:
        raise DumpError(
            f"{path}: the summary of its run {bad} is not that of its curve; nothing was changed"
        )
    linked = connection.execute(text(LINK), {"suite": suite_id}).rowcount
    if linked or taken:
        _raise_revisions(connection, suite_id)
    return Loaded(manifest["suite"]["name"], created, taken, lines - taken, rows)


def _suite(connection: Connection, manifest: dict[str, Any]) -> int:
    suite = manifest["suite"]
    connection.execute(
        text(UPSERT_SUITE),
        {
            "name": suite["name"],
            "spec": json.dumps(suite["spec"]),
            "hash": suite["hash"],
            "frozen_at": manifest["frozen_at"],
            "recorded": json.dumps(manifest["recorded"]),
        },
    )
    row = connection.execute(
        text("SELECT id, hash FROM suites WHERE name = :name"), {"name": suite["name"]}
    ).one()
    if row.hash != suite["hash"]:
        raise SuiteError(
            f"suite {suite['name']} here has hash {row.hash[:12]}, the dump's {suite['hash'][:12]}:"
            " they are different suites of one name; load it into another database"
        )
    found: int = row.id
    return found


def _documents(archive: zipfile.ZipFile) -> Iterator[dict[str, Any]]:
    """Runs of the dump; each spec must be one that this code knows and have the key it claims."""
    with archive.open(RUNS) as source:
        for line in source:
            document = json.loads(line)
            run = document["run"]
            spec = spec_from_json(run["spec"])
            if spec.key != run["key"]:
                raise ValueError(f"run {run['key']} does not have the key of its spec")
            run.update(spec.columns())
            yield document


def _copy_runs(connection: Connection, archive: zipfile.ZipFile) -> int:
    lines = 0
    driver: Any = connection.connection.driver_connection
    chunk = io.StringIO()

    def send() -> None:
        chunk.seek(0)
        with driver.cursor() as cursor:
            cursor.copy_expert(
                "COPY loading (line, key, inherited, run, attempts) FROM STDIN", chunk
            )
        chunk.seek(0)
        chunk.truncate()

    for document in _documents(archive):
        fields = (
            str(lines),
            document["run"]["key"],
            "t" if document["inherited"] else "f",
            _escaped(json.dumps(document["run"])),
            _escaped(json.dumps(document["attempts"])),
        )
        chunk.write("\t".join(fields) + "\n")
        lines += 1
        if lines % 1_000 == 0:
            send()
    send()
    return lines


def _escaped(document: str) -> str:
    # json.dumps leaves no tab or newline, so that backslashes are all there is to escape.
    return document.replace("\\", "\\\\")


def _insert_runs(connection: Connection) -> int:
    """Missing runs come in as pending; results are taken in the next step, as for all others."""
    columns = ("key", "spec", *SPEC_COLUMNS)
    query = INSERT_RUNS.format(
        columns=", ".join(columns), values=", ".join(f"d.{name}" for name in columns)
    )
    return connection.execute(text(query)).rowcount


def _take_results(connection: Connection, archive: zipfile.ZipFile) -> int:
    connection.execute(text("DELETE FROM curve c USING loading l WHERE c.run_id = l.run_id"))
    rows = _copy_curve(connection, archive)
    assigned = [name for name in RESULTS if name not in ("attempt", "created_at")]
    query = UPDATE_RUNS.format(assignments=", ".join(f"{name} = d.{name}" for name in assigned))
    connection.execute(text(query))
    connection.execute(text(INSERT_ATTEMPTS))
    return rows


def _copy_curve(connection: Connection, archive: zipfile.ZipFile) -> int:
    """Stream the rows of the runs that are taken."""
    taken = connection.execute(text("SELECT line, run_id FROM loading WHERE run_id IS NOT NULL"))
    ids = {row.line: row.run_id for row in taken}
    highest = max(ids) + 1
    run_ids = pa.array([ids.get(line) for line in range(highest)], pa.int32())
    driver: Any = connection.connection.driver_connection
    rows = 0
    with archive.open(CURVE) as source:
        file = pq.ParquetFile(source)
        for batch in file.iter_batches(100_000, columns=["line", "epoch", *COLUMNS]):
            table = pa.Table.from_batches([batch])
            table = table.filter(pc.less(table["line"], highest))
            named = run_ids.take(table["line"].combine_chunks())
            table = table.set_column(0, "run_id", named).filter(pc.is_valid(named))
            buffer = io.BytesIO()
            pyarrow.csv.write_csv(table, buffer, pyarrow.csv.WriteOptions(include_header=False))
            buffer.seek(0)
            with driver.cursor() as cursor:
                cursor.copy_expert(
                    f"COPY curve (run_id, epoch, {', '.join(COLUMNS)}) FROM STDIN CSV", buffer
                )
            rows += table.num_rows
    return rows


def _raise_revisions(connection: Connection, suite_id: int) -> None:
    """The suite's, and those of other suites whose runs were taken."""
    connection.execute(
        text(
            "UPDATE suites SET revision = revision + 1, updated_at = now() WHERE id IN ("
            "SELECT id FROM suites WHERE id = :suite OR id IN (SELECT sr.suite_id FROM suite_runs "
            "sr JOIN loading l ON l.run_id = sr.run_id) ORDER BY id FOR UPDATE)"
        ),
        {"suite": suite_id},
    )
