"""A run's curve is its own: bitwise the same alone, in any company, and after compaction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from worker_runs import VARIANTS, make_run, random_labels, same

from groktime.service.errors import StackError
from groktime.service.spec import ModularData, RunSpec
from groktime.workers.engines import stack_shape
from groktime.workers.torch_engine import TorchStack

EPOCHS = 3


def stackable_runs() -> list[RunSpec]:
    """Runs of one shape that differ in all that may differ."""
    base: dict[str, Any] = {"width": 10, "batch_size": 25}
    return [
        make_run(seed=1, **base),
        make_run(seed=2, dropout=0.0, **base),
        make_run(seed=3, dropout=0.5, init_scale=2.0, **base),
        make_run(seed=1, optimiser={"lr": 3e-3, "weight_decay": 0.0, "beta2": 0.9}, **base),
        # Diverges within an epoch or two.
        make_run(seed=4, optimiser={"lr": 1e30, "weight_decay": 0.0}, **base),
    ]


RUNS = stackable_runs()


def alone(spec: RunSpec, epochs: int = EPOCHS) -> NDArray[Any]:
    return TorchStack([spec], device="cpu").advance(epochs)[0]


ALONE = [alone(spec) for spec in RUNS]


@given(st.lists(st.sampled_from(range(len(RUNS))), min_size=1, max_size=5))
@settings(max_examples=15)
def test_company_and_order_do_not_change_a_curve(chosen: list[int]) -> None:
    together = TorchStack([RUNS[i] for i in chosen], device="cpu").advance(EPOCHS)
    assert all(same(together[place], ALONE[i]) for place, i in enumerate(chosen))


@given(
    st.permutations(range(len(RUNS))),
    st.sets(st.sampled_from(range(len(RUNS))), min_size=1, max_size=len(RUNS) - 1),
    st.integers(1, EPOCHS - 1),
)
@settings(max_examples=10)
def test_compaction_does_not_change_a_curve(order: list[int], gone: set[int], when: int) -> None:
    stack = TorchStack([RUNS[i] for i in order], device="cpu")
    stack.advance(when)
    stack.remove(sorted(gone))
    rest = [i for place, i in enumerate(order) if place not in gone]
    assert list(stack.specs) == [RUNS[i] for i in rest]
    after = stack.advance(EPOCHS - when)
    assert all(same(after[place], ALONE[i][when:]) for place, i in enumerate(rest))


def test_blocks_of_any_size_give_one_curve() -> None:
    stack = TorchStack(RUNS[:2], device="cpu")
    blocks = np.concatenate([stack.advance(1), stack.advance(2)], axis=1)
    assert all(same(blocks[i], ALONE[i]) for i in range(2))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_goes_on_from_its_state_as_if_never_stopped(variant: str) -> None:
    specs = [make_run(seed=s, dropout=0.2, **VARIANTS[variant]) for s in (5, 6)]
    whole = TorchStack(specs, device="cpu").advance(4)
    first = TorchStack(specs, device="cpu")
    first.advance(2)
    # Each model at its own epoch: the second is resumed one epoch later than the first.
    states = [first.state(0)]
    first.advance(1)
    states.append(first.state(1))
    resumed = TorchStack(specs, device="cpu", states=states, epochs=[2, 3])
    curves = resumed.advance(1)
    assert same(curves[0], whole[0, 2:3])
    assert same(curves[1], whole[1, 3:4])
    assert list(resumed.epochs) == [3, 4]


def test_a_diverging_model_is_not_finite_and_its_neighbours_are() -> None:
    curves = TorchStack(RUNS, device="cpu").advance(EPOCHS)
    assert not np.isfinite(curves[-1]["train_loss"][-1])
    assert np.isfinite(curves[:-1]["train_loss"]).all()


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (make_run(width=16), "width"),
        (make_run(depth=3), "depth"),
        (make_run(batch_size=16), "batch_size"),
        (make_run(norm="layer"), "norm"),
        (make_run(data=ModularData(prime=13)), "n_train"),
        (make_run(data=random_labels(66)), "data"),
        (make_run(kind="capacity"), "kind"),
        (make_run(eval_train=False), "eval_train"),
    ],
)
def test_what_must_be_equal_in_a_stack_is_named(other: RunSpec, field: str) -> None:
    with pytest.raises(StackError, match=field):
        TorchStack([make_run(), other], device="cpu")
    assert stack_shape(make_run()) != stack_shape(other)


def test_what_may_differ_has_one_shape() -> None:
    assert len({stack_shape(spec) for spec in RUNS}) == 1
    plus = make_run(data=ModularData(prime=11, operation="+"))
    minus = make_run(data=ModularData(prime=11, operation="-"))
    assert stack_shape(plus) == stack_shape(minus)
