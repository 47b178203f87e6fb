"""The feed of a located suite: which run its sweep trains next; and how far the suite is, for the
server, the page and `groktime status`.

Every answer is made from what Postgres holds, so a sweep that was killed goes on where it was, and
what other sweeps have trained counts as well.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from groktime.db.claims import expire, fail_runs, reopen
from groktime.db.engine import first_line, retrying
from groktime.db.recorder import set_aside_runs
from groktime.db.records import SuiteRecord, read_suites
from groktime.service.answers.question import QuestionError
from groktime.service.answers.suites import NextRun, PlacedCell, PlacedPoint, PlacementAnswer, Step
from groktime.service.errors import DatabaseError
from groktime.service.spec import RunSpec
from groktime.service.suites import Suite
from groktime.service.suites.loader import read_stored
from groktime.service.suites.values import typed_settings
from groktime.service.sweep.locate import Choice, Point
from groktime.service.sweep.located import (
    LocatedCell,
    RecordedRun,
    Space,
    earlier_cells,
    located_cells,
    only_signs,
    recorded_runs,
    spaces,
)
from groktime.service.sweep.selection import SweepOptions, register

log = logging.getLogger(__name__)

SYSTEMIC_CRASHES = 4  # so many in a row are no fault of single runs
TRIES = 3  # of a run that comes back unfinished without having moved
EXPIRE_SECONDS = 5.0  # between looks for leases that are over
POLL_SECONDS = 0.5
ASIDE_SECONDS = 2.0  # between looks for runs that can be set aside

Say = Callable[[str], None]


@dataclass
class _Attempts:
    """How often a run came back unfinished without having moved."""

    epoch: int = -1
    tries: int = 0


@dataclass
class Locator:
    """The feed of a located suite: what its cells lack most comes first."""

    suite: Suite
    engine: Engine
    options: SweepOptions
    say: Say
    cells: list[LocatedCell] = field(default_factory=list)
    _attempts: dict[int, _Attempts] = field(default_factory=dict)
    _crashed: dict[int, str] = field(default_factory=dict)  # in a row, none failed yet; and why
    _expired_at: float = -EXPIRE_SECONDS

    def __post_init__(self) -> None:
        assert self.suite.file.design is not None, "only a located suite chooses its runs"
        settings = typed_settings(self.options.selection.settings)
        asked = {(name, str(value)) for name, value in settings.items()}
        self.spaces = [
            space
            for space in spaces(self.suite, self.options.selection.primes)
            if asked <= set(space.resolved)
        ]
        self._spaces = {space.label: space for space in self.spaces}
        self._keys = {spec.key for space in self.spaces for spec in space.specs.values()}
        with self.engine.connect() as connection:
            self._earlier = earlier_cells(connection, self.suite.file.design.prior)
        self.registered = register(self.suite, self.engine)
        if self.options.retry_failed:
            reopen(self.engine, [run.id for run in self.refresh() if run.state == "failed"])
        self.refresh()

    def refresh(self) -> list[RecordedRun]:
        """Read what every cell has, and think again about what it lacks."""
        if time.monotonic() - self._expired_at >= EXPIRE_SECONDS:
            retrying(lambda: expire(self.engine))
            self._expired_at = time.monotonic()
        runs = [run for run in retrying(self._read) if run.key in self._keys]
        self.cells = located_cells(self.suite, self.spaces, runs, self._earlier)
        return runs

    def _read(self) -> list[RecordedRun]:
        with self.engine.connect() as connection:
            return recorded_runs(connection, self.suite)

    @property
    def wants(self) -> bool:
        """Whether a run is left to train now, chosen before or chosen next."""
        runs = self.refresh()
        return bool(self._unfinished(runs, ())) or next(self._wanted(runs, ()), None) is not None

    def next(self, live: Collection[int]) -> list[list[int]] | None:
        """A run that was chosen before and nobody trains, else the best of the cell with least."""
        if self.is_systemic:
            return None
        runs = self.refresh()
        unfinished = self._unfinished(runs, live)
        if unfinished:
            return [[self._tried(unfinished[0])]]
        found = next(self._wanted(runs, live), None)
        if found is None:
            return None
        cell, choice, spec, known = found
        self.say(f"{cell.label}: {choice}; {cell}")
        if known is not None:
            return [[self._tried(known)]]
        retrying(lambda: register(self.suite, self.engine, [spec]))
        return [[retrying(lambda: self._number(spec.key))]]

    def _wanted(
        self, runs: Sequence[RecordedRun], live: Collection[int]
    ) -> Iterator[tuple[LocatedCell, Choice, RunSpec, RecordedRun | None]]:
        """What cells want, the one with least first; with the run where it was set aside."""
        aside = {run.key: run for run in runs if run.set_aside_epoch is not None}
        for cell in sorted(self.cells, key=lambda one: one.runs + len(one.in_flight)):
            for choice in cell.choices:
                spec = self._spaces[cell.label].specs[choice.kind, choice.width, choice.seed]
                known = aside.get(spec.key)
                if known is None or not (
                    known.id in (*live, *self._crashed) or self._is_stuck(known)
                ):
                    yield cell, choice, spec, known

    def _tried(self, run: RecordedRun) -> int:
        """Count that the run is tried, and how far it was: it must move."""
        seen = self._attempts.setdefault(run.id, _Attempts())
        seen.tries = 1 if run.last_epoch > seen.epoch else seen.tries + 1
        seen.epoch = run.last_epoch
        return run.id

    def _number(self, key: str) -> int:
        with self.engine.connect() as connection:
            found = connection.scalar(text("SELECT id FROM runs WHERE key = :key"), {"key": key})
        assert isinstance(found, int), "the run was registered just now"
        return found

    def _unfinished(self, runs: Sequence[RecordedRun], live: Collection[int]) -> list[RecordedRun]:
        """Runs that were chosen and are nobody's, unless they come back again and again."""
        held = {*live, *self._crashed}
        return [
            run
            for run in runs
            if run.state in ("pending", "stale")
            and not run.counts
            and run.id not in held
            and not self._is_stuck(run)
        ]

    def _is_stuck(self, run: RecordedRun) -> bool:
        seen = self._attempts.get(run.id)
        return seen is not None and seen.tries >= TRIES and run.last_epoch <= seen.epoch

    def stuck(self) -> list[int]:
        """Runs that were given up without a crash or a result."""
        return [run.id for run in self.refresh() if not run.counts and self._is_stuck(run)]

    def crashed(self, runs: Sequence[int], reason: str) -> None:
        """A single crash fails its run at the next success; many in a row are another's fault."""
        self._crashed.update(dict.fromkeys(runs, reason))

    def trained(self, runs: Sequence[int]) -> None:
        self.fail_crashed()

    @property
    def is_systemic(self) -> bool:
        return len(self._crashed) >= SYSTEMIC_CRASHES

    @property
    def last_reason(self) -> str:
        """What the last crash was."""
        return [*self._crashed.values()][-1]

    def fail_crashed(self) -> None:
        """Close what crashed by itself: other seeds take its place."""
        failing, self._crashed = self._crashed, {}
        for run, reason in failing.items():
            retrying(partial(fail_runs, self.engine, [run], f"crashed: {reason}"))

    def set_aside(self, owner: str) -> None:
        """Censor this sweep's speed runs that are only a sign, and those that nobody trains."""
        runs = [run for run in retrying(self._read) if run.key in self._keys]
        chosen = {run.id: run for run in only_signs(self.suite, self.spaces, runs, self._earlier)}
        if not chosen:
            return
        for run, epoch in retrying(
            lambda: set_aside_runs(self.engine, list(chosen), owner)
        ).items():
            self.say(f"run {run} is set aside at epoch {epoch:,}: slower than T_gen for certain")

    @contextmanager
    def setting_aside(self, owner: str) -> Iterator[None]:
        """Look again and again, while runs are trained, which of them have told all they can."""
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(ASIDE_SECONDS):
                try:
                    self.set_aside(owner)
                except (DBAPIError, DatabaseError) as error:
                    log.warning("no run is set aside: %s", first_line(error))

        watcher = threading.Thread(target=look, name="set-aside", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()

    def failed(self) -> dict[int, str]:
        """Failed runs of the suite and why."""
        return {run.id: run.reason or "" for run in self.refresh() if run.state == "failed"}

    def held_by_others(self) -> list[RecordedRun]:
        """Wanted runs that another sweep trains."""
        return [run for run in self.refresh() if run.state == "running" and not run.counts]

    def others_have_ended(self) -> bool:
        """Wait for leases of other sweeps; False: one is renewed, so its worker goes on."""
        held = {run.id: self._lease(run.id) for run in self.held_by_others()}
        if not held:
            return False
        self.say(f"{len(held)} runs are leased to another sweep; waiting for them")
        while True:
            time.sleep(POLL_SECONDS)
            self._expired_at = -EXPIRE_SECONDS  # look at once
            still = {run.id for run in self.held_by_others()}
            if not still & set(held):
                return True
            if any(self._lease(run) != held[run] for run in still & set(held)):
                return False

    def _lease(self, run: int) -> object:
        def read() -> object:
            with self.engine.connect() as connection:
                lease = text("SELECT lease_until FROM runs WHERE id = :run AND state = 'running'")
                return connection.scalar(lease, {"run": run})

        return retrying(read)


MAX_NEXT = 5  # wanted runs told of each cell


def placement(connection: Connection, record: SuiteRecord) -> PlacementAnswer:
    """Every cell of the suite: what is known, what it took, what is wanted next and why."""
    if not record.is_located:
        located = [one.name for one in read_suites(connection) if one.is_located]
        raise QuestionError(
            "suite",
            record.name,
            located or "a suite with design: locate",
            f"{record.name} trains a grid of widths and locates nothing",
        )
    suite, histories = _opened(record.name, json.dumps(record.spec, sort_keys=True))
    design = suite.file.design
    assert design is not None, "the suite is located"
    runs = recorded_runs(connection, suite)
    earlier = earlier_cells(connection, design.prior)
    found = located_cells(suite, [history.space for history in histories], runs, earlier)
    cells = tuple(
        _placed(cell, history.steps(suite, runs))
        for cell, history in zip(found, histories, strict=True)
    )
    return PlacementAnswer(
        suite=record.name,
        revision=record.revision,
        place=design.place,
        precision=design.precision,
        max_runs=design.max_runs,
        running=record.running,
        runs=sum(cell.runs for cell in cells),
        core_seconds=sum(cell.core_seconds for cell in cells),
        cells=cells,
    )


@dataclass
class _History:
    """The steps of one cell, each computed once: a run that is closed does not change."""

    space: Space
    _steps: list[Step] = field(default_factory=list)
    _runs: list[RecordedRun] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._keys = {spec.key for spec in self.space.specs.values()}

    def steps(self, suite: Suite, runs: Sequence[RecordedRun]) -> tuple[Step, ...]:
        """What one run after the other, in the order chosen, has told of the cell."""
        closed = [run for run in runs if run.key in self._keys and run.counts]
        with self._lock:
            same = 0
            for kept, run in zip(self._runs, closed, strict=False):
                if kept != run:
                    break
                same += 1
            del self._steps[same:], self._runs[same:]
            for run in closed[same:]:
                self._runs.append(run)
                (cell,) = located_cells(suite, [self.space], self._runs)
                self._steps.append(
                    Step(
                        runs=cell.runs,
                        core_seconds=cell.core_seconds,
                        crossing=_point(cell.crossing),
                        onset=_point(cell.onset),
                    )
                )
            return tuple(self._steps)


@lru_cache(maxsize=16)
def _opened(name: str, spec: str) -> tuple[Suite, list[_History]]:
    """The suite of a stored spec, and what was computed about its cells before."""
    suite = read_stored(name, json.loads(spec))
    return suite, [_History(space) for space in spaces(suite)]


def _placed(cell: LocatedCell, steps: tuple[Step, ...]) -> PlacedCell:
    return PlacedCell(
        prime=cell.prime,
        setting=dict(cell.setting),
        crossing=_point(cell.crossing),
        onset=_point(cell.onset),
        runs=cell.runs,
        open=len(cell.in_flight),
        core_seconds=cell.core_seconds,
        ended=cell.ended,
        next=tuple(
            NextRun(kind=choice.kind, width=choice.width, seed=choice.seed, why=choice.why)
            for choice in cell.choices[:MAX_NEXT]
        ),
        steps=steps,
    )


def _point(point: Point | None) -> PlacedPoint | None:
    if point is None:
        return None
    low = high = None
    if point.params is not None and point.half_width is not None:
        low, high = (point.params * 10 ** (sign * point.half_width) for sign in (-1, 1))
    return PlacedPoint(
        status=point.status,
        estimate=point.params,
        half_width=point.half_width,
        low=low,
        high=high,
        bracket=point.bracket,
    )
