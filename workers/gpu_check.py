"""What the owner of a GPU runs once: whether it computes what a CPU does, and how fast.

`groktime verify --gpu` prints the checks and a table of rates.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from groktime.service.spec import FixedStop, ModelSpec, ModularData, RunSpec
from groktime.workers.device_streams import (
    dropout_counters,
    dropout_keep,
    permutations,
    stream_keys,
)
from groktime.workers.devices import EVALUATION_BYTES, device_name, model_bytes
from groktime.workers.graphed import StepMode, was_refused
from groktime.workers.model import initial_state
from groktime.workers.replay import Check
from groktime.workers.slab import Slab
from groktime.workers.streams import Purpose
from groktime.workers.tasks import make_dataset

EPOCHS = 10  # rounding has not grown yet
LOSS_TOLERANCE = 1e-4  # relative, over those epochs
COUNT_TOLERANCE = 2  # examples
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Rate:
    """Epochs of models a second, for a stack of equal ones."""

    width: int
    models: int
    plain: float
    graph: float | None  # None where the device has no graphs

    def __str__(self) -> str:
        graph = "-" if self.graph is None else f"{self.graph:.1f}"
        return f"{self.width:>6} {self.models:>7} {self.plain:>14.1f} {graph:>14}"


def runs(width: int, models: int, prime: int = 113) -> list[RunSpec]:
    """Grok runs of the central model that differ in their seeds."""
    return [
        RunSpec(
            kind="grok",
            data=ModularData(prime=prime),
            model=ModelSpec(width=width),
            stop=FixedStop(max_epochs=1000),
            seed=42 + seed,
        )
        for seed in range(models)
    ]


def check_device(device: torch.device, *, prime: int = 113, width: int = 32) -> Iterator[Check]:
    """Random words, ten epochs, the graph and the memory of a device, against a CPU's."""
    name = device_name(device)
    yield from _same_words(name, device)
    specs = runs(width, 4, prime)
    expected = _slab(specs, CPU).advance(EPOCHS)
    found = {"plain": _slab(specs, device).advance(EPOCHS)}
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        slab = _slab(specs, device, "graph")
        found["graph"] = slab.advance(EPOCHS)
        refused = float(was_refused(slab.shape))
        yield Check(name, "epochs recorded as a graph, refusals", refused, 0)
        allowed = len(specs) * model_bytes(specs[0], "cuda") + EVALUATION_BYTES
        peak = torch.cuda.max_memory_allocated(device) / allowed
        yield Check(name, "peak memory, share of what planning counts", peak, 1)
    for way, curves in found.items():
        for column in ("train_loss", "val_loss"):
            relative = float(np.abs(curves[column] / expected[column] - 1).max())
            quantity = f"{column}, {EPOCHS} epochs {way}, relative"
            yield Check(name, quantity, relative, LOSS_TOLERANCE)
        for column in ("train_correct", "val_correct"):
            apart = float(np.abs(curves[column] - expected[column]).max())
            yield Check(name, f"{column}, {EPOCHS} epochs {way}, examples", apart, COUNT_TOLERANCE)


def rates(
    device: torch.device,
    *,
    prime: int = 113,
    widths: Sequence[int] = (20, 64, 128),
    stacks: Sequence[int] = (1, 10, 40),
    seconds: float = 15.0,
) -> Iterator[Rate]:
    """How many epochs of models the device trains a second, by width and size of the stack."""
    for width in widths:
        for models in stacks:
            specs = runs(width, models, prime)
            plain = _rate(_slab(specs, device), seconds)
            graph = _rate(_slab(specs, device, "graph"), seconds) if device.type == "cuda" else None
            yield Rate(width, models, plain, graph)


def _slab(specs: Sequence[RunSpec], device: torch.device, step: StepMode = "plain") -> Slab:
    states = [initial_state(spec) for spec in specs]
    datasets = [make_dataset(spec) for spec in specs]
    return Slab(specs, states, [0] * len(specs), datasets, None, device, step)


def _same_words(name: str, device: torch.device) -> Iterator[Check]:
    """Shuffles and dropout masks are integers: the same on every device."""
    keys = torch.from_numpy(stream_keys(np.arange(8), Purpose.SHUFFLE, 3))
    orders = [permutations(keys.to(at), 6328).cpu() for at in (CPU, device)]
    wrong = float((orders[0] != orders[1]).sum())
    yield Check(name, "shuffles, places that differ", wrong, 0)
    counters = dropout_counters(512, (0, 3), 128).transpose(0, 1).contiguous()
    thresholds = torch.full((8, 1, 1, 1), round(0.2 * 65536) - 32768.0)
    kept = [
        dropout_keep(
            keys.to(at)[:, None].expand(-1, 2).contiguous(), counters.to(at), thresholds.to(at)
        ).cpu()
        for at in (CPU, device)
    ]
    wrong = float((kept[0] != kept[1]).sum())
    yield Check(name, "dropout masks, elements that differ", wrong, 0)


def _rate(slab: Slab, seconds: float) -> float:
    """Epochs of models a second, after the first ones; advancing ends when the device has."""
    slab.advance(2)
    done, begin = 0, time.monotonic()
    while time.monotonic() - begin < seconds:
        slab.advance(5)
        done += 5
    return done * len(slab.specs) / (time.monotonic() - begin)
