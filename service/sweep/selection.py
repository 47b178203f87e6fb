"""What a sweep is asked to train: its options, the runs they choose, and how far these are.

Progress is a live bar on a terminal and a line every ten seconds in a log. What counts is read from
the database, not heard from Ray, so it is right whoever trains.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

from groktime.db.claims import reopen
from groktime.db.engine import retrying
from groktime.db.records import Design
from groktime.db.schema import RUN_STATES
from groktime.db.suites import Registered, register_suite
from groktime.service.errors import InputError
from groktime.service.spec import Kind, RunSpec
from groktime.service.suites import Suite
from groktime.service.suites.expansion import Member
from groktime.service.suites.values import typed_settings
from groktime.service.sweep.cost import CostModel, Finished, expected_epochs, machine_rate
from groktime.service.words import duration
from groktime.workers.checkpoints import CheckpointStore
from groktime.workers.engines import stack_shape

POLL_SECONDS = 1.0
LINE_SECONDS = 10.0

STATES = "SELECT id, state, last_epoch FROM runs WHERE id = ANY(:ids)"


@dataclass(frozen=True)
class Weight:
    """What a run is expected to take."""

    seconds: float
    epochs: float


@dataclass(frozen=True)
class Snapshot:
    """A sweep at one moment; `work` is done and `total` expected seconds of one worker."""

    runs: int
    done: int
    failed: int
    running: int
    epochs: int
    work: float
    total: float


def snapshot(engine: Engine, weights: Mapping[int, Weight]) -> Snapshot:
    """Count the sweep's runs and weigh what is done of them."""
    counts = dict.fromkeys(RUN_STATES, 0)
    work, epochs = 0.0, 0
    with engine.connect() as connection:
        for row in connection.execute(text(STATES), {"ids": list(weights)}):
            weight = weights[row.id]
            counts[row.state] += 1
            epochs += row.last_epoch
            closed = row.state in ("done", "failed")
            # A run that goes on past its expected end is nearly done, never more than that.
            part = 1.0 if closed else min(0.95, row.last_epoch / weight.epochs)
            work += weight.seconds * part
    total = sum(weight.seconds for weight in weights.values())
    return Snapshot(
        len(weights), counts["done"], counts["failed"], counts["running"], epochs, work, total
    )


class SweepProgress:
    """Shows snapshots from a thread of its own while Ray works."""

    def __init__(
        self, engine: Engine, suite: str, weights: Mapping[int, Weight], console: Console
    ) -> None:
        self._engine, self._suite, self._weights = engine, suite, dict(weights)
        self._console = console
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._first = retrying(lambda: snapshot(self._engine, self._weights))
        self._idle_until = time.monotonic()
        self._under_way = False
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def say(self, message: str) -> None:
        """A line of its own, above the bar."""
        self._console.print(message, highlight=False, soft_wrap=True)

    def _watch(self) -> None:
        if self._console.is_terminal:
            self._bar()
        else:
            self._lines()

    def _latest(self) -> Snapshot | None:
        try:
            return snapshot(self._engine, self._weights)
        except SQLAlchemyError:
            return None  # workers wait for the database, and so does the display

    def _bar(self) -> None:
        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[told]}"),
        )
        with Progress(*columns, console=self._console, transient=False) as bar:
            task = bar.add_task(self._suite, total=1.0, told="")
            while True:
                last = self._ended.wait(POLL_SECONDS)
                now = self._latest()
                if now is not None:
                    done = now.work / now.total if now.total else 1.0
                    bar.update(task, completed=done, told=self._told(now))
                if last:
                    return

    def _lines(self) -> None:
        said = time.monotonic()
        self.say(f"{self._suite}: {self._told(self._first)}")
        while True:
            last = self._ended.wait(LINE_SECONDS if self._under_way else POLL_SECONDS)
            now = self._latest()
            told = self._told(now) if now is not None else None
            due = self._under_way if last else time.monotonic() - said >= LINE_SECONDS
            if told is not None and due:
                said = time.monotonic()
                self.say(f"{self._suite}: {told}")
            if last:
                return

    def _told(self, now: Snapshot) -> str:
        words = [f"{now.done}/{now.runs} runs"]
        self._under_way = self._under_way or now.running > 0 or now.work > self._first.work
        if not self._under_way:
            self._idle_until = time.monotonic()
            return f"{words[0]}, starting Ray"
        elapsed = time.monotonic() - self._idle_until
        if now.failed:
            words.append(f"{now.failed} failed")
        if now.running:
            words.append(f"{now.running} running")
        # Claiming a run gives back what was recorded past its checkpoint.
        trained = max(now.epochs - self._first.epochs, 0)
        words.append(f"{trained / max(elapsed, 1e-9):,.0f} epochs/s")
        if now.done + now.failed < now.runs:
            words.append(f"{self._left(now, elapsed)} left")
        return ", ".join(words)

    def _left(self, now: Snapshot, elapsed: float) -> str:
        worked = now.work - self._first.work
        if worked <= 0:
            return "?"
        return duration((now.total - now.work) * elapsed / worked)


CHOOSER = (
    "locate.py",
    "priors.py",
    "located.py",
    "../analysis/located.py",
)  # what decides which run comes next
MOST_SHOWN = 20  # values of a suite in a refusal
ANY_RATE = 1e11  # FLOP/s; finished runs correct it, whatever it is

SUITE_RUNS = """
SELECT r.id, r.key, r.state, r.reason, r.seconds, r.last_epoch FROM suite_runs sr
JOIN runs r ON r.id = sr.run_id WHERE sr.suite_id = :suite AND NOT sr.inherited
"""


class NotInSuite(InputError):
    """A filter names a value that no run of the suite has; `known` are those there are."""

    def __init__(self, name: str, value: object, known: Sequence[Any]) -> None:
        super().__init__(f"--{name} = {value}: the suite has {_shown(value, known)}")
        self.name = name
        self.value = value
        self.known = known


def _shown(value: object, known: Sequence[Any]) -> str:
    """All values, or of very many numbers the two nearest."""
    if len(known) <= MOST_SHOWN or not isinstance(value, int | float):
        return ", ".join(str(one) for one in known)
    nearest = sorted(sorted(known, key=lambda one: abs(one - value))[:2])
    return f"{len(known)} others, the nearest {' and '.join(map(str, nearest))}"


@dataclass(frozen=True)
class Selection:
    """Filters on a suite's runs; empty ones let everything pass."""

    primes: Collection[int] = ()
    kinds: Collection[Kind] = ()
    widths: Collection[int] = ()
    seeds: Collection[int] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    def chosen(self, suite: Suite) -> list[RunSpec]:
        """The distinct runs that pass, in the order of the suite's grids."""
        return list({member.spec.key: member.spec for member in self.members(suite)}.values())

    def members(self, suite: Suite) -> list[Member]:
        """The places that pass; a value that none has is refused with those there are."""
        asked: dict[str, tuple[Collection[Any], Callable[[Member], Any]]] = {
            "prime": (self.primes, lambda member: member.spec.data.prime),
            "kind": (self.kinds, lambda member: member.spec.kind),
            "width": (self.widths, lambda member: member.spec.model.width),
            "seed": (self.seeds, lambda member: member.spec.seed),
            **{
                f"set {name}": ((value,), partial(_setting, name))
                for name, value in typed_settings(self.settings).items()
            },
        }
        filters = {name: filter_ for name, filter_ in asked.items() if filter_[0]}
        kept = list(suite.members())
        for name, (values, of) in filters.items():
            there = {of(member) for member in suite.members()}
            for value in values:
                if value not in there:
                    raise NotInSuite(name, value, sorted(there, key=_numbers_first))
            kept = [member for member in kept if of(member) in values]
        if not kept:
            raise InputError(f"the suite has no run that passes all of --{', --'.join(filters)}")
        return kept


def _setting(name: str, member: Member) -> Any:
    return member.resolved[name]


def _numbers_first(value: Any) -> tuple[bool, Any]:
    return (False, value) if isinstance(value, int | float) else (True, str(value))


@dataclass(frozen=True)
class StoredRun:
    """A selected run as the database has it."""

    id: int
    spec: RunSpec
    state: str
    reason: str | None
    seconds: float | None
    last_epoch: int


def stored_runs(engine: Engine, suite_id: int, chosen: Sequence[RunSpec]) -> dict[int, StoredRun]:
    """The selected runs by their number, in the order of the suite's grids."""
    by_key = {spec.key: spec for spec in chosen}
    with engine.connect() as connection:
        rows = {row.key: row for row in connection.execute(text(SUITE_RUNS), {"suite": suite_id})}
    found = (rows[key] for key in by_key)
    return {
        row.id: StoredRun(
            row.id, by_key[row.key], row.state, row.reason, row.seconds, row.last_epoch
        )
        for row in found
    }


def learnt_cost(runs: Mapping[int, StoredRun]) -> CostModel:
    """A cost model that has seen the finished runs; without any, this machine's speed counts."""
    finished = [
        Finished(run.spec, stack_shape(run.spec), run.last_epoch, run.seconds)
        for run in runs.values()
        if run.state == "done" and run.seconds
    ]
    if not finished:
        return CostModel(machine_rate([run.spec for run in runs.values()])[0])
    cost = CostModel(ANY_RATE)
    cost.learn(finished)
    return cost


def in_order(suite: Suite, runs: Sequence[StoredRun]) -> list[StoredRun]:
    """Runs as `--limit` counts them: by seed where the suite wants seeds first."""
    if suite.file.order == "seeds_first":
        return sorted(runs, key=lambda run: run.spec.seed)
    return list(runs)


@dataclass(frozen=True)
class SweepOptions:
    """What part of a suite is trained, and with how much of the cluster."""

    selection: Selection = field(default_factory=Selection)
    limit: int | None = None
    gpus_per_bundle: float | None = None  # None: chosen by what the cluster has
    workers: int | None = None
    retry_failed: bool = False
    replace: bool = False  # take a changed definition of the suite


@dataclass(frozen=True)
class PreparedSweep:
    """A sweep that is ready to run: registered, selected and priced."""

    suite: Suite
    registered: Registered
    runs: Mapping[int, StoredRun]
    cost: CostModel

    @property
    def open(self) -> list[int]:
        return [run.id for run in self.runs.values() if run.state not in ("done", "failed")]

    def weights(self) -> dict[int, Weight]:
        return {
            run.id: Weight(
                self.cost.seconds(run.spec, stack_shape(run.spec)), expected_epochs(run.spec)
            )
            for run in self.runs.values()
        }


@dataclass
class SweepReport:
    """What a sweep did."""

    trained: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    left_to_others: int = 0
    bundles: int = 0
    retried: int = 0
    training_seconds: float = 0.0


class LocatedSuite(InputError):
    """A filter on what a located suite chooses itself."""

    def __init__(self, name: str, suite: str) -> None:
        super().__init__(
            f"--{name}: {suite} is located and chooses its own runs; accepted: --prime, --set"
        )
        self.name = name


def check_located(suite: Suite, options: SweepOptions) -> None:
    """Refuse filters that a suite which chooses its own runs cannot keep to."""
    if suite.file.design is None:
        return
    chosen = options.selection
    given = {
        "kind": chosen.kinds,
        "width": chosen.widths,
        "seed": chosen.seeds,
        "limit": options.limit is not None,
    }
    for name, value in given.items():
        if value:
            raise LocatedSuite(name, suite.name)


def prepare(suite: Suite, engine: Engine, options: SweepOptions) -> PreparedSweep:
    """Register the suite and choose the runs of this sweep."""
    chosen = options.selection.chosen(suite)
    registered = register(suite, engine)
    runs = stored_runs(engine, registered.suite_id, chosen)
    if options.retry_failed:
        reopen(engine, [run.id for run in runs.values() if run.state == "failed"])
        runs = stored_runs(engine, registered.suite_id, chosen)
    cost = learnt_cost(runs)
    if options.limit is not None:
        still = [run for run in runs.values() if run.state not in ("done", "failed")]
        runs = {run.id: run for run in in_order(suite, still)[: options.limit]} or runs
    return PreparedSweep(suite, registered, runs, cost)


LINKED = """
SELECT r.key FROM suites s JOIN suite_runs sr ON sr.suite_id = s.id
JOIN runs r ON r.id = sr.run_id WHERE s.name = :name AND NOT sr.inherited
"""


def register(
    suite: Suite, engine: Engine, chosen: Sequence[RunSpec] = (), *, replace: bool = False
) -> Registered:
    """Make the database hold the suite; refuses a frozen one that has changed.

    A located suite has the runs that were chosen so far, and those chosen now.
    """
    runs = wanted_runs(suite, engine, chosen)
    inherited = [member.spec for donor in suite.inherited for member in donor.members]
    design: Design = "grid" if suite.file.design is None else "locate"
    return register_suite(
        engine,
        suite.name,
        stored(suite),
        suite.digest,
        runs,
        inherited,
        replace=replace,
        design=design,
    )


def stored(suite: Suite) -> dict[str, Any]:
    """The suite's file as the database keeps it; a located one with the hash of its chooser."""
    spec = suite.stored()
    if suite.file.design is not None:
        spec["design"] = {**spec["design"], "chooser": chooser_hash()}
    return spec


@lru_cache(maxsize=1)
def chooser_hash() -> str:
    """A hash of the code that chooses runs: a frozen located suite keeps to it."""
    folder = Path(__file__).parent
    code = b"".join((folder / name).read_bytes() for name in CHOOSER)
    return hashlib.sha256(code).hexdigest()[:16]


def wanted_runs(suite: Suite, engine: Engine, chosen: Sequence[RunSpec] = ()) -> list[RunSpec]:
    """The runs of a grid; of a located suite those that it has and those chosen now."""
    runs = suite.runs()
    if suite.file.design is None:
        return runs
    with engine.connect() as connection:
        linked = set(connection.scalars(text(LINKED), {"name": suite.name}))
    linked |= {spec.key for spec in chosen}
    return [spec for spec in runs if spec.key in linked]


def delete_finished_checkpoints(checkpoints: Path | str, runs: Iterable[StoredRun]) -> int:
    """Delete the checkpoints of finished runs; returns of how many runs.

    A run whose workers crashed keeps them: it may be tried again from there.
    """
    store = CheckpointStore(checkpoints)
    finished = {run.spec.key for run in runs if run.state == "done" or run.reason == "diverged"}
    left = finished & store.keys()
    for key in left:
        store.delete(key)
    return len(left)
