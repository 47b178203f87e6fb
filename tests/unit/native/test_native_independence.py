"""A native run's curve is its own: bitwise the same alone, in company, and after a resume."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from worker_runs import make_run, random_labels, same

from groktime.service.errors import EngineError
from groktime.service.spec import ModularData, RunSpec
from groktime.workers.native import NativeStack, supports

EPOCHS = 4
# Shapes differ too: a workspace serves them one after the other.
RUNS = [
    make_run(seed=1, width=10),
    make_run(seed=2, width=10, dropout=0.0),
    make_run(seed=3, width=24, depth=3, data=ModularData(prime=23)),
    make_run(seed=4, width=6, data=random_labels(90), depth=1),
    make_run(seed=5, width=10, positions="none", optimiser={"lr": 3e-3, "weight_decay": 0.0}),
    make_run(seed=7, width=12, depth=3, norm="layer", ffn="plain", positions="learned"),
    make_run(seed=8, width=10, norm="layer", dropout=0.0),
    # Diverges within an epoch or two.
    make_run(seed=6, width=10, optimiser={"lr": 1e30, "weight_decay": 0.0}),
]


@pytest.fixture(scope="module")
def alone() -> list[NDArray[Any]]:
    return [NativeStack([spec]).advance(EPOCHS)[0] for spec in RUNS]


@given(chosen=st.lists(st.sampled_from(range(len(RUNS))), min_size=1, max_size=6))
@settings(max_examples=30)
def test_company_and_order_do_not_change_a_curve(
    alone: list[NDArray[Any]], chosen: list[int]
) -> None:
    together = NativeStack([RUNS[i] for i in chosen]).advance(EPOCHS)
    assert all(same(together[place], alone[i]) for place, i in enumerate(chosen))


@given(
    order=st.permutations(range(len(RUNS))),
    gone=st.sets(st.sampled_from(range(len(RUNS))), max_size=len(RUNS) - 1),
    when=st.integers(1, EPOCHS - 1),
)
@settings(max_examples=20)
def test_stack_mates_that_leave_do_not_change_a_curve(
    alone: list[NDArray[Any]], order: list[int], gone: set[int], when: int
) -> None:
    stack = NativeStack([RUNS[i] for i in order])
    stack.advance(when)
    stack.remove([order.index(i) for i in gone])
    kept = [i for i in order if i not in gone]
    assert stack.specs == [RUNS[i] for i in kept]
    assert stack.epochs == [when] * len(kept)
    rest = stack.advance(EPOCHS - when)
    assert all(same(rest[place], alone[i][when:]) for place, i in enumerate(kept))


@given(which=st.sampled_from(range(len(RUNS))), when=st.integers(0, EPOCHS - 1))
@settings(max_examples=20)
def test_a_resumed_run_goes_on_exactly(alone: list[NDArray[Any]], which: int, when: int) -> None:
    first = NativeStack([RUNS[which]])
    first.advance(when)
    resumed = NativeStack([RUNS[which]], states=[first.state(0)], epochs=[when])
    first.advance(1)  # a state is a copy: its owner's next epoch leaves it alone
    assert same(resumed.advance(EPOCHS - when)[0], alone[which][when:])


def test_a_diverging_run_shows_a_loss_that_is_no_number(alone: list[NDArray[Any]]) -> None:
    assert not np.isfinite(alone[-1]["train_loss"][-1])
    assert all(np.isfinite(curve["train_loss"]).all() for curve in alone[:-1])


def test_equal_engines_have_equal_fingerprints() -> None:
    first, second = NativeStack(RUNS[:1]), NativeStack(RUNS[1:3])
    assert first.fingerprint == second.fingerprint
    assert first.fingerprint.startswith("native; source ")


@pytest.mark.parametrize(
    "model",
    [
        {"heads": 2},
        {"data": ModularData(prime=257), "positions": "learned"},  # tables of 1,036 rows
        {"architecture": "mlp", "depth": 1, "positions": "none", "ffn": "plain"},
        {"optimiser": {"warmup": 10}},
    ],
)
def test_other_variants_are_left_to_the_torch_engine(model: dict[str, Any]) -> None:
    spec: RunSpec = make_run(**model)
    assert not supports(spec)
    with pytest.raises(EngineError, match="native engine"):
        NativeStack([spec])
