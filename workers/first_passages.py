"""First passages: when a curve reaches a threshold, and whether golden ones are distributed alike.

Random streams differ between programs, so recorded first passages are compared as distributions
over seeds, never run by run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from service.errors import InputError
from service.spec import (
    Data,
    ModelSpec,
    ModularData,
    OptimiserSpec,
    RandomData,
    RunSpec,
    Stop,
    ThresholdStop,
)
from workers.engines import Engine
from workers.replay import Check
from workers.stopping import required
from workers.training import Outcome, train

KS_LEVEL = 1e-3  # a smaller p-value fails
MEAN_TOLERANCE = 3.0  # standard errors of the difference of means

# Golden name of a first passage: the clock it is read from and its threshold.
PASSAGES = {
    "t_mem99": ("train_correct", 0.99),
    "e_train99": ("train_correct", 0.99),
    "e_val98": ("val_correct", 0.98),
    "t_gen99": ("val_correct", 0.99),
}


def first_passage(counts: NDArray[np.int32], threshold: float, examples: int) -> int | None:
    """The first epoch, from 1, with enough correct answers; None if there is none."""
    reached = np.flatnonzero(counts >= required(threshold, examples))
    return int(reached[0]) + 1 if len(reached) else None


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


@dataclass(frozen=True)
class GoldenPassages:
    """Recorded first passages by name over seeds, and the run that gives them."""

    name: str
    spec: RunSpec
    passages: dict[str, list[int]]


def load_passages(path: Path) -> GoldenPassages:
    """Read a golden speed_*.json or grok_*.json."""
    try:
        content = json.loads(path.read_text())
        runs = content["runs"]
        names = [name for name in PASSAGES if name in runs[0]]
        passages = {name: [int(run[name]) for run in runs] for name in names}
        return GoldenPassages(path.name, _spec(content), passages)
    except (OSError, KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"{path} is not a golden first-passage file: {error}") from error


def _spec(content: dict[str, Any]) -> RunSpec:
    prime, beta = content["prime"], content["betas"]
    grok = content["kind"] == "grok"
    data: Data = RandomData(prime=prime, n=content["n_train"])
    if grok:
        data = ModularData(
            prime=prime,
            operation=content["operation"],
            train_fraction=content["train_fraction"],
        )
    stop: Stop = ThresholdStop(val=0.99 if grok else None, max_epochs=content["max_epochs"])
    return RunSpec(
        kind=content["kind"],
        data=data,
        model=ModelSpec(
            width=content["dim"],
            depth=content["depth"],
            heads=content["heads"],
            positions="none",  # the recorded program's rotation does nothing
            dropout=content["dropout"],
        ),
        optimiser=OptimiserSpec(
            lr=content["lr"],
            beta1=beta[0],
            beta2=beta[1],
            weight_decay=content["weight_decay"],
            batch_size=content["batch_size"],
        ),
        stop=stop,
        eval_train=False,
        seed=0,
    )


def compare_passages(
    path: Path,
    *,
    seeds: Sequence[int],
    engine: Engine = "auto",
    device: str = "auto",
    progress: Callable[[int, int, Any], None] | None = None,
) -> list[Check]:
    """Train the recorded run for these seeds and compare each first passage's distribution."""
    golden = load_passages(path)
    specs = [golden.spec.model_copy(update={"seed": seed}) for seed in seeds]
    sink = CurveSink(len(specs))
    train(specs, sink, engine=engine, device=device, progress=progress)
    sizes = {"train_correct": golden.spec.data.n_train, "val_correct": golden.spec.data.n_val}
    checks = []
    for name, recorded in golden.passages.items():
        clock, threshold = PASSAGES[name]
        found = [
            first_passage(sink.curve(run)[clock], threshold, sizes[clock])
            for run in range(len(specs))
        ]
        checks += _agreement(golden.name, name, recorded, found)
    return checks


def _agreement(
    file: str, name: str, recorded: Sequence[int], found: Sequence[int | None]
) -> list[Check]:
    """Kolmogorov–Smirnov and difference of means; a run that never arrived fails both."""
    reached = [epoch for epoch in found if epoch is not None]
    note = f"{len(reached)} of {len(found)} seeds arrived"
    if len(reached) < len(found):
        return [Check(file, f"{name}, seeds that never arrive", len(found) - len(reached), 0, note)]
    p_value = float(stats.ks_2samp(recorded, reached).pvalue)
    error = math.hypot(stats.sem(recorded), stats.sem(reached))
    distance = abs(float(np.mean(recorded)) - float(np.mean(reached))) / error
    note = f"mean {np.mean(reached):.1f}, recorded {np.mean(recorded):.1f}"
    return [
        # 1 − p, so that smaller is better as everywhere in the table.
        Check(file, f"{name}, 1 − p of Kolmogorov–Smirnov", 1 - p_value, 1 - KS_LEVEL, note),
        Check(file, f"{name}, means in standard errors", distance, MEAN_TOLERANCE, note),
    ]
