"""A suite as files: its runs and curves as Parquet or CSV, exact, unsampled, streamed in flat
memory; or all of it in one recording, a compressed and checksummed file that databases load.

Beside the tables goes a data dictionary: what every column means, from the database's own
comments, and the suite's spec. One folder holds one export, whole: the files appear together when
all are complete, and replace only those of an earlier export of the same suite.

A recording is one line of text, then a zip archive:
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
import threading
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal
from uuid import uuid4

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from sqlalchemy import Connection, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.types import BigInteger, Boolean, DateTime, Double, Integer

from groktime.db.claims import provenance
from groktime.db.engine import head
from groktime.db.records import SuiteRecord, get_suite
from groktime.db.schema import Curve, Run
from groktime.db.suites import CLAIMED, list_forecasts
from groktime.service.errors import DumpError, InputError
from groktime.service.spec import SPEC_VERSION

Format = Literal["parquet", "csv"]
FORMATS: tuple[Format, ...] = ("parquet", "csv")
BLOCK_BYTES = 4 << 20
ABOUT = "dictionary.json"
FILES = frozenset([ABOUT, *(f"{table}.{form}" for table in ("runs", "curves") for form in FORMATS)])

HIDDEN = ("owner", "lease_until")  # of a worker, not of a result

RUNS_QUERY = """
SELECT sr.inherited, {columns} FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = {suite} ORDER BY r.id
"""

CURVES_QUERY = """
SELECT {columns} FROM suite_runs sr JOIN curve c ON c.run_id = sr.run_id
WHERE sr.suite_id = {suite} ORDER BY c.run_id, c.epoch
"""

QUOTED = r"CASE WHEN {0}::text ~ '^[-=+@\t\r].' THEN concat(chr(39), {0}) ELSE {0}::text END"

DICTIONARY = """
SELECT a.attname AS column, format_type(a.atttypid, a.atttypmod) AS type,
    col_description(a.attrelid, a.attnum) AS meaning
FROM pg_attribute a WHERE a.attrelid = CAST(:table AS regclass) AND a.attnum > 0
    AND NOT a.attisdropped ORDER BY a.attnum
"""


@dataclass(frozen=True)
class Table:
    """One exported table: its query and the types of its columns."""

    name: str
    query: str
    types: dict[str, pa.DataType]


def export_suite(
    connection: Connection,
    name: str,
    directory: Path,
    *,
    file_format: Format = "parquet",
    curves: bool = False,
) -> list[Path]:
    """Write the suite's tables and the data dictionary; returns the files.

    A folder with files of another export is refused by naming them.
    """
    if file_format not in FORMATS:
        raise InputError(f"format: {file_format!r} is not accepted; {' or '.join(FORMATS)}")
    suite = get_suite(connection, name)
    tables = [runs_table(suite.id), *([curves_table(suite.id)] if curves else [])]
    files = {f"{table.name}.{file_format}": table for table in tables}
    with _staged(directory, suite.name, [*files, ABOUT]) as stage:
        for name, table in files.items():
            with open(stage / name, "wb") as sink:
                write_table(connection, table, sink, file_format)
        about = json.dumps(_about(connection, suite, tables), indent=2, ensure_ascii=False)
        (stage / ABOUT).write_text(about + "\n", "utf-8")
    return [directory / name for name in (*files, ABOUT)]


@contextlib.contextmanager
def _staged(directory: Path, suite: str, names: Sequence[str]) -> Iterator[Path]:
    """A folder whose files move into the directory, the last named last, when all are written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        stage = tempfile.TemporaryDirectory(dir=directory, prefix=".export-")
    except OSError as problem:
        raise InputError(f"--to {directory}: {problem.strerror}; accepted: a folder") from problem
    with stage as folder:
        _refuse_another_export(directory, suite, names)
        yield Path(folder)
        for name in names:
            (Path(folder) / name).replace(directory / name)


def _refuse_another_export(directory: Path, suite: str, names: Sequence[str]) -> None:
    """Nothing of another suite is overwritten, and nothing is left that these files are not of."""
    there = {path.name for path in directory.iterdir()} & FILES
    others = there - set(names) if _exported(directory) == suite else there
    if others:
        raise InputError(
            f"--to {directory}: there is another export ({', '.join(sorted(others))}); accepted: "
            "an empty folder, or that of an earlier export of the same tables and format"
        )


def _exported(directory: Path) -> str | None:
    """The suite whose export is in the directory; None: none that its dictionary tells."""
    try:
        about = json.loads((directory / ABOUT).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    found = about.get("suite") if isinstance(about, dict) else None
    return found if isinstance(found, str) else None


def _about(connection: Connection, suite: SuiteRecord, tables: Sequence[Table]) -> dict[str, Any]:
    return {
        "suite": suite.name,
        "hash": suite.hash,
        "revision": suite.revision,
        "exported_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "recorded": suite.recorded,
        "spec": suite.spec,
        "tables": {table.name: dictionary(connection, table) for table in tables},
    }


def runs_table(suite_id: int) -> Table:
    """All of a suite's runs with their summaries, inherited ones included."""
    columns = [c for c in Run.__table__.columns if c.name not in HIDDEN]
    types = {"inherited": pa.bool_()} | {c.name: _arrow(c.type) for c in columns}
    selected = ", ".join(
        f"to_json(r.{c.name}) AS {c.name}" if isinstance(c.type, ARRAY) else f"r.{c.name}"
        for c in columns
    )
    return Table("runs", RUNS_QUERY.format(columns=selected, suite=int(suite_id)), types)


def curves_table(suite_id: int) -> Table:
    """Every epoch of all of a suite's runs."""
    columns = list(Curve.__table__.columns)
    selected = ", ".join(f"c.{c.name}" for c in columns)
    types = {c.name: _arrow(c.type) for c in columns}
    return Table("curves", CURVES_QUERY.format(columns=selected, suite=int(suite_id)), types)


def write_table(connection: Connection, table: Table, sink: IO[bytes], file_format: Format) -> None:
    """Stream the table into an open file; memory does not grow with its length."""
    if file_format == "csv":
        header = ",".join(table.types)
        sink.write(header.encode() + b"\n")
        _copy(connection, _harmless(table), sink)
        return
    schema = pa.schema(list(table.types.items()))
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for batch in batches(connection, table):
            writer.write_batch(batch)


def _harmless(table: Table) -> str:
    """The query with text that a spreadsheet would run as a formula quoted; a lone sign is none."""
    columns = [
        QUOTED.format(name) if kind == pa.string() else name for name, kind in table.types.items()
    ]
    return f"SELECT {', '.join(columns)} FROM ({table.query}) AS exported"


def dictionary(connection: Connection, table: Table) -> list[dict[str, str]]:
    """What each exported column means."""
    source = {"runs": "runs", "curves": "curve"}[table.name]
    rows = connection.execute(text(DICTIONARY), {"table": source}).mappings()
    known = {row["column"]: dict(row) for row in rows}
    known["inherited"] = {
        "column": "inherited",
        "type": "boolean",
        "meaning": "the suite sees the run in its analyses; another suite trains it",
    }
    return [known[name] for name in table.types]


def _copy(connection: Connection, query: str, sink: IO[bytes]) -> None:
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor:
        # Times of one zone, whatever the session's.
        cursor.execute("SET LOCAL timezone = 'UTC'")
        cursor.copy_expert(f"COPY ({query}) TO STDOUT WITH (FORMAT csv)", sink)


def batches(connection: Connection, table: Table) -> Iterator[pa.RecordBatch]:
    """COPY in a thread into a pipe, from which arrow reads block after block."""
    read_end, write_end = os.pipe()
    failures: list[BaseException] = []

    def produce() -> None:
        try:
            with os.fdopen(write_end, "wb") as sink:
                _copy(connection, table.query, sink)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=produce, name="export")
    thread.start()
    try:
        with os.fdopen(read_end, "rb") as source:
            if source.peek(1):  # arrow refuses an empty file
                yield from _parsed(source, table)
    finally:
        thread.join()
        if failures:
            raise failures[0]


def _parsed(source: IO[bytes], table: Table) -> Iterator[pa.RecordBatch]:
    text_like = {n: t for n, t in table.types.items() if pa.types.is_list(t) or _is_time(t)}
    reader = pyarrow.csv.open_csv(
        source,
        read_options=pyarrow.csv.ReadOptions(
            column_names=list(table.types), block_size=BLOCK_BYTES, use_threads=False
        ),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=table.types | {name: pa.string() for name in text_like},
            true_values=["t"],
            false_values=["f"],
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    schema = pa.schema(list(table.types.items()))
    for batch in reader:
        columns = [_read_text(c, t) for c, t in zip(batch.columns, schema.types, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _read_text(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_list(wanted):
        values = [None if v is None else json.loads(v) for v in column.to_pylist()]
        return pa.array(values, wanted)
    if _is_time(wanted):
        values = [None if v is None else datetime.fromisoformat(v) for v in column.to_pylist()]
        return pa.array(values, wanted)
    return column


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind))


def _arrow(kind: Any) -> pa.DataType:
    if isinstance(kind, ARRAY):
        return pa.list_(pa.int32())
    if isinstance(kind, BigInteger):
        return pa.int64()
    if isinstance(kind, Integer):
        return pa.int32()
    if isinstance(kind, Boolean):
        return pa.bool_()
    if isinstance(kind, DateTime):
        return pa.timestamp("us", tz="UTC")
    if isinstance(kind, Double):
        return pa.float64()
    if isinstance(kind, JSONB):
        return pa.string()
    return pa.float32() if "REAL" in str(kind) else pa.string()


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
# one that was set aside and is trained further just now as it was set aside, one whose results lie
# in another suite's dump as pending, too.
RUN_DOCUMENTS = """
SELECT jsonb_build_object('run', CASE WHEN %(own)s AND sr.inherited
        THEN jsonb_build_object('key', r.key, 'spec', r.spec, 'state', 'pending')
        WHEN r.closed_at IS NOT NULL
        THEN to_jsonb(r) - 'id' - 'owner' - 'lease_until'
        WHEN r.set_aside_epoch IS NOT NULL
        THEN to_jsonb(r) - 'id' - 'owner' - 'lease_until' || jsonb_build_object(
            'state', 'set_aside', 'last_epoch', r.set_aside_epoch, 'closed_at', now())
        ELSE jsonb_build_object('key', r.key, 'spec', r.spec, 'state', 'pending') END,
    'inherited', sr.inherited,
    'attempts', coalesce((
        SELECT jsonb_agg(to_jsonb(a) - 'run_id' ORDER BY a.attempt) FROM attempts a
        WHERE a.run_id = r.id AND a.ended_at IS NOT NULL AND NOT (%(own)s AND sr.inherited)
            AND (r.closed_at IS NOT NULL OR r.set_aside_epoch IS NOT NULL)), '[]'))::text
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = %(suite)s ORDER BY r.id
"""

# A thinned curve keeps what the rule says; its first passages are in the run's own arrays.
CURVE_ROWS = """
SELECT d.line, {columns}
FROM (
    SELECT r.*, sr.inherited, row_number() OVER (ORDER BY r.id) - 1 AS line
    FROM suite_runs sr JOIN runs r ON r.id = sr.run_id WHERE sr.suite_id = {suite}
) d
JOIN curve c ON c.run_id = d.id
WHERE (d.closed_at IS NOT NULL OR d.set_aside_epoch IS NOT NULL)
    AND NOT ({own} AND d.inherited) {thinning}
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
    own: bool = False,
    overwrite: bool = False,
) -> Dumped:
    """Write the suite's runs, attempts and curves; `own`: results of inherited runs stay out.

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
        rows = _write_curve(connection, suite.id, curve_path, dense, own)
        with zipfile.ZipFile(archive_path, "w", zipfile.ZIP_DEFLATED) as archive:
            with archive.open(RUNS, "w", force_zip64=True) as sink:
                runs, closed = _write_runs(connection, suite.id, sink, dense, own)
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


def _write_curve(
    connection: Connection, suite_id: int, path: Path, dense: int | None, own: bool
) -> int:
    table = curves_table(suite_id)
    columns = [name for name in table.types if name != "run_id"]
    types = {"line": pa.int32()} | {name: table.types[name] for name in columns}
    query = CURVE_ROWS.format(
        columns=", ".join(f"c.{name}" for name in columns),
        suite=suite_id,
        own=str(own),
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
    connection: Connection, suite_id: int, sink: Any, dense: int | None, own: bool
) -> tuple[int, int]:
    runs = closed = 0
    driver: Any = connection.connection.driver_connection
    # A named cursor keeps its rows on the server, so that memory stays flat.
    with driver.cursor("dump_runs") as cursor:
        cursor.itersize = 1_000
        cursor.execute(RUN_DOCUMENTS, {"suite": suite_id, "own": own})
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
