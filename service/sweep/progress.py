"""How far a sweep is: a live bar on a terminal, a line every ten seconds in a log.

What counts is read from the database, not heard from Ray, so it is right whoever trains.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from sqlalchemy import Engine, text
from sqlalchemy.exc import SQLAlchemyError

from groktime.db.schema import RUN_STATES
from groktime.service.words import duration

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
        self._first = snapshot(self._engine, self._weights)
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
