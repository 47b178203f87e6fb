"""Loading a dump: validated whole, then merged by run key, all or nothing, the second time nothing.

A dump is somebody else's word: sizes are bounded before anything is unpacked; names, texts and
the suite's hash are checked before anything is written. Runs that are done or failed here stay as
they are; runs that are missing or waiting here take the dump's results; a run that a worker is
training right now is left to that worker.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import psycopg2
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from groktime.db.curve import COLUMNS
from groktime.db.engine import first_line, known_revisions
from groktime.db.export import CURVE, MANIFEST, RUNS, damage_is_refused, opened
from groktime.db.maintenance import CHECKS
from groktime.db.schema import SPEC_COLUMNS, Run
from groktime.db.suites import REGISTRATION_LOCK, load_forecasts, spec_from_json
from groktime.service.errors import DumpError, SuiteError
from groktime.service.spec import COUNTS, SUITE_NAME
from groktime.service.words import refuse_unprintable

MAX_RUNS = 1_000_000
MANIFEST_BYTES = 4 << 20
RUN_BYTES = 1 << 20  # one line: a spec, three ladders and all attempts
CURVE_ROW_BYTES = 100  # nine numbers of 4 bytes, with what parquet adds
CURVE_BYTES = 64 << 20  # the footer of many row groups
GROUP_BYTES = 1 << 20
TEXT_LENGTH = 20_000  # a reason, a fingerprint, a rule
CLOCKS_DIFFER = timedelta(days=1)
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)

DUMPED_STATES = ("pending", "done", "failed", "set_aside")


def _plain(words: str) -> str:
    if len(words) > TEXT_LENGTH:
        raise ValueError(f"a text of {len(words):,} characters; at most {TEXT_LENGTH:,}")
    return refuse_unprintable(words)


def _possible(time: datetime) -> datetime:
    """Refuse what no clock showed; Postgres keeps years that Python cannot read."""
    if time < EARLIEST:
        raise ValueError(f"{time} is before {EARLIEST:%Y}")
    if time > datetime.now(UTC) + CLOCKS_DIFFER:
        raise ValueError(f"{time} is in the future")
    return time


Words = Annotated[str, AfterValidator(_plain)]
Time = Annotated[AwareDatetime, AfterValidator(_possible)]
TIME: TypeAdapter[datetime | None] = TypeAdapter(Time | None)
RUN_TIMES = ("created_at", "closed_at")
ATTEMPT_TIMES = ("started_at", "ended_at")

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

# run_id marks the runs whose results are taken: closed in the dump and waiting here. One that the
# dump only set aside is taken where it came further than here.
TAKE = """
UPDATE loading l SET run_id = r.id, attempts_before = r.attempt
FROM runs r WHERE r.key = l.key AND l.run->>'state' <> 'pending'
    AND r.state IN ('pending', 'stale', 'set_aside')
    AND (l.run->>'state' <> 'set_aside'
        OR (l.run->>'last_epoch')::int > greatest(r.last_epoch, r.set_aside_epoch))
"""

LOCK_TAKEN = """
SELECT count(*) FROM (SELECT FROM runs r JOIN loading l ON l.key = r.key
    WHERE r.state IN ('pending', 'stale', 'set_aside') ORDER BY r.id FOR UPDATE OF r) locked
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
INSERT INTO suites (name, spec, hash, design, frozen_at, recorded)
VALUES (:name, CAST(:spec AS jsonb), :hash, :design, CAST(:frozen_at AS timestamptz),
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


LACKING = """
SELECT s.name, count(*) FROM suites s
JOIN suite_runs sr ON sr.suite_id = s.id JOIN runs r ON r.id = sr.run_id
WHERE s.name = ANY(:names) AND sr.inherited AND r.state = 'pending'
GROUP BY s.name ORDER BY s.name
"""


def lacking(connection: Connection, names: Sequence[str]) -> list[tuple[str, int]]:
    """Suites with inherited runs that have no results here, and how many."""
    return [(name, n) for name, n in connection.execute(text(LACKING), {"names": list(names)})]


class SuiteCheck(Protocol):
    """Refuses a spec that is no suite or a hash that is not its own; False: it cannot be told."""

    def __call__(
        self, name: str, spec: Any, digest: str, own: set[str], inherited: set[str]
    ) -> bool: ...


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Recorded(_Strict):
    """When, where and with what a recording was made, as its maker says."""

    dumped_at: Time
    trained_from: Time | None
    trained_until: Time | None
    devices: list[Words] = Field(max_length=10_000)
    engines: list[Words] = Field(max_length=100)
    fingerprints: list[Words] = Field(max_length=10_000)
    versions: dict[Words, Words] = Field(max_length=1_000)
    git_commit: Words | None
    thinning: Words | None
    frozen: Literal["claimed by the dump"] | None = None


class DumpedSuite(_Strict):
    """The suite that a dump carries; its spec is checked by whoever knows suites."""

    name: Annotated[str, Field(pattern=SUITE_NAME)]
    spec: dict[str, Any]
    hash: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    design: Literal["grid", "locate"] = "grid"


class DumpedForecast(_Strict):
    """What was predicted of the suite, and when, as the dump's maker says."""

    created_at: Time
    spec: dict[str, Any]
    predictions: dict[str, Any]
    score: dict[str, Any] | None


class Manifest(_Strict):
    """What a dump says of itself."""

    format: Literal[1]
    schema_revision: Words = Field(alias="schema")
    spec_version: int
    suite: DumpedSuite
    frozen_at: Time | None
    recorded: dict[str, Any]
    forecasts: list[DumpedForecast] = Field(default=[], max_length=1_000)
    runs: int = Field(ge=0, le=MAX_RUNS, strict=True)
    closed: int = Field(ge=0, le=MAX_RUNS, strict=True)
    curve_rows: int = Field(ge=0, strict=True)


def load_dump(engine: Engine, path: Path, check_suite: SuiteCheck) -> Loaded:
    """Merge the dump into the database in one transaction; nothing is written if it is refused."""
    with opened(path) as archive, damage_is_refused(path):
        manifest = _manifest(archive, path)
        frozen = _validate(archive, manifest, path, check_suite)
        try:
            with engine.begin() as connection:
                return _merge(connection, archive, manifest, frozen, path)
        except (DBAPIError, psycopg2.Error) as error:  # COPY's errors come from the driver
            said = first_line(error.orig if isinstance(error, DBAPIError) else error)
            raise DumpError(f"{path} was not loaded, nothing was changed: {said}") from error


def _manifest(archive: zipfile.ZipFile, path: Path) -> Manifest:
    """What the dump says of itself, read only if it is of a manifest's size."""
    if sorted(archive.namelist()) != sorted((MANIFEST, RUNS, CURVE)):
        raise DumpError(f"{path} does not hold exactly {MANIFEST}, {RUNS} and {CURVE}")
    _bounded(archive, MANIFEST, MANIFEST_BYTES, path)
    document = json.loads(archive.read(MANIFEST))
    revision = document["schema"] if isinstance(document, dict) else None
    if revision not in known_revisions():
        raise DumpError(
            f"{path} was written from schema {str(revision)[:40]!r}, which this groktime does not "
            "know: install the groktime that wrote it, or a later one"
        )
    try:
        manifest = Manifest.model_validate(document)
        Recorded.model_validate(manifest.recorded)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise DumpError(f"{path}: {MANIFEST}: {where}: {first['msg']}") from None
    _bounded(archive, RUNS, manifest.runs * RUN_BYTES, path)
    _bounded(archive, CURVE, manifest.curve_rows * CURVE_ROW_BYTES + CURVE_BYTES, path)
    return manifest


def _bounded(archive: zipfile.ZipFile, name: str, limit: int, path: Path) -> None:
    """Refuse a part that would unpack to more than it can rightly need."""
    size = archive.getinfo(name).file_size
    if size > limit:
        raise DumpError(f"{path}: {name} would unpack to {size:,} bytes; at most {limit:,}")


def _validate(
    archive: zipfile.ZipFile, manifest: Manifest, path: Path, check_suite: SuiteCheck
) -> bool:
    """Look at every part before anything is written; True: the suite's frozen_at is believed."""
    own: set[str] = set()
    inherited: set[str] = set()
    epochs = closed = 0
    for document in _documents(archive):
        run = document["run"]
        key = run["key"]
        if key in own or key in inherited:
            raise DumpError(f"{path}: run {key} is there twice")
        (inherited if document["inherited"] else own).add(key)
        closed += run["state"] != "pending"
        epochs += run.get("last_epoch", 0)
    if len(own) + len(inherited) != manifest.runs:
        raise DumpError(f"{path} holds {len(own) + len(inherited)} runs, but says {manifest.runs}")
    if closed != manifest.closed:
        raise DumpError(f"{path} holds {closed} closed runs, but says {manifest.closed}")
    if manifest.curve_rows > epochs:
        raise DumpError(f"{path} has more epochs ({manifest.curve_rows}) than its runs ({epochs})")
    _validate_curve(archive, manifest, path)
    for index, forecast in enumerate(manifest.forecasts):
        _refuse_strange_text(forecast.model_dump(mode="json"), f"forecast {index}")
    suite = manifest.suite
    if suite.design == "locate" and suite.spec.get("design") is None:
        raise DumpError(f"{path}: suite {suite.name}: design: its spec locates nothing")
    try:
        known = check_suite(suite.name, suite.spec, suite.hash, own, inherited)
    except SuiteError as refusal:
        raise DumpError(f"{path}: {refusal}") from None
    return known and manifest.frozen_at is not None


def _validate_curve(archive: zipfile.ZipFile, manifest: Manifest, path: Path) -> None:
    """Its columns, types and sizes, from the footer alone."""
    with archive.open(CURVE) as source:
        file = pq.ParquetFile(
            source, thrift_string_size_limit=CURVE_BYTES, thrift_container_size_limit=1_000_000
        )
        found = {field.name: field.type for field in file.schema_arrow}
        wanted = {"line": pa.int32(), "epoch": pa.int32()} | {
            name: pa.int32() if name in COUNTS else pa.float32() for name in COLUMNS
        }
        if found != wanted:
            wrong = sorted(n for n in {*found, *wanted} if found.get(n) != wanted.get(n))
            raise DumpError(
                f"{path}: {CURVE}: columns missing, unknown or of another type: {wrong}"
            )
        footer = file.metadata
        if footer.num_rows != manifest.curve_rows:
            raise DumpError(
                f"{path} holds {footer.num_rows} epochs, but says {manifest.curve_rows}"
            )
        for index in range(footer.num_row_groups):
            group = footer.row_group(index)
            if group.total_byte_size > group.num_rows * CURVE_ROW_BYTES + GROUP_BYTES:
                raise DumpError(
                    f"{path}: {CURVE}: {group.num_rows} rows would unpack to "
                    f"{group.total_byte_size:,} bytes"
                )


def _merge(
    connection: Connection,
    archive: zipfile.ZipFile,
    manifest: Manifest,
    frozen: bool,
    path: Path,
) -> Loaded:
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": REGISTRATION_LOCK})
    suite_id = _suite(connection, manifest, frozen)
    connection.execute(text(CREATE_LOADING))
    lines = _copy_runs(connection, archive)
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
    load_forecasts(
        connection,
        suite_id,
        ((f.created_at, f.model_dump(exclude={"created_at"})) for f in manifest.forecasts),
    )
    linked = connection.execute(text(LINK), {"suite": suite_id}).rowcount
    if linked or taken:
        _raise_revisions(connection, suite_id)
    return Loaded(manifest.suite.name, created, taken, lines - taken, rows)


def _suite(connection: Connection, manifest: Manifest, frozen: bool) -> int:
    suite = manifest.suite
    # What only the file says stays marked so; a suite that was frozen here keeps its own time.
    made = {name: value for name, value in manifest.recorded.items() if name != "frozen"}
    recorded = made | {"frozen": "claimed by the dump"} if frozen else made
    connection.execute(
        text(UPSERT_SUITE),
        {
            "name": suite.name,
            "spec": json.dumps(suite.spec),
            "hash": suite.hash,
            "design": suite.design,
            "frozen_at": manifest.frozen_at if frozen else None,
            "recorded": json.dumps(recorded),
        },
    )
    row = connection.execute(
        text("SELECT id, hash FROM suites WHERE name = :name"), {"name": suite.name}
    ).one()
    if row.hash != suite.hash:
        raise SuiteError(
            f"suite {suite.name} here has hash {row.hash[:12]}, the dump's {suite.hash[:12]}:"
            " they are different suites of one name; load it into another database"
        )
    found: int = row.id
    return found


def _documents(archive: zipfile.ZipFile) -> Iterator[dict[str, Any]]:
    """Runs of the dump; each spec must be one that this code knows and have the key it claims."""
    with archive.open(RUNS) as source:
        while line := source.readline(RUN_BYTES + 1):
            if len(line) > RUN_BYTES:
                raise ValueError(f"a run is larger than {RUN_BYTES:,} bytes")
            document = json.loads(line)
            run, attempts = document["run"], document["attempts"]
            if run["state"] not in DUMPED_STATES:
                raise ValueError(f"state: {run['state']!r} is not one of {DUMPED_STATES}")
            spec = spec_from_json(run["spec"])
            if spec.key != run["key"]:
                raise ValueError(f"run {str(run['key'])[:64]!r} does not have the key of its spec")
            if not isinstance(attempts, list) or not isinstance(document["inherited"], bool):
                raise ValueError(f"run {spec.key}: attempts or inherited is of another type")
            _refuse_strange_text({n: v for n, v in run.items() if n != "spec"}, f"run {spec.key}")
            _refuse_strange_text(attempts, f"run {spec.key}")
            _refuse_strange_times(run, RUN_TIMES, f"run {spec.key}")
            for attempt in attempts:
                _refuse_strange_times(attempt, ATTEMPT_TIMES, f"run {spec.key}: an attempt")
            run.update(spec.columns())
            yield document


def _refuse_strange_times(document: Any, names: Iterable[str], where: str) -> None:
    if not isinstance(document, dict):
        raise ValueError(f"{where} is not an object")
    for name in names:
        try:
            TIME.validate_python(document.get(name))
        except ValidationError as problem:
            said = problem.errors(include_url=False)[0]["msg"]
            raise ValueError(f"{where}: {name}: {said}") from None


def _refuse_strange_text(value: Any, where: str) -> None:
    """Control characters, direction overrides and endless texts have no place in a result."""
    if isinstance(value, dict):
        for name, inner in value.items():
            _refuse_strange_text(name, where)
            _refuse_strange_text(inner, where)
    elif isinstance(value, list):
        for inner in value:
            _refuse_strange_text(inner, where)
    elif isinstance(value, str):
        try:
            _plain(value)
        except ValueError as problem:
            raise ValueError(f"{where}: {problem}") from None


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
