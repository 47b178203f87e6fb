"""A run's curve: its metrics, PostgreSQL's binary COPY rows, first passages of thresholds, and the
flush that writes them: compare-and-set, COPY and the closing of runs in one transaction.

Rows are built by numpy without touching single values. First passages are kept while a run is
recorded, so that closing it needs no look at its curve.

`last_epoch` moves in the same transaction as the rows that it counts, and only from the value
this attempt left it at. So a flush that is repeated after an unknown outcome finds out from
`last_epoch` whether it happened, and an attempt that lost its run finds no row to move.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groktime.db.claims import WITHOUT_SUMMARY, Claim
from groktime.db.suites import NOTIFY_PROGRESS, RAISE_REVISIONS
from groktime.service import spec
from groktime.service.spec import COUNTS, LADDER, Outcome, RunSpec

COLUMNS = tuple(name for name, _ in spec.METRICS)
METRICS = np.dtype(list(spec.METRICS))

COPY_STATEMENT = f"COPY curve (run_id, epoch, {', '.join(COLUMNS)}) FROM STDIN WITH BINARY"
HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)  # signature, no flags, no extension
TRAILER = b"\xff\xff"
NULL = -1  # as the length of a field


def absent_columns(run: RunSpec) -> frozenset[str]:
    """What a run does not record: NULL in the curve, unlike a NaN it measured."""
    absent: set[str] = set()
    if run.data.n_val == 0:
        absent |= {"val_loss", "val_correct"}
    if not run.eval_train:
        absent.add("train_correct_eval")
    if not run.records_bits:
        absent.add("bits")
    return frozenset(absent)


@lru_cache(maxsize=16)
def _row_type(absent: frozenset[str]) -> np.dtype[Any]:
    fields: list[tuple[str, str]] = [("fields", ">i2")]
    for name in ("run_id", "epoch", *COLUMNS):
        fields.append((f"{name}_length", ">i4"))
        if name not in absent:
            fields.append((name, ">f4" if name in COLUMNS and name not in COUNTS else ">i4"))
    return np.dtype(fields)


def encode(
    run_id: int, first_epoch: int, metrics: NDArray[Any], absent: frozenset[str]
) -> NDArray[Any]:
    """Rows of consecutive epochs of one run; their bytes go into COPY as they are."""
    rows = np.empty(len(metrics), dtype=_row_type(absent))
    rows["fields"] = 2 + len(COLUMNS)
    rows["run_id_length"] = rows["epoch_length"] = 4
    rows["run_id"] = run_id
    rows["epoch"] = np.arange(first_epoch, first_epoch + len(metrics))
    for name in COLUMNS:
        if name in absent:
            rows[f"{name}_length"] = NULL
        else:
            rows[f"{name}_length"] = 4
            rows[name] = metrics[name]
    return rows


def copy_stream(parts: Iterable[NDArray[Any]]) -> bytes:
    """The whole input of one COPY."""
    return b"".join([HEADER, *(part.tobytes() for part in parts), TRAILER])


# clock, column of counts, the loss that must be finite for the count to mean anything
CLOCKS = (
    ("online", "train_correct", "train_loss"),
    ("eval", "train_correct_eval", "train_loss"),
    ("val", "val_correct", "val_loss"),
)


class FirstPassages:
    """First epochs at which a clock reached each threshold of the ladder."""

    def __init__(self, n: int) -> None:
        """`n`: examples of the clock's set; 0 when the run has no such clock."""
        self._needed = np.array([(k * n + 999) // 1000 for k in LADDER], dtype=np.int64)
        self._reached = 0 if n else len(LADDER)  # the ladder is climbed from below
        self._epochs: list[int | None] = [None] * len(LADDER)

    def add(self, first_epoch: int, correct: NDArray[Any], loss: NDArray[Any]) -> None:
        """Take the counts of consecutive epochs; epochs with a non-finite loss never count."""
        if self._reached == len(LADDER) or correct.max() < self._needed[self._reached]:
            return
        best = np.maximum.accumulate(np.where(np.isfinite(loss), correct, -1))
        positions = np.searchsorted(best, self._needed[self._reached :])
        for position in positions[positions < len(best)]:
            self._epochs[self._reached] = first_epoch + int(position)
            self._reached += 1

    @property
    def epochs(self) -> list[int | None]:
        """One entry a threshold, None where it has not been reached."""
        return list(self._epochs)


class RunProgress:
    """What a run's summary needs, kept epoch by epoch."""

    def __init__(self, spec: RunSpec) -> None:
        sizes = {
            "online": spec.data.n_train,
            "eval": spec.data.n_train if spec.eval_train else 0,
            "val": spec.data.n_val,
        }
        self.passages = {clock: FirstPassages(sizes[clock]) for clock, _, _ in CLOCKS}
        self.best_train_loss: float | None = None
        self.last: NDArray[Any] | None = None  # metrics of the last epoch

    def add(self, first_epoch: int, metrics: NDArray[Any]) -> None:
        """Take the metrics of consecutive epochs."""
        if not len(metrics):
            return
        for clock, counts, loss in CLOCKS:
            self.passages[clock].add(first_epoch, metrics[counts], metrics[loss])
        losses = metrics["train_loss"]
        finite = losses[np.isfinite(losses)]
        if len(finite):
            least = float(finite.min())
            if self.best_train_loss is None or least < self.best_train_loss:
                self.best_train_loss = least
        self.last = metrics[-1].copy()


@dataclass(frozen=True)
class Closing:
    """A run to be closed in the transaction of its last rows."""

    claim: Claim
    outcome: Outcome
    summary: dict[str, Any]


# The compare-and-set on last_epoch of the same transaction has already locked the row and found
# it ours; a run that closes without new rows is checked here.
CLOSE = """
UPDATE runs SET state = %(state)s, reason = %(reason)s, stopped_by = %(stopped_by)s,
    owner = NULL, lease_until = NULL, closed_at = clock_timestamp(),
    first_online = %(first_online)s, first_eval = %(first_eval)s, first_val = %(first_val)s,
    final_train_loss = %(train_loss)s, final_train_correct = %(train_correct)s,
    final_train_correct_eval = %(train_correct_eval)s, final_val_loss = %(val_loss)s,
    final_val_correct = %(val_correct)s, final_weight_norm = %(weight_norm)s,
    bits = %(bits)s, best_train_loss = %(best_train_loss)s, seconds = %(seconds)s,
    device = %(device)s, engine = %(engine)s, fingerprint = %(fingerprint)s,
    thinned = false, set_aside_epoch = CASE WHEN %(state)s = 'set_aside' THEN last_epoch END
WHERE id = %(run_id)s AND attempt = %(attempt)s AND last_epoch = %(epochs)s
"""
CLOSE_RUN = CLOSE + "AND state = 'running'"
# Locked by whoever sets it aside, with its state checked.
SET_ASIDE = CLOSE + "AND state IN ('pending', 'stale', 'running')"

# Set aside again before it came as far as the first time: what was known then still is.
SET_ASIDE_AGAIN = """
UPDATE runs SET state = 'set_aside', last_epoch = set_aside_epoch, owner = NULL,
    lease_until = NULL, closed_at = clock_timestamp()
WHERE id = %(run_id)s AND attempt = %(attempt)s AND state = 'running'
"""

CLOSE_ATTEMPT = """
UPDATE attempts SET state = %(state)s, reason = %(reason)s, ended_at = clock_timestamp(),
    device = %(device)s, engine = %(engine)s, fingerprint = %(fingerprint)s
WHERE run_id = %(run_id)s AND attempt = %(attempt)s
"""


def summarise(claim: Claim, progress: RunProgress, outcome: Outcome) -> Closing:
    """Parameters of the closing statements; reals stay non-finite where they were."""
    summary: dict[str, Any] = {
        "run_id": claim.run_id,
        "attempt": claim.attempt,
        "state": outcome.state,
        "reason": (outcome.reason or "unknown") if outcome.state == "failed" else None,
        "stopped_by": outcome.stopped_by,
        "epochs": outcome.epochs,
        "seconds": outcome.seconds,
        "device": outcome.device,
        "engine": outcome.engine,
        "fingerprint": outcome.fingerprint,
        "best_train_loss": progress.best_train_loss,
    }
    for clock, passages in progress.passages.items():
        summary[f"first_{clock}"] = passages.epochs
    absent = absent_columns(claim.spec)
    last = progress.last
    for name in ("train_loss", "val_loss", "bits", "weight_norm", *COUNTS):
        if last is None or name in absent:
            summary[name] = None
        else:
            summary[name] = int(last[name]) if name in COUNTS else float(last[name])
    return Closing(claim, outcome, summary)


ADVANCE = """
UPDATE runs r SET last_epoch = t.reached,
    lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
FROM unnest(%(ids)s::int[], %(attempts)s::int[], %(expected)s::int[], %(reached)s::int[])
    AS t(id, attempt, expected, reached)
WHERE r.id = t.id AND r.attempt = t.attempt AND r.state = 'running'
    AND r.last_epoch = t.expected
RETURNING r.id, r.set_aside_epoch
"""

# Rows of a run that was set aside stay until the new attempt has its own for their epochs.
REPLACE_ROWS = """
DELETE FROM curve c USING unnest(%(ids)s::int[], %(expected)s::int[], %(reached)s::int[])
    AS t(id, expected, reached)
WHERE c.run_id = t.id AND c.epoch > t.expected AND c.epoch <= t.reached
"""

FORGET_BEYOND = "DELETE FROM curve WHERE run_id = %(run_id)s AND epoch > %(epochs)s"

FORGET_SUMMARIES = f"UPDATE runs SET {WITHOUT_SUMMARY} WHERE id = ANY(%(ids)s)"

# Locks, and so waits for a commit of the lost connection that the server is still at: read past
# it, the flush would look undone, and doing it again would then look fenced.
READ_FENCES = """
SELECT id, attempt, state, last_epoch FROM runs WHERE id = ANY(%(ids)s) ORDER BY id FOR UPDATE
"""


@dataclass
class Part:
    """One run's share of a flush."""

    run_id: int
    attempt: int
    expected: int  # last_epoch before
    reached: int  # last_epoch after
    rows: list[NDArray[Any]] = field(default_factory=list)
    closing: Closing | None = None


class Fenced(Exception):
    """Some runs of the flush belong to another attempt; nothing was written."""

    def __init__(self, run_ids: set[int]) -> None:
        super().__init__(run_ids)
        self.run_ids = run_ids


def write(
    connection: Any, parts: Sequence[Part], lease_seconds: float, *, progress: bool = False
) -> None:
    """Write all parts and commit, or raise with nothing written.

    `connection` is psycopg2's. With `progress` listeners hear of the first run that moved.
    """
    with connection.cursor() as cursor:
        cursor.execute(ADVANCE, _fences(parts) | {"lease": lease_seconds})
        owned: dict[int, int | None] = dict(cursor.fetchall())
        lost = {part.run_id for part in parts} - set(owned)
        if lost:
            connection.rollback()
            raise Fenced(lost)
        aside = {run_id: epoch for run_id, epoch in owned.items() if epoch is not None}
        reopened = [part for part in parts if part.run_id in aside]
        overtaken = [
            part.run_id
            for part in reopened
            if part.closing is None and part.reached > aside[part.run_id]
        ]
        if reopened:
            cursor.execute(REPLACE_ROWS, _fences(reopened))
        if overtaken:
            cursor.execute(FORGET_SUMMARIES, {"ids": overtaken})
        rows = [rows for part in parts for rows in part.rows]
        if rows:
            cursor.copy_expert(COPY_STATEMENT, io.BytesIO(copy_stream(rows)))
        closings = [part.closing for part in parts if part.closing is not None]
        for closing in closings:
            _close(cursor, closing, aside.get(closing.claim.run_id))
        moving = next((p.run_id for p in parts if p.rows and p.closing is None), None)
        if progress and moving is not None:
            cursor.execute(NOTIFY_PROGRESS, {"run": moving})
        changed = [c.claim.run_id for c in closings] + overtaken
        if changed:
            cursor.execute(RAISE_REVISIONS, {"runs": changed})
    connection.commit()


def _close(cursor: Any, closing: Closing, set_aside_epoch: int | None) -> None:
    """Close a run; one that had been set aside before at `set_aside_epoch` loses nothing by it."""
    if set_aside_epoch is not None:
        if closing.outcome.state == "set_aside" and closing.outcome.epochs < set_aside_epoch:
            cursor.execute(SET_ASIDE_AGAIN, closing.summary)
            cursor.execute(CLOSE_ATTEMPT, closing.summary)
            return
        cursor.execute(FORGET_BEYOND, closing.summary)
    cursor.execute(CLOSE_RUN, closing.summary)
    cursor.execute(CLOSE_ATTEMPT, closing.summary)


def outcome(connection: Any, parts: Sequence[Part]) -> tuple[bool, set[int]]:
    """After a lost connection: whether the flush was committed, and which runs are fenced now."""
    with connection.cursor() as cursor:
        cursor.execute(READ_FENCES, {"ids": [part.run_id for part in parts]})
        found = {row[0]: row[1:] for row in cursor.fetchall()}
    connection.rollback()
    committed = False
    fenced: set[int] = set()
    for part in parts:
        attempt, state, last_epoch = found.get(part.run_id, (None, None, None))
        closed = part.closing is not None and state == part.closing.outcome.state
        if attempt != part.attempt or not (state == "running" or closed):
            fenced.add(part.run_id)
        elif closed or (last_epoch == part.reached != part.expected):
            committed = True
    return committed, fenced


def _fences(parts: Sequence[Part]) -> dict[str, list[int]]:
    return {
        "ids": [part.run_id for part in parts],
        "attempts": [part.attempt for part in parts],
        "expected": [part.expected for part in parts],
        "reached": [part.reached for part in parts],
    }
