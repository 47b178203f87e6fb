"""Equivalence: is the slope 1 within a stated margin? Absence of a rejection does not say so."""

from __future__ import annotations

from dataclasses import dataclass

from scipy import stats

SLOPE_MARGIN = 0.05


@dataclass(frozen=True)
class Equivalence:
    """Two one-sided tests of slope inside 1 ± margin; equivalent when `p` is below α."""

    estimate: float
    low_bound: float
    high_bound: float
    p_lower: float
    p_upper: float
    p: float
    df: int
    errors: str  # which standard error: ols, or clustered by prime

    def equivalent(self, alpha: float = 0.05) -> bool:
        return self.p < alpha


def tost(
    estimate: float,
    se: float,
    df: int,
    *,
    target: float = 1.0,
    margin: float = SLOPE_MARGIN,
    errors: str = "ols",
) -> Equivalence:
    """Schuirmann (1987), J. Pharmacokinet. Biopharm. 15, 657: p is the larger one-sided p."""
    low, high = target - margin, target + margin
    if se > 0:
        p_lower = float(stats.t.sf((estimate - low) / se, df))
        p_upper = float(stats.t.cdf((estimate - high) / se, df))
    else:
        p_lower, p_upper = float(estimate <= low), float(estimate >= high)
    return Equivalence(estimate, low, high, p_lower, p_upper, max(p_lower, p_upper), df, errors)
