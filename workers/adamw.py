"""AdamW for a stack: one flat vector per model, with each model's own settings and step count."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from service.spec import OptimiserSpec


class AdamW:
    """Decoupled weight decay on all parameters; weights and moments are [M, P]."""

    def __init__(self, optimisers: Sequence[OptimiserSpec], device: torch.device) -> None:
        self.optimisers = optimisers

        def column(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float32, device=device)[:, None]

        self.decay = column([1 - o.lr * o.weight_decay for o in optimisers])
        self.keep1 = column([o.beta1 for o in optimisers])
        self.take1 = column([1 - o.beta1 for o in optimisers])
        self.keep2 = column([o.beta2 for o in optimisers])
        self.take2 = column([1 - o.beta2 for o in optimisers])
        self.eps = column([o.eps for o in optimisers])

    def corrections(self, steps: NDArray[np.int64]) -> NDArray[np.float32]:
        """Bias corrections of steps [..., M] counted from 1: [..., 2, M].

        First lr / (1 − β1ᵗ), then 1 / √(1 − β2ᵗ), in double precision before rounding.
        """
        lr, beta1, beta2 = (
            np.array([getattr(o, name) for o in self.optimisers])
            for name in ("lr", "beta1", "beta2")
        )
        size = lr / (1 - beta1**steps)
        root = 1 / np.sqrt(1 - beta2**steps)
        return np.stack([size, root], axis=-2).astype(np.float32)

    def step(
        self, weights: Tensor, first: Tensor, second: Tensor, gradient: Tensor, correction: Tensor
    ) -> None:
        """Update weights and both moments in place; correction is [2, M] of this step."""
        size, root = correction[0][:, None], correction[1][:, None]
        weights.mul_(self.decay)
        first.mul_(self.keep1).addcmul_(gradient, self.take1)
        second.mul_(self.keep2).addcmul_(gradient * self.take2, gradient)
        denominator = second.sqrt().mul_(root).add_(self.eps)
        weights.sub_(first.div(denominator).mul_(size))
