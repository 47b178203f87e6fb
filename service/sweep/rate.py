"""How fast this machine trains: nominal FLOPs a second of one core, measured in a moment.

Every estimate of hours begins here: `suite show`, a dry run, and the first plan of a sweep.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from service.spec import RunSpec
from service.sweep.cost import expected_epochs, flops_per_epoch
from workers.engines import choose_engine, make_stack

MEASURE_SECONDS = 0.5
LARGEST_EPOCH = 5e9  # FLOPs; a longer epoch would not be a moment


@dataclass(frozen=True)
class SuiteCost:
    """What runs cost in all; hours are of one core."""

    runs: int
    model_epochs: float
    flops: float
    rate: float
    engine: str

    @property
    def core_hours(self) -> float:
        return self.flops / self.rate / 3600


def suite_cost(runs: Sequence[RunSpec]) -> SuiteCost:
    """Estimated cost at this machine's rate."""
    epochs = [expected_epochs(run) for run in runs]
    flops = sum(flops_per_epoch(run) * count for run, count in zip(runs, epochs, strict=True))
    rate, engine = machine_rate(runs)
    return SuiteCost(len(runs), sum(epochs), flops, rate, engine)


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
    """Nominal FLOP/s of training this run here on one core, and the engine that did it."""
    stack = make_stack([spec], device="cpu")
    stack.advance(1)  # the first epoch of a process is not typical
    epochs, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < MEASURE_SECONDS:
        stack.advance(1)
        epochs += 1
    seconds = time.perf_counter() - begin
    return flops_per_epoch(spec) * epochs / seconds, choose_engine(spec, "auto", "cpu")
