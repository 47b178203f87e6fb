"""The PyTorch engine: trains a stack of models of equal shapes on any device.

A slab is a set of models computed together through a leading model axis. On a GPU the whole
stack is one slab, which is what fills the device. On a CPU every model is a slab of its own:
batched kernels there round differently with the number of models and gain no speed, so one by
one a run's curve is bitwise the same whatever shares its stack.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from groktime.service.errors import ConfigurationError
from groktime.service.spec import TOKENS, OptimiserSpec, RandomData, RunSpec
from groktime.workers.devices import EVALUATION_BYTES, evaluation_bytes, resolve_device
from groktime.workers.engines import METRICS, State, check_stack, fingerprint, stack_shape
from groktime.workers.forward import MLP, Layout, Masks, Places, Transformer
from groktime.workers.graphed import Epoch, GraphedEpoch, StepMode
from groktime.workers.model import FIRST_MOMENT, SECOND_MOMENT, initial_state, run_parameters
from groktime.workers.operators import (
    Tape,
    Value,
    dropout_counters,
    dropout_keep,
    fused,
    permutations,
    stream_keys,
)
from groktime.workers.streams import Purpose, dropout_scale, dropout_threshold
from groktime.workers.tasks import Dataset, make_dataset

_MASK_BYTES = 8  # of a unit, while masks are made
_CACHED_CHUNK = 1024  # examples evaluated at once: keeps one model's activations in a CPU's cache


def layout_of(spec: RunSpec) -> Layout:
    """Tables have the operator at position 1 and the equals token at position 3."""
    p = spec.data.prime
    constants = (None,) * TOKENS if isinstance(spec.data, RandomData) else (None, p, None, p + 1)
    return Layout(spec.vocabulary, constants)


class AdamW:
    """Decoupled weight decay on all parameters; weights and moments are [M, P]."""

    def __init__(self, optimisers: Sequence[OptimiserSpec], device: torch.device) -> None:
        self.optimisers = optimisers
        # One kernel has one learning rate for all its models and steps.
        self.is_one = len(set(optimisers)) == 1 and optimisers[0].warmup == 0

        def column(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float32, device=device)[:, None]

        self.keep1 = column([o.beta1 for o in optimisers])
        self.take1 = column([1 - o.beta1 for o in optimisers])
        self.keep2 = column([o.beta2 for o in optimisers])
        self.take2 = column([1 - o.beta2 for o in optimisers])
        self.eps = column([o.eps for o in optimisers])

    def corrections(self, steps: NDArray[np.int64]) -> NDArray[np.float32]:
        """Factors of steps [..., M] counted from 1: [..., 4, M].

        First lr / (1 − β1ᵗ), then 1 / √(1 − β2ᵗ), then 1 − lr·λ, with lr as far as it has warmed
        up, in double precision before rounding; and t.
        """
        lr, beta1, beta2, decay, warmup = (
            np.array([getattr(o, name) for o in self.optimisers])
            for name in ("lr", "beta1", "beta2", "weight_decay", "warmup")
        )
        lr = np.where(steps < warmup, lr * (steps / np.maximum(warmup, 1)), lr)
        size = lr / (1 - beta1**steps)
        root = 1 / np.sqrt(1 - beta2**steps)
        return np.stack([size, root, 1 - lr * decay, steps], axis=-2).astype(np.float32)

    def step(
        self, weights: Tensor, first: Tensor, second: Tensor, gradient: Tensor, correction: Tensor
    ) -> None:
        """Update weights and both moments in place; correction is [4, M] of this step."""
        size, root, decay, count = correction[:, :, None]
        if fused(weights) and self.is_one:
            self._one_kernel(weights, first, second, gradient, count)
            return
        weights.mul_(decay)
        if fused(weights):
            first.lerp_(gradient, self.take1)
            second.lerp_(gradient * gradient, self.take2)
            denominator = torch.addcmul(self.eps, second.sqrt(), root)
            weights.addcdiv_(first * size, denominator, value=-1)
            return
        first.mul_(self.keep1).addcmul_(gradient, self.take1)
        second.mul_(self.keep2).addcmul_(gradient * self.take2, gradient)
        denominator = second.sqrt().mul_(root).add_(self.eps)
        weights.sub_(first.div(denominator).mul_(size))

    def _one_kernel(
        self, weights: Tensor, first: Tensor, second: Tensor, gradient: Tensor, steps: Tensor
    ) -> None:
        """The step of all models at once; steps [M, 1] are counted from 1."""
        o = self.optimisers[0]
        torch._fused_adamw_(
            list(weights.unbind()),
            list(gradient.unbind()),
            list(first.unbind()),
            list(second.unbind()),
            [],
            list(steps[:, 0].unbind()),
            lr=o.lr,
            beta1=o.beta1,
            beta2=o.beta2,
            weight_decay=o.weight_decay,
            eps=o.eps,
            amsgrad=False,
            maximize=False,
        )


class Slab:
    """M models: flat weights and AdamW moments [M, P], their data and their epochs.

    `places` are the models still asked for. One that has left trains on as padding as long as a
    recorded epoch serves the others.
    """

    def __init__(
        self,
        specs: Sequence[RunSpec],
        states: Sequence[State],
        epochs: Sequence[int],
        datasets: Sequence[Dataset],
        orders: Sequence[NDArray[np.int64]] | None,
        device: torch.device,
        step: StepMode = "plain",
    ) -> None:
        self.members, self.done, self.device = list(specs), list(epochs), device
        self.places = list(range(len(specs)))
        self.orders = list(orders) if orders is not None else None
        spec = specs[0]
        self.fused = fused(torch.empty(0, device=device))
        self.parameters = run_parameters(spec)
        if self.fused:
            # W3 right after W1, whose place has the first of the two names: one product for both.
            names = [parameter.name for parameter in self.parameters]
            self.parameters.sort(key=lambda p: (names.index(_with_gate(p.name)), p.name))
        self.weights, self.first, self.second = (
            self._pack(states, prefix) for prefix in ("", FIRST_MOMENT, SECOND_MOMENT)
        )
        self.network: Transformer | MLP = (
            MLP if spec.model.architecture == "mlp" else Transformer
        )(spec.model, layout_of(spec), device)
        columns = self.network.columns
        self.x_train = columns(self._stacked([data.x_train for data in datasets]))
        self.y_train = self._stacked([data.y_train for data in datasets])
        # One pass evaluates whichever sets are measured: training examples first.
        self.evaluated_train = spec.data.n_train if spec.eval_train or spec.records_bits else 0
        n = self.evaluated_train
        x_val = columns(self._stacked([data.x_val for data in datasets]))
        y_val = self._stacked([data.y_val for data in datasets])
        self.x_eval = torch.cat([self.x_train[:, :n], x_val], dim=1)
        self.y_eval = torch.cat([self.y_train[:, :n], y_val], dim=1)
        # Sums over examples are wider than their terms where the device can.
        self.wide = torch.float32 if device.type == "mps" else torch.float64
        self._step_mode = step
        self._configure()

    def _configure(self) -> None:
        """What follows from the specs of the models present; run again after compaction."""
        spec, device = self.members[0], self.device
        models = [spec.model for spec in self.members]
        self.seeds = np.array([spec.seed for spec in self.members], dtype=np.uint64)
        self.optimiser = AdamW([spec.optimiser for spec in self.members], device)
        self.leaves: dict[str, Tensor] = {}
        start = 0
        for parameter in self.parameters:
            flat = self.weights[:, start : start + parameter.size]
            name = _with_gate(parameter.name) if self.fused else parameter.name
            if name in self.leaves:
                flat = self.weights[:, start - parameter.size : start + parameter.size]
            self.leaves[name] = flat.view(len(self.members), -1, *parameter.shape[1:])
            start += parameter.size
        self.batch = min(spec.optimiser.batch_size, spec.data.n_train)
        self.dropout = any(model.dropout > 0 for model in models)
        projection = spec.model.released_head_projection
        # Sharing pays while there are fewer tokens than examples; a projection's dropout makes
        # examples differ before the hidden units do.
        self.share = self.network.layout.vocabulary <= self.batch and not (
            projection and self.dropout
        )
        thresholds = [dropout_threshold(model.dropout) - 32768.0 for model in models]
        self.thresholds = torch.tensor(thresholds, device=device).view(-1, 1, 1, 1)
        scales = [dropout_scale(model.dropout) for model in models]
        self.scales = torch.tensor(scales, device=device).view(-1, 1, 1)
        first_rows = torch.arange(len(models), device=device)[:, None, None]
        self.first_rows = first_rows * torch.tensor(self.network.sizes, device=device)  # [M, 1, C]
        self.less_one = torch.tensor(-1.0, device=device)
        mlp = spec.model.architecture == "mlp"
        self.layers = 1 if mlp else spec.model.depth
        # Masks of all layers are made at once: those of inner layers' four positions, then the
        # last position of the last layer.
        self.positions = [TOKENS] * (self.layers - 1) + [1]
        layers = [layer for layer, count in enumerate(self.positions) for _ in range(count)]
        self.mask_layers = torch.tensor(layers, device=device)
        positions = [*range(TOKENS)] * (self.layers - 1) + [TOKENS - 1]

        def counters(units: int) -> Tensor:
            by_example = dropout_counters(self.batch, positions, units)
            return by_example.transpose(0, 1).contiguous().to(device)

        self.hidden_counters = counters(spec.model.hidden) if self.dropout else None
        self.projection_counters = (
            counters(spec.model.width) if self.dropout and projection else None
        )
        self.chunk, self.masked_steps = _CACHED_CHUNK, 1
        if device.type != "cpu":
            all_models = len(self.members) * evaluation_bytes(spec)
            self.chunk = max(_CACHED_CHUNK, EVALUATION_BYTES // all_models)
            units = len(models) * self.batch * len(positions) * spec.model.hidden
            self.masked_steps = max(1, EVALUATION_BYTES // (units * _MASK_BYTES))
        # Recorded and compiled code holds on to the tensors it was made with.
        self._step = self.loss_and_gradient
        if self._step_mode == "compile":
            self._step = torch.compile(self.loss_and_gradient)
        self._trained: Epoch = self.epoch
        if self._step_mode == "graph":
            state = (self.weights, self.first, self.second)
            self._trained = GraphedEpoch(self.epoch, state, self.shape)

    def _pack(self, states: Sequence[State], prefix: str) -> Tensor:
        """Flat [M, P] of the named arrays of each state."""
        flat = [
            np.concatenate([state[prefix + p.name].ravel() for p in self.parameters])
            for state in states
        ]
        # A copy in torch's own memory is aligned, on which the rounding of small products depends.
        return torch.from_numpy(np.stack(flat)).to(self.device, torch.float32, copy=True)

    def _stacked(self, arrays: Sequence[NDArray[np.int64]]) -> Tensor:
        return torch.from_numpy(np.stack(arrays)).to(self.device, torch.int64)

    def state(self, model: int) -> State:
        """Weights and moments of one model by name, on the host."""
        state: dict[str, NDArray[Any]] = {}
        flats = {"": self.weights, FIRST_MOMENT: self.first, SECOND_MOMENT: self.second}
        for prefix, flat in flats.items():
            values, start = flat[self.places[model]].cpu().numpy().copy(), 0
            for p in self.parameters:
                state[prefix + p.name] = values[start : start + p.size].reshape(p.shape)
                start += p.size
        return state

    def keep(self, models: Sequence[int]) -> None:
        """Only these models go on. The slab is compacted; a recorded one when half have left."""
        self.places = [self.places[i] for i in models]
        padded = self._step_mode == "graph" and 2 * len(self.places) > len(self.members)
        if padded or len(self.places) in (0, len(self.members)):
            return
        self.members = [self.members[i] for i in self.places]
        self.done = [self.done[i] for i in self.places]
        if self.orders is not None:
            self.orders = [self.orders[i] for i in self.places]
        index = torch.tensor(self.places, device=self.device)
        self.places = list(range(len(self.members)))
        for name in ("weights", "first", "second", "x_train", "y_train", "x_eval", "y_eval"):
            setattr(self, name, getattr(self, name).index_select(0, index))
        self._configure()

    @property
    def shape(self) -> Hashable:
        """What a recorded epoch depends on: the device and the shapes of all tensors."""
        return (str(self.device), stack_shape(self.members[0]), len(self.members))

    @property
    def specs(self) -> list[RunSpec]:
        """The models still asked for."""
        return [self.members[place] for place in self.places]

    @property
    def epochs(self) -> list[int]:
        """How many epochs each of them has trained."""
        return [self.done[place] for place in self.places]

    @torch.inference_mode()
    def advance(self, epochs: int) -> NDArray[Any]:
        """Train for some epochs; the device is read once, at the end."""
        steps = self.members[0].steps_per_epoch
        done = np.array(self.done)
        number = done + np.arange(1, epochs + 1)[:, None]  # [K, M], from 1
        of_step = number[:, None] * 0 + np.arange(steps)[:, None]  # [K, S, M]
        step_count = (number[:, None] - 1) * steps + of_step + 1
        corrections = self._send(self.optimiser.corrections(step_count))  # [K, S, 4, M]
        shuffle_keys = self._send(stream_keys(self.seeds, Purpose.SHUFFLE, number))  # [K, M]
        by_layer = (number[:, None, None], of_step[:, :, None], np.arange(self.layers)[:, None])
        hidden_keys, projection_keys = (
            self._send(stream_keys(self.seeds, purpose, *by_layer))  # [K, S, L, M]
            for purpose in (Purpose.DROPOUT, Purpose.PROJECTION_DROPOUT)
        )
        measured = []
        for k in range(epochs):
            keys = corrections[k], hidden_keys[k], projection_keys[k]
            if self.orders is None:
                measured.append(self._trained(shuffle_keys[k], *keys))
            else:
                measured.append(self._epoch(self._given_orders(number[k]), *keys))
        self.done = [epoch + epochs for epoch in self.done]
        return self._read(measured)[self.places]

    def _send(self, values: NDArray[Any]) -> Tensor:
        """To the device without waiting for what it is doing."""
        tensor = torch.from_numpy(np.ascontiguousarray(values))
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    def _given_orders(self, number: NDArray[np.int64]) -> Tensor:
        """The replayed orders of examples in these epochs of the models, [M, n]."""
        assert self.orders is not None
        pairs = zip(self.orders, number, strict=True)
        return self._stacked([order[epoch - 1].astype(np.int64) for order, epoch in pairs])

    def epoch(
        self, shuffle_keys: Tensor, corrections: Tensor, hidden_keys: Tensor, projection: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One epoch in the order of its shuffle keys [M]."""
        order = permutations(shuffle_keys, self.y_train.shape[1])
        return self._epoch(order, corrections, hidden_keys, projection)

    def _epoch(
        self, order: Tensor, corrections: Tensor, hidden_keys: Tensor, projection_keys: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One epoch: reals [M, 4] and counts [M, 3] in the order of METRICS."""
        each = order[..., None].expand(-1, -1, self.x_train.shape[2])
        x = self.x_train.gather(1, each) + self.first_rows
        y = self.y_train.gather(1, order)
        places: Sequence[Places | Tensor] = self.network.places(x, self.batch, share=self.share)
        labels = torch.split(y, self.batch, dim=1)
        masks = self._masks(hidden_keys, projection_keys, [part.shape[1] for part in labels])
        gains, answers = [], []
        for batch, wanted, mask, correction in zip(places, labels, masks, corrections, strict=True):
            gain, answer, gradient = self._step(batch, wanted, mask)
            gains.append(gain)
            answers.append(answer)
            self.optimiser.step(self.weights, self.first, self.second, gradient, correction)
        correct = (torch.cat(answers, dim=1) == y).sum(dim=1)
        return self._measure(self._mean_loss(gains), correct)

    def _mean_loss(self, gains: Sequence[Tensor]) -> Tensor:
        """The mean loss [M] of log-probabilities of the labels, [M, B] of each step."""
        loss = torch.zeros(len(self.members), dtype=self.wide, device=self.device)
        # A CPU adds up step by step, as it always did: another order would round differently.
        for part in [torch.cat(list(gains), dim=1)] if self.fused else gains:
            loss -= part.sum(dim=1, dtype=self.wide)
        return loss / self.y_train.shape[1]

    def _masks(
        self, hidden: Tensor, projection: Tensor, examples: Sequence[int]
    ) -> Iterator[Masks | None]:
        """The masks of each step from keys [S, L, M], made for several steps at a time."""
        for first in range(0, len(examples), self.masked_steps):
            together = examples[first : first + self.masked_steps]
            if not self.dropout:
                yield from [None] * len(together)
                continue
            steps = slice(first, first + len(together))
            of_hidden, of_projection = (
                self._kept(keys[steps], counters, together)
                for keys, counters in (
                    (hidden, self.hidden_counters),
                    (projection, self.projection_counters),
                )
            )
            scale = None if self.fused else self.scales
            for at_hidden, at_projection in zip(of_hidden, of_projection, strict=True):
                yield Masks(at_hidden, at_projection, scale)

    def _kept(
        self, keys: Tensor, counters: Tensor | None, examples: Sequence[int]
    ) -> list[list[Tensor]]:
        """Masks of some steps, by layer, from keys [S, L, M]; scaled where every kernel counts."""
        if counters is None:
            return [[] for _ in examples]
        of_position = keys.mT.index_select(2, self.mask_layers)  # [S, M, n]
        kept = dropout_keep(of_position, counters[:, : max(examples)], self.thresholds)
        if self.fused:
            kept.mul_(self.scales[..., None])
        return [
            [
                part[:, :, :count].flatten(1, 2)
                for part in torch.split(of_step, self.positions, dim=1)
            ]
            for of_step, count in zip(kept, examples, strict=True)
        ]

    def loss_and_gradient(
        self, places: Places | Tensor, y: Tensor, masks: Masks | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities of the labels and answers [M, B], and the flat gradient [M, P]."""
        tape, w = Tape(recording=True), self._values()
        prepared = self.network.prepare(tape, w, share=self.share, dropout=masks is not None)
        logits = self.network.logits(tape, w, places, prepared, masks)  # type: ignore[arg-type]
        log_probabilities = logits.data.log_softmax(dim=-1)
        labels = y[..., None]
        gains = log_probabilities.gather(2, labels)[..., 0]
        answers = logits.data.argmax(dim=-1)
        # The gradient of the mean loss by logits: probabilities, less one at the label.
        less_one = self.less_one.expand(labels.shape)
        probabilities = log_probabilities.exp_().scatter_add_(2, labels, less_one)
        logits.give(probabilities.div_(y.shape[1]))
        tape.backward()
        gradient = torch.cat([_gradient(value).flatten(1) for value in w.values()], dim=1)
        return gains, answers, gradient

    def _values(self) -> dict[str, Value]:
        """The weights as where a forward pass begins."""
        return {name: Value(leaf) for name, leaf in self.leaves.items()}

    def _measure(self, train_loss: Tensor, train_correct: Tensor) -> tuple[Tensor, Tensor]:
        """Metrics of the epoch just trained; evaluation is without dropout."""
        losses, hits = self.evaluate()
        n, vocabulary = self.evaluated_train, self.network.layout.vocabulary
        nothing = torch.full_like(train_loss, math.nan)
        bits = nothing
        if self.members[0].records_bits:
            nats = losses[:, :n].sum(dim=1, dtype=self.wide)
            bits = n * math.log2(vocabulary) - nats / math.log(2)
        validated = losses.shape[1] > n
        val_loss = losses[:, n:].mean(dim=1, dtype=self.wide) if validated else nothing
        norm = torch.linalg.vector_norm(self.weights, dim=1, dtype=self.wide)
        unseen = torch.full_like(train_correct, -1)
        eval_correct = hits[:, :n].sum(dim=1) if self.members[0].eval_train else unseen
        val_correct = hits[:, n:].sum(dim=1) if validated else unseen
        return (
            torch.stack([train_loss, val_loss, bits, norm], dim=1),
            torch.stack([train_correct, eval_correct, val_correct], dim=1),
        )

    def evaluate(self) -> tuple[Tensor, Tensor]:
        """Loss and correctness of every evaluated example, [M, n]."""
        if self.y_eval.shape[1] == 0:
            nothing = torch.empty(self.y_eval.shape, device=self.device)
            return nothing, nothing.bool()
        tape, w = Tape(recording=False), self._values()
        prepared = self.network.prepare(tape, w, share=True, dropout=False)
        losses, hits = [], []
        size = min(self.chunk, self.y_eval.shape[1])
        places = self.network.places(self.x_eval + self.first_rows, size, share=True)
        for batch, y in zip(places, torch.split(self.y_eval, size, dim=1), strict=True):
            logits = self.network.logits(tape, w, batch, prepared).data  # type: ignore[arg-type]
            losses.append(_losses(logits, y))
            hits.append(logits.argmax(dim=-1) == y)
        return torch.cat(losses, dim=1), torch.cat(hits, dim=1)

    def _read(self, measured: Sequence[tuple[Tensor, Tensor]]) -> NDArray[Any]:
        reals = torch.stack([real for real, _ in measured], dim=1).cpu().numpy()  # [M, K, 4]
        counts = torch.stack([count for _, count in measured], dim=1).cpu().numpy()
        metrics = np.empty(reals.shape[:2], dtype=METRICS)
        with np.errstate(over="ignore"):  # a diverging model's numbers become infinite
            for i, name in enumerate(("train_loss", "val_loss", "bits", "weight_norm")):
                metrics[name] = reals[..., i]
        for i, name in enumerate(("train_correct", "train_correct_eval", "val_correct")):
            metrics[name] = counts[..., i]
        return metrics


def _with_gate(name: str) -> str:
    """The name of the parameter that holds the one of this name too: W1's for the gate's W3."""
    return name.replace(".w3.", ".w1.")


def _losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of each example in nats, [M, B]."""
    flat = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return flat.view(labels.shape)


def _gradient(value: Value) -> Tensor:
    """What a backward pass left at a weight; nothing where the loss does not depend on it."""
    return torch.zeros_like(value.data) if value.grad is None else value.grad


SOURCES = (
    "forward.py",
    "operators.py",
    "graphed.py",
    "torch_engine.py",
)


def torch_fingerprint(device: torch.device, step: StepMode = "plain") -> str:
    """The fingerprint of this engine on the device."""
    # A graph starts the kernels of a plain epoch.
    return fingerprint("torch", SOURCES, device, *(["step compile"] if step == "compile" else []))


class TorchStack:
    """Implements workers.engines.Stack in PyTorch."""

    def __init__(
        self,
        specs: Sequence[RunSpec],
        *,
        device: str = "auto",
        states: Sequence[State] | None = None,
        epochs: Sequence[int] | None = None,
        datasets: Sequence[Dataset] | None = None,
        orders: Sequence[NDArray[np.int64]] | None = None,
        step: StepMode = "plain",
    ) -> None:
        """Start each run from its state at its epoch, or from its seed.

        A replay gives its own `datasets` and `orders`: for each run [epochs, n_train], the order
        of examples in each epoch from the first.
        """
        check_stack(specs)
        # TF32 keeps 10 bits of mantissa: enough to move first passages.
        torch.set_float32_matmul_precision("highest")
        self.device = resolve_device(device)
        if step == "graph" and self.device.type != "cuda":
            raise ConfigurationError(
                f"GROKTIME_GPU_STEP = 'graph' needs a CUDA device, not {self.device.type}"
            )
        self.step = step
        states = states or [initial_state(spec) for spec in specs]
        epochs = epochs or [0] * len(specs)
        datasets = datasets or [make_dataset(spec) for spec in specs]
        together = 1 if self.device.type == "cpu" else len(specs)
        self._slabs = [
            Slab(
                specs[i : i + together],
                states[i : i + together],
                epochs[i : i + together],
                datasets[i : i + together],
                orders[i : i + together] if orders is not None else None,
                self.device,
                step,
            )
            for i in range(0, len(specs), together)
        ]

    @property
    def specs(self) -> Sequence[RunSpec]:
        return [spec for slab in self._slabs for spec in slab.specs]

    @property
    def epochs(self) -> Sequence[int]:
        return [epoch for slab in self._slabs for epoch in slab.epochs]

    @property
    def fingerprint(self) -> str:
        return torch_fingerprint(self.device, self.step)

    def advance(self, epochs: int) -> NDArray[Any]:
        """Train every model for `epochs` epochs; METRICS of shape [models, epochs]."""
        if not self._slabs:
            return np.empty((0, epochs), dtype=METRICS)
        return np.concatenate([slab.advance(epochs) for slab in self._slabs])

    def state(self, model: int) -> State:
        slab, index = self._find(model)
        return slab.state(index)

    def remove(self, models: Sequence[int]) -> None:
        gone = {self._find(model) for model in models}
        for slab in self._slabs:
            slab.keep([i for i in range(len(slab.specs)) if (slab, i) not in gone])
        self._slabs = [slab for slab in self._slabs if slab.specs]

    def _find(self, model: int) -> tuple[Slab, int]:
        """The slab of the stack's model and its place there."""
        for slab in self._slabs:
            if model < len(slab.specs):
                return slab, model
            model -= len(slab.specs)
        raise IndexError("no such model in the stack")
