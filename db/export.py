"""A suite's runs and curves as Parquet or CSV: exact, unsampled, streamed in flat memory.

Beside the tables goes a data dictionary: what every column means, from the database's own
comments, and the suite's spec. One folder holds one export, whole: the files appear together when
all are complete, and replace only those of an earlier export of the same suite.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from sqlalchemy import Connection, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.types import BigInteger, Boolean, DateTime, Double, Integer

from groktime.db.queries.suites import SuiteRecord, get_suite
from groktime.db.schema import Curve, Run
from groktime.service.errors import InputError

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
