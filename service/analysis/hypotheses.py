"""The whole test suite on a table of cells, in both conventions: whether P_cross predicts P_onset,
and says more about it than simpler predictors do.

T_gen and the delay are read off the same grok runs: a seed that happens to generalise late moves
crossing and onset at once. So the suite is repeated with the crossing of one half of the seeds
and the onset of the other, which share no run, no split and no initial weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
import statsmodels.api as sm
from pydantic import Field
from scipy import stats

from groktime.service.analysis import Method, check_method
from groktime.service.analysis.calibration import (
    ClusteredLine,
    Concordance,
    Equivalence,
    Line,
    RobustSlope,
    SignedRank,
    clustered_line,
    concordance,
    deming,
    line,
    signed_rank,
    theil_sen,
    tost,
)
from groktime.service.analysis.cells import FIRST_SEEDS, check_cells, log_pair, usable
from groktime.service.analysis.inputs import ROUNDING, FloatArray, constant, finite
from groktime.service.analysis.regression import (
    LAST_BATCHES_DIFFER,
    Design,
    Kendall,
    Spearman,
    axis_design,
    empty_design,
    full_rank,
    kendall,
    least_squares,
    numeric_design,
    spearman,
    variance_inflation,
)
from groktime.service.analysis.robustness import (
    AxisTrend,
    Scale,
    WithinSetting,
    robustness,
    within_setting,
)

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


@dataclass(frozen=True)
class SeedsApart:
    """The prediction of one hand's onsets by the other's crossings.

    `loo_crossing` and `loo_prime` are leave-one-out errors (dex) of the crossing and of log p;
    `f` and `p` test the crossing beside log p.
    """

    n: int
    rho: float
    median_residual: float
    loo_crossing: float
    loo_prime: float
    f: float | None
    p: float


def seeds_apart(cells: pd.DataFrame, axes: Sequence[str]) -> tuple[SeedsApart, ...]:
    """Both ways round; empty unless the cells can carry the comparison with log p both times."""
    if not {"p_cross_a", "p_cross_b", "p_onset_a", "p_onset_b"} <= set(cells.columns):
        return ()
    found = [
        _one_way(
            usable(cells.assign(p_cross=cells[f"p_cross_{x}"], p_onset=cells[f"p_onset_{y}"])), axes
        )
        for x, y in (("a", "b"), ("b", "a"))
    ]
    known = tuple(way for way in found if way is not None)
    return known if len(known) == len(found) else ()


def _one_way(cells: pd.DataFrame, axes: Sequence[str]) -> SeedsApart | None:
    x, y = log_pair(cells)
    ranked = spearman(x, y, n_permutations=1)
    nested = sufficiency(cells, axes)
    if ranked is None or nested is None or nested.models["MP"].dropped:
        return None
    errors = [nested.models[name].loo_rmse for name in ("M1", "MP")]
    beside = nested.tests["MP+_vs_MP"]
    if errors[0] is None or errors[1] is None or beside.f is None or beside.p is None:
        return None
    return SeedsApart(
        n=len(cells),
        rho=ranked.rho,
        median_residual=float(np.median(y - x)),
        loo_crossing=errors[0],
        loo_prime=errors[1],
        f=beside.f,
        p=beside.p,
    )


@dataclass(frozen=True)
class FirstFourSeeds:
    """The calibration repeated with onsets on the first four seeds.

    The paper's onset moves with the number of seeds, so cells with different numbers are
    compared on equal ones.
    """

    n: int
    median_residual: float | None
    line: Line | None


@dataclass(frozen=True)
class HypothesisTests:
    """Pooled tests and the within-setting table; a test that the cells cannot carry is None.

    `n` cells of `n_total` have both a crossing and an onset; `n_at_floor` and `n_at_cap` count
    all cells. The fields from `clustered` on are None or empty in the paper's convention.
    """

    method: Method
    axes: tuple[str, ...]
    n: int
    n_total: int
    n_inherited: int
    n_at_floor: int
    n_at_cap: int
    spearman: Spearman | None
    kendall: Kendall | None
    ccc: Concordance | None
    line: Line | None
    wilcoxon: SignedRank | None
    nested: Sufficiency | None
    robustness: tuple[AxisTrend, ...]
    within: tuple[WithinSetting, ...]
    clustered: ClusteredLine | None
    theil_sen: RobustSlope | None
    deming: RobustSlope | None
    equivalence: Equivalence | None
    first_four: FirstFourSeeds | None
    apart: tuple[SeedsApart, ...]


def hypothesis_tests(
    cells: pd.DataFrame,
    axes: Sequence[str],
    *,
    method: str = "robust",
    n_resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
    scales: Mapping[str, Scale] | None = None,
) -> HypothesisTests:
    """Rank, calibration, sufficiency, robustness and within-setting tests of a suite's cells.

    `axes` are the swept axes (columns of `cells`), a prime column `p` among them if wanted.
    """
    chosen = check_method(method)
    check_cells(cells, axes)
    good = usable(cells)
    x, y = log_pair(good)
    robust = chosen == "robust"
    prime = good["p"].to_numpy(dtype=np.int64)
    clustered = clustered_line(x, y, prime, level) if robust else None
    own_line = line(x, y, level)
    return HypothesisTests(
        method=chosen,
        axes=tuple(axes),
        n=len(good),
        n_total=len(cells),
        n_inherited=_count(good, "inherited"),
        # A robust onset at the floor has no value, so such cells are never usable.
        n_at_floor=_count(cells, "at_floor"),
        n_at_cap=_count(cells, "at_cap"),
        spearman=spearman(x, y, n_permutations=n_resamples, level=level, seed=seed),
        kendall=kendall(x, y),
        ccc=concordance(
            x,
            y,
            interval="bca" if robust else "percentile",
            level=level,
            n_bootstrap=n_resamples,
            seed=seed,
        ),
        line=own_line,
        wilcoxon=signed_rank(y - x, level),
        nested=sufficiency(good, axes, method=chosen, level=level),
        robustness=robustness(good, axes, scales=scales) if len(good) else (),
        within=within_setting(cells, axes),
        clustered=clustered,
        theil_sen=theil_sen(x, y, level) if robust else None,
        deming=deming(x, y, level) if robust else None,
        equivalence=_slope_equivalence(own_line, clustered, len(prime)) if robust else None,
        first_four=_first_four(good, level) if robust else None,
        apart=seeds_apart(cells, axes) if robust else (),
    )


def _count(cells: pd.DataFrame, column: str) -> int:
    return int(cells[column].sum()) if column in cells.columns else 0


def _slope_equivalence(
    ols: Line | None, clustered: ClusteredLine | None, n: int
) -> Equivalence | None:
    """Errors clustered by prime where primes repeat; plain ones where each is one cell."""
    if clustered is not None and clustered.clusters < n:
        return tost(clustered.slope, clustered.slope_se, clustered.df, errors="clustered by prime")
    if ols is None:
        return None
    return tost(ols.slope, ols.slope_se, ols.df_den, errors="ols")


def _first_four(good: pd.DataFrame, level: float) -> FirstFourSeeds | None:
    if "p_onset_first4" not in good.columns or "grok_seeds" not in good.columns:
        return None
    if good["grok_seeds"].nunique() < 2 or good["grok_seeds"].max() <= FIRST_SEEDS:
        return None
    equal = usable(good.assign(p_onset=good["p_onset_first4"]))
    x, y = log_pair(equal)
    median = float(np.median(y - x)) if len(equal) else None
    return FirstFourSeeds(len(equal), median, line(x, y, level))
