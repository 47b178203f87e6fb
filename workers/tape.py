"""A tape of operators: what each does on the way back, in the order of the way forward.

Autograd would do the same. Its bookkeeping for every operator costs as much as the arithmetic of
tiny models does, and it frees no memory as early: here an operator is a function that computes,
records one closure, and returns.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Backward = Callable[[Tensor], None]


class Value:
    """A tensor and, while a backward pass is on its way, the gradient of the loss by it."""

    __slots__ = ("data", "grad")

    def __init__(self, data: Tensor) -> None:
        self.data = data
        self.grad: Tensor | None = None

    def give(self, grad: Tensor) -> None:
        """Add to the gradient. Who gives a tensor gives it up: it may be added to in place."""
        self.grad = grad if self.grad is None else self.grad.add_(grad)

    def give_last(self, grad: Tensor) -> None:
        """Add to the gradient of the last rows, those along axis 1."""
        if self.grad is None:
            self.grad = self.data.new_zeros(self.data.shape)
        self.grad[:, -grad.shape[1] :] += grad


class Tape:
    """What was computed, to be walked back once; nothing is kept when not recording."""

    def __init__(self, *, recording: bool) -> None:
        self.recording = recording
        self._steps: list[tuple[Value, Backward]] = []

    def record(self, value: Value, backward: Backward) -> Value:
        """The value just computed; `backward` takes its gradient, which is then its own."""
        if self.recording:
            self._steps.append((value, backward))
        return value

    def backward(self) -> None:
        """From the last value to the first, each giving to those it was computed from."""
        while self._steps:
            value, backward = self._steps.pop()
            if value.grad is not None:
                grad, value.grad = value.grad, None
                backward(grad)
