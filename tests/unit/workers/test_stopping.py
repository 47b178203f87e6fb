"""Stop rules, epoch by epoch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from worker_runs import make_run, random_labels

from groktime.service.spec import (
    FixedStop,
    ModularData,
    PatienceStop,
    RunSpec,
    ThresholdStop,
    needed,
)
from groktime.workers.engines import METRICS
from groktime.workers.training import Watch, examine


def curve(**columns: list[Any]) -> NDArray[Any]:
    rows = np.zeros(len(next(iter(columns.values()))), dtype=METRICS)
    for name, values in columns.items():
        rows[name] = values
    return rows


def stop_of(spec: RunSpec, rows: NDArray[Any], block: int) -> tuple[int, str | None]:
    """Epoch and reason of the stop when the curve is read in blocks."""
    watch, done = Watch(), 0
    while done < len(rows):
        watch = Watch.from_json(watch.as_json())
        watch, count, why = examine(spec, watch, done + 1, rows[done : done + block])
        if why is not None and count is not None:
            return done + count, why
        done += block
    return len(rows), None


@pytest.mark.parametrize(
    ("threshold", "examples", "count"),
    [(0.99, 100, 99), (0.99, 101, 100), (0.99, 6328, 6265), (0.29, 100, 29), (1.0, 7, 7)],
)
def test_a_threshold_is_reached_by_whole_answers(
    threshold: float, examples: int, count: int
) -> None:
    assert needed(threshold, examples) == count


@given(st.integers(1, 999), st.integers(1, 20_000))
def test_required_counts_are_exact_for_decimal_thresholds(permille: int, examples: int) -> None:
    assert needed(permille / 1000, examples) == -(-permille * examples // 1000)


@pytest.mark.parametrize("block", [1, 2, 3, 7, 50])
def test_a_speed_run_stops_when_every_recorded_clock_has_reached(block: int) -> None:
    spec = make_run(data=random_labels(100), stop=ThresholdStop(max_epochs=50))
    # The online clock reaches at 3 and falls back; the eval clock reaches at 5.
    rows = curve(
        train_correct=[0, 0, 99, 98, 97, 99, 99], train_correct_eval=[0, 0, 0, 98, 99, 0, 0]
    )
    assert stop_of(spec, rows, block) == (5, "threshold")


def test_a_clock_that_is_not_recorded_is_not_waited_for() -> None:
    spec = make_run(data=random_labels(100), stop=ThresholdStop(), eval_train=False)
    rows = curve(train_correct=[0, 99, 99], train_correct_eval=[-1, -1, -1])
    assert stop_of(spec, rows, 2) == (2, "threshold")


@pytest.mark.parametrize("block", [1, 4])
def test_a_grok_run_waits_for_validation(block: int) -> None:
    spec = make_run(data=ModularData(prime=11, train_fraction=0.6), stop=ThresholdStop(val=0.99))
    n, v = spec.data.n_train, spec.data.n_val
    rows = curve(
        train_correct=[0, n, n, n], train_correct_eval=[0, n, n, n], val_correct=[0, 0, v - 1, v]
    )
    assert stop_of(spec, rows, block) == (4, "threshold")


@pytest.mark.parametrize("block", [1, 3, 100])
def test_patience_counts_epochs_without_enough_improvement(block: int) -> None:
    stop = PatienceStop(patience=3, min_improvement=0.1, max_epochs=50)
    spec = make_run(data=random_labels(), kind="capacity", stop=stop)
    # 1.95 is not enough of an improvement on 2; 1.8 is.
    rows = curve(train_loss=[2, 1.95, 1.8, 1.75, 1.79, 1.71, 1.0])
    assert stop_of(spec, rows, block) == (6, "patience")


@pytest.mark.parametrize(
    ("stop", "why"),
    [
        (ThresholdStop(max_epochs=4), "cap"),
        (PatienceStop(max_epochs=4), "cap"),
        (FixedStop(max_epochs=4), "fixed"),
    ],
)
def test_no_run_passes_its_last_epoch(stop: Any, why: str) -> None:
    spec = make_run(data=random_labels(), stop=stop)
    assert stop_of(spec, curve(train_loss=[1.0] * 9), 3) == (4, why)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_ends_the_run(loss: float) -> None:
    spec = make_run(data=random_labels(), stop=FixedStop(max_epochs=9))
    assert stop_of(spec, curve(train_loss=[1.0, 1.0, loss, 1.0]), 2) == (3, "diverged")


def test_a_validation_loss_that_is_not_recorded_is_no_divergence() -> None:
    spec = make_run(data=random_labels(), stop=FixedStop(max_epochs=9))
    rows = curve(train_loss=[1.0, 1.0], val_loss=[math.nan, math.nan])
    assert stop_of(spec, rows, 1) == (2, None)


@given(
    stop=st.sampled_from(
        [
            ThresholdStop(max_epochs=12),
            ThresholdStop(val=0.9, train=0.8, max_epochs=9),
            PatienceStop(patience=3, min_improvement=0.1, max_epochs=11),
            FixedStop(max_epochs=7),
        ]
    ),
    rows=st.lists(
        st.tuples(
            st.sampled_from([0.5, 1.0, 1.05, 2.0, math.inf, math.nan]),
            *[st.integers(0, 66)] * 3,
        ),
        min_size=1,
        max_size=15,
    ),
    eval_train=st.booleans(),
    block=st.integers(1, 15),
)
def test_blocks_are_read_as_their_epochs_are_one_by_one(
    stop: Any, rows: list[tuple[float, int, int, int]], eval_train: bool, block: int
) -> None:
    spec = make_run(stop=stop, eval_train=eval_train)
    losses, online, evaluated, val = zip(*rows, strict=True)
    read = curve(
        train_loss=list(losses),
        train_correct=list(online),
        train_correct_eval=list(evaluated),
        val_correct=list(val),
    )
    assert stop_of(spec, read, block) == stop_of(spec, read, 1)
