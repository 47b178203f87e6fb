"""Replays of golden runs: the same tensors and batches must give the same numbers."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.errors import InputError
from service.spec import (
    FixedStop,
    ModelSpec,
    ModularData,
    OptimiserSpec,
    RandomData,
    RunSpec,
)
from workers.engines import Engine, make_stack
from workers.model import state_of
from workers.tasks import Dataset

LOSS_TOLERANCE = 2e-4  # relative
BITS_TOLERANCE = 1e-5  # of n · log2 V


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
