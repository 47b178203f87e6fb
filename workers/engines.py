"""What an engine is, which one trains a stack, and what decides the last bit of its results.

An engine only trains and measures. When a run stops, what is written and where its checkpoints
go is decided outside (workers/training.py), the same way for every engine. The native engine
trains wherever it can, else PyTorch. Where the native one trains, torch is never imported: that
takes seconds and much memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from groktime.db.claims import Trainer
from groktime.service.errors import ConfigurationError, StackError
from groktime.service.settings import get_settings
from groktime.service.spec import METRICS as METRIC_TYPES
from groktime.service.spec import RandomData, RunSpec
from groktime.workers.devices import device_family, resolve_device, resolve_name
from groktime.workers.tasks import Dataset

if TYPE_CHECKING:
    import torch

    from groktime.workers.graphed import StepMode

METRICS = np.dtype(list(METRIC_TYPES))  # one epoch of one run

# What a model must keep to go on exactly: named arrays (weights and AdamW moments).
State = Mapping[str, NDArray[Any]]


class Stack(Protocol):
    """Models of equal shapes, trained side by side; each is at its own epoch."""

    @property
    def specs(self) -> Sequence[RunSpec]:
        """The models still in the stack, in order."""
        ...

    @property
    def epochs(self) -> Sequence[int]:
        """How many epochs each model has trained."""
        ...

    @property
    def fingerprint(self) -> str:
        """Engine, source hash, torch, BLAS, CPU model and ISA or GPU, threads.

        Two stacks with one fingerprint give bitwise the same curves.
        """
        ...

    def advance(self, epochs: int) -> NDArray[Any]:
        """Train every model for `epochs` epochs; returns METRICS of shape [models, epochs].

        A model whose loss has become non-finite goes on being stepped, harmlessly to the others,
        until it is removed.
        """
        ...

    def state(self, model: int) -> State:
        """A copy of what the model needs to go on, on the host."""
        ...

    def remove(self, models: Sequence[int]) -> None:
        """Take models out of the stack; the others keep their order and their numbers."""
        ...


def _shape(spec: RunSpec) -> dict[str, Hashable]:
    """What decides the shapes of a run's tensors and which of them exist, by field."""
    model = spec.model
    return {
        "data (random or table)": isinstance(spec.data, RandomData),
        "n_train": spec.data.n_train,
        "n_val": spec.data.n_val,
        "vocabulary": spec.vocabulary,
        "architecture": model.architecture,
        "width": model.width,
        "depth": model.depth,
        "heads": model.heads,
        "positions": model.positions,
        "norm": model.norm,
        "ffn": model.ffn,
        "released_head_projection": model.released_head_projection,
        "batch_size": spec.optimiser.batch_size,
        "eval_train": spec.eval_train,
        "kind (bits are recorded)": spec.records_bits,
    }


def stack_shape(spec: RunSpec) -> Hashable:
    """Runs of one shape may share a stack; everything else may differ between them."""
    return tuple(_shape(spec).values())


def check_stack(specs: Sequence[RunSpec]) -> None:
    """Raise StackError, naming the first field that differs, when runs cannot share a stack."""
    if not specs:
        raise StackError("a stack needs at least one run")
    first = _shape(specs[0])
    for spec in specs[1:]:
        for name, value in _shape(spec).items():
            if value != first[name]:
                raise StackError(
                    f"{name} must be equal in a stack: got {first[name]!r} and {value!r}"
                )


# What every engine computes with; an engine adds its own files.
_COMMON = ("model.py", "streams.py", "tasks.py")

# Sources that compute what earlier ones did, bit for bit, in every run those could train: the hash
# of the files as they are to the hash that recorded runs and checkpoints carry. An entry is proved
# by benchmarks/same_curves.py against the earlier tree.
COMPUTES_AS = {
    "81bb2539bd43": "ee182ee03bd4",  # native
    "672a959029b4": "1a24d32a8208",  # torch
}


@lru_cache(maxsize=8)
def files_hash(files: Sequence[str]) -> str:
    """A short hash of these files, relative to this package, and those that all engines use."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for name in (*_COMMON, *files):
        # Read as if the packages stood at the top, as when the recorded runs were trained.
        digest.update((folder / name).read_bytes().replace(b"from groktime.", b"from "))
    return digest.hexdigest()[:12]


def source_hash(files: Sequence[str]) -> str:
    """The name of what the files compute: their hash, or that of earlier ones that did the same."""
    found = files_hash(files)
    return COMPUTES_AS.get(found, found)


def fingerprint(engine: str, files: tuple[str, ...], device: torch.device, *extra: str) -> str:
    """One line; two attempts that share it give bitwise the same curves on a CPU.

    On a GPU they are alike statistically: sums by atomic additions and products chosen by the
    library round differently from one run to the next, so all GPUs of one family share it.
    """
    import torch

    build = hashlib.sha256(torch.__config__.show().encode()).hexdigest()[:8]
    parts = [
        engine,
        f"source {source_hash(files)}",
        f"torch {torch.__version__} {build}",
        device_family(device),
    ]
    if device.type == "cpu":
        parts += [torch.backends.cpu.get_cpu_capability(), f"threads {torch.get_num_threads()}"]
    return "; ".join([*parts, *extra])


Engine = Literal["auto", "native", "torch"]


def native_refusal(spec: RunSpec, device: str) -> str | None:
    """Why the native engine cannot train this run here, or None when it can."""
    if resolve_name(device) != "cpu":
        return f"it trains on a CPU, not on {device}"
    try:
        from groktime.workers.native import supports, unavailable
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
        from groktime.workers.native import NativeStack

        return NativeStack([]).fingerprint
    from groktime.workers.torch_engine import torch_fingerprint

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
        from groktime.workers.native import NativeStack

        return NativeStack(specs, states=states, epochs=epochs, datasets=datasets, orders=orders)
    from groktime.workers.torch_engine import TorchStack

    return TorchStack(
        specs,
        device=device,
        states=states,
        epochs=epochs,
        datasets=datasets,
        orders=orders,
        step=step_mode(resolve_device(device), gpu_step),
    )
