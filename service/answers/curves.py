"""A run's epochs: all of them, at given epochs, or thinned out, and then said so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from sqlalchemy import Connection

from db.queries.curves import accuracies, curves_frame
from service.answers.making import finite
from service.answers.runs import RunRow, run_detail

Reals = tuple[float | None, ...]

COLUMNS = (
    "train_loss",
    "train_accuracy",
    "train_accuracy_eval",
    "val_loss",
    "val_accuracy",
    "bits",
    "weight_norm",
)


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
    """The curve of one run: at `epochs`, or thinned to about `points`, or all of it."""
    run = run_detail(connection, run_id).run
    frame = curves_frame(
        connection,
        [run_id],
        first=min(epochs) if epochs else 1,
        last=max(epochs) if epochs else None,
        max_points=points,
    )
    if epochs:
        frame = frame[frame["epoch"].isin(list(epochs))]
    shares = accuracies(frame, run.n_train, run.n_val)
    columns = {name: tuple(finite(v) for v in shares[name].tolist()) for name in COLUMNS}
    return RunCurve(
        run=run,
        recorded=run.last_epoch,
        shown=len(shares),
        sampled=len(shares) < run.last_epoch,
        epoch=tuple(int(epoch) for epoch in shares["epoch"]),
        **columns,
    )
