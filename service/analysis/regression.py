"""Least squares on cells: predictor columns, ranks, and errors plain or clustered by prime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import statsmodels.api as sm
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from scipy import stats

from groktime.service.analysis.inputs import FloatArray, IntArray

LAST_BATCHES_DIFFER = 2.0  # largest over smallest share of a batch that makes them a predictor
RELIABLE_CLUSTERS = 10  # cluster-robust errors rest on many clusters; fewer are marked
LEAST_CLUSTERS = 3
DETERMINED = 1e-12  # share of a column left unexplained by others that imply it
RANK_TOLERANCE = 1e-9  # of a standardised column's norm left after projecting the others out


@dataclass(frozen=True, eq=False)
class Design:
    """Named predictor columns (n, k) without the intercept."""

    names: tuple[str, ...]
    columns: FloatArray

    def __add__(self, other: Design) -> Design:
        return Design(self.names + other.names, np.hstack([self.columns, other.columns]))

    def with_intercept(self) -> FloatArray:
        return np.hstack([np.ones((len(self.columns), 1)), self.columns])


def is_numeric_axis(column: pd.Series) -> bool:
    """Booleans are categories with two levels, everything else numeric is a number."""
    return bool(is_numeric_dtype(column)) and not is_bool_dtype(column)


def empty_design(n: int) -> Design:
    return Design((), np.empty((n, 0)))


def numeric_design(name: str, values: FloatArray) -> Design:
    return Design((name,), np.asarray(values, dtype=np.float64).reshape(-1, 1))


def axis_design(cells: pd.DataFrame, axes: Sequence[str]) -> Design:
    """Each axis as it stands: a numeric column, or indicators of all levels but the first."""
    design = empty_design(len(cells))
    for axis in axes:
        column = cells[axis]
        if is_numeric_axis(column):
            design = design + numeric_design(axis, column.to_numpy(dtype=np.float64))
            continue
        text = column.astype(str).to_numpy()
        for level in sorted(set(text))[1:]:
            indicator = (text == level).astype(np.float64)
            design = design + numeric_design(f"{axis}={level}", indicator)
    return design


def full_rank(design: Design) -> tuple[Design, tuple[str, ...]]:
    """Keep columns in order as long as each adds to the intercept and the kept ones.

    Returns the reduced design and the names left out: constant, or a combination of others.
    """
    basis = [np.full(len(design.columns), 1.0 / np.sqrt(max(len(design.columns), 1)))]
    kept, dropped = [], []
    for k, name in enumerate(design.names):
        column = design.columns[:, k]
        norm = float(np.linalg.norm(column))
        rest = column / norm if norm > 0 else column
        for _ in range(2):  # twice is enough to be orthogonal to rounding
            for direction in basis:
                rest = rest - direction * float(direction @ rest)
        size = float(np.linalg.norm(rest))
        if norm == 0 or size < RANK_TOLERANCE:
            dropped.append(name)
            continue
        basis.append(rest / size)
        kept.append(k)
    names = tuple(design.names[k] for k in kept)
    return Design(names, design.columns[:, kept]), tuple(dropped)


def variance_inflation(design: Design) -> dict[str, float]:
    """VIF_k = 1 / (1 − R²_k) of each column on the others; inf when they determine it."""
    factors = {}
    for k, name in enumerate(design.names):
        names = design.names[:k] + design.names[k + 1 :]
        others, _ = full_rank(Design(names, np.delete(design.columns, k, axis=1)))
        fit = sm.OLS(design.columns[:, k], others.with_intercept()).fit()
        spread, rss = float(fit.centered_tss), float(fit.ssr)
        factors[name] = spread / rss if rss > DETERMINED * spread else float("inf")
    return factors


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Least-squares coefficients with their standard errors, two-sided p and degrees of freedom.

    `clusters` is how many groups the errors are clustered by, None for plain ones.
    """

    value: FloatArray
    error: FloatArray
    p: FloatArray
    df: int
    clusters: int | None

    @property
    def unreliable(self) -> bool:
        """Below ten clusters the sandwich is known to be too small."""
        return self.clusters is not None and self.clusters < RELIABLE_CLUSTERS

    def reach(self, level: float) -> FloatArray:
        """Half the t interval of each coefficient."""
        return np.asarray(stats.t.ppf(0.5 + level / 2, self.df) * self.error, dtype=np.float64)


def least_squares(
    design: FloatArray, y: FloatArray, groups: IntArray | None = None
) -> Coefficients:
    """OLS of y on the design's columns; with `groups`, errors clustered by them.

    Cells and widths of one prime share its data, so they are not independent. Clustered errors
    have t on G − 1 degrees of freedom, with the usual small-sample correction.
    """
    if groups is None:
        fit = sm.OLS(y, design).fit()
        return Coefficients(fit.params, fit.bse, fit.pvalues, len(y) - design.shape[1], None)
    clusters = len(np.unique(groups))
    fit = sm.OLS(y, design).fit(cov_type="cluster", cov_kwds={"groups": groups}, use_t=True)
    return Coefficients(fit.params, fit.bse, fit.pvalues, clusters - 1, clusters)


def can_cluster(groups: IntArray) -> bool:
    """At least three groups, and some with several members."""
    return LEAST_CLUSTERS <= len(np.unique(groups)) < len(groups)
