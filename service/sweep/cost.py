"""What a run costs: FLOPs by arithmetic, epochs by rule of thumb, both corrected by experience.

Costs only order and size the work, so a factor of two is harmless; the rules of thumb come
from small runs of the central model and give way to what finished runs really took.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import median

from groktime.service.spec import TOKENS, RunSpec
from groktime.workers.engines import choose_engine, make_stack

BITS_PER_PARAMETER = 2.16  # the paper's C_model, for the capacity fraction of a rule of thumb
REFERENCE_STEPS = 12.4  # optimiser steps an epoch at p=113, where the rules of thumb were read


def flops_per_epoch(spec: RunSpec) -> float:
    """Nominal FLOPs of one epoch: the plain algorithm's matrix products.

    A training pass is three forward passes; evaluation passes are one each.
    """
    model, d = spec.model, spec.model.width
    forward: float
    if model.architecture == "mlp":
        forward = 2.0 * (20 * d * d + d * spec.vocabulary)
    else:
        weights = (4 + (12 if model.ffn == "gated" else 8)) * d * d
        forward = 2.0 * (model.depth * weights * TOKENS + d * spec.vocabulary)
    trained: int = spec.data.n_train
    evaluated: int = spec.data.n_val + (trained if _measures_training(spec) else 0)
    return forward * (3 * trained + evaluated)


def _measures_training(spec: RunSpec) -> bool:
    return spec.eval_train or spec.records_bits


def expected_epochs(spec: RunSpec) -> float:
    """Epochs until the run will stop, by rule of thumb.

    Memorising takes about 45·e^{15 f} epochs at capacity fraction f, generalising some
    hundreds, at the paper's steps per epoch; nothing goes past the cap.
    """
    cap = float(spec.stop.max_epochs)
    if spec.stop.rule == "fixed":
        return cap
    pace: float = REFERENCE_STEPS / spec.steps_per_epoch
    fraction: float = spec.k_mem / (BITS_PER_PARAMETER * spec.params)
    memorising = 45.0 * math.exp(min(15.0 * fraction, 12.0)) * pace
    if spec.kind == "capacity":
        return min(cap, 700.0 * math.sqrt(pace))
    if spec.kind == "speed":
        return min(cap, memorising)
    # Where memorising is slow the task is learnt first, and both clocks end together.
    return min(cap, max(300.0 * pace, min(memorising, 900.0 * pace)))


def cell_of(spec: RunSpec, shape: Hashable) -> Hashable:
    """Runs whose costs resemble each other: one shape, one kind."""
    return (spec.kind, shape)


@dataclass(frozen=True)
class Finished:
    """What a finished run really took: seconds of a worker's time, summed over its epochs."""

    spec: RunSpec
    shape: Hashable
    epochs: int
    seconds: float


@dataclass
class _Mean:
    """A mean that is ready at any time, however many values it has seen."""

    count: int = 0
    total: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value

    @property
    def value(self) -> float:
        return self.total / self.count if self.count else 0.0


_NOTHING = _Mean()


@dataclass
class CostModel:
    """Seconds a run will take on one worker, corrected by the finished runs it has seen.

    `rate` is nominal FLOP/s of one core; it counts as long as no finished run was seen.
    """

    rate: float
    _overall: _Mean = field(default_factory=_Mean)
    _by_cell: dict[Hashable, _Mean] = field(default_factory=dict)

    def learn(self, finished: Iterable[Finished]) -> None:
        """Take finished runs into account; log ratios of seconds taken to seconds expected."""
        for run in finished:
            if run.seconds <= 0:
                continue
            ratio = math.log(run.seconds / self._nominal(run.spec))
            self._overall.add(ratio)
            self._by_cell.setdefault(cell_of(run.spec, run.shape), _Mean()).add(ratio)

    def seconds(self, spec: RunSpec, shape: Hashable) -> float:
        """Expected seconds; few runs of a shape count less than many."""
        return self._nominal(spec) * math.exp(self._correction(cell_of(spec, shape)))

    def _correction(self, cell: Hashable) -> float:
        own = self._by_cell.get(cell, _NOTHING)
        weight = own.count / (own.count + 1)
        return weight * own.value + (1 - weight) * self._overall.value

    def _nominal(self, spec: RunSpec) -> float:
        return flops_per_epoch(spec) * expected_epochs(spec) / self.rate


MEASURE_SECONDS = 0.5
FEWEST_EPOCHS = 8
LARGEST_EPOCH = 5e9  # FLOPs; a longer epoch would not be a moment


@dataclass(frozen=True)
class SuiteCost:
    """What runs cost in all; hours are of one core."""

    runs: int
    model_epochs: float
    flops: float
    rate: float
    engine: str
    recorded: int = 0  # runs whose epochs are known, not estimated

    @property
    def core_hours(self) -> float:
        return self.flops / self.rate / 3600


def suite_cost(runs: Sequence[RunSpec], recorded: Mapping[str, int] | None = None) -> SuiteCost:
    """Estimated cost at this machine's rate.

    `recorded` are the epochs that finished runs took, by key. They count for themselves, and what
    they took against the rule of thumb corrects the others of their kind and width.
    """
    recorded = recorded or {}
    corrections: dict[Hashable, _Mean] = {}
    for run in runs:
        if run.key in recorded:
            ratio = math.log(recorded[run.key] / expected_epochs(run))
            corrections.setdefault((run.kind, run.model.width), _Mean()).add(ratio)
            corrections.setdefault(run.kind, _Mean()).add(ratio)

    def epochs_of(run: RunSpec) -> float:
        if run.key in recorded:
            return float(recorded[run.key])
        overall = corrections.get(run.kind, _NOTHING)
        own = corrections.get((run.kind, run.model.width), overall)
        return min(expected_epochs(run) * math.exp(own.value), float(run.stop.max_epochs))

    epochs = [epochs_of(run) for run in runs]
    flops = sum(flops_per_epoch(run) * count for run, count in zip(runs, epochs, strict=True))
    rate, engine = machine_rate(runs)
    known = sum(run.key in recorded for run in runs)
    return SuiteCost(len(runs), sum(epochs), flops, rate, engine, known)


def machine_rate(runs: Sequence[RunSpec]) -> tuple[float, str]:
    """Nominal FLOP/s of one core at the run in the middle of this work, and its engine."""
    costs = sorted(
        ((flops_per_epoch(run), expected_epochs(run), run) for run in runs), key=lambda c: c[0]
    )
    flops = sum(per_epoch * epochs for per_epoch, epochs, _ in costs)
    middle, seen = costs[0][2], 0.0
    for per_epoch, epochs, run in costs:
        if per_epoch > LARGEST_EPOCH:
            break
        middle = run
        seen += per_epoch * epochs
        if seen >= flops / 2:
            break
    return measured_rate(middle)


@lru_cache(maxsize=16)
def measured_rate(spec: RunSpec) -> tuple[float, str]:
    """Nominal FLOP/s of training this run here on one core, and the engine that did it.

    By processor time: what others do on the machine makes an epoch wait, not work.
    """
    stack = make_stack([spec], device="cpu")
    stack.advance(1)  # the first epoch of a process is not typical
    times: list[float] = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < MEASURE_SECONDS or len(times) < FEWEST_EPOCHS:
        before = time.process_time()
        stack.advance(1)
        times.append(time.process_time() - before)
    return flops_per_epoch(spec) / median(times), choose_engine(spec, "auto", "cpu")
