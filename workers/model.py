"""A model's parameters: their names, shapes and initial values, the same for every engine.

Names and shapes are PyTorch's: a linear weight is out × in. Each tensor draws its initial values
from a stream of its own, keyed by what it is and its layer, so that the speed and the grok run
of a cell start from equal weights and a variant shares all tensors it has in common with others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from groktime.service.spec import TOKENS, ModelSpec, RunSpec
from groktime.workers.streams import Purpose, normals, stream_key, uniforms

NORM_EPS = 1e-5  # added to the mean square (or variance) inside the square root
ROPE_BASE = 1e6

# A state keeps the AdamW moments of a parameter under its name with these prefixes.
FIRST_MOMENT = "m."
SECOND_MOMENT = "v."


class Tensor(IntEnum):
    """What a parameter is; the numbers key its initial values and never change."""

    EMBEDDING = 1
    POSITIONS = 2
    ATTN_NORM = 3
    WQ = 4
    WK = 5
    WV = 6
    WO = 7
    PROJECTION = 8
    PROJECTION_BIAS = 9
    FF_NORM = 10
    W1 = 11
    W2 = 12
    W3 = 13
    NORM = 14
    OUT = 15
    NORM_BIAS = 16  # LayerNorm's biases, wherever they are: all start at zero


Initial = Literal["normal", "uniform", "ones", "zeros"]


@dataclass(frozen=True)
class Parameter:
    """One trainable tensor; `uniform` draws from ±1/√fan_in, which `fan_in` gives."""

    name: str
    shape: tuple[int, ...]
    tensor: Tensor
    layer: int
    initial: Initial
    fan_in: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def initial_values(self, seed: int, scale: float) -> NDArray[np.float32]:
        """Drawn in double precision, scaled, then rounded once."""
        key = stream_key(seed, Purpose.INIT, self.tensor, self.layer)
        if self.initial == "normal":
            values = normals(key, self.size)
        elif self.initial == "uniform":
            values = (2 * uniforms(key, self.size) - 1) / math.sqrt(self.fan_in)
        else:
            values = np.full(self.size, 1.0 if self.initial == "ones" else 0.0)
        return (values * scale).astype(np.float32).reshape(self.shape)


def parameters(model: ModelSpec, vocabulary: int) -> list[Parameter]:
    """All trainable tensors in the order of the forward pass."""
    return list(_parameters(model, vocabulary))


def _parameters(model: ModelSpec, vocabulary: int) -> Iterator[Parameter]:
    d, hidden = model.width, model.hidden
    yield Parameter("embedding.weight", (vocabulary, d), Tensor.EMBEDDING, 0, "normal", d)
    if model.architecture == "mlp":
        yield _linear("mlp.w1", hidden, TOKENS * d, Tensor.W1, 0)
        yield _linear("mlp.w2", d, hidden, Tensor.W2, 0)
    else:
        if model.positions == "learned":
            yield Parameter("positions.weight", (TOKENS, d), Tensor.POSITIONS, 0, "normal", d)
        for layer in range(model.depth):
            yield from _block(model, layer)
    yield from _norm(model, "norm", Tensor.NORM, model.depth)
    yield _linear("out", vocabulary, d, Tensor.OUT, 0)


def _block(model: ModelSpec, layer: int) -> Iterator[Parameter]:
    d, hidden = model.width, model.hidden
    attn, ff = f"layers.{layer}.attn", f"layers.{layer}.ff"
    yield from _norm(model, f"{attn}.norm", Tensor.ATTN_NORM, layer)
    yield _linear(f"{attn}.wq", d, d, Tensor.WQ, layer)
    yield _linear(f"{attn}.wk", d, d, Tensor.WK, layer)
    yield _linear(f"{attn}.wv", d, d, Tensor.WV, layer)
    yield _linear(f"{attn}.wo", d, d, Tensor.WO, layer)
    if model.released_head_projection:
        yield _linear(f"{attn}.to_out.0", d, d, Tensor.PROJECTION, layer)
        yield Parameter(f"{attn}.to_out.0.bias", (d,), Tensor.PROJECTION_BIAS, layer, "uniform", d)
    yield from _norm(model, f"{ff}.norm", Tensor.FF_NORM, layer)
    yield _linear(f"{ff}.w1", hidden, d, Tensor.W1, layer)
    yield _linear(f"{ff}.w2", d, hidden, Tensor.W2, layer)
    if model.ffn == "gated":
        yield _linear(f"{ff}.w3", hidden, d, Tensor.W3, layer)


def _linear(name: str, rows: int, columns: int, tensor: Tensor, layer: int) -> Parameter:
    return Parameter(f"{name}.weight", (rows, columns), tensor, layer, "uniform", columns)


def _norm(model: ModelSpec, name: str, tensor: Tensor, layer: int) -> Iterator[Parameter]:
    d = model.width
    yield Parameter(f"{name}.weight", (d,), tensor, layer, "ones", d)
    if model.norm == "layer":
        yield Parameter(f"{name}.bias", (d,), Tensor.NORM_BIAS, layer, "zeros", d)


def run_parameters(spec: RunSpec) -> list[Parameter]:
    """The tensors of a run's model."""
    return parameters(spec.model, spec.vocabulary)


def initial_weights(spec: RunSpec) -> dict[str, NDArray[np.float32]]:
    """Name to initial value, from the run's seed; init_scale multiplies gains too."""
    return {
        parameter.name: parameter.initial_values(spec.seed, spec.model.init_scale)
        for parameter in run_parameters(spec)
    }


def state_of(weights: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """The state of a model that starts from these weights: both AdamW moments are zero."""
    moments = {
        prefix + name: np.zeros_like(value)
        for prefix in (FIRST_MOMENT, SECOND_MOMENT)
        for name, value in weights.items()
    }
    return {**weights, **moments}


def initial_state(spec: RunSpec) -> dict[str, NDArray[np.float32]]:
    """The state of the run at epoch 0; the step count follows from epochs · steps_per_epoch."""
    return state_of(initial_weights(spec))


def rope_table(head_width: int) -> NDArray[np.float64]:
    """cos and sin of the rotation by position, [2, positions, head_width / 2].

    Pair i (units 2i and 2i + 1) turns by pos · base^(−2i / head_width).
    """
    frequency = ROPE_BASE ** (-np.arange(0, head_width, 2) / head_width)
    angle = np.arange(TOKENS)[:, None] * frequency
    return np.stack([np.cos(angle), np.sin(angle)])
