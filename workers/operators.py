"""The operators of the network, each with its way back, and the random streams of a whole stack.

Written out they keep what the forward pass computed (no second exponential), avoid batches of
tiny matrix products, and need few calls, which is what training small models costs on a CPU.
Values are rows with a leading model axis: M models, N rows, d width.

A tape keeps what each operator does on the way back, in the order of the way forward. Autograd
would do the same: the same algebra under autograd takes 1.12 to 1.31 times as long for a step on a
CPU (d = 128 to 20 at p = 113, d = 24 at p = 59: 1.31) and 19 kernels more. That alone would
not keep the tape; it stays because autograd adds gradients up in another order, and runs would no
longer be those of earlier checkpoints bit for bit.

The streams are those of workers/streams.py, computed on the training device. Torch has no unsigned
words, so a logical shift is an arithmetic one followed by a mask; products wrap around the same
way. Keys are few and made on the host for a block of epochs at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from groktime.workers.model import NORM_EPS
from groktime.workers.streams import Purpose

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
        self.grad[:, -grad.shape[1] :].add_(grad)

    def give_rows(self, grad: Tensor, at: Tensor) -> None:
        """Add rows [M, N, d] to the gradient of the rows at flat places of a table [M, R, d]."""
        if self.grad is not None and fused(grad):
            width = grad.shape[2]
            self.grad.view(-1, width).index_add_(0, at, grad.reshape(-1, width))
        else:
            self.give(_put(grad, at, self.data.shape[1]))


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


def masked(tape: Tape, x: Value, mask: Tensor, scale: Tensor | None) -> Value:
    """Dropout: x ⊙ mask · scale, with mask of x's shape and scale [M, 1, 1] if not in the mask."""

    def backward(grad: Tensor) -> None:
        x.give(_scaled(grad.mul_(mask), scale))

    return tape.record(Value(_scaled(x.data * mask, scale)), backward)


def _scaled(x: Tensor, scale: Tensor | None) -> Tensor:
    return x if scale is None else x.mul_(scale)


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


def take(tape: Tape, table: Value, at: Tensor) -> Value:
    """Rows of table [M, R, d] at flat places [M N], all tables one after the other: [M, N, d]."""
    return tape.record(Value(_get(table.data, at)), lambda grad: table.give_rows(grad, at))


def _get(table: Tensor, at: Tensor) -> Tensor:
    """The rows of table [M, R, d] at flat places: [M, N, d]."""
    models, _, width = table.shape
    return table.reshape(-1, width).index_select(0, at).view(models, -1, width)


def _put(rows: Tensor, at: Tensor, size: int) -> Tensor:
    """What _get does, transposed: a table [M, size, d] of the sums of the rows [M, N, d]."""
    models, _, width = rows.shape
    table = rows.new_zeros(models * size, width)
    return table.index_add_(0, at, rows.reshape(-1, width)).view(models, size, width)


@dataclass(frozen=True)
class Turn:
    """Angles of the pairs of each row, [N, d / 2]: cos, sin, and for fused kernels cos + i sin."""

    cos: Tensor
    sin: Tensor
    both: Tensor | None

    @classmethod
    def of(cls, cos: Tensor, sin: Tensor) -> Turn:
        return cls(cos, sin, torch.complex(cos, sin) if fused(cos) else None)


def rotate(tape: Tape, x: Value, there: Turn, back: Turn) -> Value:
    """Turn adjacent pairs (2i, 2i + 1) of each row, and gradients back."""
    return tape.record(Value(_turned(x.data, there)), lambda grad: x.give(_turned(grad, back)))


def _turned(x: Tensor, by: Turn) -> Tensor:
    if by.both is not None:
        pairs = torch.view_as_complex(x.contiguous().view(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * by.both).flatten(-2)
    even, odd, cos, sin = x[..., 0::2], x[..., 1::2], by.cos, by.sin
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


def _normalise_backward(
    grad: Tensor, unit: Tensor, inverse: Tensor, norm: Norm, plus: Tensor | None = None
) -> Tensor:
    """The gradient of x (+ plus), without its part along x; gives those of gain and bias."""
    gain, width = norm.gain.data[:, None], grad.shape[-1]
    product = grad * unit
    norm.gain.give(product.sum(dim=1))
    along = _times(product, gain.mT, -width)  # [M, N, 1]
    x_grad = torch.addcmul(grad * gain, unit, along)
    if norm.bias is not None:
        norm.bias.give(grad.sum(dim=1))
        x_grad.sub_(_times(grad, gain.mT, width))
    if plus is None:
        return x_grad.mul_(inverse)
    return torch.addcmul(plus, x_grad, inverse) if fused(grad) else x_grad.mul_(inverse).add_(plus)


def _times(a: Tensor, b: Tensor, divisor: int) -> Tensor:
    """The matrix product a b / divisor of each model."""
    if fused(a):
        return torch.baddbmm(a[..., : b.shape[2]], a, b, beta=0, alpha=1 / divisor)
    return torch.bmm(a, b).div_(divisor)


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


def attend(
    tape: Tape, shape: Attention, q: Value, k: Value, v: Value, plus: Value | None = None
) -> Value:
    """Attention of I positions [M, I B, ·] to J positions [M, J B, ·]: sums of values (+ plus).

    The queries are the last I of the J positions, each seeing the keys up to its own. There are
    at most four keys: products with them are sums of a few scaled vectors, which tiny matrix
    products would only slow down.
    """
    queries = shape.split(q.data)[:, :, None]  # [M, I, 1, B, H, e]
    keys, values = shape.split(k.data)[:, None], shape.split(v.data)[:, None]
    scores = (queries * keys).sum(dim=-1, keepdim=True)  # [M, I, J, B, H, 1]
    asking, positions = queries.shape[1], keys.shape[2]
    unseen = shape.unseen[positions - asking : positions, :positions]
    if fused(scores):
        if asking > 1:
            scores = torch.add(unseen, scores, alpha=shape.scale)
        else:
            scores.mul_(shape.scale)
        weights = scores.softmax(dim=2)
    else:
        scores.mul_(shape.scale)
        if asking > 1:
            scores += unseen
        # Written out: torch's softmax along an inner axis rounds by the number of threads.
        weights = scores.sub_(scores.amax(dim=2, keepdim=True)).exp_()
        weights.div_(weights.sum(dim=2, keepdim=True))

    def over_queries(terms: Tensor) -> Tensor:
        return terms.squeeze(1) if fused(terms) and asking == 1 else terms.sum(dim=1)

    def backward(grad: Tensor) -> None:
        out_grad = shape.split(grad)[:, :, None]
        weights_grad = (out_grad * values).sum(dim=-1, keepdim=True)
        v.give(over_queries(weights * out_grad).view(v.data.shape))
        if fused(weights):
            scores_grad = torch._softmax_backward_data(weights_grad, weights, 2, weights.dtype)
        else:
            mean = (weights * weights_grad).sum(dim=2, keepdim=True)
            scores_grad = weights_grad.sub_(mean).mul_(weights)
        scores_grad = scores_grad.mul_(shape.scale)
        q.give((scores_grad * keys).sum(dim=2).view(q.data.shape))
        k.give(over_queries(scores_grad * queries).view(k.data.shape))
        if plus is not None:
            plus.give(grad)

    out = (weights * values).sum(dim=2).view(*q.data.shape[:2], -1)
    return tape.record(Value(out if plus is None else plus.data + out), backward)


@dataclass(frozen=True)
class Shared:
    """Rows [M, R, d] that are the same for many examples, and the places each needs of them.

    Only dropout tells such examples apart. `at` are flat places in the shared rows. `among`, for
    fused kernels alone, are those places and the examples' own in both kinds of rows together.
    """

    rows: Value
    at: Tensor
    among: Tensor | None


@dataclass(frozen=True)
class FeedForward:
    """The FFN's parameters: w1 and w3 (the gate, if any) [M, h, d], w2 [M, d, h].

    Where a GPU trains, w1 holds the rows of both, [M, 2 h, d]: one product instead of two.
    """

    norm: Norm
    w1: Value
    w3: Value | None
    w2: Value
    gated: bool


@dataclass(frozen=True)
class Dropout:
    """What to multiply units by, [M, N, units]: 0.0 where dropped, and 1.0 or the scale where kept.

    With 1.0 in the mask, kept units are to be multiplied by scale [M, 1, 1] as well.
    """

    mask: Tensor
    scale: Tensor | None


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
    hidden, hidden_backward = _hidden_units(normed, ffn)
    stream, used, w2 = x.data, hidden, ffn.w2.data
    if dropout is not None:
        if dropout.scale is not None:
            # Scaling the weight instead of the units saves a pass over the larger tensor.
            w2 = w2 * dropout.scale
        if shared is None:
            used = hidden * dropout.mask
        elif shared.among is not None:
            stream, used = _get(rows, shared.among), _get(hidden, shared.among)
            used.mul_(dropout.mask)
        else:
            count = dropout.mask.shape[1] - x.data.shape[1]
            stream = torch.cat([_get(rows[:, :known], shared.at), x.data], dim=1)
            used = torch.empty_like(dropout.mask)
            taken = _get(hidden[:, :known], shared.at)
            torch.mul(taken, dropout.mask[:, :count], out=used[:, :count])
            torch.mul(hidden[:, known:], dropout.mask[:, count:], out=used[:, count:])

    def gathered(grad: Tensor) -> Tensor:
        """The gradient of the rows from that of what was taken of them."""
        if shared is None:
            return grad
        if shared.among is not None:
            return _put(grad, shared.among, rows.shape[1])
        count = grad.shape[1] - x.data.shape[1]
        return torch.cat([_put(grad[:, :count], shared.at, known), grad[:, count:]], dim=1)

    def backward(grad: Tensor) -> None:
        w2_grad = _weight_gradient(grad, used)
        hidden_grad = torch.bmm(grad, w2)
        if dropout is not None:
            if dropout.scale is not None:
                w2_grad = w2_grad * dropout.scale
            hidden_grad.mul_(dropout.mask)
        ffn.w2.give(w2_grad)
        normed_grad = hidden_backward(gathered(hidden_grad))
        x_grad = _normalise_backward(normed_grad, unit, inverse, ffn.norm, gathered(grad))
        x.give(x_grad[:, known:])
        if shared is not None:
            shared.rows.give(x_grad[:, :known])

    return tape.record(Value(torch.baddbmm(stream, used, w2.mT)), backward)


def _hidden_units(normed: Tensor, ffn: FeedForward) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """silu(u W1ᵀ) ⊙ (u W3ᵀ), and the gradient of u from theirs; that gives those of W1 and W3."""
    if ffn.gated and ffn.w3 is None:
        return _both_products(normed, ffn.w1)
    silu = torch.bmm(normed, ffn.w1.data.mT)
    sigmoid = silu.sigmoid()
    silu.mul_(sigmoid)
    gate = silu.new_ones(()) if ffn.w3 is None else torch.bmm(normed, ffn.w3.data.mT)
    hidden = silu if ffn.w3 is None else silu * gate

    def backward(grad: Tensor) -> Tensor:
        # gate ⊙ silu' with silu'(h) = σ + silu·(1 − σ)
        before_grad = torch.lerp(hidden, gate, sigmoid).mul_(grad)
        ffn.w1.give(_weight_gradient(before_grad, normed))
        normed_grad = torch.bmm(before_grad, ffn.w1.data)
        if ffn.w3 is not None:
            gate_grad = grad.mul_(silu)
            ffn.w3.give(_weight_gradient(gate_grad, normed))
            normed_grad = normed_grad.baddbmm_(gate_grad, ffn.w3.data)
        return normed_grad

    return hidden, backward


def _both_products(normed: Tensor, both: Value) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """_hidden_units where one weight [M, 2 h, d] holds the rows of W1 and W3."""
    products = torch.bmm(normed, both.data.mT)
    before, gate = products.chunk(2, dim=2)
    silu = torch.nn.functional.silu(before)

    def backward(grad: Tensor) -> Tensor:
        products_grad = torch.empty_like(products)
        before_grad, gate_grad = products_grad.chunk(2, dim=2)
        torch.mul(grad, silu, out=gate_grad)
        torch.ops.aten.silu_backward.grad_input(grad.mul_(gate), before, grad_input=before_grad)
        both.give(_weight_gradient(products_grad, normed))
        return torch.bmm(products_grad, both.data)

    return silu * gate, backward


_GOLDEN = 0x9E37_79B9_7F4A_7C15


def _signed64(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _mix64(word: NDArray[np.uint64]) -> NDArray[np.uint64]:
    word = word + np.uint64(_GOLDEN)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return word ^ (word >> np.uint64(31))


def stream_keys(seeds: ArrayLike, purpose: Purpose, *position: ArrayLike) -> NDArray[np.int64]:
    """stream_key of seeds and positions broadcast together, as signed words."""
    with np.errstate(over="ignore"):
        key = _mix64(np.asarray(seeds, dtype=np.uint64))
        for part in (int(purpose), *position):
            key = _mix64(key ^ np.asarray(part, dtype=np.uint64))
    return key.view(np.int64)


def permutations(keys: Tensor, count: int) -> Tensor:
    """The permutation of range(count) of each key: [..., count], as streams.permutation."""
    steps = torch.arange(1, count + 1, dtype=torch.int64, device=keys.device)
    state = keys[..., None] + steps * _signed64(_GOLDEN)
    state = _xor_shift64(state, 30) * _signed64(0xBF58_476D_1CE4_E5B9)
    state = _xor_shift64(state, 27) * _signed64(0x94D0_49BB_1331_11EB)
    word = _xor_shift64(state, 31)
    # 31 random bits above the index: every sort gives the same order.
    keyed = (((word >> 33) & 0x7FFF_FFFF) << 32) | (steps - 1)
    return keyed.sort(dim=-1).values & 0xFFFF_FFFF


def _xor_shift64(word: Tensor, shift: int) -> Tensor:
    return word ^ ((word >> shift) & ((1 << (64 - shift)) - 1))


def dropout_counters(examples: int, positions: Sequence[int], units: int) -> Tensor:
    """Word numbers [examples, positions, units / 2] of a dropout stream's elements, int32."""
    row = torch.arange(examples)[:, None, None] * 4 + torch.tensor(positions)[:, None]
    words = row * (units // 2) + torch.arange(units // 2)
    # Counters wrap like the host's 32-bit ones.
    return (words & 0xFFFF_FFFF).to(torch.int32)


def dropout_keep(keys: Tensor, counters: Tensor, thresholds: Tensor) -> Tensor:
    """1.0 where an element is kept and 0.0 where it is dropped.

    keys [..., M, n] for as many blocks of counters, int64; counters [n, ·, units / 2];
    thresholds [M, 1, 1, 1] float (16-bit threshold minus 32768); returns [..., M, n, ·, units].
    """
    blocks = keys[..., None, None]
    low = (blocks & 0xFFFF_FFFF).to(torch.int32)
    high = (blocks >> 32).to(torch.int32)
    word = counters ^ low
    scratch = torch.empty_like(word)
    word = _mix32_(word, scratch).add_(high)
    word = _mix32_(word, scratch)
    # Flipping both sign bits makes unsigned 16-bit lanes ordered as signed ones.
    lanes = word.bitwise_xor_(-0x7FFF_8000).view(torch.int16)
    return lanes.to(torch.float32).ge_(thresholds)


def _mix32_(word: Tensor, scratch: Tensor) -> Tensor:
    """streams.mix32 in place: in cache this is several times cheaper than with fresh memory."""
    _xor_shift32_(word, 16, scratch).mul_(0x7FEB_352D)
    _xor_shift32_(word, 15, scratch).mul_(0x846C_A68B - (1 << 32))
    return _xor_shift32_(word, 16, scratch)


def _xor_shift32_(word: Tensor, shift: int, scratch: Tensor) -> Tensor:
    torch.bitwise_right_shift(word, shift, out=scratch)
    return word.bitwise_xor_(scratch.bitwise_and_((1 << (32 - shift)) - 1))
