"""When a run ends: its stop rule read epoch by epoch, whatever the size of the blocks."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from service.spec import FixedStop, PatienceStop, RunSpec, ThresholdStop

StoppedBy = Literal["threshold", "patience", "cap", "fixed", "diverged"]


def required(threshold: float, examples: int) -> int:
    """The least count of correct answers that reaches the threshold, ceil(τ · n) exactly.

    τ is taken as the decimal it was written as: 0.99 of 100 is 99, though the float is not.
    """
    return math.ceil(Fraction(repr(threshold)) * examples)


@dataclass(frozen=True)
class Watch:
    """What a stop rule has seen so far; a checkpoint carries it."""

    online_reached: bool = False
    eval_reached: bool = False
    val_reached: bool = False
    best_loss: float = math.inf
    epochs_without: int = 0

    def as_json(self) -> dict[str, Any]:
        """Plain values; JSON has no infinity, so no best loss yet is None."""
        values = asdict(self)
        return {**values, "best_loss": None if math.isinf(self.best_loss) else self.best_loss}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Watch:
        best = values["best_loss"]
        return cls(**{**values, "best_loss": math.inf if best is None else best})


def examine(
    spec: RunSpec, watch: Watch, first_epoch: int, metrics: NDArray[Any]
) -> tuple[Watch, int | None, StoppedBy | None]:
    """Read consecutive epochs from first_epoch on until the run ends.

    Returns what has been seen, and, if the run ends among them, after how many of them and why.
    """
    for i, row in enumerate(metrics):
        watch = _see(spec, watch, row)
        stopped = _stopped(spec, watch, first_epoch + i, row)
        if stopped is not None:
            return watch, i + 1, stopped
    return watch, None, None


def _see(spec: RunSpec, watch: Watch, row: Any) -> Watch:
    stop, data = spec.stop, spec.data
    if isinstance(stop, ThresholdStop):
        train = required(stop.train, data.n_train)
        val = math.inf if stop.val is None else required(stop.val, data.n_val)
        return replace(
            watch,
            online_reached=watch.online_reached or bool(row["train_correct"] >= train),
            eval_reached=watch.eval_reached or bool(row["train_correct_eval"] >= train),
            val_reached=watch.val_reached or bool(row["val_correct"] >= val),
        )
    if isinstance(stop, PatienceStop):
        loss = float(row["train_loss"])
        if loss < watch.best_loss - stop.min_improvement:
            return replace(watch, best_loss=loss, epochs_without=0)
        return replace(watch, epochs_without=watch.epochs_without + 1)
    return watch


def _stopped(spec: RunSpec, watch: Watch, epoch: int, row: Any) -> StoppedBy | None:
    stop = spec.stop
    validated = spec.data.n_val > 0
    if not np.isfinite(row["train_loss"]) or (validated and not np.isfinite(row["val_loss"])):
        return "diverged"
    if isinstance(stop, ThresholdStop):
        trained = watch.online_reached and (watch.eval_reached or not spec.eval_train)
        if trained and (stop.val is None or watch.val_reached):
            return "threshold"
    if isinstance(stop, PatienceStop) and watch.epochs_without >= stop.patience:
        return "patience"
    if epoch >= stop.max_epochs:
        return "fixed" if isinstance(stop, FixedStop) else "cap"
    return None
