"""Residuals log10(P_onset/P_cross): trend with a swept axis, and spread within a setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
from scipy import stats
from statsmodels.stats.multitest import multipletests

from groktime.service.analysis.cells import log_pair, usable
from groktime.service.analysis.inputs import FloatArray
from groktime.service.analysis.rank import spearman
from groktime.service.analysis.regression import can_cluster, is_numeric_axis, least_squares
from groktime.service.analysis.ties import ROUNDING, first_smallest
from groktime.service.errors import AnalysisError

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
    if float(np.ptp(residual)) <= ROUNDING:
        return replace(blank, reason="all residuals are equal")
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
    clustered = None
    if can_cluster(prime):
        clustered = least_squares(np.column_stack([np.ones_like(x), x]), residual, prime)
    return replace(
        blank,
        testable=True,
        slope=float(fit.slope),
        se=float(fit.stderr),
        t=float(fit.slope / fit.stderr) if fit.stderr > 0 else float("inf"),
        p_raw=float(fit.pvalue),
        p_clustered=None if clustered is None else float(clustered.p[1]),
        unreliable=clustered is not None and clustered.unreliable,
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


STRONG = 0.065  # largest standard deviation (dex) of a strong row
MODERATE = 0.11  # and of a moderate one
UNDER_RESOLVED = 2  # cells up to which no spread is worth a verdict

Verdict = Literal["strong", "moderate", "weak", "under_resolved", "no_cells"]


@dataclass(frozen=True)
class WithinSetting:
    """One setting of the swept axes over its primes.

    Residuals are log10(P_onset/P_cross); `std` has ddof 1, `mad` is the median absolute
    deviation × 1.4826. `driver_prime` is the prime whose leaving out lowers the spread to a
    better verdict, if one does. `lost` counts the reasons of cells without a residual.
    """

    setting: dict[str, object]
    n: int
    n_total: int
    n_inherited: int
    median_residual: float | None
    std: float | None
    mad: float | None
    rho: float | None
    verdict: Verdict
    driver_prime: int | None
    lost: dict[str, int]


def verdict(n: int, std: float | None) -> Verdict:
    """strong: std ≤ .065 dex; moderate: ≤ .11; weak above; under-resolved with n ≤ 2."""
    if n == 0:
        return "no_cells"
    if n <= UNDER_RESOLVED or std is None:
        return "under_resolved"
    if std <= STRONG + ROUNDING:
        return "strong"
    return "moderate" if std <= MODERATE + ROUNDING else "weak"


def within_setting(cells: pd.DataFrame, axes: Sequence[str]) -> tuple[WithinSetting, ...]:
    """One row per setting of the axes other than the prime, in the order of their values."""
    swept = [a for a in axes if a != "p"]
    if not swept:
        return (_row({}, cells),)
    groups = cells.groupby(swept, sort=True, dropna=False)
    return tuple(
        _row(dict(zip(swept, key if isinstance(key, tuple) else (key,), strict=True)), group)
        for key, group in groups
    )


def _row(setting: dict[str, object], group: pd.DataFrame) -> WithinSetting:
    good = usable(group)
    x, y = log_pair(good)
    residual = y - x
    n = len(residual)
    std = float(residual.std(ddof=1)) if n > 1 else None
    ranked = spearman(x, y, n_permutations=1) if n >= 3 else None
    inherited = good["inherited"].sum() if "inherited" in good.columns else 0
    return WithinSetting(
        setting=setting,
        n=n,
        n_total=len(group),
        n_inherited=int(inherited),
        median_residual=float(np.median(residual)) if n else None,
        std=std,
        mad=float(1.4826 * np.median(np.abs(residual - np.median(residual)))) if n > 1 else None,
        rho=None if ranked is None else ranked.rho,
        verdict=verdict(n, std),
        driver_prime=_driver(good, residual, std),
        lost=_lost(group),
    )


def _driver(good: pd.DataFrame, residual: FloatArray, std: float | None) -> int | None:
    n = len(residual)
    own = verdict(n, std)
    if n <= UNDER_RESOLVED + 1 or own not in ("weak", "moderate"):
        return None
    spreads = [float(np.delete(residual, i).std(ddof=1)) for i in range(n)]
    best = first_smallest(np.array(spreads))
    better = verdict(n - 1, spreads[best])
    return int(good["p"].iloc[best]) if better != own else None


def _lost(group: pd.DataFrame) -> dict[str, int]:
    pair = group[["p_cross", "p_onset"]].to_numpy(dtype=np.float64)
    bad = ~np.isfinite(pair)
    reasons: dict[str, int] = {}
    for row in range(len(group)):
        for column, status, word in (
            (0, "crossing_status", "crossing"),
            (1, "onset_status", "onset"),
        ):
            if bad[row, column]:
                why = str(group[status].iloc[row]) if status in group.columns else "none"
                key = f"{word}: {why}"
                reasons[key] = reasons.get(key, 0) + 1
    return reasons
