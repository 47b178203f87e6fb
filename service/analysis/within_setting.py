"""Within a fixed setting: are the residuals the same for every prime?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from service.analysis.cells import log_pair, usable
from service.analysis.inputs import FloatArray
from service.analysis.rank import spearman

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
    if std <= STRONG:
        return "strong"
    return "moderate" if std <= MODERATE else "weak"


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
    best = int(np.argmin(spreads))
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
