"""The plain trainer that engines are measured against: one model, one nn.Module, one loop.

Written the way a researcher writes it: clear, batched, no data loader, and no algebra beyond
what PyTorch offers. It trains the central model with rotary, learned or no positions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from groktime.service.spec import TOKENS, ModelSpec, RunSpec
from groktime.workers.tasks import make_dataset


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight, eps=1e-5)


def rotary(head_width: int) -> Tensor:
    """cos and sin by position, [2, 4, head_width / 2]."""
    frequency = 1e6 ** (-torch.arange(0, head_width, 2) / head_width)
    angle = torch.arange(TOKENS)[:, None] * frequency
    return torch.stack([angle.cos(), angle.sin()])


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    cos, sin = angles
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, model: ModelSpec) -> None:
        super().__init__()
        d = model.width
        self.heads, self.rope = model.heads, model.positions == "rope"
        self.norm = RMSNorm(d)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d, bias=False) for _ in range(4))
        if self.rope:
            self.register_buffer("angles", rotary(d // model.heads))

    def forward(self, x: Tensor) -> Tensor:
        u = self.norm(x)
        q, k, v = (
            w(u).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for w in (self.wq, self.wk, self.wv)
        )
        if self.rope:
            q, k = rotate(q, self.angles), rotate(k, self.angles)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).flatten(-2))


class FeedForward(nn.Module):
    def __init__(self, model: ModelSpec) -> None:
        super().__init__()
        d, hidden = model.width, model.hidden
        self.norm = RMSNorm(d)
        self.w1, self.w3 = nn.Linear(d, hidden, bias=False), nn.Linear(d, hidden, bias=False)
        self.w2 = nn.Linear(hidden, d, bias=False)
        self.dropout = nn.Dropout(model.dropout)

    def forward(self, x: Tensor) -> Tensor:
        u = self.norm(x)
        return self.w2(self.dropout(F.silu(self.w1(u)) * self.w3(u)))


class Block(nn.Module):
    def __init__(self, model: ModelSpec) -> None:
        super().__init__()
        self.attn, self.ff = Attention(model), FeedForward(model)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(x)
        return x + self.ff(x)


class PlainTransformer(nn.Module):
    """Logits [B, V] of the last of four tokens [B, 4]."""

    def __init__(self, model: ModelSpec, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, model.width)
        self.positions = nn.Embedding(TOKENS, model.width) if model.positions == "learned" else None
        self.layers = nn.ModuleList(Block(model) for _ in range(model.depth))
        self.norm = RMSNorm(model.width)
        self.out = nn.Linear(model.width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions.weight
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norm(x)[:, -1])


def train_plain(spec: RunSpec) -> Iterator[dict[str, float]]:
    """Train one model epoch after epoch; yields losses, accuracies and the epoch's seconds."""
    torch.manual_seed(spec.seed)
    data = make_dataset(spec)
    x, y, x_val, y_val = (
        torch.from_numpy(part) for part in (data.x_train, data.y_train, data.x_val, data.y_val)
    )
    model = PlainTransformer(spec.model, spec.vocabulary)
    o = spec.optimiser
    optimiser = torch.optim.AdamW(
        model.parameters(),
        lr=o.lr,
        betas=(o.beta1, o.beta2),
        eps=o.eps,
        weight_decay=o.weight_decay,
    )
    while True:
        start = time.perf_counter()
        loss_sum, correct = 0.0, 0
        model.train()
        for batch in torch.randperm(len(y)).split(o.batch_size):
            logits = model(x[batch])
            loss = F.cross_entropy(logits, y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            loss_sum += loss.item() * len(batch)
            correct += int((logits.argmax(dim=-1) == y[batch]).sum())
        result = {"train_loss": loss_sum / len(y), "train_accuracy": correct / len(y)}
        if spec.eval_train:
            result["train_accuracy_eval"] = evaluate(model, x, y, o.batch_size)[1]
        if len(y_val):
            result["val_loss"], result["val_accuracy"] = evaluate(model, x_val, y_val, o.batch_size)
        yield {**result, "seconds": time.perf_counter() - start}


@torch.no_grad()
def evaluate(model: nn.Module, x: Tensor, y: Tensor, batch_size: int) -> tuple[float, float]:
    """Mean loss and accuracy without dropout."""
    model.eval()
    loss, correct = 0.0, 0
    for inputs, labels in zip(x.split(batch_size), y.split(batch_size), strict=True):
        logits = model(inputs)
        loss += F.cross_entropy(logits, labels, reduction="sum").item()
        correct += int((logits.argmax(dim=-1) == labels).sum())
    return loss / max(len(y), 1), correct / max(len(y), 1)
