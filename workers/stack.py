"""The interface of an engine: a stack of models that trains some epochs and says what it saw.

An engine only trains and measures. When a run stops, what is written and where its
checkpoints go is decided outside (workers/training.py), the same way for every engine.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from service.errors import StackError
from service.spec import RandomData, RunSpec

# One epoch of one run. Counts a run does not record are -1 and reals it does not record NaN.
METRICS = np.dtype(
    [
        ("train_loss", np.float32),  # mean over the epoch's examples, dropout on
        ("train_correct", np.int32),  # online clock
        ("train_correct_eval", np.int32),  # eval clock: after the epoch, dropout off
        ("val_loss", np.float32),  # after the epoch, dropout off
        ("val_correct", np.int32),
        ("bits", np.float32),  # M_T of the training set after the epoch, dropout off
        ("weight_norm", np.float32),  # L2 norm of all parameters after the epoch
    ]
)

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
