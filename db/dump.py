"""Writing a suite into one compressed, checksummed file that any groktime database can load.

The file is one line of text, then a zip archive:
groktime-dump 1 sha256=<of everything after this line>
The archive holds manifest.json (suite, how it was made, forecasts, counts), runs.jsonl (one run a
line with its attempts) and curve.parquet (rows of all runs, which it names by their line, counted
from 0).
The whole file is checked before anything in it is believed. Nothing in it is ever executed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Connection, text

from groktime.db.claims import provenance
from groktime.db.export import Table, batches, curves_table
from groktime.db.forecasts import CLAIMED, list_forecasts
from groktime.db.migrate import head
from groktime.db.queries.suites import SuiteRecord, get_suite
from groktime.service.errors import DumpError, InputError
from groktime.service.spec import SPEC_VERSION

FORMAT = 1
MANIFEST, RUNS, CURVE = "manifest.json", "runs.jsonl", "curve.parquet"
FIRST_LINE = re.compile(rb"groktime-dump (\d{1,9}) sha256=([0-9a-f]{64})\n")
FIRST_LINE_LIMIT = 128
BLOCK = 1 << 20


def seal(archive: Path, target: Path, *, overwrite: bool = False) -> None:
    """Put the checksummed first line before the archive; the target appears when complete."""
    digest = hashlib.sha256()
    with open(archive, "rb") as source:
        while block := source.read(BLOCK):
            digest.update(block)
    # A name of its own: two dumps into one file each write theirs whole, the later one stays.
    partial = target.with_name(f".{target.name}.{uuid4().hex}.partial")
    try:
        with open(partial, "wb") as sink, open(archive, "rb") as source:
            sink.write(f"groktime-dump {FORMAT} sha256={digest.hexdigest()}\n".encode())
            while block := source.read(BLOCK):
                sink.write(block)
        if not overwrite and target.exists():
            raise DumpError(f"{target} exists: choose another file, or overwrite it with --force")
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive of a dump whose checksum is right; everything else is refused."""
    with damage_is_refused(path), open(path, "rb") as file:
        first = file.readline(FIRST_LINE_LIMIT)
        match = FIRST_LINE.fullmatch(first)
        if match is None:
            raise DumpError(f"{path} is not a dump of groktime")
        if int(match[1]) > FORMAT:
            raise DumpError(
                f"{path} has format {int(match[1])}, newer than {FORMAT}, the latest known here: "
                "install the groktime that wrote it, or a later one"
            )
        digest = hashlib.sha256()
        while block := file.read(BLOCK):
            digest.update(block)
        if digest.hexdigest() != match[2].decode():
            raise DumpError(f"{path} is corrupt: its checksum is wrong; copy it again")
        with zipfile.ZipFile(file) as archive:
            yield archive


@contextlib.contextmanager
def damage_is_refused(path: Path) -> Iterator[None]:
    """Turn whatever a damaged file makes its readers say into one line that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise DumpError(f"{path} does not exist") from None
    except (
        OSError,
        ValueError,  # bad JSON, UTF-8 and pydantic's refusals
        KeyError,
        TypeError,
        EOFError,
        MemoryError,
        RecursionError,
        NotImplementedError,  # an archive of an unknown kind
        RuntimeError,  # an encrypted archive
        zipfile.BadZipFile,
        zlib.error,
        pa.ArrowException,
    ) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DumpError(f"{path} cannot be read as a dump: {said}") from error


# Results travel; who held a lease and unfinished work do not: an open run is dumped as pending,
# one that was set aside and is trained further just now as it was set aside.
RUN_DOCUMENTS = """
SELECT jsonb_build_object('run', CASE WHEN r.closed_at IS NOT NULL
        THEN to_jsonb(r) - 'id' - 'owner' - 'lease_until'
        WHEN r.set_aside_epoch IS NOT NULL
        THEN to_jsonb(r) - 'id' - 'owner' - 'lease_until' || jsonb_build_object(
            'state', 'set_aside', 'last_epoch', r.set_aside_epoch, 'closed_at', now())
        ELSE jsonb_build_object('key', r.key, 'spec', r.spec, 'state', 'pending') END,
    'inherited', sr.inherited,
    'attempts', coalesce((
        SELECT jsonb_agg(to_jsonb(a) - 'run_id' ORDER BY a.attempt) FROM attempts a
        WHERE a.run_id = r.id AND a.ended_at IS NOT NULL
            AND (r.closed_at IS NOT NULL OR r.set_aside_epoch IS NOT NULL)), '[]'))::text
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = %(suite)s ORDER BY r.id
"""

# A thinned curve keeps what the rule says; its first passages are in the run's own arrays.
CURVE_ROWS = """
SELECT d.line, {columns}
FROM (
    SELECT r.*, row_number() OVER (ORDER BY r.id) - 1 AS line
    FROM suite_runs sr JOIN runs r ON r.id = sr.run_id WHERE sr.suite_id = {suite}
) d
JOIN curve c ON c.run_id = d.id
WHERE (d.closed_at IS NOT NULL OR d.set_aside_epoch IS NOT NULL) {thinning}
ORDER BY d.id, c.epoch
"""

THINNING = """
AND (c.epoch % greatest(1, c.epoch / {dense}) = 0
    OR c.epoch IN (1, coalesce(d.set_aside_epoch, d.last_epoch))
    OR c.epoch = ANY(d.first_online) OR c.epoch = ANY(d.first_eval) OR c.epoch = ANY(d.first_val))
"""


@dataclass(frozen=True)
class Dumped:
    """What a dump holds."""

    path: Path
    runs: int
    closed: int
    curve_rows: int
    size: int  # bytes


def thinning_rule(dense: int) -> str:
    """The rule in words, as it is kept in the file."""
    return (
        f"epochs up to {dense}, beyond that every (epoch // {dense})-th; the first and the last; "
        "and every first passage of the ladder. First passages are exact."
    )


def dump_suite(
    connection: Connection,
    name: str,
    path: Path,
    *,
    dense: int | None = None,
    overwrite: bool = False,
) -> Dumped:
    """Write the suite's runs, attempts and curves.

    With `dense` curves are thinned: all epochs up to it, then ever fewer (a relative spacing of
    1/dense), so that a recording of thousands of epochs stays small. Needs one snapshot: give a
    connection whose isolation level is REPEATABLE READ.
    """
    if dense is not None and dense < 1:
        raise InputError(f"thin: {dense} is not accepted; 1 or more epochs")
    suite = get_suite(connection, name)
    if not path.parent.is_dir():
        raise DumpError(f"{path}: the folder {path.parent} does not exist")
    if path.exists() and not overwrite:
        raise DumpError(f"{path} exists: choose another file, or overwrite it with --force")
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".dump-") as folder:
        archive_path = Path(folder) / "archive"
        curve_path = Path(folder) / CURVE
        rows = _write_curve(connection, suite.id, curve_path, dense)
        with zipfile.ZipFile(archive_path, "w", zipfile.ZIP_DEFLATED) as archive:
            with archive.open(RUNS, "w", force_zip64=True) as sink:
                runs, closed = _write_runs(connection, suite.id, sink, dense)
            archive.write(curve_path, CURVE, zipfile.ZIP_STORED)  # parquet is compressed
            manifest = {
                "format": FORMAT,
                "schema": head(),
                "spec_version": SPEC_VERSION,
                "suite": {
                    "name": suite.name,
                    "spec": suite.spec,
                    "hash": suite.hash,
                    "design": suite.design,
                },
                "frozen_at": suite.frozen_at.isoformat() if suite.frozen_at else None,
                "recorded": _recorded(connection, suite, dense),
                "forecasts": _forecasts(connection, suite.id),
                "runs": runs,
                "closed": closed,
                "curve_rows": rows,
            }
            archive.writestr(MANIFEST, json.dumps(manifest, indent=1))
        seal(archive_path, path, overwrite=overwrite)
    return Dumped(path, runs, closed, rows, os.path.getsize(path))


def _write_curve(connection: Connection, suite_id: int, path: Path, dense: int | None) -> int:
    table = curves_table(suite_id)
    columns = [name for name in table.types if name != "run_id"]
    types = {"line": pa.int32()} | {name: table.types[name] for name in columns}
    query = CURVE_ROWS.format(
        columns=", ".join(f"c.{name}" for name in columns),
        suite=suite_id,
        thinning="" if dense is None else THINNING.format(dense=int(dense)),
    )
    floats = [name for name, kind in types.items() if pa.types.is_floating(kind)]
    rows = 0
    with pq.ParquetWriter(
        path,
        pa.schema(list(types.items())),
        compression="zstd",
        compression_level=9,
        use_dictionary=[name for name in types if name not in floats],
        use_byte_stream_split=floats,
    ) as writer:
        for batch in batches(connection, Table("curve", query, types)):
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


def _write_runs(
    connection: Connection, suite_id: int, sink: Any, dense: int | None
) -> tuple[int, int]:
    runs = closed = 0
    driver: Any = connection.connection.driver_connection
    # A named cursor keeps its rows on the server, so that memory stays flat.
    with driver.cursor("dump_runs") as cursor:
        cursor.itersize = 1_000
        cursor.execute(RUN_DOCUMENTS, {"suite": suite_id})
        for (line,) in cursor:
            document = json.loads(line)
            if document["run"]["state"] != "pending":
                closed += 1
                if dense is not None:
                    document["run"]["thinned"] = True
            sink.write(json.dumps(document, separators=(",", ":")).encode() + b"\n")
            runs += 1
    return runs, closed


def _recorded(connection: Connection, suite: SuiteRecord, dense: int | None) -> dict[str, Any]:
    """How the suite was made; one that was loaded and not trained further keeps that."""
    made, earlier = _made(connection, suite.id), suite.recorded
    if earlier is not None:
        same = _instant(earlier.get("trained_until")) == _instant(made["trained_until"])
        kept = {field: value for field, value in earlier.items() if field != "frozen"}
        made = kept if same else made | {"thinning": earlier.get("thinning")}
    return made if dense is None else made | {"thinning": thinning_rule(dense)}


def _forecasts(connection: Connection, suite_id: int) -> list[dict[str, Any]]:
    """What was predicted of the suite and when, oldest first; whose word that is, a load says."""
    return [
        {
            "created_at": row.created_at.astimezone(UTC).isoformat(),
            "spec": {name: value for name, value in row.spec.items() if name != CLAIMED},
            "predictions": row.predictions,
            "score": row.score,
        }
        for row in reversed(list_forecasts(connection, suite_id))
    ]


def _instant(written: object) -> datetime | None:
    """One instant has a text in every time zone; what a loaded file has there may be none."""
    try:
        return datetime.fromisoformat(str(written))
    except ValueError:
        return None


def _made(connection: Connection, suite_id: int) -> dict[str, Any]:
    """When, where and with what the suite's runs were trained."""
    query = text(
        "SELECT count(*) AS runs, min(r.closed_at) AS first, max(r.closed_at) AS last, "
        "array_agg(DISTINCT r.device) AS devices, array_agg(DISTINCT r.engine) AS engines, "
        "array_agg(DISTINCT r.fingerprint) AS fingerprints "
        "FROM suite_runs sr JOIN runs r ON r.id = sr.run_id "
        "WHERE sr.suite_id = :suite AND r.closed_at IS NOT NULL"
    )
    row = connection.execute(query, {"suite": suite_id}).one()
    maker = provenance()
    return {
        "dumped_at": datetime.now(UTC).isoformat(timespec="seconds"),
        # In UTC, whatever the session's time zone.
        "trained_from": row.first.astimezone(UTC).isoformat() if row.first else None,
        "trained_until": row.last.astimezone(UTC).isoformat() if row.last else None,
        "devices": [device for device in row.devices or () if device],
        "engines": [engine for engine in row.engines or () if engine],
        "fingerprints": [fingerprint for fingerprint in row.fingerprints or () if fingerprint],
        "versions": maker.versions,
        "git_commit": maker.git_commit,
        "thinning": None,
    }
