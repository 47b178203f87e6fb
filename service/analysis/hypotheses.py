"""The whole test suite on a table of cells, in both conventions.

T_gen and the delay are read off the same grok runs: a seed that happens to generalise late moves
crossing and onset at once. So the suite is repeated with the crossing of one half of the seeds
and the onset of the other, which share no run, no split and no initial weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

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
from groktime.service.analysis.conventions import Method, check_method
from groktime.service.analysis.rank import Kendall, Spearman, kendall, spearman
from groktime.service.analysis.robustness import (
    AxisTrend,
    Scale,
    WithinSetting,
    robustness,
    within_setting,
)
from groktime.service.analysis.sufficiency import Sufficiency, sufficiency


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
