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
    rho: float
    median_residual: float
    loo_crossing: float
    loo_prime: float
    f: float
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
