"""Sufficiency: does P_cross say more about P_onset than simpler predictors do?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
import statsmodels.api as sm
from pydantic import Field
from scipy import stats

from groktime.service.analysis.cells import log_pair
from groktime.service.analysis.conventions import Method, check_method
from groktime.service.analysis.inputs import FloatArray, finite
from groktime.service.analysis.regression import (
    LAST_BATCHES_DIFFER,
    Design,
    axis_design,
    empty_design,
    full_rank,
    least_squares,
    numeric_design,
    variance_inflation,
)
from groktime.service.analysis.ties import ROUNDING, constant

CROSSING = "log10(p_cross)"
LOG_PRIME = "log10(p)"
LOG_COMPLEXITY = "log10(k_mem)"
LOG_LAST_BATCH = "log10(last_batch)"
COLLINEAR_VIF = 10.0


@dataclass(frozen=True)
class Model:
    """One OLS model of log10 P_onset.

    `aicc`, `loo_rmse` and `r_squared_adjusted` are None without the degrees of freedom they
    need; `largest_vif` is the variance inflation of the predictor that the others tell most of,
    None where they tell it exactly. Answers leave out `df` and `rss`.
    """

    name: str
    predictors: tuple[str, ...]
    dropped: Annotated[tuple[str, ...], Field(description="columns that add no rank")]
    n: int
    r_squared: float
    r_squared_adjusted: float | None
    aicc: float | None
    loo_rmse: Annotated[float | None, Field(description="leave-one-out error, decades")]
    largest_vif: float | None
    collinear: bool
    df: Annotated[int, Field(exclude=True)]
    rss: Annotated[float, Field(exclude=True)]


@dataclass(frozen=True)
class NestedTest:
    """F-test of a larger model against a smaller one inside it."""

    larger: str
    smaller: str
    testable: bool
    reason: str
    f: float | None
    df_num: int
    df_den: int
    p: float | None


@dataclass(frozen=True)
class Slope:
    """A coefficient of one model with its t interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Sufficiency:
    """Nested models and their tests; `log_prime_span` is the spread of log10 p over cells.

    M0 intercept; M1 P_cross; M2 the baselines (robust: log p, log K_mem and the swept axes;
    paper: the axes); M3 both. robust adds MP = {log p} and MK = {log K_mem} alone and each
    with P_cross; and, where primes leave different shares of a batch for the last step of an epoch,
    MB = {log p, log of that share} with and without P_cross; `last_batch` is its slope in MB,
    decades of P_onset a decade of the share. Cells of one prime share their chance and mostly
    their last batch: there MB is left out.
    """

    method: Method
    models: dict[str, Model]
    tests: dict[str, NestedTest]
    log_prime_span: float
    last_batch: Slope | None
    notes: tuple[str, ...]


def sufficiency(
    cells: pd.DataFrame, axes: Sequence[str], *, method: str = "robust", level: float = 0.95
) -> Sufficiency | None:
    """Compare the nested models on usable cells; None below 3 cells.

    paper counts every column as a degree of freedom, a constant one too; robust drops columns
    without rank and says `not testable` where nothing is left to test.
    """
    chosen = check_method(method)
    if len(cells) < 3:
        return None
    x, y = log_pair(cells)
    own = numeric_design(CROSSING, x)
    designs = (
        _paper_designs(cells, axes, own) if chosen == "paper" else _robust_designs(cells, axes, own)
    )
    models = {name: _fit(name, design, y, chosen) for name, design in designs.items()}
    pairs = [("M1", "M0"), ("M3", "M2"), ("M3", "M1")]
    pairs += [(b + "+", b) for b in ("MP", "MK", "MB") if b in models]
    pairs += [("MB", "MP"), ("MB+", "M1")] if "MB" in models else []
    tests = {f"{a}_vs_{b}": _test(models[a], models[b]) for a, b in pairs}
    log_p = np.log10(cells["p"].to_numpy(dtype=np.float64))
    span = float(np.ptp(log_p))
    last = _last_slope(designs["MB"], y, level) if "MB" in designs else None
    return Sufficiency(chosen, models, tests, span, last, _notes(models, span, chosen))


def _paper_designs(cells: pd.DataFrame, axes: Sequence[str], own: Design) -> dict[str, Design]:
    swept = axis_design(cells, axes)
    return {"M0": empty_design(len(cells)), "M1": own, "M2": swept, "M3": own + swept}


def _robust_designs(cells: pd.DataFrame, axes: Sequence[str], own: Design) -> dict[str, Design]:
    log_p = numeric_design(LOG_PRIME, np.log10(cells["p"].to_numpy(dtype=np.float64)))
    baselines = log_p
    designs = {"M0": empty_design(len(cells)), "M1": own, "MP": log_p, "MP+": own + log_p}
    if "k_mem" in cells.columns and np.all(np.isfinite(cells["k_mem"].to_numpy(dtype=float))):
        log_k = numeric_design(LOG_COMPLEXITY, np.log10(cells["k_mem"].to_numpy(dtype=float)))
        baselines = baselines + log_k
        designs |= {"MK": log_k, "MK+": own + log_k}
    if "last_batch" in cells.columns and cells["p"].is_unique:
        share = cells["last_batch"].to_numpy(dtype=float)
        if share.max() >= LAST_BATCHES_DIFFER * share.min():
            with_last = log_p + numeric_design(LOG_LAST_BATCH, np.log10(share))
            designs |= {"MB": with_last, "MB+": own + with_last}
    # log p is already a baseline; p itself would only blur what it tests.
    baselines = baselines + axis_design(cells, [a for a in axes if a != "p"])
    return designs | {"M2": baselines, "M3": baselines + own}


def _fit(name: str, design: Design, y: FloatArray, method: Method) -> Model:
    reduced, dropped = full_rank(design)
    if method == "robust":
        design = reduced
    else:
        dropped = ()  # counted, though they add nothing
    n, k = len(y), len(design.names)
    fit = sm.OLS(y, reduced.with_intercept()).fit()
    rss = float(fit.ssr)
    if rss <= n * (ROUNDING * float(np.abs(y).max())) ** 2:
        rss = 0.0  # nothing but rounding is left
    df = n - 1 - k
    r2 = 1 - rss / float(fit.centered_tss) if k and not constant(y) else 0.0
    vif = list(variance_inflation(design).values()) if k > 1 else [1.0] * k
    return Model(
        name=name,
        predictors=design.names,
        dropped=dropped,
        n=n,
        r_squared=r2,
        r_squared_adjusted=1 - (1 - r2) * (n - 1) / df if df > 0 else None,
        aicc=_aicc(n, k, rss),
        loo_rmse=_leave_one_out(fit),
        largest_vif=finite(max(vif, default=None)),
        collinear=any(v > COLLINEAR_VIF for v in vif),
        df=df,
        rss=rss,
    )


def _last_slope(design: Design, y: FloatArray, level: float) -> Slope | None:
    """The coefficient of the last column; None where the others imply it or fit every cell."""
    if len(y) <= len(design.names) + 1 or full_rank(design)[1]:
        return None
    fit = least_squares(design.with_intercept(), y)
    value, half = float(fit.value[-1]), float(fit.reach(level)[-1])
    return Slope(value, value - half, value + half)


def _aicc(n: int, k: int, rss: float) -> float | None:
    """n log(RSS/n) + 2q + 2q(q + 1)/(n − q − 1), q = k + intercept + variance."""
    q = k + 2
    if n - q - 1 <= 0:
        return None
    return n * float(np.log(max(rss / n, 1e-300))) + 2 * q + 2 * q * (q + 1) / (n - q - 1)


def _leave_one_out(fit: Any) -> float | None:
    """RMS of e_i / (1 − h_ii): the errors of predicting each cell from the others."""
    free = 1 - fit.get_influence().hat_matrix_diag
    if np.any(free < ROUNDING):
        return None
    return float(np.sqrt(np.mean((fit.resid / free) ** 2)))


def _test(larger: Model, smaller: Model) -> NestedTest:
    df_num, df_den = smaller.df - larger.df, larger.df
    reason = ""
    if df_num <= 0:
        reason = f"{larger.name} adds no column of its own to {smaller.name}"
    elif df_den <= 0:
        reason = f"{larger.name} leaves no degrees of freedom on {larger.n} cells"
    if reason:
        return NestedTest(larger.name, smaller.name, False, reason, None, df_num, df_den, None)
    gain = max(smaller.rss - larger.rss, 0.0)
    if larger.rss > 0:
        f = (gain / df_num) / (larger.rss / df_den)
    else:
        f = float("inf") if gain > 0 else 0.0
    p = float(stats.f.sf(f, df_num, df_den))
    return NestedTest(larger.name, smaller.name, True, "", f, df_num, df_den, p)


def _notes(models: dict[str, Model], span: float, method: Method) -> tuple[str, ...]:
    if method == "paper":
        return ()
    notes = []
    if models["MP+"].collinear:
        worst = models["MP+"].largest_vif or math.inf
        notes.append(
            f"the crossing and log p are nearly collinear (VIF {worst:.0f}): log10 p spans only "
            f"{span:.3f} dex, so their separate contributions are hardly identified"
        )
    for model in models.values():
        if model.dropped:
            notes.append(f"{model.name}: left out without rank: {', '.join(model.dropped)}")
    return tuple(notes)
