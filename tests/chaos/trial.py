"""One suite trained on a database of its own while things are broken."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from chaos.ground import TABLESPACE, TEMPLATE, Ground
from chaos.leftovers import with_variable
from fixtures.commands import settings_environment, wait_until
from fixtures.database import Database, scratch_database
from sqlalchemy import make_url, text
from sqlalchemy.exc import OperationalError

from groktime.db.claims import reopen
from groktime.workers.checkpoints import CheckpointStore

LEASE_SECONDS = 5
STALLED_SECONDS = 900.0  # without any progress: no machine is that slow
REFUSING_SECONDS = 120.0  # in which PgBouncer finds a server that came back, with much to spare
CHECKPOINT_SECONDS = 0.2
PRIME = 23

# Half of the runs diverge at once, among stack mates that do not.
SUITE = """\
description: runs of a few seconds, some of which diverge
positions: none
primes: [{prime}]
seeds: {{from: 1, to: {seeds}}}
settings: {{batch_size: 64}}
axes: {{lr: [1e-3, 1e30]}}
stop: {{max_epochs: {epochs}}}
speed:
  widths: [8, 12, 16]
grok:
  widths: [8, 12, 16]
"""

# Which runs it has is chosen as it goes.
LOCATED = """\
description: located, with runs of a few seconds
positions: none
primes: [53]
seeds: [42, 43]
settings: {batch_size: {steps: 12.36}}
stop: {max_epochs: 1000}
design: {place: [crossing], widths: [28, 32, 36, 40], precision: 0.1, max_runs: 16}
"""

HELD = """
SELECT id, attempt, owner, key, last_epoch FROM runs WHERE state = 'running' ORDER BY id
"""

OPEN = "SELECT count(*) FROM runs WHERE closed_at IS NULL"
PROGRESS = "SELECT count(closed_at) AS closed, coalesce(sum(last_epoch), 0) AS epochs FROM runs"
GIVEN_UP = "SELECT id, reason FROM runs WHERE state = 'failed' AND reason <> 'diverged'"
# What a sweep may say of a run whose worker was killed or starved on purpose.
DELIBERATE = re.compile(r"crashed: .*(died|killed|Memory|memory|alloc|resource)", re.DOTALL)


@dataclass(frozen=True)
class Held:
    """A run in the hands of a worker of this machine."""

    run: int
    attempt: int
    owner: str
    key: str
    epoch: int

    @property
    def pid(self) -> int:
        return int(self.owner.rpartition(":")[2])

    @property
    def sweep(self) -> str:
        """The sweep whose bundle this is: sweep-NAME-ROUND/BUNDLE@HOST:PID."""
        return self.owner.partition("/")[0].rpartition("-")[0]


@dataclass
class Progress:
    """How far a suite has ever got: what is repeated is none."""

    closed: int = 0
    epochs: int = 0
    at: float = field(default_factory=time.monotonic)

    def note(self, closed: int, epochs: int) -> None:
        if closed > self.closed or epochs > self.epochs:
            self.closed, self.epochs = max(closed, self.closed), max(epochs, self.epochs)
            self.at = time.monotonic()

    @property
    def is_stalled(self) -> bool:
        return time.monotonic() - self.at > STALLED_SECONDS


@dataclass
class Trial:
    """A database, a suite, and the sweeps that train it."""

    ground: Ground
    database: Database
    folder: Path
    suite: str
    sweeps: list[subprocess.Popen[str]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)  # what sweeps that ended have printed
    given_up: dict[int, str] = field(default_factory=dict)  # runs a sweep took for guilty
    outages: list[tuple[float, float]] = field(default_factory=list)  # by time.monotonic
    is_located: bool = False
    _ended_well: bool = False  # a sweep, since anything was opened again
    _progress: Progress = field(default_factory=Progress)
    _listeners: dict[int, Listener] = field(default_factory=dict)  # by the pid of a sweep

    @property
    def crossing(self) -> str:
        """Where the API answers for the crossing."""
        cell = "prime=53" if self.is_located else f"prime={PRIME}&lr=0.001"
        return f"/crossing?suite=chaos&{cell}"

    @property
    def writer_url(self) -> str:
        """The database through PgBouncer in transaction mode."""
        url = make_url(self.ground.pool).set(database=self.database.name)
        return url.render_as_string(hide_password=False)

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def environment(self) -> dict[str, str]:
        return dict(
            settings_environment(
                database_url=self.database.url,
                writer_url=self.writer_url,
                checkpoints=self.checkpoints,
                checkpoint_seconds=CHECKPOINT_SECONDS,
                lease_seconds=LEASE_SECONDS,
                home=self.folder,
                default_suite="chaos",
            )
        )

    def sweep(self) -> subprocess.Popen[str]:
        """Start another driver on the suite."""
        process = self.ground.commands.start(
            "sweep", self.suite, "--address", self.ground.nodes.address, **self.environment
        )
        self.sweeps.append(process)
        self._listeners[process.pid] = Listener(process)
        return process

    def submit(self) -> str:
        """Start a driver as a Ray job; returns the job's name.

        After an outage PgBouncer refuses clients for a while, and whoever submits tries again.
        """
        deadline = time.monotonic() + REFUSING_SECONDS
        while True:
            code, said = self.ground.commands.run(
                *("submit", self.suite, "--address", self.ground.nodes.jobs, "--no-follow"),
                seconds=STALLED_SECONDS,
                **self.environment,
            )
            named = re.search(r"raysubmit_\w+", said)
            if code == 0 and named:
                return named[0]
            assert "cannot be reached" in said, said
            assert time.monotonic() < deadline, said

    @contextmanager
    def database_away(self) -> Iterator[None]:
        """While readers may be told that the database cannot be reached."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.outages.append((began, time.monotonic()))

    def living(self) -> list[subprocess.Popen[str]]:
        """Drivers that are still at it; the words of the others are kept."""
        alive = []
        for process in self.sweeps:
            if process.poll() is None:
                alive.append(process)
            else:
                self._ended_well |= process.returncode in (0, 1)  # 1: some runs failed
                self.said.append(self._listeners.pop(process.pid).said())
        self.sweeps = alive
        return alive

    def held(self) -> list[Held]:
        """Runs being trained; none while the server is away or none lives."""
        try:
            with self.database.engine.connect() as connection:
                rows = connection.execute(text(HELD)).all()
        except OperationalError:
            return []
        found = [Held(row.id, row.attempt, row.owner, row.key, row.last_epoch) for row in rows]
        return [held for held in found if is_alive(held.pid)]

    def open_runs(self) -> int:
        """Runs not closed; registered ones only."""
        count: int = self.database.scalar(OPEN)
        return count

    def is_trained(self) -> bool:
        """Whether every run is closed; a located suite says itself that it wants no more."""
        if not self.begun() or self.open_runs():
            return False
        return self._ended_well or not self.is_located

    def begun(self) -> bool:
        """Whether the suite is registered."""
        return bool(self.database.scalar("SELECT count(*) FROM runs"))

    def keep_going(self) -> None:
        """Mend what broke by itself, and fail where nothing has gone on for long."""
        self.ground.nodes.replace_ended()
        with self.database.engine.connect() as connection:
            now = connection.execute(text(PROGRESS)).one()
        self._progress.note(now.closed, now.epochs)
        if self._progress.is_stalled:
            said = "\n".join([*self.said, *(one.heard() for one in self._listeners.values())])
            raise AssertionError(f"nothing went on for {STALLED_SECONDS:.0f} s:\n{said}")

    def end(self) -> None:
        """Sweep until every run is closed, whatever has become of the drivers.

        However long that takes: a slow machine is no fault, one that does nothing is.
        """
        while True:
            self.keep_going()
            living = self.living()
            if living:
                with suppress(subprocess.TimeoutExpired):
                    living[0].wait(0.5)
            elif self.is_trained():
                blamed = self._blamed()
                if not blamed:
                    self._end_tidy()
                    return
                self.given_up.update(blamed)
                self._ended_well = False
                self._progress = Progress()
                reopen(self.database.engine, list(blamed))
            else:
                self.sweep()

    def _end_tidy(self) -> None:
        """A worker killed after closing a run leaves its checkpoints to the next sweep."""
        if self.left_checkpoints():
            self.sweep().wait()
            self.living()

    def left_checkpoints(self) -> set[str]:
        """Runs that have checkpoints, but those set aside, which may go on from them."""
        with self.database.engine.connect() as connection:
            aside = set(connection.scalars(text("SELECT key FROM runs WHERE state = 'set_aside'")))
        return CheckpointStore(self.checkpoints).keys() - aside

    def processes(self) -> list[int]:
        """Drivers and APIs of this trial that live, also those that Ray started as jobs."""
        return with_variable(self.ground.commands, f"GROKTIME_HOME={self.folder}")

    def _blamed(self) -> dict[int, str]:
        with self.database.engine.connect() as connection:
            rows = connection.execute(text(GIVEN_UP)).all()
        blamed = {row.id: row.reason for row in rows}
        false = {run: why for run, why in blamed.items() if not DELIBERATE.match(why)}
        assert not false, f"runs failed for no true reason: {false}"
        return blamed


class Listener:
    """Reads what a command prints as it does: a full pipe would stop it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._lines: list[str] = []
        self._process = process
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as said:
            for line in said:
                self._lines.append(line)

    def heard(self) -> str:
        """What it has said so far."""
        return "".join(self._lines)

    def said(self) -> str:
        """All that it said; waits for its end."""
        self._thread.join()
        return self.heard()


def is_alive(pid: int) -> bool:
    """Whether the process lives on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def trial(
    ground: Ground, folder: Path, *, epochs: int, seeds: int = 3, located: bool = False
) -> Iterator[Trial]:
    """A fresh database with nothing trained; drivers left over are killed at the end."""
    folder.mkdir(parents=True)
    suite = folder / "chaos.yaml"
    grid = SUITE.format(prime=PRIME, epochs=epochs, seeds=seeds)
    suite.write_text(LOCATED if located else grid)
    with scratch_database(ground.postgres.server, TEMPLATE) as database:
        if ground.disk is not None:
            place = f"ALTER DATABASE {database.name} SET TABLESPACE {TABLESPACE}"
            ground.postgres.server.execute(place)
        made = Trial(ground, database, folder, str(suite), is_located=located)
        try:
            yield made
        finally:
            for pid in made.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not made.living() and not made.processes(), STALLED_SECONDS)
