"""The recorder: takes every epoch from training and writes it to Postgres, in batches, once.

Training hands rows to `record` and goes on; a thread writes them. The buffer is bounded: while
the database is away training continues until the buffer is full, then waits. What cannot be
written in the end raises in the training thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine

from groktime.db.claims import Claim, renew
from groktime.db.curve import (
    COLUMNS,
    METRICS,
    SET_ASIDE,
    Closing,
    Fenced,
    Part,
    RunProgress,
    absent_columns,
    encode,
    outcome,
    summarise,
    write,
)
from groktime.db.engine import RetryingConnection, first_line
from groktime.db.suites import RAISE_REVISIONS, spec_from_json
from groktime.service.errors import DatabaseError
from groktime.service.spec import COUNTS, Outcome

log = logging.getLogger(__name__)

FLUSH_ROWS = 5_000
FLUSH_SECONDS = 1.0
BUFFER_ROWS = 500_000  # 14 MB
GIVE_UP_SECONDS = 600.0
PROGRESS_SECONDS = 1.0


READ_CURVE = f"""
SELECT epoch, {", ".join(COLUMNS)} FROM curve
WHERE run_id = %(run)s AND epoch <= %(last)s ORDER BY epoch
"""


LOCK_UNFINISHED = """
SELECT r.id, r.spec, r.attempt, r.last_epoch, r.set_aside_epoch, (
    SELECT extract(epoch FROM sum(coalesce(a.ended_at, clock_timestamp()) - a.started_at))
    FROM attempts a WHERE a.run_id = r.id), a.device, a.engine, a.fingerprint
FROM runs r LEFT JOIN attempts a ON a.run_id = r.id AND a.attempt = r.attempt
WHERE r.id = ANY(%(ids)s) AND coalesce(r.set_aside_epoch, r.last_epoch) > 0
    AND (r.state IN ('pending', 'stale')
        OR r.state = 'running' AND starts_with(r.owner, %(owner)s))
ORDER BY r.id FOR UPDATE OF r
"""

END_SET_ASIDE = """
UPDATE attempts SET state = 'set_aside', ended_at = clock_timestamp()
WHERE run_id = %(run)s AND attempt = %(attempt)s AND state = 'running'
"""

RESTORE_SET_ASIDE = """
UPDATE runs SET state = 'set_aside', last_epoch = set_aside_epoch, closed_at = clock_timestamp(),
    owner = NULL, lease_until = NULL
WHERE id = %(run)s
"""


class Recording:
    """The state of one run in a recorder."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.progress = RunProgress(claim.spec)
        self.received = claim.resume_epoch  # last epoch given by training
        self.written = claim.resume_epoch  # last epoch in the database
        self.buffer: list[tuple[int, NDArray[Any]]] = []
        self.closing: Closing | None = None
        self.fenced = False
        self.closed = False
        self._absent = absent_columns(claim.spec)

    @property
    def open(self) -> bool:
        """Whether this attempt may still write."""
        return not (self.fenced or self.closed)

    def take(self) -> tuple[int, Part | None]:
        """Number of rows taken out of the buffer, and what is to be written of them."""
        buffer, self.buffer = self.buffer, []
        taken = sum(len(rows) for _, rows in buffer)
        if not self.open or not (buffer or self.closing):
            return taken, None
        claim = self.claim
        rows = [encode(claim.run_id, first, rows, self._absent) for first, rows in buffer]
        reached = self.written + taken
        return taken, Part(claim.run_id, claim.attempt, self.written, reached, rows, self.closing)

    def settle(self, part: Part) -> None:
        """The part is durable, unless the run turned out to be another's."""
        if not self.fenced:
            self.written = part.reached
            self.closed = part.closing is not None

    def reread(self, connection: Any) -> None:
        """Bring a resumed run's progress up to its resume epoch, from what is recorded."""
        claim = self.claim
        with connection.cursor() as cursor:
            self.progress = read_progress(cursor, claim)
        connection.rollback()


def set_aside_runs(
    engine: Engine, run_ids: Sequence[int], owner: str | None = None
) -> dict[int, int]:
    """Censor runs at the last epoch recorded of them; epochs by the ids of those it could.

    Taken are runs that nobody holds, and those whose owners' names begin with `owner`: what their
    workers still write is fenced, and they go on to other runs. Left out are runs without any
    epoch. One that came less far than when it was set aside before is as it was then.
    """
    driver: Any = engine.raw_connection()
    aside: dict[int, int] = {}
    try:
        connection = driver.driver_connection
        with connection.cursor() as cursor:
            # No name holds the character that an absent owner is given.
            cursor.execute(LOCK_UNFINISHED, {"ids": list(run_ids), "owner": owner or "\n"})
            for run_id, spec, attempt, last_epoch, before, seconds, *made in cursor.fetchall():
                claim = Claim(run_id, attempt, spec_from_json(spec), last_epoch)
                cursor.execute(END_SET_ASIDE, {"run": run_id, "attempt": attempt})
                if before is not None and last_epoch < before:
                    cursor.execute(RESTORE_SET_ASIDE, {"run": run_id})
                    aside[run_id] = before
                    continue
                device, trainer, fingerprint = (word or "unknown" for word in made)
                ended = Outcome(
                    state="set_aside",
                    stopped_by="set_aside",
                    epochs=last_epoch,
                    seconds=float(seconds or 0),
                    engine=trainer,
                    device=device,
                    fingerprint=fingerprint,
                )
                progress = read_progress(cursor, claim)
                cursor.execute(SET_ASIDE, summarise(claim, progress, ended).summary)
                aside[run_id] = last_epoch
            if aside:
                cursor.execute(RAISE_REVISIONS, {"runs": list(aside)})
        connection.commit()
    finally:
        driver.close()
    return aside


def read_progress(cursor: Any, claim: Claim) -> RunProgress:
    """A run's progress up to the claim's resume epoch, from its curve."""
    cursor.execute(READ_CURVE, {"run": claim.run_id, "last": claim.resume_epoch})
    rows = cursor.fetchall()
    if [row[0] for row in rows] != list(range(1, claim.resume_epoch + 1)):
        raise DatabaseError(
            f"run {claim.run_id} cannot resume from epoch {claim.resume_epoch}: its curve has "
            f"{len(rows)} rows up to there; see `groktime db check`"
        )
    missing = tuple(-1 if name in COUNTS else np.nan for name in COLUMNS)
    filled = [
        tuple(m if v is None else v for v, m in zip(row[1:], missing, strict=True)) for row in rows
    ]
    progress = RunProgress(claim.spec)
    progress.add(1, np.array(filled, dtype=METRICS))
    return progress


class Recorder:
    """Writes the curves and summaries of one worker's claims over one connection.

    Runs are named by their position in `claims`. Use as a context manager: leaving it flushes,
    or after an exception stops without waiting.
    """

    def __init__(
        self,
        engine: Engine,
        claims: Sequence[Claim],
        *,
        lease_seconds: float,
        flush_rows: int = FLUSH_ROWS,
        buffer_rows: int = BUFFER_ROWS,
        give_up_seconds: float = GIVE_UP_SECONDS,
    ) -> None:
        self._lease = lease_seconds
        self._flush_rows = flush_rows
        self._buffer_rows = buffer_rows
        self._runs = [Recording(claim) for claim in claims]
        self._changed = threading.Condition()
        self._rows = 0  # buffered and in flight
        self._asked = 0  # flushes asked for
        self._served = 0  # flushes of which everything is durable
        self._stopping = False
        self._error: BaseException | None = None
        self._progress_at = 0.0
        self._renewed_at = time.monotonic()  # when all leases were last extended
        self._engine, self._give_up_seconds = engine, give_up_seconds
        self._database = RetryingConnection(engine, give_up_seconds, self._pause)
        self._reread(self._runs)
        self._thread = threading.Thread(target=self._write_loop, name="recorder", daemon=True)
        self._thread.start()

    def _reread(self, runs: Sequence[Recording]) -> None:
        """Read what resumed runs have recorded, over a connection that the thread does not use."""
        database = RetryingConnection(self._engine, self._give_up_seconds, self._pause)
        for run in runs:
            if run.claim.resume_epoch:
                database.persist(run.reread)
        database.drop()

    # What training calls.

    def add(self, claims: Sequence[Claim]) -> None:
        """Record further runs, numbered after those there are."""
        runs = [Recording(claim) for claim in claims]
        self._reread(runs)
        with self._changed:
            self._runs += runs

    def record(self, run: int, first_epoch: int, metrics: NDArray[Any]) -> bool:
        """Take METRICS rows of consecutive epochs; False: the run is another worker's now."""
        recording = self._runs[run]
        rows = _copied(metrics)
        with self._changed:
            self._wait_for(lambda: self._rows + len(rows) <= self._buffer_rows or self._rows == 0)
            if not recording.open:
                return False
            if first_epoch != recording.received + 1:
                raise ValueError(
                    f"run {recording.claim.run_id}: epoch {first_epoch} follows "
                    f"{recording.received}"
                )
            recording.progress.add(first_epoch, rows)
            if len(rows):
                recording.buffer.append((first_epoch, rows))
                recording.received += len(rows)
                self._rows += len(rows)
                if self._rows >= self._flush_rows:
                    self._changed.notify_all()
        return True

    def flush(self) -> None:
        """Return when everything recorded so far is durable."""
        with self._changed:
            self._asked += 1
            mine = self._asked
            self._changed.notify_all()
            self._wait_for(lambda: self._served >= mine)

    def finish(self, run: int, outcome: Outcome) -> None:
        """Close the run: its summary is durable, with its last rows, when this returns.

        A run that was taken over meanwhile is left to its new owner (see `owns`).
        """
        recording = self._runs[run]
        with self._changed:
            if not recording.open:
                return
            if outcome.epochs != recording.received:
                raise ValueError(
                    f"run {recording.claim.run_id} ends at epoch {outcome.epochs}, but "
                    f"{recording.received} were recorded"
                )
            recording.closing = summarise(recording.claim, recording.progress, outcome)
        self.flush()

    def owns(self, run: int) -> bool:
        """Whether no other attempt is known to have taken the run over."""
        return not self._runs[run].fenced

    def close(self) -> None:
        """Flush and stop writing; runs not finished keep their lease until it ends."""
        try:
            if self._error is None:
                self.flush()
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop writing without waiting for what is buffered."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()
        self._database.drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.stop()

    def _wait_for(self, ready: Any) -> None:
        """Wait under the lock; a writer that gave up ends the wait with its error."""
        self._changed.wait_for(lambda: self._error is not None or self._stopping or ready())
        if isinstance(self._error, MemoryError):
            # No fault of the database: a worker that starts anew may have enough.
            raise MemoryError("no memory to write results") from self._error
        if self._error is not None:
            raise DatabaseError(
                f"results cannot be written: {first_line(self._error)}"
            ) from self._error
        if self._stopping:
            raise DatabaseError("results cannot be written: the recorder was stopped")

    # What the thread does.

    def _write_loop(self) -> None:
        try:
            while self._write_once():
                pass
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
            log.error("results cannot be written: %s", first_line(error))

    def _write_once(self) -> bool:
        with self._changed:
            # Without rows the thread still wakes often enough to renew the leases.
            timeout = min(FLUSH_SECONDS, self._lease / 3) if self._rows else self._lease / 3
            self._changed.wait_for(
                lambda: (
                    self._stopping or self._asked > self._served or self._rows >= self._flush_rows
                ),
                timeout,
            )
            if self._stopping:
                return False
            serving = self._asked
            parts, taken = self._take()
        if parts:
            self._write(parts)
        with self._changed:
            for run, part in parts:
                run.settle(part)
        # After what was closed is known to be: a closed run has no lease, and would look lost.
        if time.monotonic() - self._renewed_at >= self._lease / 3:
            self._renew()
        with self._changed:
            self._rows -= taken
            self._served = serving
            self._changed.notify_all()
        return True

    def _take(self) -> tuple[list[tuple[Recording, Part]], int]:
        parts, taken = [], 0
        for run in self._runs:
            rows, part = run.take()
            taken += rows
            if part is not None:
                parts.append((run, part))
        return parts, taken

    def _write(self, parts: list[tuple[Recording, Part]]) -> None:
        """Write until it is durable, leaving out runs that turn out to be fenced."""
        unknown = False

        def work(connection: Any) -> None:
            nonlocal unknown
            if unknown:
                committed, fenced = outcome(connection, _owned(parts))
                self._fence(parts, fenced)
                if committed:
                    return
                unknown = False
            while left := _owned(parts):
                try:
                    # Until the commit has been answered, a lost connection leaves it open.
                    unknown = True
                    write(connection, left, self._lease, progress=self._progress_due())
                    return
                except Fenced as lost:
                    unknown = False
                    self._fence(parts, lost.run_ids)

        self._database.persist(work)

    def _renew(self) -> None:
        """Extend all leases, also of runs that wait for their turn and have no rows yet."""
        with self._changed:
            owned = [run for run in self._runs if run.open]

        def work(connection: Any) -> None:
            kept = renew(connection, [run.claim for run in owned], self._lease)
            for run in owned:
                if run.claim.run_id not in kept:
                    self._lose(run)

        if owned:
            self._database.persist(work)
        self._renewed_at = time.monotonic()

    def _pause(self, seconds: float) -> None:
        with self._changed:
            if self._changed.wait_for(lambda: self._stopping, seconds):
                raise DatabaseError("the recorder was stopped while the database was away")

    def _progress_due(self) -> bool:
        due = time.monotonic() - self._progress_at >= PROGRESS_SECONDS
        if due:
            self._progress_at = time.monotonic()
        return due

    def _fence(self, parts: list[tuple[Recording, Part]], run_ids: set[int]) -> None:
        for run, part in parts:
            if part.run_id in run_ids:
                self._lose(run)

    def _lose(self, run: Recording) -> None:
        if not run.fenced:
            log.warning("run %d belongs to another attempt now", run.claim.run_id)
        run.fenced = True


def _owned(parts: list[tuple[Recording, Part]]) -> list[Part]:
    return [part for run, part in parts if not run.fenced]


def _copied(metrics: NDArray[Any]) -> NDArray[Any]:
    """A copy in our own type: the trainer may reuse its array."""
    rows = np.empty(len(metrics), dtype=METRICS)
    for name in COLUMNS:
        rows[name] = metrics[name]
    return rows
