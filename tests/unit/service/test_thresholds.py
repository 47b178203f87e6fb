"""Reaching a threshold is decided on integer counts, exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groktime.service.spec import LADDER, ladder_index, needed


def test_ladder_has_the_59_thresholds_of_the_design() -> None:
    assert LADDER[0] == 500
    assert LADDER[-1] == 999
    assert len(LADDER) == 59
    assert list(LADDER) == sorted(set(LADDER))


@given(thousandths=st.sampled_from(LADDER), n=st.integers(1, 10_000_000))
def test_needed_is_the_least_count_whose_share_reaches_the_threshold(
    thousandths: int, n: int
) -> None:
    count = needed(thousandths / 1000, n)
    assert count == (thousandths * n + 999) // 1000
    assert Fraction(count, n) >= Fraction(thousandths, 1000) > Fraction(count - 1, n)


def test_the_decimal_that_was_written_counts_not_its_binary_neighbour() -> None:
    assert needed(0.99, 100) == 99
    assert needed(0.7, 10) == 7
    assert needed(0.55, 100) == 55


@pytest.mark.parametrize(("threshold", "index"), [(0.5, 1), (0.98, 49), (0.99, 50), (0.999, 59)])
def test_ladder_positions_count_from_one_as_postgres_does(threshold: float, index: int) -> None:
    assert ladder_index(threshold) == index


@pytest.mark.parametrize("threshold", [0.505, 0.9905, 0.49, 1.0])
def test_other_thresholds_are_off_the_ladder(threshold: float) -> None:
    assert ladder_index(threshold) is None
