"""Which capacity runs are fitted, and so counted beside the fit."""

from __future__ import annotations

import pandas as pd

from groktime.service.answers.capacity import capacity_inputs, measured_runs

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
