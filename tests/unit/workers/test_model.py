"""Parameters: how many, how they start, and what pairs of runs share."""

from __future__ import annotations

import numpy as np
import pytest
from worker_runs import VARIANTS, make_run, random_labels

from groktime.service.spec import ModelSpec, ModularData, RunSpec, ThresholdStop
from groktime.workers.model import initial_state, initial_weights, run_parameters


@pytest.mark.parametrize("variant", VARIANTS)
def test_tensors_add_up_to_the_parameter_count(variant: str) -> None:
    spec = make_run(width=16, **VARIANTS[variant])
    assert sum(parameter.size for parameter in run_parameters(spec)) == spec.params


@pytest.mark.parametrize(
    ("width", "params"),
    [(20, 17_500), (32, 40_288), (64, 146_112), (128, 554_368), (256, 2_157_312)],
)
def test_the_central_model_has_the_papers_sizes(width: int, params: int) -> None:
    spec = RunSpec(
        kind="grok",
        data=ModularData(prime=113),
        model=ModelSpec(width=width),
        stop=ThresholdStop(val=0.99),
        seed=42,
    )
    assert sum(parameter.size for parameter in run_parameters(spec)) == params


def test_speed_and_grok_runs_of_a_cell_start_from_the_same_weights() -> None:
    grok = initial_weights(make_run(data=ModularData(prime=11)))
    speed = initial_weights(make_run(data=random_labels(55)))
    assert all(np.array_equal(grok[name], speed[name]) for name in grok)


def test_variants_share_the_tensors_they_have_in_common() -> None:
    central, plain = initial_weights(make_run()), initial_weights(make_run(ffn="plain", depth=3))
    shared = set(central) & set(plain)
    assert "layers.1.ff.w1.weight" in shared
    assert all(np.array_equal(central[name], plain[name]) for name in shared)


def test_tensors_of_one_model_differ_from_each_other() -> None:
    weights = initial_weights(make_run())
    square = [value for value in weights.values() if value.shape == (8, 8)]
    assert len({value.tobytes() for value in square}) == len(square) == 8


def test_initial_values_follow_the_papers_distributions() -> None:
    weights = initial_weights(make_run(width=64))
    assert abs(weights["embedding.weight"].std() - 1) < 0.05
    w2 = weights["layers.0.ff.w2.weight"]
    assert np.abs(w2).max() <= 1 / np.sqrt(256)
    assert abs(w2.std() * np.sqrt(3 * 256) - 1) < 0.02
    assert np.all(weights["norm.weight"] == 1)


def test_init_scale_multiplies_every_parameter() -> None:
    plain, doubled = initial_weights(make_run()), initial_weights(make_run(init_scale=2))
    assert all(np.array_equal(2 * plain[name], doubled[name]) for name in plain)


def test_moments_start_at_zero() -> None:
    state = initial_state(make_run())
    moments = [value for name, value in state.items() if name.startswith(("m.", "v."))]
    assert len(moments) == 2 * len(run_parameters(make_run()))
    assert not any(value.any() for value in moments)
