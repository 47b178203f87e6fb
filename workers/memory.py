"""The memory that training takes, by arithmetic: planning needs neither torch nor a device."""

from __future__ import annotations

from service.spec import TOKENS, RunSpec


def model_bytes(spec: RunSpec, device: str) -> int:
    """Memory one model of a stack takes on a device of this kind (cpu, cuda), rounded up.

    Weights, both moments and a gradient; the data; and the activations that the backward pass
    keeps, which only stacked models hold at the same time: on a CPU one model trains at a time.
    """
    persistent = 4 * 4 * spec.params + 8 * 5 * (spec.data.n_train + spec.data.n_val)
    if device == "cpu":
        return persistent
    model, batch = spec.model, min(spec.optimiser.batch_size, spec.data.n_train)
    per_position = 8 * model.hidden + 16 * model.width
    activations = batch * (TOKENS * model.depth * per_position + 4 * spec.vocabulary)
    return persistent + 4 * activations
