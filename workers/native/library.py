"""The compiled library seen from Python: its structures, its functions, its memory."""

from __future__ import annotations

import ctypes
import weakref
from ctypes import (
    POINTER,
    Structure,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.errors import EngineError
from service.spec import RandomData, RunSpec
from workers.native.build import Build, build
from workers.stack import METRICS
from workers.streams import dropout_scale, dropout_threshold
from workers.tasks import Dataset


class CRun(Structure):
    """`Run` of network.h, field by field."""

    _fields_ = (
        *((name, c_int32) for name in ("vocabulary", "width", "depth", "rope", "pairs")),
        *((name, c_int32) for name in ("batch_size", "n_train", "n_val", "evaluates_train")),
        ("dropout_threshold", c_int32),
        ("dropout_scale", c_float),
        *((name, c_double) for name in ("lr", "beta1", "beta2", "eps", "weight_decay")),
        ("seed", c_uint64),
        *((name, c_void_p) for name in ("x_train", "y_train", "x_val", "y_val")),
        *((name, c_void_p) for name in ("weights", "first_moment", "second_moment")),
    )


@dataclass(frozen=True)
class Run:
    """A run in the form C reads, with the arrays its pointers point into."""

    structure: CRun
    flat: NDArray[np.float32]  # [3, P]: weights and both moments
    examples: tuple[NDArray[np.int32], ...]


def make_run(spec: RunSpec, data: Dataset, flat: NDArray[np.float32]) -> Run:
    """Describe the run to C; training changes `flat` in place."""
    model, optimiser = spec.model, spec.optimiser
    arrays = (data.x_train, data.y_train, data.x_val, data.y_val)
    examples = tuple(np.ascontiguousarray(array, dtype=np.int32) for array in arrays)
    structure = CRun(
        vocabulary=spec.vocabulary,
        width=model.width,
        depth=model.depth,
        rope=model.positions == "rope",
        pairs=not isinstance(spec.data, RandomData),
        batch_size=optimiser.batch_size,
        n_train=len(data.y_train),
        n_val=len(data.y_val),
        evaluates_train=spec.eval_train or spec.records_bits,
        dropout_threshold=dropout_threshold(model.dropout),
        dropout_scale=dropout_scale(model.dropout),
        lr=optimiser.lr,
        beta1=optimiser.beta1,
        beta2=optimiser.beta2,
        eps=optimiser.eps,
        weight_decay=optimiser.weight_decay,
        seed=spec.seed,
        **{
            name: array.ctypes.data
            for name, array in zip(("x_train", "y_train", "x_val", "y_val"), examples, strict=True)
        },
        weights=flat[0].ctypes.data,
        first_moment=flat[1].ctypes.data,
        second_moment=flat[2].ctypes.data,
    )
    return Run(structure, flat, examples)


class Library:
    """The functions of engine.c. A call releases the interpreter while it runs."""

    def __init__(self, made: Build) -> None:
        self.build = made
        functions = ctypes.CDLL(str(made.path))
        self._functions = functions
        functions.groktime_workspace.restype = c_void_p
        functions.groktime_workspace.argtypes = []
        functions.groktime_free.restype = None
        functions.groktime_free.argtypes = [c_void_p]
        functions.groktime_instructions.restype = ctypes.c_char_p
        functions.groktime_instructions.argtypes = []
        functions.groktime_train.restype = c_int
        functions.groktime_train.argtypes = [
            *(c_void_p, POINTER(CRun), c_int64, c_int64, c_void_p, c_void_p)
        ]
        functions.groktime_gradients.restype = c_int
        functions.groktime_gradients.argtypes = [
            *(c_void_p, POINTER(CRun), c_void_p, c_int32, c_int64, c_int64),
            *(POINTER(c_double), c_void_p),
        ]
        functions.groktime_permutation.restype = None
        functions.groktime_permutation.argtypes = [c_uint64, c_int64, c_int32, c_void_p]

    @property
    def instructions(self) -> str:
        """The vector instructions the library was compiled for."""
        name: bytes = self._functions.groktime_instructions()
        return name.decode()

    def permutation(self, seed: int, epoch: int, count: int) -> NDArray[np.int32]:
        """The order of an epoch's examples, as C draws it."""
        order = np.empty(count, dtype=np.int32)
        self._functions.groktime_permutation(seed, epoch, count, order.ctypes.data)
        return order

    def workspace(self) -> Workspace:
        return Workspace(self._functions)


class Workspace:
    """The engine's memory: grows to the largest run it serves, freed with this object."""

    def __init__(self, functions: ctypes.CDLL) -> None:
        self._functions = functions
        self._handle = functions.groktime_workspace()
        if not self._handle:
            raise EngineError("no memory for the native engine")
        weakref.finalize(self, functions.groktime_free, self._handle)

    def train(
        self, run: Run, epochs_done: int, epochs: int, orders: NDArray[np.int64] | None = None
    ) -> NDArray[Any]:
        """Train so many epochs more; METRICS of shape [epochs]. `orders` is [epochs, n_train]."""
        metrics = np.empty(epochs, dtype=METRICS)
        given = None if orders is None else np.ascontiguousarray(orders, dtype=np.int32)
        self._check(
            self._functions.groktime_train(
                self._handle,
                run.structure,
                epochs_done + 1,
                epochs,
                None if given is None else given.ctypes.data,
                metrics.ctypes.data,
            )
        )
        return metrics

    def gradients(
        self, run: Run, batch: NDArray[np.integer[Any]], epoch: int = 1, step: int = 0
    ) -> tuple[float, NDArray[np.float32]]:
        """Mean loss of a batch of training examples and its flat gradient, weights untouched."""
        indices = np.ascontiguousarray(batch, dtype=np.int32)
        gradient, loss = np.empty_like(run.flat[0]), c_double()
        self._check(
            self._functions.groktime_gradients(
                *(self._handle, run.structure, indices.ctypes.data, len(indices)),
                *(epoch, step, loss, gradient.ctypes.data),
            )
        )
        return loss.value, gradient

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise EngineError("no memory for the native engine")


@lru_cache(maxsize=1)
def library() -> Library:
    """The library for this machine, compiled now if need be."""
    return Library(build())
