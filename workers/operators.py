"""Differentiable pieces of the network with their own backward passes.

Autograd would give the same gradients; written out they keep what the forward pass computed (no
second exponential), avoid batches of tiny matrix products, and need a fraction of the calls,
which is what training small models costs on a CPU. Shapes: M models, N rows, d width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from workers.model import NORM_EPS


def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    """x / √(mean x² + eps) ⊙ gain for x [M, ..., d] and gain [M, d]."""
    y: Tensor = _RMSNorm.apply(x.reshape(x.shape[0], -1, x.shape[-1]), gain)  # type: ignore[no-untyped-call]
    return y.view(x.shape)


def gated_hidden(x: Tensor, gain: Tensor, w1: Tensor, w3: Tensor) -> Tensor:
    """silu(u W1ᵀ) ⊙ (u W3ᵀ) with u = rms_norm(x, gain), for x [M, ..., d]: [M, ..., hidden]."""
    rows = x.reshape(x.shape[0], -1, x.shape[-1])
    hidden: Tensor = _GatedHidden.apply(rows, gain, w1, w3)  # type: ignore[no-untyped-call]
    return hidden.view(*x.shape[:-1], w1.shape[1])


def attend(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """Attention of I queries [..., I, e] to J keys [..., J, e]: sums of values, [..., I, c].

    Queries are already scaled. Causal: they are the last I of J positions, each seeing the keys
    up to its own.
    """
    batch = q.shape[:-2]
    flat = (t.reshape(-1, *t.shape[-2:]) for t in (q, k, v))
    out: Tensor = _Attend.apply(*flat, causal)  # type: ignore[no-untyped-call]
    return out.view(*batch, *out.shape[1:])


def _normalise(x: Tensor) -> tuple[Tensor, Tensor]:
    """x divided by its root mean square, and one over that root, [M, N, 1]."""
    mean_square = torch.linalg.vecdot(x, x).div_(x.shape[-1])
    inverse = mean_square.add_(NORM_EPS).rsqrt_()[..., None]
    return x * inverse, inverse


def _norm_backward(
    grad: Tensor, unit: Tensor, inverse: Tensor, gain: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of x and gain from that of unit ⊙ gain: the part along x vanishes."""
    gain_grad = (grad * unit).sum(dim=1)
    grad = grad * gain[:, None]
    along = torch.linalg.vecdot(grad, unit).div_(-grad.shape[-1])[..., None]
    return torch.addcmul(grad, unit, along).mul_(inverse), gain_grad


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor) -> Tensor:
        unit, inverse = _normalise(x)
        ctx.save_for_backward(unit, inverse, gain)
        return unit * gain[:, None]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return _norm_backward(grad, *ctx.saved_tensors)


class _GatedHidden(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, w1: Tensor, w3: Tensor) -> Tensor:
        unit, inverse = _normalise(x)
        normed = unit * gain[:, None]
        before, gate = torch.bmm(normed, w1.mT), torch.bmm(normed, w3.mT)
        sigmoid = before.sigmoid()
        silu = before.mul_(sigmoid)
        ctx.save_for_backward(unit, inverse, gain, normed, w1, w3, sigmoid, silu, gate)
        return silu * gate

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        unit, inverse, gain, normed, w1, w3, sigmoid, silu, gate = ctx.saved_tensors
        # silu'(h) = σ + silu·(1 − σ)
        slope = torch.addcmul(sigmoid + silu, silu, sigmoid, value=-1)
        before_grad = slope.mul_(grad).mul_(gate)
        gate_grad = grad * silu
        normed_grad = torch.baddbmm(torch.bmm(before_grad, w1), gate_grad, w3)
        x_grad, gain_grad = _norm_backward(normed_grad, unit, inverse, gain)
        return (
            x_grad,
            gain_grad,
            torch.bmm(before_grad.mT, normed),
            torch.bmm(gate_grad.mT, normed),
        )


class _Attend(torch.autograd.Function):
    """There are at most four keys: products with them are sums of a few scaled vectors."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        queries, keys = q.shape[1], k.shape[1]
        out = v.new_empty(q.shape[0], queries, v.shape[2])
        weights = []
        for i in range(queries):
            seen = keys - queries + i + 1 if causal else keys
            scores = torch.bmm(k[:, :seen], q[:, i, :, None])  # [N, seen, 1]
            weight = scores.sub_(scores.amax(dim=1, keepdim=True)).exp_()
            weight.div_(weight.sum(dim=1, keepdim=True))
            torch.sum(weight * v[:, :seen], dim=1, out=out[:, i])
            weights.append(weight)
        ctx.save_for_backward(q, k, v, *weights)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, *weights = ctx.saved_tensors
        q_grad = torch.empty_like(q)
        k_grad, v_grad = torch.zeros_like(k), torch.zeros_like(v)
        for i, weight in enumerate(weights):
            seen = weight.shape[1]
            out_grad, query = grad[:, i, None], q[:, i, None]
            weight_grad = torch.bmm(v[:, :seen], grad[:, i, :, None])
            mean = (weight * weight_grad).sum(dim=1, keepdim=True)
            score_grad = weight_grad.sub_(mean).mul_(weight)  # [N, seen, 1]
            v_grad[:, :seen].addcmul_(weight, out_grad)
            k_grad[:, :seen].addcmul_(score_grad, query)
            torch.sum(score_grad * k[:, :seen], dim=1, out=q_grad[:, i])
        return q_grad, k_grad, v_grad, None
