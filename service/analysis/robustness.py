"""Residuals log10(P_onset/P_cross): trend with a swept axis, spread within a setting, and cells of
many settings at once: is the order kept within each, and does the offset drift?

Three primes cannot test an order by themselves (a perfect one comes by chance once in six), so
the order is tested over all settings together, with onsets exchanged only within a setting.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
from scipy import stats
from statsmodels.regression.mixed_linear_model import MixedLM
from statsmodels.tools.sm_exceptions import ConvergenceWarning

from groktime.service.analysis.cells import log_pair, usable
from groktime.service.analysis.inputs import ROUNDING, FloatArray, constant, first_smallest, merged
from groktime.service.analysis.regression import (
    can_cluster,
    is_numeric_axis,
    least_squares,
    spearman,
)
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
    corrected = iter(holm(raw))
    return tuple(replace(t, p_holm=next(corrected)) if t.p_raw is not None else t for t in trends)


def holm(p: Sequence[float]) -> list[float]:
    """Corrected p-values, in the order given.

    statsmodels' multipletests says the same and collects all garbage first: a tenth of a second in
    a process that holds answers.
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    corrected = np.empty_like(values)
    corrected[order] = np.minimum(stepped, 1.0)
    return [float(value) for value in corrected]


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


ENUMERATED = 7  # cells of a setting with ties whose orders are all counted
SHUFFLES = 20_000  # beyond that
POWER = 0.8


@dataclass(frozen=True)
class StratumOrder:
    """One setting: pairs of cells whose onsets lie as their crossings do, and the other way.

    `p` is that of Kendall's S, two-sided; None below `FEWEST_TESTED` cells.
    """

    stratum: str
    n: int
    in_order: int
    out_of_order: int
    p: float | None


@dataclass(frozen=True)
class StratifiedOrder:
    """All settings together: S = pairs in order − pairs out of order, permuted within settings.

    `floor` is the p of an order kept everywhere.
    """

    strata: tuple[StratumOrder, ...]
    in_order: int
    out_of_order: int
    p: float
    floor: float
    n: int


FEWEST_TESTED = 5


def stratified_order(cells: pd.DataFrame, stratum: str) -> StratifiedOrder | None:
    """Kendall's S summed over the strata, with its exact permutation distribution.

    Strata are independent under the null, so their distributions are convolved. Korn (1984),
    Am. Stat. 38, 61. None where no stratum has two cells that differ in both points.
    """
    rows: list[StratumOrder] = []
    total = np.ones(1)
    best = 0
    for name, group in usable(cells).groupby(stratum, sort=True):
        x, y = (merged(values) for values in log_pair(group))
        if len(x) < 2 or constant(x) or constant(y):
            continue
        signs = _signs(x, y)
        in_order, out = int(np.sum(signs > 0)), int(np.sum(signs < 0))
        null = _null(x, y)
        p = _two_sided(null, in_order - out) if len(x) >= FEWEST_TESTED else None
        rows.append(StratumOrder(str(name), len(x), in_order, out, p))
        total = np.convolve(total, null)
        best += (len(null) - 1) // 2
    if not rows:
        return None
    in_order, out = (sum(getattr(r, n) for r in rows) for n in ("in_order", "out_of_order"))
    return StratifiedOrder(
        strata=tuple(rows),
        in_order=in_order,
        out_of_order=out,
        p=_two_sided(total, in_order - out),
        floor=_two_sided(total, best),
        n=sum(row.n for row in rows),
    )


def _signs(x: FloatArray, y: FloatArray) -> FloatArray:
    first, second = np.triu_indices(len(x), 1)
    return np.asarray(np.sign(x[second] - x[first]) * np.sign(y[second] - y[first]))


def _null(x: FloatArray, y: FloatArray) -> FloatArray:
    """Probabilities of S = −m … m when the onsets stand in any order; m: the largest |S|."""
    n = len(x)
    if len(np.unique(x)) == n and len(np.unique(y)) == n:
        counts = np.ones(1)  # of orders with 0, 1, … pairs out of order
        for size in range(2, n + 1):
            counts = np.convolve(counts, np.ones(size))
        spread = np.zeros(2 * len(counts) - 1)  # S = m − 2·(pairs out of order)
        spread[::2] = counts[::-1]
        return np.asarray(spread / spread.sum())
    if n <= ENUMERATED:
        orders: Sequence[Sequence[int]] = list(itertools.permutations(range(n)))
    else:
        rng = np.random.default_rng(0)
        orders = [rng.permutation(n).tolist() for _ in range(SHUFFLES)]
    sums = np.array([int(_signs(x, y[list(order)]).sum()) for order in orders])
    most = int(abs(_signs(np.sort(x), np.sort(y))).sum())
    return np.bincount(sums + most, minlength=2 * most + 1) / len(orders)


def _two_sided(null: FloatArray, observed: int) -> float:
    values = np.arange(len(null)) - (len(null) - 1) // 2
    return float(min(1.0, null[np.abs(values) >= abs(observed)].sum()))


@dataclass(frozen=True)
class OffsetModel:
    """residual = prime (fixed) + setting (random) + noise, by restricted likelihood.

    `between` and `within` are standard deviations in dex: of the settings, and of a cell around
    its prime and setting. `share` of the variance that lies between settings. `converged` False:
    the numbers are rough.
    """

    between: float
    within: float
    share: float
    n: int
    n_settings: int
    n_primes: int
    converged: bool


def offset_model(cells: pd.DataFrame, stratum: str) -> OffsetModel | None:
    """How much of the offset belongs to the setting; None where nothing is left to tell them apart.

    Laird & Ware (1982), Biometrics 38, 963.
    """
    good = usable(cells)
    settings, primes = good[stratum].astype(str), good["p"]
    n, n_settings, n_primes = len(good), settings.nunique(), primes.nunique()
    if n_settings < 3 or n - n_primes - n_settings < 1:
        return None
    x, y = log_pair(good)
    design = pd.get_dummies(primes, drop_first=True, dtype=float).to_numpy()
    design = np.column_stack([np.ones(n), design])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        fit = MixedLM(y - x, design, groups=settings.to_numpy()).fit(reml=True)
    between = max(0.0, float(np.asarray(fit.cov_re).ravel()[0]))
    within = float(fit.scale)
    return OffsetModel(
        between=math.sqrt(between),
        within=math.sqrt(within),
        share=between / (between + within),
        n=n,
        n_settings=n_settings,
        n_primes=n_primes,
        converged=bool(fit.converged)
        and not any(issubclass(w.category, ConvergenceWarning) for w in said),
    )


def detectable_slope(
    values: Sequence[float], spread: float, *, level: float = 0.95, power: float = POWER
) -> float | None:
    """The smallest drift (dex a unit) that cells at these values would show with this power.

    `spread`: standard deviation of residuals around the line. None below three cells or where
    all values are equal.
    """
    x = np.asarray(values, dtype=np.float64)
    df = len(x) - 2
    if df < 1 or constant(x):
        return None
    error = spread / math.sqrt(float(np.sum((x - x.mean()) ** 2)))
    return float((stats.t.ppf(0.5 + level / 2, df) + stats.t.ppf(power, df)) * error)


@dataclass(frozen=True)
class SettingLaw:
    """mean residual of a setting = a + slope · its mean of one covariate; each setting counts once.

    `error` and `constant_error` are root mean squares over settings that were left out of the fit:
    by this line, and by the mean of the other settings.
    """

    covariate: str
    slope: float
    r: float
    error: float
    constant_error: float
    n: int


FEWEST_SETTINGS = 4


def setting_law(cells: pd.DataFrame, stratum: str, covariate: str) -> SettingLaw | None:
    """Does a quantity of the cells say how far onset and crossing lie apart at a setting?

    None with fewer than four settings that have it, or where it is the same at all.
    """
    good = usable(cells)
    x, y = log_pair(good)
    means = (
        pd.DataFrame({"x": good[covariate], "y": y - x, "stratum": good[stratum].astype(str)})
        .dropna()
        .groupby("stratum")
        .mean()
    )
    x, y = means["x"].to_numpy(dtype=np.float64), means["y"].to_numpy(dtype=np.float64)
    if len(x) < FEWEST_SETTINGS or constant(x) or constant(y):
        return None
    line = stats.linregress(x, y)
    leverage = 1 / len(x) + (x - x.mean()) ** 2 / np.sum((x - x.mean()) ** 2)
    left_out = (y - line.intercept - line.slope * x) / (1 - leverage)
    constant_left_out = (y - y.mean()) / (1 - 1 / len(y))
    return SettingLaw(
        covariate=covariate,
        slope=float(line.slope),
        r=float(line.rvalue),
        error=float(np.sqrt(np.mean(left_out**2))),
        constant_error=float(np.sqrt(np.mean(constant_left_out**2))),
        n=len(x),
    )
