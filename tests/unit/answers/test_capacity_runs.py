"""Which capacity runs are fitted, and so counted beside the fit."""

from __future__ import annotations

import pandas as pd

from groktime.service.answers.capacity import (
    CapacityPoint,
    capacity_inputs,
    last_batch_dips,
    measured_runs,
)

RUNS = pd.DataFrame(
    [
        # (prime, width, state, bits)
        (59, 8, "done", 1000.0),
        (59, 12, "done", 1500.0),
        (59, 16, "pending", None),
        (61, 8, "done", 1100.0),
    ],
    columns=["prime", "width", "state", "bits"],
).assign(reason=None, params=3000, n_train=400, vocabulary=61)


def test_runs_of_another_prime_are_neither_fitted_nor_counted() -> None:
    measured = measured_runs(RUNS)
    assert measured[["prime", "width"]].to_numpy().tolist() == [[59, 8], [59, 12]]
    inputs = capacity_inputs(RUNS)
    assert inputs is not None
    assert inputs.width.tolist() == [8, 12]
    assert inputs.missing == {16: 1}


def test_nothing_finished_is_nothing_to_fit() -> None:
    waiting = RUNS[RUNS["state"] == "pending"]
    assert len(measured_runs(waiting)) == 0
    assert capacity_inputs(waiting) is None


def point(n: int, bits: float) -> CapacityPoint:
    last = n - (-(-n // 512) - 1) * 512
    return CapacityPoint(run=n, n=n, bits=bits, complexity=6.8 * n, batch_size=512, last_batch=last)


def test_a_dip_is_laid_to_its_last_batch_only_where_that_is_small() -> None:
    curve = [point(1891, 5583), point(2601, 4100), point(3576, 5526), point(9300, 5093)]
    assert [p.n for p in last_batch_dips(curve)] == [2601], "2601 = 5·512 + 41"
    full = [point(2048, 5583), point(2560, 4100), point(3584, 5526)]
    assert last_batch_dips(full) == ()
