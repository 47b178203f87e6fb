"""A whole epoch of a slab as one CUDA graph, trusted only after it equalled the plain epoch.

An epoch of tiny models is thousands of kernels of microseconds each, and starting them costs more
than running them; a graph starts all of them at once. It is recorded when a slab first trains.
The first graph of each shape on each GPU trains some epochs beside the plain way: on a difference,
or where recording fails, that slab trains the plain way and the log says so once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

log = logging.getLogger(__name__)

# Reals [M, 4] and counts [M, 3] of an epoch, from what it is given.
Epoch = Callable[..., tuple[Tensor, Tensor]]
StepMode = Literal["plain", "graph", "compile"]

WARM_UPS = 3  # libraries choose kernels and allocate workspaces in the first calls
CHECKED_EPOCHS = 3
# Atomic additions make two plain epochs differ in the last bits, too.
REAL_TOLERANCE = 1e-3  # relative
COUNT_TOLERANCE = 0.01  # of the largest count, and at least two examples

_trusted: set[Hashable] = set()
_refused: set[Hashable] = set()


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, Tensor]

    def replay(self, arguments: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        for kept, argument in zip(self.inputs, arguments, strict=True):
            kept.copy_(argument)
        self.graph.replay()
        reals, counts = self.outputs
        return reals.clone(), counts.clone()


def was_refused(shape: Hashable) -> bool:
    """Whether epochs of this shape are trained plainly, since a graph could not be trusted."""
    return shape in _refused


class GraphedEpoch:
    """Calls an epoch by replaying its kernels, or plainly where that cannot be trusted.

    The epoch must change nothing but `state`, in place, and never wait for the device; its
    arguments must always have the same shapes.
    """

    def __init__(self, epoch: Epoch, state: Sequence[Tensor], shape: Hashable) -> None:
        self._epoch, self._state, self._shape = epoch, tuple(state), shape
        self._recording: _Recording | None = None

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, Tensor]:
        if self._recording is None and self._shape not in _refused:
            # Streams are those of the current device, which need not be the slab's.
            with torch.cuda.device(self._state[0].get_device()):
                self._recording = self._recorded(arguments)
        if self._recording is None:
            return self._epoch(*arguments)
        return self._recording.replay(arguments)

    def _recorded(self, arguments: tuple[Tensor, ...]) -> _Recording | None:
        """A recording that can be trusted; the state is left as it was."""
        before = [tensor.clone() for tensor in self._state]
        try:
            recording = self._record(arguments)
            problem = None
            if self._shape not in _trusted:
                problem = self._compare(recording, arguments, before)
        except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
            problem = (str(error) or type(error).__name__).splitlines()[0]
        self._restore(before)
        if problem is None:
            _trusted.add(self._shape)
            return recording
        _refused.add(self._shape)
        log.warning("epochs are started kernel by kernel, not as a CUDA graph: %s", problem)
        return None

    def _record(self, arguments: tuple[Tensor, ...]) -> _Recording:
        inputs = tuple(argument.clone() for argument in arguments)
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UPS):
                self._epoch(*inputs)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = self._epoch(*inputs)
        return _Recording(graph, inputs, outputs)

    def _compare(
        self, recording: _Recording, arguments: tuple[Tensor, ...], before: Sequence[Tensor]
    ) -> str | None:
        """Some epochs both ways from the same state: what differs, if anything does."""
        self._restore(before)
        plain = [self._epoch(*arguments) for _ in range(CHECKED_EPOCHS)]
        self._restore(before)
        graphed = [recording.replay(arguments) for _ in range(CHECKED_EPOCHS)]
        return difference(plain, graphed)

    def _restore(self, before: Sequence[Tensor]) -> None:
        for tensor, value in zip(self._state, before, strict=True):
            tensor.copy_(value)


def difference(
    plain: Sequence[tuple[Tensor, Tensor]], graphed: Sequence[tuple[Tensor, Tensor]]
) -> str | None:
    """In what two curves of (reals, counts) differ by more than rounding, or None."""
    for epoch, (expected, found) in enumerate(zip(plain, graphed, strict=True), start=1):
        close = torch.isclose(found[0], expected[0], rtol=REAL_TOLERANCE, atol=0, equal_nan=True)
        if not bool(close.all()):
            return f"its losses differ from the plain ones in epoch {epoch}"
        most = max(2.0, COUNT_TOLERANCE * float(expected[1].max()))
        if float((found[1] - expected[1]).abs().max()) > most:
            return f"its correct answers differ from the plain ones in epoch {epoch}"
    return None
