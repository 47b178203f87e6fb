"""Curve rows in PostgreSQL's binary COPY format, built by numpy without touching single values."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.spec import RunSpec

# The metrics of an epoch, in the order of the curve table; counts are 4-byte integers.
COUNTS = ("train_correct", "train_correct_eval", "val_correct")
COLUMNS = (
    "train_loss",
    "train_correct",
    "train_correct_eval",
    "val_loss",
    "val_correct",
    "bits",
    "weight_norm",
)
METRICS = np.dtype([(name, np.int32 if name in COUNTS else np.float32) for name in COLUMNS])

COPY_STATEMENT = f"COPY curve (run_id, epoch, {', '.join(COLUMNS)}) FROM STDIN WITH BINARY"
HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)  # signature, no flags, no extension
TRAILER = b"\xff\xff"
NULL = -1  # as the length of a field


def absent_columns(spec: RunSpec) -> frozenset[str]:
    """What a run of this spec does not record: NULL in the curve, unlike a NaN it measured."""
    absent: set[str] = set()
    if spec.data.n_val == 0:
        absent |= {"val_loss", "val_correct"}
    if not spec.eval_train:
        absent.add("train_correct_eval")
    if not spec.records_bits:
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
