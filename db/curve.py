"""A run's curve: its metrics, PostgreSQL's binary COPY rows, and first passages of thresholds.

Rows are built by numpy without touching single values. First passages are kept while a run is
recorded, so that closing it needs no look at its curve.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groktime.service import spec
from groktime.service.spec import COUNTS, LADDER, RunSpec

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
