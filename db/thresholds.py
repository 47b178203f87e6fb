"""The ladder of thresholds whose first passages are stored, and the exact rule of reaching one."""

from __future__ import annotations

from fractions import Fraction

# In thousandths: 50 % to 99 % in steps of 1 %, then to 99.9 % in steps of 0.1 %.
LADDER: tuple[int, ...] = (*range(500, 990, 10), *range(990, 1000))


def needed(threshold: float, n: int) -> int:
    """Correct answers that reach the threshold on n examples: ceil(τ·n), exactly.

    The decimal that was written is meant, not the binary number nearest to it, so that 0.99 of
    100 examples is 99 and not 100.
    """
    exact = Fraction(repr(float(threshold))) * n
    return -(-exact.numerator // exact.denominator)


def ladder_index(threshold: float) -> int | None:
    """Position of the threshold in the ladder, counted from 1 as Postgres counts; None if off."""
    thousandths = Fraction(repr(float(threshold))) * 1000
    if thousandths.denominator != 1 or thousandths.numerator not in LADDER:
        return None
    return LADDER.index(thousandths.numerator) + 1
