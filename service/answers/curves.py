"""A run's epochs: all of them, at given epochs, or thinned out, and then said so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from sqlalchemy import Connection, text

from service.answers.making import finite
from service.answers.runs import RunRow, run_detail

Reals = tuple[float | None, ...]

AT_EPOCHS = """
SELECT epoch, train_loss, train_correct, train_correct_eval, val_loss, val_correct, bits,
       weight_norm
FROM curve WHERE run_id = :run AND (CAST(:epochs AS integer[]) IS NULL OR epoch = ANY(:epochs))
ORDER BY epoch
"""


@dataclass(frozen=True, kw_only=True)
class RunCurve:
    """Parallel columns, one entry an epoch; None where a run does not record a column.

    `sampled`: these are not all recorded epochs, but `shown` of `recorded`.
    """

    run: RunRow
    recorded: Annotated[int, Field(description="epochs in the database")]
    shown: int
    sampled: bool
    epoch: tuple[int, ...]
    train_loss: Reals
    train_accuracy: Annotated[Reals, Field(description="online clock")]
    train_accuracy_eval: Reals
    val_loss: Reals
    val_accuracy: Reals
    bits: Reals
    weight_norm: Reals


def run_curve(
    connection: Connection,
    run_id: int,
    *,
    epochs: Sequence[int] | None = None,
    points: int | None = None,
) -> RunCurve:
    """The curve of one run: at `epochs`, or thinned to about `points`, or all of it.

    Thinned curves keep the first and the last epoch and are spaced evenly in log epoch, since
    that is how they are looked at.
    """
    run = run_detail(connection, run_id).run
    wanted = list(epochs) if epochs is not None else None
    if wanted is None and points is not None and points < run.last_epoch:
        wanted = thinned(run.last_epoch, points)
    asked = {"run": run_id, "epochs": wanted}
    rows = connection.execute(text(AT_EPOCHS), asked).mappings().all()
    return RunCurve(
        run=run,
        recorded=run.last_epoch,
        shown=len(rows),
        sampled=wanted is not None and len(rows) < run.last_epoch,
        epoch=tuple(row["epoch"] for row in rows),
        train_loss=_reals(rows, "train_loss"),
        train_accuracy=_shares(rows, "train_correct", run.n_train),
        train_accuracy_eval=_shares(rows, "train_correct_eval", run.n_train),
        val_loss=_reals(rows, "val_loss"),
        val_accuracy=_shares(rows, "val_correct", run.n_val),
        bits=_reals(rows, "bits"),
        weight_norm=_reals(rows, "weight_norm"),
    )


def thinned(last: int, points: int) -> list[int]:
    """About `points` epochs from 1 to `last`, even in log epoch, each at most once."""
    grid = np.geomspace(1, last, max(points, 2))
    return [int(epoch) for epoch in np.unique(np.round(grid))]


def _reals(rows: Sequence[Any], name: str) -> Reals:
    return tuple(finite(row[name]) for row in rows)


def _shares(rows: Sequence[Any], name: str, n: int) -> Reals:
    return tuple(None if row[name] is None or not n else row[name] / n for row in rows)
