"""The forward pass of a stack of models: every tensor has a leading model axis.

Shapes: M models, B examples, V tokens, d width, H heads, I queries, J keys. Weights are given by
name, [M, *shape]. Nothing is approximated; work that gives equal results is done once:

- Layer 0 sees few different (position, token) pairs, so its normalised inputs and projections are
  a table over those pairs, looked up per example.
- The causal mask makes the first positions functions of the first token alone as long as nothing
  random has happened to them: they are computed once per token (`shared`), not per example.
- Only the last position is read out, so the last layer computes one query per example, and folds
  the key and value projections around the weighted sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from service.spec import TOKENS, ModelSpec
from workers.model import NORM_EPS, rope_table
from workers.operators import attend, gated_hidden, rms_norm

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Layout:
    """The distinct (position, token) pairs of a task and which positions follow from the first.

    `constants` names the token standing at each position in every example, None where any of the
    vocabulary may stand.
    """

    vocabulary: int
    constants: tuple[int | None, ...]

    @property
    def shared(self) -> int:
        """How many leading positions depend on the first token alone."""
        return next((j for j in range(1, TOKENS) if self.constants[j] is None), TOKENS - 1)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """(position, token) of every row of the table."""
        return [
            (j, token)
            for j, constant in enumerate(self.constants)
            for token in (range(self.vocabulary) if constant is None else [constant])
        ]

    def rows(self, tokens: Tensor) -> Tensor:
        """The table's row of each token, [..., 4] to [..., 4]."""
        offset, columns = 0, []
        for j, constant in enumerate(self.constants):
            free = constant is None
            columns.append(
                tokens[..., j] + offset if free else torch.full_like(tokens[..., j], offset)
            )
            offset += self.vocabulary if free else 1
        return torch.stack(columns, dim=-1)


@dataclass(frozen=True)
class Masks:
    """Dropout of one step: 1.0 keeps and 0.0 drops; kept elements are multiplied by `scale`.

    hidden[layer] is [M, B, positions, 4d] (the last layer: the last position only), projection
    the same in units of d where the model has the released head projection. scale is [M, 1, 1].
    """

    hidden: Sequence[Tensor]
    projection: Sequence[Tensor]
    scale: Tensor


@dataclass
class Table:
    """Layer 0 on every (position, token) pair: inputs x and projections, [M, R, d] each."""

    x: Tensor
    normed: Tensor
    q: Tensor
    k: Tensor
    v: Tensor


@dataclass
class Shared:
    """What examples look up of the positions that follow from the first token, [M, V, f, ·].

    keys and values of each layer the positions were carried through; then either `normed`, the
    last layer's input, or, where dropout makes examples differ after layer 0's hidden units, the
    residual stream `x` and those `hidden` units.
    """

    keys: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    normed: Tensor | None = None
    x: Tensor | None = None
    hidden: Tensor | None = None


@dataclass
class Prepared:
    """The parts of a forward pass that all examples of one set of weights look up."""

    table: Table
    shared: Shared | None


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """[M, ..., in] times [M, out, in] transposed."""
    return torch.bmm(x.flatten(1, -2), weight.mT).view(*x.shape[:-1], weight.shape[1])


def take(table: Tensor, rows: Tensor) -> Tensor:
    """table [M, R, ...] at rows [M, ...], per model."""
    models, size = table.shape[:2]
    if models > 1:
        rows = rows + torch.arange(models, device=rows.device).mul_(size).view(
            -1, *[1] * (rows.dim() - 1)
        )
    taken = table.flatten(0, 1).index_select(0, rows.flatten())
    return taken.view(*rows.shape, *table.shape[2:])


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn adjacent pairs (2i, 2i + 1) of the last axis; cos and sin are [..., units / 2]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


class Transformer:
    """The transformer of one shape; holds what its forward pass needs besides weights."""

    def __init__(self, model: ModelSpec, layout: Layout, device: torch.device) -> None:
        self.model, self.layout = model, layout
        self.heads, self.head_width = model.heads, model.width // model.heads
        self.scale = 1 / math.sqrt(self.head_width)
        self.last = model.depth - 1
        pairs = torch.tensor(layout.pairs, device=device)
        self.pair_positions, self.pair_tokens = pairs[:, 0].contiguous(), pairs[:, 1].contiguous()
        first = torch.arange(layout.vocabulary, device=device)
        prefix = first[:, None].expand(-1, TOKENS)
        self.shared_rows = layout.rows(prefix)[:, : layout.shared]  # [V, f]
        # Every head turns alike.
        angles = torch.from_numpy(rope_table(self.head_width)).to(torch.float32)
        self.cos, self.sin = angles.repeat(1, 1, self.heads).to(device)  # [4, d / 2]

    def logits(
        self,
        w: Weights,
        rows: Tensor,
        prepared: Prepared,
        masks: Masks | None = None,
    ) -> Tensor:
        """Logits of the last position, [M, B, V], of examples given as table rows [M, B, 4]."""
        table, shared = prepared.table, prepared.shared or Shared()
        first = rows[..., 0]
        own = rows if prepared.shared is None else rows[..., self.layout.shared :]
        x = take(table.x, own)
        for layer in range(self.last):
            if layer == 0:
                q, k, v = take(table.q, own), take(table.k, own), take(table.v, own)
            else:
                q, k, v = self._project(w, layer, x, slice(TOKENS - x.shape[2], TOKENS))
            if layer < len(shared.keys):
                k = torch.cat([take(shared.keys[layer], first), k], dim=2)
                v = torch.cat([take(shared.values[layer], first), v], dim=2)
            x = x + self._out(w, layer, self._attend(q, k, v), masks)
            hidden = self._hidden(w, layer, x)
            if layer == 0 and shared.x is not None and shared.hidden is not None:
                x = torch.cat([take(shared.x, first), x], dim=2)
                hidden = torch.cat([take(shared.hidden, first), hidden], dim=2)
            x = x + self._w2(w, layer, hidden, masks)
        if self.last == 0:
            normed = take(table.normed, own)
        else:
            normed = self._norm(w, f"layers.{self.last}.attn.norm", x)
        if shared.normed is not None:
            normed = torch.cat([take(shared.normed, first), normed], dim=2)
        x = x[:, :, -1:] + self._out(w, self.last, self._attend_last(w, normed), masks)
        x = x + self._w2(w, self.last, self._hidden(w, self.last, x), masks)
        return linear(self._norm(w, "norm", x[:, :, 0]), w["out.weight"])

    def prepare(self, w: Weights, *, share: bool, dropout: bool) -> Prepared:
        """What a step or an evaluation computes once for all its examples."""
        table = self._table(w)
        return Prepared(table, self._share(w, table, dropout=dropout) if share else None)

    def _table(self, w: Weights) -> Table:
        """Layer 0's inputs and projections for every (position, token) pair."""
        x = w["embedding.weight"].index_select(1, self.pair_tokens)
        if self.model.positions == "learned":
            x = x + w["positions.weight"].index_select(1, self.pair_positions)
        normed = self._norm(w, "layers.0.attn.norm", x)
        if self.last == 0:
            return Table(x, normed, normed, normed, normed)
        q, k, v = (linear(normed, w[f"layers.0.attn.{name}.weight"]) for name in ("wq", "wk", "wv"))
        if self.model.positions == "rope":
            cos, sin = self.cos[self.pair_positions], self.sin[self.pair_positions]
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        return Table(x, normed, q, k, v)

    def _share(self, w: Weights, table: Table, *, dropout: bool) -> Shared:
        """The positions that follow from the first token, once per token."""
        rows = self.shared_rows.expand(table.x.shape[0], -1, -1)
        shared = Shared()
        x = take(table.x, rows)
        for layer in range(self.last):
            if layer == 0:
                q, k, v = take(table.q, rows), take(table.k, rows), take(table.v, rows)
            else:
                q, k, v = self._project(w, layer, x, slice(x.shape[2]))
            shared.keys.append(k)
            shared.values.append(v)
            x = x + self._out(w, layer, self._attend(q, k, v), None)
            hidden = self._hidden(w, layer, x)
            if dropout:
                shared.x, shared.hidden = x, hidden
                return shared
            x = x + self._w2(w, layer, hidden, None)
        if self.last == 0:
            shared.normed = take(table.normed, rows)
        else:
            shared.normed = self._norm(w, f"layers.{self.last}.attn.norm", x)
        return shared

    def _norm(self, w: Weights, name: str, x: Tensor) -> Tensor:
        gain = w[f"{name}.weight"]
        if self.model.norm == "rms":
            return rms_norm(x, gain)
        shape = (x.shape[0], *[1] * (x.dim() - 2), x.shape[-1])
        normed = F.layer_norm(x, x.shape[-1:], eps=NORM_EPS)
        return torch.addcmul(w[f"{name}.bias"].view(shape), normed, gain.view(shape))

    def _project(
        self, w: Weights, layer: int, x: Tensor, positions: slice
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of positions [M, N, n, d], rotated if the model does so."""
        name = f"layers.{layer}.attn"
        normed = self._norm(w, f"{name}.norm", x)
        q, k, v = (linear(normed, w[f"{name}.{part}.weight"]) for part in ("wq", "wk", "wv"))
        if self.model.positions == "rope":
            cos, sin = self.cos[positions], self.sin[positions]
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        return q, k, v

    def _split(self, x: Tensor) -> Tensor:
        """[M, N, n, d] to [M, N, H, n, d / H]."""
        return x.view(*x.shape[:-1], self.heads, self.head_width).transpose(2, 3)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention of the last I of J positions: [M, N, I, d] from [M, N, J, d]."""
        q, k, v = self._split(q * self.scale), self._split(k), self._split(v)  # [M, N, H, ·, e]
        return attend(q, k, v, causal=True).transpose(2, 3).flatten(-2)

    def _attend_last(self, w: Weights, normed: Tensor) -> Tensor:
        """Attention of the last position alone, [M, B, 1, d] from all positions [M, B, 4, d]."""
        name = f"layers.{self.last}.attn"
        wk, wv = w[f"{name}.wk.weight"], w[f"{name}.wv.weight"]
        q = linear(normed[:, :, -1], w[f"{name}.wq.weight"]) * self.scale  # [M, B, d]
        if self.model.positions == "rope":
            q = rotate(q, self.cos[-1], self.sin[-1])
            k = rotate(linear(normed, wk), self.cos, self.sin)
            values = normed[:, :, None].expand(-1, -1, self.heads, -1, -1)
            context = attend(self._split(q[:, :, None]), self._split(k), values, causal=True)
            context = context[..., 0, :]  # [M, B, H, d]
        else:
            context = attend(self._per_head(q, wk), normed, normed, causal=False)
        if self.heads == 1:
            return linear(context, wv)
        return torch.einsum("mbhd,mhed->mbhe", context, self._by_head(wv)).flatten(-2)[:, :, None]

    def _per_head(self, q: Tensor, wk: Tensor) -> Tensor:
        """Queries taken through each head's key projection: [M, B, d] to [M, B, H, d]."""
        if self.heads == 1:
            return torch.bmm(q, wk)[:, :, None]
        split = q.view(*q.shape[:2], self.heads, self.head_width)
        return torch.einsum("mbhe,mhed->mbhd", split, self._by_head(wk))

    def _by_head(self, weight: Tensor) -> Tensor:
        """[M, d, d] to [M, H, d / H, d]."""
        return weight.view(weight.shape[0], self.heads, self.head_width, -1)

    def _out(self, w: Weights, layer: int, attended: Tensor, masks: Masks | None) -> Tensor:
        name = f"layers.{layer}.attn"
        y = linear(attended, w[f"{name}.wo.weight"])
        if self.model.released_head_projection:
            bias = w[f"{name}.to_out.0.bias"][:, None, None]
            y = linear(y, w[f"{name}.to_out.0.weight"]) + bias
            if masks is not None:
                y = y * masks.projection[layer] * masks.scale[..., None]
        return y

    def _hidden(self, w: Weights, layer: int, x: Tensor) -> Tensor:
        """The FFN's hidden units before dropout, [M, N, n, 4d]."""
        name = f"layers.{layer}.ff"
        w1 = w[f"{name}.w1.weight"]
        gated = self.model.ffn == "gated"
        if gated and self.model.norm == "rms":
            return gated_hidden(x, w[f"{name}.norm.weight"], w1, w[f"{name}.w3.weight"])
        normed = self._norm(w, f"{name}.norm", x)
        hidden = F.silu(linear(normed, w1))
        return hidden * linear(normed, w[f"{name}.w3.weight"]) if gated else hidden

    def _w2(self, w: Weights, layer: int, hidden: Tensor, masks: Masks | None) -> Tensor:
        weight = w[f"layers.{layer}.ff.w2.weight"]
        if masks is None:
            return linear(hidden, weight)
        # Scaling the weight instead of the units saves a pass over the larger tensor.
        return linear(hidden * masks.hidden[layer], weight * masks.scale)


class MLP:
    """The baseline: four concatenated embeddings, one hidden layer of 4d, the same readout."""

    def __init__(self, model: ModelSpec, layout: Layout, device: torch.device) -> None:
        self.model, self.layout = model, layout
        tokens = [token for _, token in layout.pairs]
        self.pair_tokens = torch.tensor(tokens, device=device)

    def prepare(self, w: Weights, *, share: bool, dropout: bool) -> None:
        """Nothing is common to the examples of an MLP."""

    def logits(
        self, w: Weights, rows: Tensor, prepared: None, masks: Masks | None = None
    ) -> Tensor:
        x = take(w["embedding.weight"], self.pair_tokens[rows]).flatten(-2)  # [M, B, 4d]
        hidden = F.silu(linear(x, w["mlp.w1.weight"]))
        weight = w["mlp.w2.weight"]
        if masks is not None:
            hidden, weight = hidden * masks.hidden[0][:, :, 0], weight * masks.scale
        y = rms_norm(linear(hidden, weight), w["norm.weight"])
        return linear(y, w["out.weight"])
