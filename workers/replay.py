"""Golden runs: replayed they give the same numbers, trained anew the same distributions.

A replay starts from the recorded tensors and batches. Random streams differ between programs, so
recorded first passages are compared as distributions over seeds, never run by run.

The owner of a GPU asks once whether it computes what a CPU does, and how fast: `groktime verify
--gpu` prints the checks and a table of rates.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from groktime.service.errors import InputError
from groktime.service.spec import (
    Data,
    FixedStop,
    ModelSpec,
    ModularData,
    OptimiserSpec,
    RandomData,
    RunSpec,
    Stop,
    ThresholdStop,
)
from groktime.workers.devices import EVALUATION_BYTES, device_name, model_bytes
from groktime.workers.engines import Engine, make_stack
from groktime.workers.graphed import StepMode, was_refused
from groktime.workers.model import initial_state, state_of
from groktime.workers.operators import (
    dropout_counters,
    dropout_keep,
    permutations,
    stream_keys,
)
from groktime.workers.streams import Purpose
from groktime.workers.tasks import Dataset, make_dataset
from groktime.workers.torch_engine import Slab
from groktime.workers.training import CurveSink, first_passage, train

LOSS_TOLERANCE = 2e-4  # relative
BITS_TOLERANCE = 1e-5  # of n · log2 V
KS_LEVEL = 1e-3  # a smaller p-value fails
MEAN_TOLERANCE = 3.0  # standard errors of the difference of means

# Golden name of a first passage: the clock it is read from and its threshold.
PASSAGES = {
    "t_mem99": ("train_correct", 0.99),
    "e_train99": ("train_correct", 0.99),
    "e_val98": ("val_correct", 0.98),
    "t_gen99": ("val_correct", 0.99),
}


@dataclass(frozen=True)
class Check:
    """One line of a verification: how far from the golden value, and how far it may be."""

    file: str
    quantity: str
    deviation: float
    tolerance: float
    note: str = ""

    @property
    def passed(self) -> bool:
        """A deviation that is not a number fails."""
        return self.deviation <= self.tolerance


@dataclass(frozen=True)
class GoldenRun:
    """A recorded run: its spec, where it started, its data, its batches and its curve."""

    name: str
    spec: RunSpec
    weights: dict[str, NDArray[np.float32]]
    data: Dataset
    order: NDArray[np.int64]  # [epochs, n_train]
    curve: dict[str, NDArray[np.float64]]


def load_golden(path: Path) -> GoldenRun:
    """Read a golden .npz; anything else is refused by name."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        meta = json.loads(str(arrays.pop("meta")))
        order = arrays.pop("batch_order").astype(np.int64)
        return GoldenRun(
            name=path.name,
            spec=_spec(meta),
            weights={k[len("init.") :]: v for k, v in arrays.items() if k.startswith("init.")},
            data=_dataset(arrays),
            order=order,
            curve={k: arrays[k] for k in arrays if arrays[k].shape == (len(order),)},
        )
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"{path} is not a golden .npz file: {error}") from error


def _spec(meta: dict[str, Any]) -> RunSpec:
    """Recorded as a capacity run, so that bits are measured."""
    data: RandomData | ModularData
    if meta["kind"] == "random":
        data = RandomData(prime=meta["prime"], n=meta["n_samples"])
    else:
        data = ModularData(
            prime=meta["prime"],
            operation=meta["operation"],
            train_fraction=meta["train_fraction"],
        )
    beta1, beta2 = meta["betas"]
    return RunSpec(
        kind="capacity",
        data=data,
        model=ModelSpec(
            width=meta["dim"],
            depth=meta["depth"],
            heads=meta["heads"],
            positions=meta["positions"],
            # The released program has this projection whenever there are several heads.
            released_head_projection=meta["heads"] > 1,
            dropout=meta["dropout"],
            init_scale=meta["init_scale"],
        ),
        optimiser=OptimiserSpec(
            lr=meta["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=meta["weight_decay"],
            batch_size=meta["batch_size"],
        ),
        stop=FixedStop(max_epochs=meta["epochs"]),
        seed=meta["seed"],
    )


def _dataset(arrays: dict[str, NDArray[Any]]) -> Dataset:
    x, y = arrays["x_train"].astype(np.int64), arrays["y_train"].astype(np.int64)
    x_val, y_val = arrays.get("x_val", x[:0]), arrays.get("y_val", y[:0])
    return Dataset(x, y, x_val.astype(np.int64), y_val.astype(np.int64))


def replay(path: Path, *, engine: Engine = "auto", device: str = "auto") -> list[Check]:
    """Train from the golden tensors and batches and compare every epoch."""
    golden = load_golden(path)
    stack = make_stack(
        [golden.spec],
        engine=engine,
        device=device,
        states=[state_of(golden.weights)],
        datasets=[golden.data],
        orders=[golden.order],
    )
    curve = stack.advance(len(golden.order))[0]
    sizes = {"train": len(golden.data.y_train), "val": len(golden.data.y_val)}
    checks = []
    for name, size in sizes.items():
        if size == 0:
            continue
        expected = golden.curve[f"{name}_loss"]
        relative = np.abs(curve[f"{name}_loss"] / expected - 1).max()
        checks.append(Check(golden.name, f"{name} loss, relative", float(relative), LOSS_TOLERANCE))
        hits = np.rint(golden.curve[f"{name}_acc"] * size)
        counts = np.abs(curve[f"{name}_correct"] - hits).max()
        checks.append(Check(golden.name, f"{name} correct, examples", float(counts), 1))
    bits = np.abs(curve["bits"] - golden.curve["train_bits"]).max()
    allowed = BITS_TOLERANCE * sizes["train"] * math.log2(golden.spec.vocabulary)
    checks.append(Check(golden.name, "bits, absolute", float(bits), allowed))
    return checks


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
        return GoldenPassages(path.name, _passages_spec(content), passages)
    except (OSError, KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"{path} is not a golden first-passage file: {error}") from error


def _passages_spec(content: dict[str, Any]) -> RunSpec:
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
        checks += passage_checks(golden.name, name, recorded, found)
    return checks


def passage_checks(
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


EPOCHS = 10  # rounding has not grown yet
DEVICE_TOLERANCE = 1e-4  # relative, over those epochs
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
            yield Check(name, quantity, relative, DEVICE_TOLERANCE)
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
