"""Crossing and onset from different seeds, so that chance cannot move both together.

T_gen and the delay are read off the same grok runs: a seed that happens to generalise late
moves crossing and onset at once. The crossing of one hand of seeds and the onset of the other
share no run, no split and no initial weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from service.analysis.cells import log_pair, usable
from service.analysis.nested import sufficiency
from service.analysis.rank import spearman


@dataclass(frozen=True)
class SeedsApart:
    """The prediction of one hand's onsets by the other's crossings.

    `loo_crossing` and `loo_prime` are leave-one-out errors (dex) of the crossing and of log p;
    `f` and `p` test the crossing beside log p.
    """

    n: int
    rho: float | None
    median_residual: float | None
    loo_crossing: float | None
    loo_prime: float | None
    f: float | None
    p: float | None


def seeds_apart(cells: pd.DataFrame, axes: Sequence[str]) -> tuple[SeedsApart, ...]:
    """Both ways round; empty where no cell has hands."""
    ways = (("a", "b"), ("b", "a"))
    if not {"p_cross_a", "p_cross_b", "p_onset_a", "p_onset_b"} <= set(cells.columns):
        return ()
    found = (
        _one_way(
            usable(cells.assign(p_cross=cells[f"p_cross_{x}"], p_onset=cells[f"p_onset_{y}"])), axes
        )
        for x, y in ways
    )
    return tuple(way for way in found if way.n)


def _one_way(cells: pd.DataFrame, axes: Sequence[str]) -> SeedsApart:
    x, y = log_pair(cells)
    ranked = spearman(x, y, n_permutations=1)
    models = sufficiency(cells, axes)
    beside = None if models is None else models.tests["MP+_vs_MP"]
    return SeedsApart(
        n=len(cells),
        rho=None if ranked is None else ranked.rho,
        median_residual=float(np.median(y - x)) if len(cells) else None,
        loo_crossing=None if models is None else models.models["M1"].loo_rmse,
        loo_prime=None if models is None else models.models["MP"].loo_rmse,
        f=None if beside is None else beside.f,
        p=None if beside is None else beside.p,
    )
