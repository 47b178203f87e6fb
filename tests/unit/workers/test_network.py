"""The stacked network against plain oracles: losses, gradients and whole epochs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from network_oracle import Oracle, dropout_masks
from torch import Tensor
from worker_runs import VARIANTS, make_run, random_labels

from groktime.service.spec import RunSpec
from groktime.workers import forward, operators
from groktime.workers import torch_engine as slab_module
from groktime.workers.model import initial_state, initial_weights
from groktime.workers.operators import stream_keys
from groktime.workers.streams import Purpose, permutation, stream_key
from groktime.workers.tasks import make_dataset
from groktime.workers.torch_engine import Slab

CPU = torch.device("cpu")
DATA = {"modular": None, "random": random_labels(60)}


def make_slab(specs: list[RunSpec]) -> Slab:
    """The stacked form, as GPUs run it, on the CPU."""
    states = [initial_state(spec) for spec in specs]
    datasets = [make_dataset(spec) for spec in specs]
    return Slab(specs, states, [0] * len(specs), datasets, None, CPU)


def first_step(
    slab: Slab, size: int, hidden: Tensor, projection: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Losses and answers of the first examples, and the gradient; keys are [L, M]."""
    columns = slab.x_train[:, :size] + slab.first_rows
    (places,) = slab.network.places(columns, size, share=slab.share)
    (masks,) = slab._masks(hidden[None], projection[None], [size])
    gains, answers, gradient = slab.loss_and_gradient(places, slab.y_train[:, :size], masks)
    return -gains, answers, gradient


def oracle_of(spec: RunSpec) -> Oracle:
    oracle = Oracle(spec)
    weights = {name: torch.from_numpy(value) for name, value in initial_weights(spec).items()}
    oracle.load_state_dict(weights)
    return oracle


def variant_runs(variant: str, data: str, dropout: float) -> list[RunSpec]:
    """Three runs that differ in everything a stack lets differ inside the network."""
    return [
        make_run(data=DATA[data], seed=seed, dropout=rate, init_scale=scale, **VARIANTS[variant])
        for seed, rate, scale in [(1, dropout, 1.0), (2, dropout / 2, 1.5), (3, dropout, 0.5)]
    ]


@pytest.fixture(params=["written out", "fused"])
def _kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operators as a CPU computes them, and by the fused kernels that a GPU takes."""
    if request.param == "fused":
        for module in (operators, forward, slab_module):
            monkeypatch.setattr(module, "fused", lambda tensor: True)


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_gradients_equal_a_plain_module(variant: str, data: str, dropout: float) -> None:
    specs = variant_runs(variant, data, dropout)
    slab, size = make_slab(specs), 20
    seeds, layers = [spec.seed for spec in specs], np.arange(slab.layers)[:, None]
    keys = [
        torch.from_numpy(stream_keys(seeds, purpose, 1, 0, layers))
        for purpose in (Purpose.DROPOUT, Purpose.PROJECTION_DROPOUT)
    ]
    labels = slab.y_train[:, :size]
    losses, answers, gradient = first_step(slab, size, *keys)
    for i, spec in enumerate(specs):
        oracle = oracle_of(spec)
        masks = [
            dropout_masks(spec, purpose, units, 1, 0, size) if dropout else None
            for purpose, units in [
                (Purpose.DROPOUT, spec.model.hidden),
                (Purpose.PROJECTION_DROPOUT, spec.model.width),
            ]
        ]
        tokens = torch.from_numpy(make_dataset(spec).x_train[:size])
        logits = oracle(tokens, *masks)
        expected = F.cross_entropy(logits, labels[i], reduction="none")
        expected.mean().backward()
        by_name = dict(oracle.named_parameters())
        expected_gradient = torch.cat(
            [by_name[parameter.name].grad.flatten() for parameter in slab.parameters]
        )
        torch.testing.assert_close(losses[i], expected.detach(), rtol=2e-5, atol=1e-5)
        scale = expected_gradient.abs().max()
        torch.testing.assert_close(
            gradient[i] / scale, expected_gradient / scale, rtol=1e-4, atol=2e-6
        )
        assert torch.equal(answers[i], logits.argmax(-1))


@pytest.mark.parametrize("variant", ["central", "rope", "two heads", "layer norm", "MLP"])
def test_a_stack_equals_vmap_over_its_models(variant: str) -> None:
    specs = variant_runs(variant, "modular", 0.0)
    slab, module = make_slab(specs), Oracle(specs[0])
    tokens = torch.from_numpy(np.stack([make_dataset(s).x_train[:16] for s in specs]))
    labels = slab.y_train[:, :16]
    stacked = {name: leaf.detach() for name, leaf in slab.leaves.items()}

    def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(module, weights, (x,)), y)

    values = torch.func.vmap(loss)(stacked, tokens, labels)
    gradients = torch.func.vmap(torch.func.grad(loss))(stacked, tokens, labels)
    unused = torch.zeros(slab.layers, len(specs), dtype=torch.int64)  # keys: nothing is dropped
    losses, _, gradient = first_step(slab, 16, unused, unused)
    torch.testing.assert_close(losses.mean(dim=1), values, rtol=1e-5, atol=1e-6)
    expected = torch.cat([gradients[p.name].flatten(1) for p in slab.parameters], dim=1)
    scale = expected.abs().amax()
    torch.testing.assert_close(gradient / scale, expected / scale, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("variant", ["central", "rope", "two heads without positions", "MLP"])
def test_evaluation_equals_a_plain_module_without_dropout(variant: str) -> None:
    specs = variant_runs(variant, "modular", 0.3)
    slab = make_slab(specs)
    with torch.no_grad():
        losses, hits = slab.evaluate()
        for i, spec in enumerate(specs):
            data = make_dataset(spec)
            x, y = np.concatenate([data.x_train, data.x_val]), np.r_[data.y_train, data.y_val]
            logits = oracle_of(spec)(torch.from_numpy(x))
            expected = F.cross_entropy(logits, torch.from_numpy(y), reduction="none")
            torch.testing.assert_close(losses[i], expected, rtol=2e-5, atol=1e-5)
            assert torch.equal(hits[i], logits.argmax(-1) == torch.from_numpy(y))


@pytest.mark.parametrize("warmup", [0, 5])
def test_epochs_equal_a_plain_loop_with_torchs_adamw(warmup: int) -> None:
    settings: dict[str, Any] = {"lr": 3e-3, "beta1": 0.8, "beta2": 0.95, "weight_decay": 0.3}
    settings["warmup"] = warmup
    spec = make_run(optimiser=settings, dropout=0.25, positions="none", kind="capacity")
    curve = make_slab([spec, make_run(seed=9, kind="capacity", positions="none")]).advance(4)[0]
    oracle, data = oracle_of(spec), make_dataset(spec)
    x, y = torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)
    o = spec.optimiser
    optimiser = torch.optim.AdamW(
        oracle.parameters(), lr=o.lr, betas=(o.beta1, o.beta2), weight_decay=o.weight_decay
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda done: min(1.0, (done + 1) / warmup) if warmup else 1.0
    )
    for epoch in range(1, 5):
        order = torch.from_numpy(permutation(stream_key(42, Purpose.SHUFFLE, epoch), len(y)))
        total, correct = 0.0, 0
        for step, batch in enumerate(order.split(o.batch_size)):
            masks = dropout_masks(spec, Purpose.DROPOUT, spec.model.hidden, epoch, step, len(batch))
            logits = oracle(x[batch], masks)
            loss = F.cross_entropy(logits, y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.item() * len(batch)
            correct += int((logits.argmax(-1) == y[batch]).sum())
        row = curve[epoch - 1]
        assert row["train_loss"] == pytest.approx(total / len(y), rel=1e-5)
        assert row["train_correct"] == correct
    with torch.no_grad():
        nats = F.cross_entropy(oracle(x), y, reduction="sum").item()
        val = F.cross_entropy(
            oracle(torch.from_numpy(data.x_val)), torch.from_numpy(data.y_val)
        ).item()
        norm = torch.cat([p.flatten() for p in oracle.parameters()]).norm().item()
    assert row["bits"] == pytest.approx(spec.k_mem - nats / np.log(2), rel=1e-4)
    assert row["val_loss"] == pytest.approx(val, rel=1e-5)
    assert row["weight_norm"] == pytest.approx(norm, rel=1e-5)


def test_what_a_run_does_not_record_is_marked_missing() -> None:
    row = make_slab([make_run(data=random_labels(), eval_train=False)]).advance(1)[0, 0]
    assert row["train_correct_eval"] == row["val_correct"] == -1
    assert np.isnan(row["val_loss"])
    assert np.isnan(row["bits"])
    assert np.isfinite(row["train_loss"])
