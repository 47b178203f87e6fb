"""Which engine trains a stack: the native one wherever it can, else PyTorch.

Where the native one trains, torch is never imported: that takes seconds and much memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from db.provenance import Trainer
from service.errors import ConfigurationError
from service.settings import get_settings
from service.spec import RunSpec
from workers.devices import resolve_device, resolve_name
from workers.stack import Stack, State, check_stack
from workers.tasks import Dataset

if TYPE_CHECKING:
    import torch

    from workers.graphed import StepMode

Engine = Literal["auto", "native", "torch"]


def native_refusal(spec: RunSpec, device: str) -> str | None:
    """Why the native engine cannot train this run here, or None when it can."""
    if resolve_name(device) != "cpu":
        return f"it trains on a CPU, not on {device}"
    try:
        from workers.native import supports, unavailable
    except ImportError:
        return "it is not part of this installation"
    return unavailable() if supports(spec) else "it does not know this model"


def choose_engine(spec: RunSpec, engine: Engine, device: str) -> Literal["native", "torch"]:
    """The engine that trains runs of this shape; asked for and impossible is an error."""
    if engine == "torch":
        return "torch"
    refusal = native_refusal(spec, device)
    if refusal is None:
        return "native"
    if engine == "native":
        raise ConfigurationError(f"engine = 'native' cannot train this run: {refusal}")
    return "torch"


def step_mode(device: torch.device, gpu_step: StepMode | None = None) -> StepMode:
    """How steps are called on the device; plainly on a CPU.

    What a sweep orders wins over the settings of the process, which on a worker are the node's.
    """
    return (gpu_step or get_settings().gpu_step) if device.type == "cuda" else "plain"


def engine_fingerprint(
    spec: RunSpec,
    *,
    engine: Engine = "auto",
    device: str = "auto",
    gpu_step: StepMode | None = None,
) -> str:
    """The fingerprint a stack of such runs will have: which checkpoints it can go on from."""
    if choose_engine(spec, engine, device) == "native":
        from workers.native import NativeStack

        return NativeStack([]).fingerprint
    from workers.torch_engine import torch_fingerprint

    chosen = resolve_device(device)
    return torch_fingerprint(chosen, step_mode(chosen, gpu_step))


def trainer_of(
    spec: RunSpec,
    *,
    engine: Engine = "auto",
    device: str = "auto",
    gpu_step: StepMode | None = None,
) -> Trainer:
    """What a stack of such runs will be trained with, found out without making it."""
    return Trainer(
        engine=choose_engine(spec, engine, device),
        device=resolve_name(device),
        fingerprint=engine_fingerprint(spec, engine=engine, device=device, gpu_step=gpu_step),
    )


def make_stack(
    specs: Sequence[RunSpec],
    *,
    engine: Engine = "auto",
    device: str = "auto",
    gpu_step: StepMode | None = None,
    states: Sequence[State] | None = None,
    epochs: Sequence[int] | None = None,
    datasets: Sequence[Dataset] | None = None,
    orders: Sequence[NDArray[np.int64]] | None = None,
) -> Stack:
    """A stack of these runs, each from its state at its epoch or from its seed.

    `datasets` and `orders` ([epochs, n_train] for each run) replace what the seed would give:
    replays of recorded runs use them.
    """
    check_stack(specs)
    if choose_engine(specs[0], engine, device) == "native":
        from workers.native import NativeStack

        return NativeStack(specs, states=states, epochs=epochs, datasets=datasets, orders=orders)
    from workers.torch_engine import TorchStack

    return TorchStack(
        specs,
        device=device,
        states=states,
        epochs=epochs,
        datasets=datasets,
        orders=orders,
        step=step_mode(resolve_device(device), gpu_step),
    )
