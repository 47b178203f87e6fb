"""Train runs as one stack: blocks of epochs, stop rules, checkpoints, and a sink for metrics.

Nothing that is recorded depends on the size of a block: a run's metrics are cut at the epoch its
stop rule names, even when the engine has gone a few epochs further.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from groktime.service.errors import CheckpointError
from groktime.service.spec import (
    FixedStop,
    Outcome,
    PatienceStop,
    RunSpec,
    StoppedBy,
    ThresholdStop,
    needed,
)
from groktime.workers.checkpoints import CheckpointStore, CheckpointWriter
from groktime.workers.devices import resolve_name
from groktime.workers.engines import Engine, Stack, State, check_stack, choose_engine, make_stack
from groktime.workers.model import initial_state

if TYPE_CHECKING:
    from groktime.workers.graphed import StepMode


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


BLOCK_SECONDS = 0.5  # how long the device trains between two readings
CHECKPOINT_SECONDS = 30.0
CHECKPOINT_SHARE = 0.02  # of its time training may stand still for states to be copied

REFILL_SHARE = 0.25  # of a stack's places must be free before others are taken into them

# Up to so many further runs of the stack's shape, each with the epoch it goes on from. The sink
# knows them by the numbers that follow those it has.
Refill = Callable[[int], Sequence[tuple[RunSpec, int]]]

# Called after every block for each run: its index, epochs done and the last epoch's METRICS row.
Progress = Callable[[int, int, Any], None]


class Sink(Protocol):
    """Where metrics go. `run` is the index of the run among the specs given to train."""

    def record(self, run: int, first_epoch: int, metrics: NDArray[Any]) -> bool:
        """METRICS of consecutive epochs; False: the run has another owner now, drop it."""
        ...

    def flush(self) -> None:
        """When it returns, everything recorded is durable."""
        ...

    def finish(self, run: int, outcome: Outcome) -> None:
        """The run has ended; all its metrics have been recorded before."""
        ...

    def owns(self, run: int) -> bool:
        """False: the run is known to have another owner; nothing of it may be touched."""
        ...


class CurveSink:
    """Keeps every run's curve in memory."""

    def __init__(self, runs: int) -> None:
        self._blocks: list[list[NDArray[Any]]] = [[] for _ in range(runs)]

    def record(self, run: int, first_epoch: int, metrics: NDArray[Any]) -> bool:
        self._blocks[run].append(metrics.copy())
        return True

    def flush(self) -> None:
        """Memory needs none."""

    def finish(self, run: int, outcome: Outcome) -> None:
        """The curve says it all."""

    def owns(self, run: int) -> bool:
        """Nobody else knows of it."""
        return True

    def curve(self, run: int) -> NDArray[Any]:
        return np.concatenate(self._blocks[run])


@dataclass
class _Run:
    """A run in the stack: its index among the specs and what its stop rule has seen."""

    index: int
    spec: RunSpec
    watch: Watch = field(default_factory=Watch)
    seconds: float = 0.0


def train(
    specs: Sequence[RunSpec],
    sink: Sink,
    *,
    device: str = "auto",
    engine: Engine = "auto",
    gpu_step: StepMode | None = None,
    checkpoints: CheckpointStore | None = None,
    resume_epochs: Sequence[int] | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    block_seconds: float = BLOCK_SECONDS,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
    refill: Refill | None = None,
) -> list[Outcome | None]:
    """Train all runs to their ends; None for one that was dropped or left unfinished.

    Further runs that `refill` has take the places of those that have ended; their outcomes follow.

    resume_epochs[i] is the epoch of the checkpoint run i goes on from, 0 for the start.
    should_stop is asked after every block; when it says so, the unfinished runs are checkpointed
    and left.
    """
    start = resume_epochs or [0] * len(specs)
    session = _Session(specs, sink, device, engine, gpu_step, checkpoints, start)
    saved, interval = time.monotonic(), checkpoint_seconds
    block = 1
    with session:
        while session.runs:
            seconds, length = session.advance(block, progress)
            # Grow gently: the first epochs of a process are not typical.
            block = max(1, min(2 * length, round(length * block_seconds / max(seconds, 1e-9))))
            stopping = should_stop is not None and should_stop()
            if stopping or (time.monotonic() - saved >= interval and not session.saving):
                interval = max(checkpoint_seconds, session.save() / CHECKPOINT_SHARE)
                saved = time.monotonic()
            if stopping:
                break
            if refill is not None and session.has_room and not session.refill(refill):
                refill = None
    return session.outcomes


class _Session:
    """The runs still training, their stack, and the outcomes so far."""

    def __init__(
        self,
        specs: Sequence[RunSpec],
        sink: Sink,
        device: str,
        engine: Engine,
        gpu_step: StepMode | None,
        checkpoints: CheckpointStore | None,
        resume_epochs: Sequence[int],
    ) -> None:
        self.sink = sink
        self.writer = CheckpointWriter(checkpoints) if checkpoints is not None else None
        check_stack(specs)
        self.stack: Stack
        self.runs: list[_Run] = []
        self.outcomes: list[Outcome | None] = []
        self.places = len(specs)
        self._checkpoints, self._gpu_step = checkpoints, gpu_step
        self.engine = choose_engine(specs[0], engine, device)
        self.device = resolve_name(device)
        self._asked_device = device
        self._make_stack([], list(zip(specs, resume_epochs, strict=True)))

    def _make_stack(self, present: Sequence[State], more: Sequence[tuple[RunSpec, int]]) -> None:
        """A stack of the runs present, with these states, and of more that begin or go on."""
        epochs = [*(self.stack.epochs if present else ()), *(epoch for _, epoch in more)]
        states, fingerprints = list(present), set()
        for spec, epoch in more:
            run = _Run(len(self.outcomes), spec)
            self.runs.append(run)
            self.outcomes.append(None)
            if epoch == 0:
                states.append(initial_state(spec))
                continue
            if self._checkpoints is None:
                raise CheckpointError(f"epoch {epoch} cannot be resumed without checkpoints")
            found = self._checkpoints.load(spec.key, epoch)
            states.append(found.state)
            run.watch = Watch.from_json(found.extra["watch"])
            run.seconds = found.extra["seconds"]
            fingerprints.add(found.fingerprint)
        self.stack = make_stack(
            [run.spec for run in self.runs],
            engine=self.engine,
            device=self._asked_device,
            gpu_step=self._gpu_step,
            states=states,
            epochs=epochs,
        )
        self.fingerprint = self.stack.fingerprint
        if fingerprints - {self.fingerprint}:
            raise CheckpointError(
                f"a checkpoint was written by another engine: {fingerprints.pop()!r}, "
                f"this one is {self.fingerprint!r}"
            )

    @property
    def has_room(self) -> bool:
        """Whether so many places are free that it pays to make the stack anew."""
        return self.places - len(self.runs) >= max(1, REFILL_SHARE * self.places)

    def refill(self, more: Refill) -> bool:
        """Take further runs into the free places; False: there were none."""
        taken = more(self.places - len(self.runs))
        if taken:
            self._make_stack([self.stack.state(place) for place in range(len(self.runs))], taken)
        return bool(taken)

    def advance(self, block: int, progress: Progress | None) -> tuple[float, int]:
        """Train a block, record it, and take finished runs out; returns seconds and epochs."""
        done = list(self.stack.epochs)
        remaining = [
            run.spec.stop.max_epochs - epoch for run, epoch in zip(self.runs, done, strict=True)
        ]
        length = max(1, min(block, *remaining))
        start = time.monotonic()
        metrics = self.stack.advance(length)
        seconds = time.monotonic() - start
        leaving = []
        for place, run in enumerate(self.runs):
            run.seconds += seconds / len(self.runs)
            if self._record(run, done[place] + 1, metrics[place], progress):
                leaving.append(place)
        self.stack.remove(leaving)
        self.runs = [run for place, run in enumerate(self.runs) if place not in set(leaving)]
        return seconds, length

    def _record(
        self, run: _Run, first_epoch: int, metrics: NDArray[Any], progress: Progress | None
    ) -> bool:
        """Record a run's block; whether it leaves the stack."""
        run.watch, count, stopped_by = examine(run.spec, run.watch, first_epoch, metrics)
        rows = metrics[:count]
        last_epoch = first_epoch + len(rows) - 1
        if not self.sink.record(run.index, first_epoch, rows):
            return True
        if progress is not None:
            progress(run.index, last_epoch, rows[-1])
        if stopped_by is None:
            return False
        self._finish(run, last_epoch, stopped_by)
        return True

    def _finish(self, run: _Run, epochs: int, stopped_by: StoppedBy) -> None:
        diverged = stopped_by == "diverged"
        outcome = Outcome(
            state="failed" if diverged else "done",
            reason="diverged" if diverged else None,
            stopped_by=stopped_by,
            epochs=epochs,
            seconds=run.seconds,
            engine=self.engine,
            device=self.device,
            fingerprint=self.fingerprint,
        )
        self.sink.finish(run.index, outcome)
        if not self.sink.owns(run.index):
            return
        self.outcomes[run.index] = outcome
        if self.writer is not None:
            self.writer.delete(run.spec.key)

    @property
    def saving(self) -> bool:
        """Whether the last checkpoints are still being written."""
        return self.writer is not None and self.writer.busy

    def save(self) -> float:
        """Checkpoint every run in the stack, after what it has recorded is durable.

        Returns the seconds for which training stood still to copy states; they are written while
        it goes on.
        """
        self.sink.flush()
        if self.writer is None:
            return 0.0
        begin = time.monotonic()
        for place, (run, epoch) in enumerate(zip(self.runs, self.stack.epochs, strict=True)):
            owned = partial(self.sink.owns, run.index)
            if not owned():
                continue
            extra = {"watch": run.watch.as_json(), "seconds": run.seconds}
            state = self.stack.state(place)
            self.writer.save(run.spec.key, epoch, self.fingerprint, state, extra, owned)
        return time.monotonic() - begin

    def __enter__(self) -> None:
        """Training begins."""

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Whatever ended training, what was handed over is written; its error is not hidden."""
        if self.writer is None:
            return
        try:
            self.writer.close()
        except OSError:
            if kind is None:
                raise
