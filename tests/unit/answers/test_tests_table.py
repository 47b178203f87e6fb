"""The pooled tests as an answer gives them."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from groktime.service.analysis.hypotheses import hypothesis_tests
from groktime.service.answers.cell_tests import Statistic, pooled_tests


def pooled(p_cross: list[float], p_onset: list[float]) -> dict[str, Statistic]:
    primes = (47, 53, 59, 61, 67, 71, 73)[: len(p_cross)]
    cells = pd.DataFrame(
        {"p": primes, "p_cross": p_cross, "p_onset": p_onset, "k_mem": np.square(primes)}
    )
    tests = hypothesis_tests(cells, ["p"], n_resamples=200)
    return {s.row.statistic: s.row for s in pooled_tests(tests)}


CROSS = [28e3, 38e3, 48e3, 50e3, 66e3, 70e3, 76e3]


def test_a_perfect_order_has_no_analytic_p_but_its_floors() -> None:
    found = pooled(CROSS, [0.5 * p + 7 * i for i, p in enumerate(CROSS)])
    assert found["spearman"].value == pytest.approx(1)
    assert found["spearman"].note == ""
    assert found["kendall"].floor == pytest.approx(2 / math.factorial(7))


def test_another_order_has_its_analytic_p() -> None:
    found = pooled(CROSS, [20e3, 19e3, 24e3, 25e3, 33e3, 32e3, 38e3])
    assert found["spearman"].note.startswith("analytic p 0.00")


def test_slope_and_intercept_have_intervals() -> None:
    found = pooled(CROSS, [20e3, 19e3, 24e3, 25e3, 33e3, 32e3, 38e3])
    for name in ("slope", "intercept"):
        row = found[name]
        assert row.low is not None
        assert row.high is not None
        assert row.value is not None
        assert row.low < row.value < row.high
        assert row.df == "5"
        assert "standard error" in row.note
