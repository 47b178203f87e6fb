"""The forward pass of a stack of models: every tensor has a leading model axis.

Shapes: M models, B examples, V tokens, d width, n positions. The rows of a value [M, n B, ·] are
positions before examples, so that some of the positions are one block of memory. Weights are given
by name, [M, *shape]. Nothing is approximated; work that gives equal results is done once:

- Layer 0 sees few different (position, token) pairs, so its normalised inputs and projections are
  a table over those pairs, looked up per example.
- The causal mask makes the first positions functions of the first token alone as long as nothing
  random has happened to them: they are computed once per token (`shared`), not per example.
- Only the last position is read out, so the last layer computes one query per example. With one
  head its projections are folded around the weighted sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from groktime.service.spec import TOKENS, ModelSpec
from groktime.workers.model import rope_table
from groktime.workers.operators import (
    Attention,
    Dropout,
    FeedForward,
    Norm,
    Shared,
    Tape,
    Turn,
    Value,
    add,
    add_bias,
    attend,
    beside,
    concatenate,
    feed_forward,
    fused,
    halves,
    join,
    last_rows,
    linear,
    masked,
    normalise,
    product,
    rotate,
    silu,
    take,
    transpose,
)

Weights = Mapping[str, Value]


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
    """Dropout of one step: 0.0 drops; kept elements are multiplied by the mask and by `scale`.

    hidden[layer] is [M, n B, 4d] of all positions (the last layer: of the last one), projection
    the same in units of d where the model has the released head projection. scale is [M, 1, 1];
    without one the masks hold it.
    """

    hidden: Sequence[Tensor]
    projection: Sequence[Tensor]
    scale: Tensor | None


@dataclass(frozen=True)
class Places:
    """Where a batch of examples finds its rows, all models one after the other: [M n B] each.

    `rows` are those of all positions in the table, `own` those of the positions that are computed
    per example, `prefix` those of the shared positions among the prefixes.
    """

    examples: int
    rows: Tensor
    own: Tensor
    prefix: Tensor


@dataclass(frozen=True)
class Table:
    """Layer 0 on every (position, token) pair, [M, R, ·] each.

    `own` is what a position needs for itself, `context` what others need of it: the stream and
    the query side by side, and so the key and the value. A single layer has the stream alone,
    and its normalised form.
    """

    own: Value
    context: Value


@dataclass
class Prefix:
    """The positions that follow from the first token, once per token, [M, f V, d] each.

    Either `x`, the stream before layer 0's FFN, after which dropout makes examples differ; or
    `normed`, the last layer's input, and the keys and values of the layers after the first.
    """

    x: Value | None = None
    normed: Value | None = None
    between: list[tuple[Value, Value]] = field(default_factory=list)


@dataclass(frozen=True)
class Prepared:
    """The parts of a forward pass that all examples of one set of weights look up."""

    table: Table
    prefix: Prefix | None


class Transformer:
    """The transformer of one shape; holds what its forward pass needs besides weights."""

    def __init__(self, model: ModelSpec, layout: Layout, device: torch.device) -> None:
        self.model, self.layout = model, layout
        self.last = model.depth - 1
        head_width = model.width // model.heads
        self.scale = 1 / math.sqrt(head_width)
        pairs = torch.tensor(layout.pairs, device=device)
        self.pair_positions, self.pair_tokens = pairs[:, 0].contiguous(), pairs[:, 1].contiguous()
        first = torch.arange(layout.vocabulary, device=device)
        prefix = layout.rows(first[:, None].expand(-1, TOKENS))
        self.prefix_rows = prefix.mT[: layout.shared].flatten()  # [f V]
        self.prefix_offsets = torch.arange(layout.shared, device=device) * layout.vocabulary
        self.sizes = [len(layout.pairs)] * TOKENS + [len(prefix) * layout.shared] * layout.shared
        self._kept: dict[Hashable, Tensor] = {}
        self._kept_turns: dict[Hashable, tuple[Turn, Turn]] = {}
        later = torch.full((TOKENS, TOKENS), -torch.inf, device=device).triu_(1)
        self.unseen = later[:, :, None, None, None]
        self.positions = torch.arange(TOKENS, device=device)
        # Every head turns alike.
        angles = torch.from_numpy(rope_table(head_width)).to(torch.float32)
        self.cos, self.sin = angles.repeat(1, 1, model.heads).to(device)  # [4, d / 2]

    def logits(
        self,
        tape: Tape,
        w: Weights,
        places: Places,
        prepared: Prepared,
        masks: Masks | None = None,
    ) -> Value:
        """Logits of the last position, [M, B, V]."""
        table = prepared.table
        if self.last == 0:
            x = take(tape, table.own, places.own)
            normed = take(tape, table.context, places.rows)
        else:
            x, normed = self._inner(tape, w, places, prepared, masks)
            x = last_rows(tape, x, places.examples)
        x = self._attend_last(tape, w, x, normed, masks)
        x = self._feed_forward(tape, w, self.last, x, masks)
        return linear(tape, self._norm(tape, w, "norm", x), w["out.weight"])

    def columns(self, tokens: Tensor) -> Tensor:
        """The rows of examples [M, n, 4] in tables of `sizes`: [M, n, 4 + f]."""
        rows = self.layout.rows(tokens)
        return torch.cat([rows, rows[..., :1] + self.prefix_offsets], dim=-1)

    def places(self, columns: Tensor, batch: int, *, share: bool) -> list[Places]:
        """The places of every batch of examples, whose columns count from the first model's."""
        first = TOKENS - 1 if self.last == 0 else self.layout.shared if share else 0
        parts = [slice(TOKENS), slice(first, TOKENS), slice(TOKENS, None)]
        count = columns.shape[1]
        by_part = [_by_batch(columns[..., part], batch) for part in parts]
        sizes = [min(batch, count - start) for start in range(0, count, batch)]
        return [
            Places(size, *(part[i, ..., :size].flatten() for part in by_part))
            for i, size in enumerate(sizes)
        ]

    def _keep(self, name: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """What is the same in every step: made once, since every kernel counts."""
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def _in_all(self, name: str, rows: Tensor, size: int, models: int) -> Tensor:
        """Rows [N] of every model's table of that size, as flat places [M N]."""
        return self._keep((name, models), lambda: (_starts(rows, models) * size + rows).flatten())

    def prepare(self, tape: Tape, w: Weights, *, share: bool, dropout: bool) -> Prepared:
        """What a step or an evaluation computes once for all its examples."""
        table = self._table(tape, w)
        share = share and self.last > 0
        return Prepared(table, self._prefix(tape, w, table, dropout=dropout) if share else None)

    def _table(self, tape: Tape, w: Weights) -> Table:
        """Layer 0's inputs and projections for every (position, token) pair."""
        models, vocabulary = w["embedding.weight"].data.shape[0], self.layout.vocabulary
        tokens = self._in_all("tokens", self.pair_tokens, vocabulary, models)
        x = take(tape, w["embedding.weight"], tokens)
        if self.model.positions == "learned":
            positions = self._in_all("positions", self.pair_positions, TOKENS, models)
            x = add(tape, x, take(tape, w["positions.weight"], positions))
        normed = self._norm(tape, w, "layers.0.attn.norm", x)
        if self.last == 0:
            return Table(x, normed)
        wq, wk = w["layers.0.attn.wq.weight"], w["layers.0.attn.wk.weight"]
        queries, values = linear(tape, normed, wq), self._values(tape, w, 0)
        if self.model.positions == "rope":
            turns = self._turns("pairs", self.pair_positions)
            queries = rotate(tape, queries, *turns)
            keys = rotate(tape, linear(tape, normed, wk), *turns)
            context = beside(tape, keys, linear(tape, normed, values))
        else:
            context = linear(tape, normed, join(tape, wk, values))
        return Table(beside(tape, x, queries), context)

    def _prefix(self, tape: Tape, w: Weights, table: Table, *, dropout: bool) -> Prefix:
        """The positions that follow from the first token, once per token."""
        models, size = table.own.data.shape[0], self.layout.vocabulary
        rows = self._in_all("prefix", self.prefix_rows, self.sizes[0], models)
        x = self._first_attention(tape, w, table, Places(size, rows, rows, rows), None)
        if dropout:
            return Prefix(x=x)
        x = self._feed_forward(tape, w, 0, x, None)
        prefix = Prefix()
        for layer in range(1, self.last):
            q, k, v = self._project(tape, w, layer, x, size, slice(self.layout.shared))
            prefix.between.append((k, v))
            attended = attend(tape, self._attention(size), q, k, v)
            x = self._add_attended(tape, w, layer, x, attended, None)
            x = self._feed_forward(tape, w, layer, x, None)
        prefix.normed = self._norm(tape, w, f"layers.{self.last}.attn.norm", x)
        return prefix

    def _inner(
        self, tape: Tape, w: Weights, places: Places, prepared: Prepared, masks: Masks | None
    ) -> tuple[Value, Value]:
        """All layers but the last: its input, and that normalised at all four positions."""
        prefix, examples, at = prepared.prefix or Prefix(), places.examples, places.prefix
        x = self._first_attention(tape, w, prepared.table, places, masks)
        shared = None
        if prefix.x is not None:
            shared = Shared(prefix.x, at, self._among(at, prefix.x.data, x.data))
        x = self._feed_forward(tape, w, 0, x, masks, shared)
        for layer in range(1, self.last):
            positions = slice(TOKENS - x.data.shape[1] // examples, TOKENS)
            q, k, v = self._project(tape, w, layer, x, examples, positions)
            if prefix.between:
                before = prefix.between[layer - 1]
                k, v = (
                    join(tape, take(tape, first, at), own)
                    for first, own in zip(before, (k, v), strict=True)
                )
            attended = attend(tape, self._attention(examples), q, k, v)
            x = self._add_attended(tape, w, layer, x, attended, masks)
            x = self._feed_forward(tape, w, layer, x, masks)
        normed = self._norm(tape, w, f"layers.{self.last}.attn.norm", x)
        if prefix.normed is not None:
            normed = join(tape, take(tape, prefix.normed, at), normed)
        return x, normed

    def _among(self, at: Tensor, shared: Tensor, own: Tensor) -> Tensor | None:
        """Places of shared rows [M, R, d] and of all own [M, N, d] in both, a model at a time."""
        if not fused(own):
            return None
        (models, count, _), more = shared.shape, own.shape[1]
        starts = self._keep(("starts", models, more), lambda: _starts(at, models) * more)
        others = self._keep(
            ("own", models, more),
            lambda: (
                (_starts(at, models) * (count + more) + count)
                + torch.arange(more, device=at.device)
            ),
        )
        return torch.cat([at.view(models, -1) + starts, others], dim=1).flatten()

    def _first_attention(
        self, tape: Tape, w: Weights, table: Table, places: Places, masks: Masks | None
    ) -> Value:
        """The stream after layer 0's attention at the positions that are computed."""
        x, q = halves(tape, take(tape, table.own, places.own))
        k, v = halves(tape, take(tape, table.context, places.rows))
        attention = self._attention(places.examples)
        if self._folded(0) and not self.model.released_head_projection:
            # The table's values hold the output projection.
            return attend(tape, attention, q, k, v, plus=x)
        return self._add_attended(tape, w, 0, x, attend(tape, attention, q, k, v), masks)

    def _attention(self, examples: int) -> Attention:
        return Attention(examples, self.model.heads, self.scale, self.unseen)

    def _folded(self, layer: int) -> bool:
        """Whether values hold the output projection: of one head, a sum's is that of its terms.

        In the layers between, values are made per example and folding would save nothing.
        """
        return self.model.heads == 1 and layer in (0, self.last)

    def _values(self, tape: Tape, w: Weights, layer: int) -> Value:
        """The value projection, [M, d, d]."""
        name = f"layers.{layer}.attn"
        values = w[f"{name}.wv.weight"]
        return product(tape, w[f"{name}.wo.weight"], values) if self._folded(layer) else values

    def _project(
        self, tape: Tape, w: Weights, layer: int, x: Value, examples: int, positions: slice
    ) -> tuple[Value, Value, Value]:
        """Queries, keys and values of positions, rotated if the model does so."""
        name = f"layers.{layer}.attn"
        normed = self._norm(tape, w, f"{name}.norm", x)
        q, k, v = (linear(tape, normed, w[f"{name}.{part}.weight"]) for part in ("wq", "wk", "wv"))
        return (
            self._rotate(tape, q, examples, positions),
            self._rotate(tape, k, examples, positions),
            v,
        )

    def _rotate(self, tape: Tape, x: Value, examples: int, positions: slice) -> Value:
        """x [M, n B, d] turned by its positions in a model that does so."""
        if self.model.positions != "rope":
            return x
        name = (examples, positions.start, positions.stop)
        return rotate(tape, x, *self._turns(name, self.positions[positions], examples))

    def _turns(self, name: Hashable, positions: Tensor, examples: int = 1) -> tuple[Turn, Turn]:
        """The turn of rows at these positions and the one back, made once for every name."""
        if name not in self._kept_turns:
            at = positions.repeat_interleave(examples)
            cos, sin = self.cos[at], self.sin[at]
            self._kept_turns[name] = Turn.of(cos, sin), Turn.of(cos, -sin)
        return self._kept_turns[name]

    def _attend_last(
        self, tape: Tape, w: Weights, x: Value, normed: Value, masks: Masks | None
    ) -> Value:
        """The last position's stream [M, B, d] after it attended to all positions [M, 4B, d]."""
        name, examples = f"layers.{self.last}.attn", x.data.shape[1]
        wq, wk = w[f"{name}.wq.weight"], w[f"{name}.wk.weight"]
        attention, last = self._attention(examples), last_rows(tape, normed, examples)
        if self.model.heads == 1 and self.model.positions != "rope":
            # score = (u Wqᵀ)·(u' Wkᵀ) = (u Wqᵀ Wk)·u': keys need no projection.
            queries = linear(tape, last, product(tape, transpose(tape, wk), wq))
            attended = attend(tape, attention, queries, normed, normed)
        else:
            queries, keys = linear(tape, last, wq), linear(tape, normed, wk)
            queries = self._rotate(tape, queries, examples, slice(TOKENS - 1, TOKENS))
            keys = self._rotate(tape, keys, examples, slice(TOKENS))
            values = normed
            if not self._folded(self.last):
                values = linear(tape, normed, w[f"{name}.wv.weight"])
            attended = attend(tape, attention, queries, keys, values)
        return self._add_attended(tape, w, self.last, x, attended, masks)

    def _add_attended(
        self, tape: Tape, w: Weights, layer: int, x: Value, attended: Value, masks: Masks | None
    ) -> Value:
        """The stream x plus what attention makes of the weighted sums of values."""
        name = f"layers.{layer}.attn"
        released = self.model.released_head_projection
        if self._folded(layer) and layer == 0 and self.last > 0:
            y = attended
        else:
            weight = w[f"{name}.wo.weight"]
            if self._folded(layer):
                weight = self._values(tape, w, layer)
            if not released:
                return linear(tape, attended, weight, plus=x)
            y = linear(tape, attended, weight)
        if released:
            y = linear(tape, y, w[f"{name}.to_out.0.weight"])
            y = add_bias(tape, y, w[f"{name}.to_out.0.bias"])
            if masks is not None:
                y = masked(tape, y, masks.projection[layer], masks.scale)
        return add(tape, x, y)

    def _norm(self, tape: Tape, w: Weights, name: str, x: Value) -> Value:
        return normalise(tape, x, self._norm_weights(w, name))

    def _norm_weights(self, w: Weights, name: str) -> Norm:
        return Norm(w[f"{name}.weight"], w.get(f"{name}.bias"))

    def _feed_forward(
        self,
        tape: Tape,
        w: Weights,
        layer: int,
        x: Value,
        masks: Masks | None,
        shared: Shared | None = None,
    ) -> Value:
        """x plus its FFN; shared rows come before x's in the result."""
        name = f"layers.{layer}.ff"
        ffn = FeedForward(
            norm=self._norm_weights(w, f"{name}.norm"),
            w1=w[f"{name}.w1.weight"],
            w3=w.get(f"{name}.w3.weight"),
            w2=w[f"{name}.w2.weight"],
            gated=self.model.ffn == "gated",
        )
        dropout = None if masks is None else Dropout(masks.hidden[layer], masks.scale)
        return feed_forward(tape, x, ffn, dropout, shared)


def _starts(like: Tensor, models: int) -> Tensor:
    """0, 1, … for each model, [M, 1]."""
    return torch.arange(models, device=like.device)[:, None]


def _by_batch(columns: Tensor, batch: int) -> Tensor:
    """[M, n, C] as [batches, M, C, batch]; the last batch is filled up with any examples."""
    models, count, width = columns.shape
    short = -count % batch
    if short:
        columns = torch.cat([columns, columns[:, :short]], dim=1)
    return columns.view(models, -1, batch, width).permute(1, 0, 3, 2).contiguous()


class MLP:
    """The baseline: four concatenated embeddings, one hidden layer of 4d, the same readout."""

    def __init__(self, model: ModelSpec, layout: Layout, device: torch.device) -> None:
        self.model, self.layout = model, layout
        self.sizes = [layout.vocabulary] * TOKENS

    def columns(self, tokens: Tensor) -> Tensor:
        """The rows of examples [M, n, 4] in the embedding."""
        return tokens

    def places(self, columns: Tensor, batch: int, *, share: bool) -> list[Tensor]:
        """The flat places of every batch of examples in the embeddings of all models."""
        return [part.flatten() for part in torch.split(columns, batch, dim=1)]

    def prepare(self, tape: Tape, w: Weights, *, share: bool, dropout: bool) -> None:
        """Nothing is common to the examples of an MLP."""

    def logits(
        self,
        tape: Tape,
        w: Weights,
        places: Tensor,
        prepared: None,
        masks: Masks | None = None,
    ) -> Value:
        tokens = take(tape, w["embedding.weight"], places)
        x = concatenate(tape, tokens, TOKENS)  # [M, B, 4d]
        hidden = silu(tape, linear(tape, x, w["mlp.w1.weight"]))
        if masks is not None:
            hidden = masked(tape, hidden, masks.hidden[0], masks.scale)
        y = linear(tape, hidden, w["mlp.w2.weight"])
        y = normalise(tape, y, Norm(w["norm.weight"], w.get("norm.bias")))
        return linear(tape, y, w["out.weight"])
