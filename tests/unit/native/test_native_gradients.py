"""The hand-written gradients equal autograd's at every shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_gradients import autograd_gradients, largest_deviation, native_gradients
from worker_runs import make_run

from groktime.service.spec import ModularData, PermutationData, RandomData, RunSpec, ShuffledData

TOLERANCE = 1e-5


@st.composite
def batches(draw: st.DrawFn) -> tuple[RunSpec, np.ndarray]:
    """Odd tails, widths of no round number, vocabularies smaller and larger than the batch."""
    prime = draw(st.sampled_from([2, 3, 7, 11, 23, 47]))
    task = draw(st.sampled_from(["modular", "shuffled", "random"]))
    if task == "random":
        data = RandomData(prime=prime, n=draw(st.integers(1, min((prime + 2) ** 4, 400))))
    else:
        operation = draw(st.sampled_from(["+", "-", "*", "/"]))
        table = {"prime": prime, "operation": operation, "train_fraction": 0.75}
        data = ModularData(**table) if task == "modular" else ShuffledData(**table)
    norm = draw(st.sampled_from(["rms", "layer"]))
    # A LayerNorm of two units is all but a sign, and its gradient nothing but rounding.
    narrowest = 2 if norm == "layer" else 1
    spec = make_run(
        kind="capacity",
        data=data,
        width=2 * draw(st.integers(narrowest, 21)),
        depth=draw(st.integers(1, 4)),
        positions=draw(st.sampled_from(["none", "rope", "learned"])),
        norm=norm,
        ffn=draw(st.sampled_from(["gated", "plain"])),
        dropout=draw(st.sampled_from([0.0, 0.2, 0.5])),
        init_scale=draw(st.sampled_from([0.5, 1.0, 1.5])),
        seed=draw(st.integers(0, 2**63 - 1)),
        batch_size=512,
    )
    size = draw(st.integers(1, min(data.n_train, 300)))
    order = np.random.default_rng(draw(st.integers(0, 99))).permutation(data.n_train)
    return spec, order[:size]


@given(batches())
@settings(max_examples=100)
def test_gradients_equal_autograd_at_every_shape(case: tuple[RunSpec, np.ndarray]) -> None:
    assert largest_deviation(*case) < TOLERANCE


@pytest.mark.parametrize(("width", "depth", "dropout"), [(4, 4, 0.5), (2, 3, 0.0), (20, 2, 0.2)])
def test_rounding_errors_are_spread_as_those_of_autograd(
    width: int, depth: int, dropout: float
) -> None:
    """Where the gradient is ill-conditioned one case says little; many seeds say whether our
    arithmetic loses more digits than PyTorch's in the same precision does."""
    errors: dict[str, list[float]] = {"native": [], "autograd": []}
    for seed in range(60):
        spec = make_run(
            data=RandomData(prime=23, n=252),
            width=width,
            depth=depth,
            dropout=dropout,
            init_scale=1.5,
            seed=seed,
            batch_size=512,
        )
        batch = np.random.default_rng(seed).permutation(252)[:54]
        _, exact = autograd_gradients(spec, batch, 3, 1, torch.float64)
        found = {
            "native": native_gradients(spec, batch, 3, 1)[1],
            "autograd": autograd_gradients(spec, batch, 3, 1, torch.float32)[1],
        }
        for who, gradients in found.items():
            errors[who].append(
                max(np.abs(gradients[n] - e).max() / np.abs(e).max() for n, e in exact.items())
            )
    for share in (0.5, 0.9):
        ours, theirs = (np.quantile(errors[who], share) for who in ("native", "autograd"))
        assert ours < 2 * theirs, f"{share:.0%} of errors: {ours:.1e} against {theirs:.1e}"


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("positions", ["none", "rope", "learned"])
def test_gradients_of_permutation_composition_equal_autograd(
    dropout: float, positions: str
) -> None:
    spec = make_run(
        data=PermutationData(), width=20, dropout=dropout, positions=positions, batch_size=512
    )
    assert largest_deviation(spec, np.arange(0, 5000, 10)) < TOLERANCE


@pytest.mark.parametrize(
    ("width", "variant"),
    [(128, {}), (128, {"norm": "layer", "ffn": "plain", "positions": "learned"}), (258, {})],
    ids=["128", "128, all variants", "258"],
)
def test_gradients_of_wide_models_equal_autograd(width: int, variant: dict[str, Any]) -> None:
    spec = make_run(data=ModularData(prime=31), width=width, batch_size=512, **variant)
    assert largest_deviation(spec, np.arange(150)) < TOLERANCE
