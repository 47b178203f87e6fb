"""The PyTorch engine: trains a stack of models of equal shapes on any device.

A slab is a set of models computed together through a leading model axis. On a GPU the whole
stack is one slab, which is what fills the device. On a CPU every model is a slab of its own:
batched kernels there round differently with the number of models and gain no speed, so one by
one a run's curve is bitwise the same whatever shares its stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from groktime.service.errors import ConfigurationError
from groktime.service.spec import RunSpec
from groktime.workers.devices import resolve_device
from groktime.workers.engines import METRICS, State, check_stack, fingerprint
from groktime.workers.graphed import StepMode
from groktime.workers.model import initial_state
from groktime.workers.slab import Slab
from groktime.workers.tasks import Dataset, make_dataset

SOURCES = (
    "device_streams.py",
    "forward.py",
    "operators.py",
    "slab.py",
    "graphed.py",
    "torch_engine.py",
)


def torch_fingerprint(device: torch.device, step: StepMode = "plain") -> str:
    """The fingerprint of this engine on the device."""
    # A graph starts the kernels of a plain epoch.
    return fingerprint("torch", SOURCES, device, *(["step compile"] if step == "compile" else []))


class TorchStack:
    """Implements workers.engines.Stack in PyTorch."""

    def __init__(
        self,
        specs: Sequence[RunSpec],
        *,
        device: str = "auto",
        states: Sequence[State] | None = None,
        epochs: Sequence[int] | None = None,
        datasets: Sequence[Dataset] | None = None,
        orders: Sequence[NDArray[np.int64]] | None = None,
        step: StepMode = "plain",
    ) -> None:
        """Start each run from its state at its epoch, or from its seed.

        A replay gives its own `datasets` and `orders`: for each run [epochs, n_train], the order
        of examples in each epoch from the first.
        """
        check_stack(specs)
        # TF32 keeps 10 bits of mantissa: enough to move first passages.
        torch.set_float32_matmul_precision("highest")
        self.device = resolve_device(device)
        if step == "graph" and self.device.type != "cuda":
            raise ConfigurationError(
                f"GROKTIME_GPU_STEP = 'graph' needs a CUDA device, not {self.device.type}"
            )
        self.step = step
        states = states or [initial_state(spec) for spec in specs]
        epochs = epochs or [0] * len(specs)
        datasets = datasets or [make_dataset(spec) for spec in specs]
        together = 1 if self.device.type == "cpu" else len(specs)
        self._slabs = [
            Slab(
                specs[i : i + together],
                states[i : i + together],
                epochs[i : i + together],
                datasets[i : i + together],
                orders[i : i + together] if orders is not None else None,
                self.device,
                step,
            )
            for i in range(0, len(specs), together)
        ]

    @property
    def specs(self) -> Sequence[RunSpec]:
        return [spec for slab in self._slabs for spec in slab.specs]

    @property
    def epochs(self) -> Sequence[int]:
        return [epoch for slab in self._slabs for epoch in slab.epochs]

    @property
    def fingerprint(self) -> str:
        return torch_fingerprint(self.device, self.step)

    def advance(self, epochs: int) -> NDArray[Any]:
        """Train every model for `epochs` epochs; METRICS of shape [models, epochs]."""
        if not self._slabs:
            return np.empty((0, epochs), dtype=METRICS)
        return np.concatenate([slab.advance(epochs) for slab in self._slabs])

    def state(self, model: int) -> State:
        slab, index = self._find(model)
        return slab.state(index)

    def remove(self, models: Sequence[int]) -> None:
        gone = {self._find(model) for model in models}
        for slab in self._slabs:
            slab.keep([i for i in range(len(slab.specs)) if (slab, i) not in gone])
        self._slabs = [slab for slab in self._slabs if slab.specs]

    def _find(self, model: int) -> tuple[Slab, int]:
        """The slab of the stack's model and its place there."""
        for slab in self._slabs:
            if model < len(slab.specs):
                return slab, model
            model -= len(slab.specs)
        raise IndexError("no such model in the stack")
