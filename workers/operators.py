"""The operators of the network, each with its way back.

Written out they keep what the forward pass computed (no second exponential), avoid batches of
tiny matrix products, and need few calls, which is what training small models costs on a CPU.
Values are rows with a leading model axis: M models, N rows, d width.

A tape keeps what each operator does on the way back, in the order of the way forward. Autograd
would do the same: the same algebra under autograd takes 1.12 to 1.31 times as long for a step on a
CPU (d = 128 to 20 at p = 113, d = 24 at p = 59: 1.31) and 319 kernels instead of 300. That alone
would not keep the tape; it stays because autograd adds gradients up in another order, and runs
would no longer be those of earlier checkpoints bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from groktime.workers.model import NORM_EPS

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


def fused(x: Tensor) -> bool:
    """Whether to take torch's fused kernels: on a GPU starting a kernel is what costs.

    On a CPU they would round differently with the number of threads, and gain nothing.
    """
    return x.is_cuda


def linear(tape: Tape, x: Value, weight: Value, plus: Value | None = None) -> Value:
    """x Wᵀ (+ plus) for x [M, N, in], weight [M, out, in] and plus [M, N, out]."""
    if plus is None:
        y = Value(torch.bmm(x.data, weight.data.mT))
    else:
        y = Value(torch.baddbmm(plus.data, x.data, weight.data.mT))

    def backward(grad: Tensor) -> None:
        weight.give(_weight_gradient(grad, x.data))
        x.give(torch.bmm(grad, weight.data))
        if plus is not None:
            plus.give(grad)

    return tape.record(y, backward)


def _weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """gradᵀ x, on a CPU as a product of more rows than columns.

    One of more columns than rows would round differently with the number of threads.
    """
    if grad.shape[2] < x.shape[2] and not fused(x):
        return torch.bmm(x.mT, grad).mT
    return torch.bmm(grad.mT, x)


def product(tape: Tape, a: Value, b: Value) -> Value:
    """The matrix product a b of each model."""

    def backward(grad: Tensor) -> None:
        a.give(torch.bmm(grad, b.data.mT))
        b.give(torch.bmm(a.data.mT, grad))

    return tape.record(Value(torch.bmm(a.data, b.data)), backward)


def transpose(tape: Tape, x: Value) -> Value:
    """The last two axes exchanged."""
    return tape.record(Value(x.data.mT), lambda grad: x.give(grad.mT))


def add(tape: Tape, x: Value, y: Value) -> Value:
    """x + y, of equal shapes."""

    def backward(grad: Tensor) -> None:
        x.give(grad.clone())
        y.give(grad)

    return tape.record(Value(x.data + y.data), backward)


def add_bias(tape: Tape, x: Value, bias: Value) -> Value:
    """x [M, N, d] plus bias [M, d] in every row."""

    def backward(grad: Tensor) -> None:
        bias.give(grad.sum(dim=1))
        x.give(grad)

    return tape.record(Value(x.data + bias.data[:, None]), backward)


def masked(tape: Tape, x: Value, mask: Tensor, scale: Tensor) -> Value:
    """Dropout: x ⊙ mask · scale, with mask of x's shape and scale [M, 1, 1]."""

    def backward(grad: Tensor) -> None:
        x.give(grad.mul_(mask).mul_(scale))

    return tape.record(Value((x.data * mask).mul_(scale)), backward)


def last_rows(tape: Tape, x: Value, count: int) -> Value:
    """The last rows of x [M, N, d]."""
    return tape.record(Value(x.data[:, -count:]), x.give_last)


def join(tape: Tape, first: Value, second: Value) -> Value:
    """The rows of both, one after the other."""
    size = first.data.shape[1]

    def backward(grad: Tensor) -> None:
        first.give(grad[:, :size])
        second.give(grad[:, size:])

    return tape.record(Value(torch.cat([first.data, second.data], dim=1)), backward)


def beside(tape: Tape, left: Value, right: Value) -> Value:
    """The columns of both, [M, N, d] each, side by side."""
    size = left.data.shape[2]

    def backward(grad: Tensor) -> None:
        left.give(grad[..., :size])
        right.give(grad[..., size:])

    return tape.record(Value(torch.cat([left.data, right.data], dim=2)), backward)


def halves(tape: Tape, x: Value) -> tuple[Value, Value]:
    """The left and the right half of the columns; a gradient is expected of both."""
    left, right = (Value(half) for half in x.data.chunk(2, dim=2))

    def backward(grad: Tensor) -> None:
        assert left.grad is not None
        x.give(torch.cat([left.grad, grad], dim=2))

    return left, tape.record(right, backward)


def concatenate(tape: Tape, x: Value, count: int) -> Value:
    """Every `count` rows of x [M, N, d] as one, [M, N / count, count d]."""
    models, _, width = x.data.shape
    joined = x.data.view(models, -1, count * width)
    return tape.record(Value(joined), lambda grad: x.give(grad.view(models, -1, width)))


def silu(tape: Tape, x: Value) -> Value:
    """x σ(x)."""
    sigmoid = x.data.sigmoid()
    y = x.data * sigmoid

    def backward(grad: Tensor) -> None:
        x.give(_silu_slope(y, sigmoid).mul_(grad))

    return tape.record(Value(y), backward)


def _silu_slope(silu: Tensor, sigmoid: Tensor) -> Tensor:
    """silu' = σ + silu·(1 − σ)."""
    return torch.lerp(silu, silu.new_ones(()), sigmoid)


def take(tape: Tape, table: Value, rows: Tensor) -> Value:
    """Rows [M, N] of table [M, R, d]: [M, N, d]."""
    at = _flat_rows(rows, table.data.shape[1])

    def backward(grad: Tensor) -> None:
        table.give(_put(grad, at, table.data.shape[1]))

    return tape.record(Value(_get(table.data, at)), backward)


def _flat_rows(rows: Tensor, size: int) -> Tensor:
    """Rows [M, N] of tables of that size as rows of all tables one after the other."""
    models = rows.shape[0]
    if models > 1:
        rows = rows + torch.arange(0, models * size, size, device=rows.device)[:, None]
    return rows.flatten()


def _get(table: Tensor, at: Tensor) -> Tensor:
    """The rows of table [M, R, d] at flat places: [M, N, d]."""
    models, _, width = table.shape
    return table.reshape(-1, width).index_select(0, at).view(models, -1, width)


def _put(rows: Tensor, at: Tensor, size: int) -> Tensor:
    """What _get does, transposed: a table [M, size, d] of the sums of the rows [M, N, d]."""
    models, _, width = rows.shape
    table = rows.new_zeros(models * size, width)
    return table.index_add_(0, at, rows.reshape(-1, width)).view(models, size, width)


def rotate(tape: Tape, x: Value, cos: Tensor, sin: Tensor) -> Value:
    """Turn adjacent pairs (2i, 2i + 1) of each row; cos and sin are [N, d / 2]."""

    def backward(grad: Tensor) -> None:
        x.give(_turn(grad, cos, -sin))

    return tape.record(Value(_turn(x.data, cos, sin)), backward)


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    if fused(x):
        pairs = torch.view_as_complex(x.contiguous().view(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * torch.complex(cos, sin)).flatten(-2)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


@dataclass(frozen=True)
class Norm:
    """Gain, and the bias that LayerNorm alone has, [M, d] each."""

    gain: Value
    bias: Value | None


def normalise(tape: Tape, x: Value, norm: Norm) -> Value:
    """RMSNorm x / √(mean x² + eps) ⊙ gain, or LayerNorm, of x [M, N, d]."""
    normed, unit, inverse = _normalise(x.data, norm)

    def backward(grad: Tensor) -> None:
        x.give(_normalise_backward(grad, unit, inverse, norm))

    return tape.record(Value(normed), backward)


def _normalise(x: Tensor, norm: Norm) -> tuple[Tensor, Tensor, Tensor]:
    """The result, x without gain and bias, and one over the root that x was divided by."""
    if fused(x) and norm.bias is None:
        unit, inverse = torch.ops.aten._fused_rms_norm(x, x.shape[-1:], None, NORM_EPS)
    elif fused(x):
        unit, _, inverse = torch.native_layer_norm(x, x.shape[-1:], None, None, NORM_EPS)
    else:
        if norm.bias is not None:
            x = x - x.mean(dim=-1, keepdim=True)
        inverse = (x * x).mean(dim=-1, keepdim=True).add_(NORM_EPS).rsqrt_()
        unit = x * inverse
    gain = norm.gain.data[:, None]
    normed = unit * gain if norm.bias is None else norm.bias.data[:, None] + unit * gain
    return normed, unit, inverse


def _normalise_backward(grad: Tensor, unit: Tensor, inverse: Tensor, norm: Norm) -> Tensor:
    """The gradient of x, in which the part along x vanishes; gives those of gain and bias."""
    gain, width = norm.gain.data[:, None], grad.shape[-1]
    product = grad * unit
    norm.gain.give(product.sum(dim=1))
    along = torch.bmm(product, gain.mT).div_(-width)  # [M, N, 1]
    x_grad = torch.addcmul(grad * gain, unit, along)
    if norm.bias is not None:
        norm.bias.give(grad.sum(dim=1))
        x_grad.sub_(torch.bmm(grad, gain.mT).div_(width))
    return x_grad.mul_(inverse)


@dataclass(frozen=True)
class Attention:
    """How rows are positions and heads: B examples, H heads; scores are multiplied by `scale`.

    `unseen` is -∞ where a key comes after the query, else 0: [4, 4, 1, 1, 1].
    """

    examples: int
    heads: int
    scale: float
    unseen: Tensor

    def split(self, x: Tensor) -> Tensor:
        """[M, n B, H e] to [M, n, B, H, e]."""
        return x.view(x.shape[0], -1, self.examples, self.heads, x.shape[2] // self.heads)


def attend(tape: Tape, shape: Attention, q: Value, k: Value, v: Value) -> Value:
    """Attention of I positions [M, I B, ·] to J positions [M, J B, ·]: sums of values.

    The queries are the last I of the J positions, each seeing the keys up to its own. There are
    at most four keys: products with them are sums of a few scaled vectors, which tiny matrix
    products would only slow down.
    """
    queries = shape.split(q.data)[:, :, None]  # [M, I, 1, B, H, e]
    keys, values = shape.split(k.data)[:, None], shape.split(v.data)[:, None]
    scores = (queries * keys).sum(dim=-1, keepdim=True).mul_(shape.scale)  # [M, I, J, B, H, 1]
    if queries.shape[1] > 1:
        positions = keys.shape[2]
        scores += shape.unseen[positions - queries.shape[1] : positions, :positions]
    if fused(scores):
        weights = scores.softmax(dim=2)
    else:
        # Written out: torch's softmax along an inner axis rounds by the number of threads.
        weights = scores.sub_(scores.amax(dim=2, keepdim=True)).exp_()
        weights.div_(weights.sum(dim=2, keepdim=True))

    def backward(grad: Tensor) -> None:
        out_grad = shape.split(grad)[:, :, None]
        weights_grad = (out_grad * values).sum(dim=-1, keepdim=True)
        v.give((weights * out_grad).sum(dim=1).view(v.data.shape))
        if fused(weights):
            scores_grad = torch._softmax_backward_data(weights_grad, weights, 2, weights.dtype)
        else:
            mean = (weights * weights_grad).sum(dim=2, keepdim=True)
            scores_grad = weights_grad.sub_(mean).mul_(weights)
        scores_grad = scores_grad.mul_(shape.scale)
        q.give((scores_grad * keys).sum(dim=2).view(q.data.shape))
        k.give((scores_grad * queries).sum(dim=1).view(k.data.shape))

    out = (weights * values).sum(dim=2)
    return tape.record(Value(out.view(*q.data.shape[:2], -1)), backward)


@dataclass(frozen=True)
class Shared:
    """Rows [M, R, d] that are the same for many examples, and which of them each needs, [M, N].

    Only dropout tells such examples apart.
    """

    rows: Value
    prefix: Tensor


@dataclass(frozen=True)
class FeedForward:
    """The FFN's parameters: w1 and w3 (the gate, if any) [M, h, d], w2 [M, d, h]."""

    norm: Norm
    w1: Value
    w3: Value | None
    w2: Value


@dataclass(frozen=True)
class Dropout:
    """1.0 keeps and 0.0 drops, [M, N, units]; kept units are multiplied by scale [M, 1, 1]."""

    mask: Tensor
    scale: Tensor


def feed_forward(
    tape: Tape, x: Value, ffn: FeedForward, dropout: Dropout | None, shared: Shared | None
) -> Value:
    """x + dropout(silu(u W1ᵀ) ⊙ (u W3ᵀ)) W2ᵀ with u the normalised x [M, N, d].

    Shared rows go through the hidden units once each; those that examples need stand before x's
    in the result and in the mask.
    """
    known = 0 if shared is None else shared.rows.data.shape[1]
    rows = x.data if shared is None else torch.cat([shared.rows.data, x.data], dim=1)
    normed, unit, inverse = _normalise(rows, ffn.norm)
    silu = torch.bmm(normed, ffn.w1.data.mT)
    sigmoid = silu.sigmoid()
    silu.mul_(sigmoid)
    gate = silu.new_ones(()) if ffn.w3 is None else torch.bmm(normed, ffn.w3.data.mT)
    hidden = silu if ffn.w3 is None else silu * gate
    stream, used, w2 = x.data, hidden, ffn.w2.data
    if dropout is not None:
        # Scaling the weight instead of the units saves a pass over the larger tensor.
        w2 = w2 * dropout.scale
        if shared is None:
            used = hidden * dropout.mask
        else:
            at, count = _flat_rows(shared.prefix, known), shared.prefix.shape[1]
            stream = torch.cat([_get(rows[:, :known], at), x.data], dim=1)
            used = torch.empty_like(dropout.mask)
            taken = _get(hidden[:, :known], at)
            torch.mul(taken, dropout.mask[:, :count], out=used[:, :count])
            torch.mul(hidden[:, known:], dropout.mask[:, count:], out=used[:, count:])

    def backward(grad: Tensor) -> None:
        w2_grad = _weight_gradient(grad, used)
        hidden_grad = torch.bmm(grad, w2)
        if dropout is not None:
            w2_grad = w2_grad * dropout.scale
            hidden_grad.mul_(dropout.mask)
        ffn.w2.give(w2_grad)
        if shared is not None:
            hidden_grad, grad = (
                torch.cat([_put(part[:, :count], at, known), part[:, count:]], dim=1)
                for part in (hidden_grad, grad)
            )
        # gate ⊙ silu' with silu'(h) = σ + silu·(1 − σ)
        before_grad = torch.lerp(hidden, gate, sigmoid).mul_(hidden_grad)
        ffn.w1.give(_weight_gradient(before_grad, normed))
        normed_grad = torch.bmm(before_grad, ffn.w1.data)
        if ffn.w3 is not None:
            gate_grad = hidden_grad.mul_(silu)
            ffn.w3.give(_weight_gradient(gate_grad, normed))
            normed_grad = normed_grad.baddbmm_(gate_grad, ffn.w3.data)
        x_grad = _normalise_backward(normed_grad, unit, inverse, ffn.norm).add_(grad)
        x.give(x_grad[:, known:])
        if shared is not None:
            shared.rows.give(x_grad[:, :known])

    return tape.record(Value(torch.baddbmm(stream, used, w2.mT)), backward)
