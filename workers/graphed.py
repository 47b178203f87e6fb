"""Faster ways to call a training step on a GPU: recorded as a CUDA graph, or compiled.

A step of tiny models is hundreds of kernels of microseconds each, and starting them costs more
than running them; a graph starts all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Step = Callable[..., tuple[Tensor, ...]]
StepMode = Literal["plain", "graph", "compile"]

WARM_UPS = 3  # libraries choose kernels and allocate workspaces in the first calls


@dataclass(frozen=True)
class _Recording:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class GraphedStep:
    """Calls a function of tensors by replaying its kernels, with one recording for each shape.

    The function must read the same memory each time apart from its arguments, change nothing and
    never wait for the device. What is returned is overwritten by the next call.
    """

    def __init__(self, step: Step) -> None:
        self._step = step
        self._recordings: dict[tuple[torch.Size, ...], _Recording] = {}

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        shapes = tuple(argument.shape for argument in arguments)
        if shapes not in self._recordings:
            self._recordings[shapes] = self._record(arguments)
        recording = self._recordings[shapes]
        for kept, argument in zip(recording.inputs, arguments, strict=True):
            kept.copy_(argument)
        recording.graph.replay()
        return recording.outputs

    def _record(self, arguments: tuple[Tensor, ...]) -> _Recording:
        inputs = tuple(argument.clone() for argument in arguments)
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UPS):
                self._step(*inputs)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = self._step(*inputs)
        return _Recording(graph, inputs, outputs)


def faster(step: Step, mode: StepMode) -> Step:
    """The step as it is, recorded, or compiled by torch (minutes for every new shape)."""
    if mode == "graph":
        return GraphedStep(step)
    return torch.compile(step) if mode == "compile" else step
