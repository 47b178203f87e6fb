"""Robustness: do the residuals log10(P_onset/P_cross) trend with a swept axis?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
import statsmodels.api as sm
from scipy import stats
from statsmodels.stats.multitest import multipletests

from service.analysis.calibration import RELIABLE_CLUSTERS
from service.analysis.cells import log_pair
from service.analysis.design import is_numeric_axis
from service.analysis.inputs import FloatArray
from service.errors import AnalysisError

Scale = Literal["raw", "log2", "log10"]


@dataclass(frozen=True)
class AxisTrend:
    """One axis: a slope in dex per unit (numeric) or a one-way F (categorical).

    `p_clustered` allows for cells of one prime sharing their data (numeric axes, t on G − 1
    degrees of freedom), `unreliable` below ten primes.
    """

    axis: str
    kind: Literal["numeric", "categorical"]
    scale: Scale
    testable: bool
    reason: str
    slope: float | None
    se: float | None
    t: float | None
    f: float | None
    df_num: int | None
    df_den: int | None
    p_raw: float | None
    p_holm: float | None
    p_clustered: float | None
    unreliable: bool
    n: int
    n_levels: int


def robustness(
    cells: pd.DataFrame, axes: Sequence[str], *, scales: Mapping[str, Scale] | None = None
) -> tuple[AxisTrend, ...]:
    """Regress the residual on every axis, with Holm's correction over the testable ones.

    Holm (1979), Scand. J. Stat. 6, 65. `scales` asks for log2 or log10 of a numeric axis.
    """
    x, y = log_pair(cells)
    trends = [_trend(cells, axis, y - x, (scales or {}).get(axis, "raw")) for axis in axes]
    raw = [t.p_raw for t in trends if t.p_raw is not None]
    corrected = iter(multipletests(raw, method="holm")[1]) if raw else iter(())
    return tuple(
        replace(t, p_holm=float(next(corrected))) if t.p_raw is not None else t for t in trends
    )


def _trend(cells: pd.DataFrame, axis: str, residual: FloatArray, scale: Scale) -> AxisTrend:
    column = cells[axis]
    n, levels = len(column), int(column.nunique())
    numeric = is_numeric_axis(column)
    blank = AxisTrend(
        axis=axis,
        kind="numeric" if numeric else "categorical",
        scale=scale,
        testable=False,
        reason="",
        slope=None,
        se=None,
        t=None,
        f=None,
        df_num=None,
        df_den=None,
        p_raw=None,
        p_holm=None,
        p_clustered=None,
        unreliable=False,
        n=n,
        n_levels=levels,
    )
    if levels < 2:
        return replace(blank, reason="one value only")
    if n - levels < 1 and not numeric:
        return replace(blank, reason="one cell per level")
    if n < 3:
        return replace(blank, reason="fewer than three cells")
    if numeric:
        return _numeric(blank, _scaled(column, scale), residual, cells)
    return _categorical(blank, [str(v) for v in column], residual)


def _scaled(column: pd.Series, scale: Scale) -> FloatArray:
    values = column.to_numpy(dtype=np.float64)
    if scale == "raw":
        return values
    if np.any(values <= 0):
        raise AnalysisError(f"{column.name}: {values.min():g} has no {scale}; raw is accepted")
    return np.asarray(np.log2(values) if scale == "log2" else np.log10(values))


def _numeric(
    blank: AxisTrend, x: FloatArray, residual: FloatArray, cells: pd.DataFrame
) -> AxisTrend:
    fit = stats.linregress(x, residual)
    prime = cells["p"].to_numpy()
    clusters = len(np.unique(prime))
    clustered = None
    if 3 <= clusters < len(prime):
        sandwich = sm.OLS(residual, sm.add_constant(x)).fit(
            cov_type="cluster", cov_kwds={"groups": prime}, use_t=True
        )
        clustered = float(sandwich.pvalues[1])
    return replace(
        blank,
        testable=True,
        slope=float(fit.slope),
        se=float(fit.stderr),
        t=float(fit.slope / fit.stderr) if fit.stderr > 0 else float("inf"),
        p_raw=float(fit.pvalue),
        p_clustered=clustered,
        unreliable=clustered is not None and clusters < RELIABLE_CLUSTERS,
    )


def _categorical(blank: AxisTrend, labels: list[str], residual: FloatArray) -> AxisTrend:
    levels = np.array(labels)
    groups = [residual[levels == level] for level in sorted(set(labels))]
    result = stats.f_oneway(*groups)
    return replace(
        blank,
        testable=True,
        f=float(result.statistic),
        df_num=len(groups) - 1,
        df_den=len(residual) - len(groups),
        p_raw=float(result.pvalue),
    )
