"""The suites there are: what each sweeps, how far it is, what its training took, and how far the
cells of a located one are placed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field
from sqlalchemy import Connection, text

from groktime.db.records import (
    Failure,
    SuiteRecord,
    coverage_frame,
    coverage_frames,
    coverage_rows,
    failures,
    progress,
)
from groktime.service.answers.question import Kept, Setting, SettingValue
from groktime.service.spec import KINDS, SETTING_COLUMNS

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class SuiteSummary:
    """One suite at one revision."""

    name: str
    description: str
    default: Annotated[bool, Field(description="answers that name nothing come from it")]
    revision: int
    hash: str
    design: Annotated[
        Literal["grid", "locate"], Field(description="locate: runs are chosen as they come")
    ]
    frozen: bool
    running: Annotated[bool, Field(description="a worker trains one of its runs now")]
    complete: Annotated[bool, Field(description="all of its runs are closed")]
    primes: tuple[int, ...]
    untrained: Annotated[
        tuple[int, ...], Field(description="primes at which no speed or grok run has finished")
    ]
    axes: Annotated[
        Mapping[str, tuple[SettingValue, ...]], Field(description="swept axes and their values")
    ]
    labels: Annotated[tuple[str, ...], Field(description="labels of the speed runs")]
    kinds: Annotated[Mapping[str, int], Field(description="runs by kind, inherited ones too")]
    trains: Annotated[
        tuple[str, ...], Field(description="kinds of its own runs; the first is shown first")
    ]
    states: StateCounts
    inherited: int
    analysis: Annotated[Mapping[str, Any], Field(description="how it means to be analysed")]
    recorded: Annotated[
        Mapping[str, Any] | None, Field(description="of a suite loaded from a dump: its making")
    ]


RunCounts: TypeAlias = "Mapping[int, pd.DataFrame]"  # by suite


def run_counts(connection: Connection, suites: Sequence[int]) -> RunCounts:
    """The runs of these suites as their summaries count them, read by one statement."""
    return coverage_frames(connection, suites, ("prime", "task")) if suites else {}


def suite_summary(
    connection: Connection,
    suite: SuiteRecord,
    default_suite: str | None,
    shape: pd.DataFrame | None = None,
) -> SuiteSummary:
    """What one suite is and how far; `default_suite` answers where none is named.

    `shape` are its runs where they have been counted with those of others.
    """
    if shape is None:
        shape = run_counts(connection, [suite.id])[suite.id]
    own = shape[~shape["inherited"]]
    compared = shape[shape["kind"] != "capacity"]
    return SuiteSummary(
        name=suite.name,
        description=str(suite.spec.get("description", "")),
        default=suite.name == default_suite,
        revision=suite.revision,
        hash=suite.hash,
        design="locate" if suite.is_located else "grid",
        frozen=suite.frozen,
        running=suite.running,
        complete=not suite.open,
        primes=tuple(sorted({int(p) for p in compared["prime"]})),
        untrained=_untrained(compared),
        axes=_axes(connection, suite),
        labels=tuple(sorted({str(task) for task in shape.loc[shape["kind"] == "speed", "task"]})),
        kinds={kind: int(shape.loc[shape["kind"] == kind, "runs"].sum()) for kind in KINDS},
        trains=shown_kinds(set(own["kind"])),
        states=StateCounts(**{state: int(own[state].sum()) for state in STATES}),
        inherited=int(shape.loc[shape["inherited"], "runs"].sum()),
        analysis=suite.analysis,
        recorded=suite.recorded,
    )


# A run's settings never change, so that a suite of the same runs has the same axes; its hash tells
# it from another one in a database made anew, which numbers its runs alike.
LINKS = """
SELECT count(*), bit_xor(hashint8extended(run_id, 0)) FROM suite_runs WHERE suite_id = :suite
"""
MOST_SUITES = 256
_kept_axes = Kept(MOST_SUITES)


def _axes(connection: Connection, suite: SuiteRecord) -> Mapping[str, tuple[SettingValue, ...]]:
    """Values of every swept axis; to count runs by all their settings takes longest of all."""
    where = (str(connection.engine.url), suite.id)
    runs = (suite.hash, *connection.execute(text(LINKS), {"suite": suite.id}).one())
    kept = _kept_axes.get(where, runs)
    if isinstance(kept, dict):
        return kept
    by = ("prime", "n_train", *SETTING_COLUMNS)
    found = axis_values(coverage_frame(connection, suite.id, by))
    _kept_axes.put(where, runs, found)
    return found


def shown_kinds(own: Collection[str]) -> tuple[str, ...]:
    """Grok runs first: they are what a suite is about."""
    return tuple(kind for kind in reversed(KINDS) if kind in own)


def _untrained(compared: pd.DataFrame) -> tuple[int, ...]:
    done = compared.groupby("prime")["done"].sum()
    return tuple(sorted(int(str(prime)) for prime in done.index[done == 0]))


def axis_values(shape: pd.DataFrame) -> dict[str, tuple[SettingValue, ...]]:
    """Values of every swept axis; a batch of the whole training set is called full."""
    from groktime.service.answers.cell import setting_value, sortable, swept_axes

    grok = shape[shape["kind"] == "grok"]
    defining = grok if len(grok) else shape[shape["kind"] == "speed"]
    if not len(defining):
        return {}
    axes: dict[str, tuple[SettingValue, ...]] = {}
    for name in swept_axes(shape):
        column = defining[name]
        if name == "batch_size":
            column = column.astype(object).where(column < defining["n_train"], "full")
        axes[name] = tuple(sorted({setting_value(value) for value in column}, key=sortable))
    return axes


@dataclass(frozen=True, kw_only=True)
class StateCounts:
    """Runs by state; they add up to the runs planned."""

    pending: int
    running: int
    stale: int
    done: int
    failed: int
    set_aside: Annotated[int, Field(description="censored before their cap, resumable")] = 0


STATES = tuple(field.name for field in fields(StateCounts))


@dataclass(frozen=True, kw_only=True)
class CellCoverage:
    """One kind of run at one prime, width and setting: its seeds by state."""

    kind: str
    prime: int
    width: int
    setting: Setting
    states: StateCounts
    censored: Annotated[int, Field(description="done runs that never reached their threshold")]
    diverged: int


@dataclass(frozen=True, kw_only=True)
class CoverageAnswer:
    """Progress of a suite's own runs; inherited ones are counted apart."""

    suite: str
    revision: int
    states: StateCounts
    kinds: Annotated[Mapping[str, StateCounts], Field(description="the same by kind of run")]
    inherited: int
    cells: tuple[CellCoverage, ...]
    failures: tuple[Failure, ...]
    epochs_recorded: int
    runs_per_minute: Annotated[float | None, Field(description="over the last ten minutes")]
    seconds_left: Annotated[float | None, Field(description="null: no run closed lately")]


def coverage(connection: Connection, suite: SuiteRecord) -> CoverageAnswer:
    """Where a suite stands now."""
    counted = coverage_rows(connection, suite.id, ("prime", "width", *SETTING_COLUMNS))
    own = [row for row in counted if not row["inherited"]]
    swept = [name for name in SETTING_COLUMNS if _varies(own, name)]
    pace = progress(connection, suite.id)
    return CoverageAnswer(
        suite=suite.name,
        revision=suite.revision,
        states=_counts(own),
        kinds={kind: _counts(row for row in own if row["kind"] == kind) for kind in KINDS},
        inherited=sum(row["runs"] for row in counted if row["inherited"]),
        cells=tuple(_cell(row, swept) for row in own),
        failures=tuple(failures(connection, suite.id)),
        epochs_recorded=pace.epochs,
        runs_per_minute=pace.runs_per_minute,
        seconds_left=pace.seconds_left,
    )


Row = Mapping[str, Any]


def _varies(rows: Sequence[Row], name: str) -> bool:
    """Several values within one kind at one prime: part of what tells its cells apart."""
    first: dict[tuple[str, int], Any] = {}
    return any(first.setdefault((r["kind"], r["prime"]), r[name]) != r[name] for r in rows)


def _counts(rows: Iterable[Row]) -> StateCounts:
    sums = dict.fromkeys(STATES, 0)
    for row in rows:
        for state in STATES:
            sums[state] += row[state]
    return StateCounts(**sums)


def _cell(row: Row, swept: Sequence[str]) -> CellCoverage:
    return CellCoverage(
        kind=row["kind"],
        prime=row["prime"],
        width=row["width"],
        setting={name: row[name] for name in swept},
        states=StateCounts(**{state: row[state] for state in STATES}),
        censored=row["censored"],
        diverged=row["diverged"],
    )


# A run's seconds are its share of its stack's time; the fingerprint says how many threads that
# stack had, and one without threads (a GPU's) counts the device as one core.
COST = """
SELECT coalesce(sum(r.seconds), 0) AS seconds,
    coalesce(sum(r.seconds * coalesce(
        CAST(substring(r.fingerprint FROM 'threads ([0-9]+)') AS integer), 1)), 0) AS core_seconds,
    coalesce(sum(r.last_epoch), 0) AS epochs,
    min(r.closed_at) AS first_closed, max(r.closed_at) AS last_closed,
    min(r.width) AS narrowest, max(r.width) AS widest
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = :suite_id AND NOT sr.inherited
"""

# The fastest epoch recorded of each shape is one that nothing disturbed.
UNDISTURBED = """
WITH shapes AS (
    SELECT {shape}, min(seconds / last_epoch) AS seconds
    FROM runs WHERE seconds > 0 AND last_epoch >= 20 GROUP BY {shape}
)
SELECT s.name, sum(r.last_epoch * shapes.seconds) / 3600 AS hours
FROM suites s JOIN suite_runs sr ON sr.suite_id = s.id JOIN runs r ON r.id = sr.run_id
JOIN shapes USING ({shape})
WHERE NOT sr.inherited GROUP BY s.name
"""
SHAPE = "kind, prime, width, depth, n_train, batch_size, architecture, heads, positions, norm, ffn"

ENGINES = """
SELECT r.engine, r.device, r.fingerprint, count(*) AS runs
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = :suite_id AND r.fingerprint IS NOT NULL
GROUP BY r.engine, r.device, r.fingerprint ORDER BY runs DESC, r.fingerprint
"""

CODE = """
SELECT a.git_commit, a.git_dirty, a.versions, count(*) AS runs
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
JOIN attempts a ON a.run_id = r.id AND a.attempt = r.attempt
WHERE sr.suite_id = :suite_id
GROUP BY a.git_commit, a.git_dirty, a.versions ORDER BY runs DESC, a.git_commit
"""

HOSTS = """
SELECT count(DISTINCT a.host) FROM suite_runs sr JOIN attempts a ON a.run_id = sr.run_id
WHERE sr.suite_id = :suite_id
"""


@dataclass(frozen=True, kw_only=True)
class EngineUse:
    """Runs trained by one engine build on one kind of processor."""

    engine: str | None
    device: str | None
    fingerprint: str
    runs: int


@dataclass(frozen=True, kw_only=True)
class CodeUse:
    """Runs trained by one state of the code with one set of packages."""

    commit: Annotated[str | None, Field(description="null: not from a checkout")]
    dirty: bool | None
    versions: Mapping[str, Any]
    runs: int


@dataclass(frozen=True, kw_only=True)
class TrainingAnswer:
    """Cost and provenance of a suite's runs; cost counts its own runs, not inherited ones."""

    suite: str
    revision: int
    hours: Annotated[float | None, Field(description="training time, hours of one worker")]
    core_hours: Annotated[float | None, Field(description="times the threads of each stack")]
    epochs: int
    first_closed: datetime | None
    last_closed: datetime | None
    widths: Annotated[tuple[int, int] | None, Field(description="narrowest and widest")]
    hosts: int
    engines: tuple[EngineUse, ...]
    code: tuple[CodeUse, ...]
    recorded: Annotated[
        Mapping[str, Any] | None, Field(description="of a suite loaded from a dump: its making")
    ]


def training(connection: Connection, suite: SuiteRecord) -> TrainingAnswer:
    """What it took to train the suite."""
    from groktime.service.analysis.inputs import finite

    asked = {"suite_id": suite.id}
    cost = connection.execute(text(COST), asked).one()
    return TrainingAnswer(
        suite=suite.name,
        revision=suite.revision,
        hours=finite(float(cost.seconds) / 3600),
        core_hours=finite(float(cost.core_seconds) / 3600),
        epochs=int(cost.epochs),
        first_closed=cost.first_closed,
        last_closed=cost.last_closed,
        widths=None if cost.narrowest is None else (cost.narrowest, cost.widest),
        hosts=int(connection.scalar(text(HOSTS), asked) or 0),
        engines=tuple(
            EngineUse(engine=r.engine, device=r.device, fingerprint=r.fingerprint, runs=r.runs)
            for r in connection.execute(text(ENGINES), asked)
        ),
        code=tuple(
            CodeUse(commit=r.git_commit, dirty=r.git_dirty, versions=r.versions, runs=r.runs)
            for r in connection.execute(text(CODE), asked)
        ),
        recorded=suite.recorded,
    )


def undisturbed_hours(connection: Connection) -> dict[str, float]:
    """By suite, hours of one worker had each epoch been as fast as the fastest of its shape."""
    return {
        row.name: float(row.hours)
        for row in connection.execute(text(UNDISTURBED.format(shape=SHAPE)))
    }


@dataclass(frozen=True, kw_only=True)
class PlacedPoint:
    """P_cross or P_onset as the model that chooses runs sees it; answers do not rest on it."""

    status: Annotated[str, Field(description="searching, placed, or why it cannot be placed")]
    estimate: Annotated[float | None, Field(description="parameters; null: not seen yet")]
    half_width: Annotated[float | None, Field(description="of the 95 % interval, dex")]
    low: Annotated[float | None, Field(description="of the 95 % interval, parameters")]
    high: float | None
    bracket: Annotated[
        tuple[float, float] | None, Field(description="sizes on both sides that were trained")
    ]


@dataclass(frozen=True, kw_only=True)
class NextRun:
    """A run that is wanted next."""

    kind: Literal["speed", "grok"]
    width: int
    seed: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Step:
    """What the first runs of a cell say without the others."""

    runs: int
    core_seconds: Annotated[float, Field(description="spent on these runs")]
    crossing: PlacedPoint | None
    onset: PlacedPoint | None


@dataclass(frozen=True, kw_only=True)
class PlacedCell:
    """One prime at one setting."""

    prime: int
    setting: Setting
    crossing: Annotated[PlacedPoint | None, Field(description="null: not asked for")]
    onset: Annotated[PlacedPoint | None, Field(description="null: not asked for")]
    runs: Annotated[int, Field(description="trained: done, set aside or diverged")]
    open: Annotated[int, Field(description="chosen and not closed yet")]
    core_seconds: Annotated[float, Field(description="spent on the trained runs")]
    ended: Annotated[str | None, Field(description="why no more runs are wanted; null: some are")]
    next: Annotated[tuple[NextRun, ...], Field(description="wanted runs, best first")]
    steps: Annotated[tuple[Step, ...], Field(description="run by run, in the order chosen")]


@dataclass(frozen=True, kw_only=True)
class PlacementAnswer:
    """Every cell of a suite with `design: locate`."""

    suite: str
    revision: int
    place: Annotated[tuple[str, ...], Field(description="what is to be placed in every cell")]
    precision: Annotated[
        float, Field(description="standard deviation of each point that is enough, dex")
    ]
    max_runs: Annotated[int, Field(description="most runs of one cell")]
    running: Annotated[bool, Field(description="a worker trains one of its runs now")]
    runs: int
    core_seconds: float
    cells: tuple[PlacedCell, ...]
