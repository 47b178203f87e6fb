"""The network written plainly as one nn.Module: what the engines' algebra must equal."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from groktime.service.spec import TOKENS, RunSpec
from groktime.workers.streams import (
    Purpose,
    dropout_lanes,
    dropout_scale,
    dropout_threshold,
    stream_key,
)


class Gain(nn.Module):
    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        if kind == "layer":
            self.bias = nn.Parameter(torch.zeros(width))
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "layer":
            return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, 1e-5)
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.weight


def rotate_by_position(x: Tensor) -> Tensor:
    """Rotary positions through complex numbers: x is [B, 4, H, e]."""
    width = x.shape[-1]
    frequency = 1e6 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = torch.arange(TOKENS, dtype=torch.float64)[:, None] * frequency
    turn = torch.polar(torch.ones_like(angle), angle).to(torch.complex64)
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turn[:, None]).flatten(-2)


class Attention(nn.Module):
    def __init__(self, spec: RunSpec) -> None:
        super().__init__()
        m, d = spec.model, spec.model.width
        self.heads, self.rope = m.heads, m.positions == "rope"
        self.norm = Gain(d, m.norm)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.to_out = nn.Sequential(nn.Linear(d, d)) if m.released_head_projection else None

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        u = self.norm(x)
        q, k, v = (w(u).unflatten(-1, (self.heads, -1)) for w in (self.wq, self.wk, self.wv))
        if self.rope:
            q, k = rotate_by_position(q), rotate_by_position(k)
        q, k, v = (t.transpose(-3, -2) for t in (q, k, v))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        hidden = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
        y = self.wo((weights @ v).transpose(-3, -2).flatten(-2))
        if self.to_out is not None:
            y = self.to_out(y)
            y = y if mask is None else y * mask
        return y


class FeedForward(nn.Module):
    def __init__(self, spec: RunSpec) -> None:
        super().__init__()
        m, d = spec.model, spec.model.width
        self.norm = Gain(d, m.norm)
        self.w1, self.w2 = nn.Linear(d, 4 * d, bias=False), nn.Linear(4 * d, d, bias=False)
        self.w3 = nn.Linear(d, 4 * d, bias=False) if m.ffn == "gated" else None

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        u = self.norm(x)
        h = F.silu(self.w1(u))
        h = h if self.w3 is None else h * self.w3(u)
        return self.w2(h if mask is None else h * mask)


class Block(nn.Module):
    def __init__(self, spec: RunSpec) -> None:
        super().__init__()
        self.attn, self.ff = Attention(spec), FeedForward(spec)


class Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(4 * width, 4 * width, bias=False)
        self.w2 = nn.Linear(4 * width, width, bias=False)


class Oracle(nn.Module):
    """Logits [B, V] from tokens [B, 4]; masks are those of one step by layer, or None."""

    def __init__(self, spec: RunSpec) -> None:
        super().__init__()
        m = spec.model
        self.embedding = nn.Embedding(spec.vocabulary, m.width)
        self.positions = nn.Embedding(TOKENS, m.width) if m.positions == "learned" else None
        if m.architecture == "mlp":
            self.mlp = Mlp(m.width)
        else:
            self.layers = nn.ModuleList(Block(spec) for _ in range(m.depth))
        self.norm = Gain(m.width, m.norm)
        self.out = nn.Linear(m.width, spec.vocabulary, bias=False)
        self.is_mlp = m.architecture == "mlp"

    def forward(
        self,
        tokens: Tensor,
        hidden: list[Tensor] | None = None,
        projection: list[Tensor] | None = None,
    ) -> Tensor:
        x = self.embedding(tokens)
        if self.is_mlp:
            h = F.silu(self.mlp.w1(x.flatten(-2)))
            h = h if hidden is None else h * hidden[0][:, -1]
            return self.out(self.norm(self.mlp.w2(h)))
        if self.positions is not None:
            x = x + self.positions.weight
        for i, layer in enumerate(self.layers):
            x = x + layer.attn(x, None if projection is None else projection[i])
            x = x + layer.ff(x, None if hidden is None else hidden[i])
        return self.out(self.norm(x[:, -1]))


def dropout_masks(
    spec: RunSpec, purpose: Purpose, units: int, epoch: int, step: int, examples: int
) -> list[Tensor]:
    """Masks [B, 4, units] of a step by layer, already scaled, straight from the host's streams."""
    rate = spec.model.dropout
    masks = []
    for layer in range(spec.model.depth):
        key = stream_key(spec.seed, purpose, epoch, step, layer)
        lanes = dropout_lanes(key, 0, examples * TOKENS * units)
        kept = (lanes >= dropout_threshold(rate)) * np.float32(dropout_scale(rate))
        masks.append(torch.from_numpy(kept.reshape(examples, TOKENS, units).astype(np.float32)))
    return masks
