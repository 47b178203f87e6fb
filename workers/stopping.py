"""When a curve reaches a threshold, and when a run ends, whatever the size of the blocks."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groktime.service.spec import (
    FixedStop,
    PatienceStop,
    RunSpec,
    StoppedBy,
    ThresholdStop,
    needed,
)


def first_passage(counts: NDArray[np.int32], threshold: float, examples: int) -> int | None:
    """The first epoch, from 1, with enough correct answers; None if there is none."""
    reached = np.flatnonzero(counts >= needed(threshold, examples))
    return int(reached[0]) + 1 if len(reached) else None


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
    stop, finite = spec.stop, np.isfinite(metrics["train_loss"])
    if spec.data.n_val > 0:
        finite &= np.isfinite(metrics["val_loss"])
    last = max(0, stop.max_epochs - first_epoch)
    ends: list[tuple[int | None, StoppedBy]] = [(_first(~finite), "diverged")]
    if isinstance(stop, ThresholdStop):
        clocks = _clocks(spec, stop, watch, metrics)
        trained = clocks["online_reached"] & (clocks["eval_reached"] | (not spec.eval_train))
        ends.append((_first(trained & (clocks["val_reached"] | (stop.val is None))), "threshold"))
    elif isinstance(stop, PatienceStop):
        best, without = _improvements(stop, watch, metrics["train_loss"])
        ends.append((_first(without >= stop.patience), "patience"))
    cap: StoppedBy = "fixed" if isinstance(stop, FixedStop) else "cap"
    ends.append((last if last < len(metrics) else None, cap))
    # Of reasons in the same epoch the first counts.
    at, why = min(
        ((at, why) for at, why in ends if at is not None),
        key=lambda end: end[0],
        default=(len(metrics) - 1, None),
    )
    if len(metrics) and isinstance(stop, ThresholdStop):
        watch = replace(watch, **{name: bool(reached[at]) for name, reached in clocks.items()})
    elif len(metrics) and isinstance(stop, PatienceStop):
        watch = replace(watch, best_loss=float(best[at]), epochs_without=int(without[at]))
    return watch, None if why is None else at + 1, why


def _first(found: NDArray[np.bool_]) -> int | None:
    """The first place that holds, if any does."""
    return int(found.argmax()) if found.any() else None


def _clocks(
    spec: RunSpec, stop: ThresholdStop, watch: Watch, metrics: NDArray[Any]
) -> dict[str, NDArray[np.bool_]]:
    """Whether each clock has reached its threshold by each epoch, by the name a Watch gives it."""
    train = needed(stop.train, spec.data.n_train)
    val = math.inf if stop.val is None else needed(stop.val, spec.data.n_val)
    reached = {
        "online_reached": metrics["train_correct"] >= train,
        "eval_reached": metrics["train_correct_eval"] >= train,
        "val_reached": metrics["val_correct"] >= val,
    }
    return {
        name: np.logical_or.accumulate(now) | getattr(watch, name) for name, now in reached.items()
    }


def _improvements(
    stop: PatienceStop, watch: Watch, losses: NDArray[np.float32]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """After each epoch the loss last counted as an improvement, and the epochs since."""
    best, without = watch.best_loss, watch.epochs_without
    bests, withouts = [], []
    for loss in losses.tolist():
        if loss < best - stop.min_improvement:
            best, without = loss, 0
        else:
            without += 1
        bests.append(best)
        withouts.append(without)
    return np.array(bests), np.array(withouts, dtype=np.int64)
