"""A run's identity and what follows from it by arithmetic."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from groktime.service.spec import (
    SPEC_VERSION,
    ModelSpec,
    ModularData,
    OptimiserSpec,
    PatienceStop,
    PermutationData,
    RandomData,
    RunSpec,
    ShuffledData,
    ThresholdStop,
    is_prime,
)


def grok_run(**changes: Any) -> RunSpec:
    fields: dict[str, Any] = {
        "kind": "grok",
        "data": ModularData(prime=113),
        "model": ModelSpec(width=32),
        "stop": ThresholdStop(val=0.99),
        "seed": 42,
    }
    return RunSpec(**{**fields, **changes})


@pytest.mark.parametrize(
    ("width", "params"),
    [(20, 17_500), (32, 40_288), (64, 146_112), (128, 554_368), (256, 2_157_312)],
)
def test_central_model_has_the_papers_parameter_counts(width: int, params: int) -> None:
    assert ModelSpec(width=width).params(115) == params


def test_variants_have_their_own_parameter_counts() -> None:
    v, d, layers = 115, 32, 2
    central = 2 * v * d + layers * (16 * d * d + 2 * d) + d
    assert ModelSpec(width=d, ffn="plain").params(v) == central - layers * 4 * d * d
    assert ModelSpec(width=d, norm="layer").params(v) == central + layers * 2 * d + d
    assert ModelSpec(width=d, positions="learned").params(v) == central + 4 * d
    released = ModelSpec(width=d, heads=2, released_head_projection=True)
    assert released.params(v) == central + layers * (d * d + d)
    mlp = ModelSpec(architecture="mlp", width=d, depth=1, positions="none", ffn="plain")
    assert mlp.params(v) == 2 * v * d + 20 * d * d + d


def test_division_at_113_has_the_papers_data_complexity() -> None:
    run = grok_run()
    assert run.data.n_train == 6_328
    assert run.k_mem == pytest.approx(43_318, abs=0.5)
    assert run.k_mem / 2.16 == pytest.approx(20_055, abs=0.5)
    assert run.steps_per_epoch == 13


@pytest.mark.parametrize(
    ("data", "train", "validation"),
    [
        (ModularData(prime=7, operation="+"), 24, 25),
        (ModularData(prime=7, operation="/"), 21, 21),
        (ModularData(prime=7, operation="+", split="sequential", train_fraction=0.3), 14, 35),
        (ModularData(prime=7, operation="+", split="alternating"), 28, 21),
        (PermutationData(), 7_200, 7_200),
        (ShuffledData(prime=7, operation="/"), 21, 0),
        (RandomData(prime=7, n=100), 100, 0),
    ],
)
def test_set_sizes_are_as_realised(data: Any, train: int, validation: int) -> None:
    assert (data.n_train, data.n_val) == (train, validation)


def test_key_is_of_the_typed_values_not_of_how_they_were_written() -> None:
    written = grok_run(optimiser=OptimiserSpec.model_validate({"weight_decay": 1, "lr": "1e-3"}))
    assert written.key == grok_run().key
    assert grok_run(model=ModelSpec(width=32, dropout=-0.0)).key == (
        grok_run(model=ModelSpec(width=32, dropout=0.0)).key
    )


def test_key_never_changes_for_a_given_run() -> None:
    # Every stored result hangs on this; a change here needs a new SPEC_VERSION and a migration.
    assert grok_run().key == "b330699e37e908bf0d31db75e3414687d2bbd7aa351d8f7d9ab4d504e0406478"


@given(
    prime=st.sampled_from([7, 11, 97, 113]),
    width=st.integers(1, 200).map(lambda half: 2 * half),
    lr=st.floats(1e-6, 1.0),
    seed=st.integers(0, 2**63 - 1),
    eval_train=st.booleans(),
)
def test_canonical_json_is_plain_sorted_json_and_round_trips(
    prime: int, width: int, lr: float, seed: int, eval_train: bool
) -> None:
    run = grok_run(
        data=ModularData(prime=prime),
        model=ModelSpec(width=width),
        optimiser=OptimiserSpec(lr=lr),
        seed=seed,
        eval_train=eval_train,
    )
    fields = {"version": SPEC_VERSION, **run.model_dump(mode="json")}
    del fields["optimiser"]["warmup"]  # added later, and neutral
    assert run.canonical_json == json.dumps(fields, sort_keys=True, separators=(",", ":"))
    assert RunSpec.model_validate_json(run.model_dump_json()).key == run.key


def test_every_field_is_part_of_the_key() -> None:
    base = grok_run()
    changed = [
        grok_run(data=ModularData(prime=127)),
        grok_run(data=ModularData(prime=113, operation="+")),
        grok_run(data=ModularData(prime=113, train_fraction=0.3)),
        grok_run(model=ModelSpec(width=34)),
        grok_run(model=ModelSpec(width=32, positions="none")),
        grok_run(model=ModelSpec(width=32, init_scale=2)),
        grok_run(optimiser=OptimiserSpec(weight_decay=0.1)),
        grok_run(optimiser=OptimiserSpec(batch_size=128)),
        grok_run(optimiser=OptimiserSpec(warmup=10)),
        grok_run(stop=ThresholdStop(val=0.99, max_epochs=100)),
        grok_run(stop=PatienceStop()),
        grok_run(eval_train=False),
        grok_run(seed=43),
    ]
    assert len({run.key for run in [base, *changed]}) == len(changed) + 1


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ModelSpec(width=21), "odd"),
        (lambda: ModelSpec(width=20, heads=4), "multiple of 8"),
        (lambda: ModelSpec(width=20, released_head_projection=True), "heads > 1"),
        (lambda: ModelSpec(width=20, architecture="mlp"), "needs depth: 1"),
        (lambda: ModularData(prime=91), "91 is not a prime"),
        (lambda: RandomData(prime=2, n=257), "table of 256"),
        (lambda: ModularData(prime=7, split="alternating", train_fraction=0.3), "must be 0.5"),
        (lambda: ModularData(prime=2, train_fraction=0.1), "no training example"),
        (lambda: grok_run(data=RandomData(prime=7, n=9)), "validation set"),
        (lambda: grok_run(kind="speed"), "random or shuffled"),
        (lambda: grok_run(surprise=1), "surprise"),
        (lambda: OptimiserSpec(lr=float("nan")), "finite"),
    ],
)
def test_a_run_that_cannot_exist_is_refused_with_its_reason(make: Any, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        make()


def test_primes_are_recognised() -> None:
    assert [n for n in range(30) if is_prime(n)] == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]


def test_columns_name_every_part_of_the_spec_people_filter_by() -> None:
    columns = grok_run().columns()
    assert columns["prime"] == 113
    assert columns["width"] == 32
    assert columns["weight_decay"] == 1.0
    assert columns["params"] == 40_288
    assert columns["max_epochs"] == 5_000
