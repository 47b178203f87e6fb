"""What a run costs: FLOPs by arithmetic, epochs by rule of thumb, both corrected by experience.

Costs only order and size the work, so a factor of two is harmless; the rules of thumb come
from small runs of the central model and give way to what finished runs really took.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from service.spec import TOKENS, RunSpec

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
