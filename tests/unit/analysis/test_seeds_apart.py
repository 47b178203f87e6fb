"""Crossing and onset from different seeds: what is left of a link that is only shared chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from groktime.service.analysis.cells import cells_frame, make_cell, seed_halves, two_points
from groktime.service.analysis.crossing import crossing
from groktime.service.analysis.delay import onset
from groktime.service.analysis.hypotheses import hypothesis_tests, seeds_apart

PRIMES = (97, 101, 103, 107, 109, 113, 127, 131, 137, 139)


def test_a_half_is_what_its_seeds_give_alone(cells: Callable[..., Any]) -> None:
    drawn = cells(rng=np.random.default_rng(3))
    mem, _ = drawn.pair()
    grok = drawn.grok(onset=0.7e5)
    halves = seed_halves(mem, grok)
    assert halves is not None
    seeds = sorted({*mem.seeds, *grok.seeds})
    for half, own in zip(halves, (seeds[::2], seeds[1::2]), strict=True):
        runs = grok.where(np.isin(grok.seed, own))
        speeds = mem.where(np.isin(mem.seed, own))
        assert half.p_cross == crossing(speeds, runs.generalisation()).p_cross.estimate
        assert half.p_onset == onset(runs).p_onset.estimate


def test_three_seeds_are_too_few_to_halve(cells: Callable[..., Any]) -> None:
    drawn = cells(rng=np.random.default_rng(3))
    mem, _ = drawn.pair()
    grok = drawn.grok(onset=0.7e5)
    three = grok.first_seeds(3)
    assert len(three.seeds) == 3
    assert seed_halves(mem, three) is None
    odd = mem.where(np.isin(mem.seed, sorted(mem.seeds)[::2]))
    assert seed_halves(odd, grok.where(~np.isin(grok.seed, odd.seeds))) is None
    assert make_cell(97, {}, 1.0, mem, grok, method="paper").seed_halves is None


@pytest.mark.parametrize("method", ["robust", "paper"])
@pytest.mark.parametrize("onset_at", [0.7e5, 1e9])
def test_two_points_alone_are_those_of_the_whole_cell(
    cells: Callable[..., Any], method: str, onset_at: float
) -> None:
    drawn = cells(rng=np.random.default_rng(3))
    mem, _ = drawn.pair()
    grok = drawn.grok(onset=onset_at)
    alone = two_points(97, 1.0, mem, grok, method=method)
    whole = make_cell(97, {}, 1.0, mem, grok, method=method)
    assert alone.crossing.p_cross.estimate == whole.crossing.p_cross.estimate
    assert alone.onset.p_onset.estimate == whole.onset.p_onset.estimate
    assert alone.onset.p_onset.status == whole.onset.p_onset.status
    assert alone.onset.points == whole.onset.points
    assert alone.residual == whole.residual


def shared(noise: float, link: float, seed: int = 0) -> pd.DataFrame:
    """Cells whose crossing and onset share chance within a half, and a truth of the cell."""
    rng = np.random.default_rng(seed)
    truth = 0.1 * rng.normal(size=len(PRIMES))
    rows: dict[str, Any] = {"p": PRIMES}
    chance = {half: noise * rng.normal(size=len(PRIMES)) for half in "ab"}
    for half, drawn in chance.items():
        rows[f"p_cross_{half}"] = 10 ** (5 + link * truth + drawn)
        rows[f"p_onset_{half}"] = 10 ** (4.8 + link * truth + drawn)
    rows["p_cross"], rows["p_onset"] = rows["p_cross_a"], rows["p_onset_a"]
    return pd.DataFrame(rows)


def test_a_link_of_shared_chance_is_gone_with_seeds_apart() -> None:
    cells = shared(noise=0.1, link=0.0)
    together = hypothesis_tests(cells, ["p"], n_resamples=200)
    assert together.spearman is not None
    assert together.spearman.rho > 0.99
    assert len(together.apart) == 2
    for way in together.apart:
        assert abs(way.rho) < 0.7
        assert way.p > 0.05


def test_a_true_link_stays_with_seeds_apart() -> None:
    ways = seeds_apart(shared(noise=0.01, link=1.0), ["p"])
    assert len(ways) == 2
    for way in ways:
        assert way.n == len(PRIMES)
        assert way.rho > 0.9
        assert way.loo_crossing < way.loo_prime / 2
        assert way.median_residual == pytest.approx(-0.2, abs=0.03)


def test_cells_without_halves_have_none_apart() -> None:
    cells = shared(noise=0.01, link=1.0)
    assert seeds_apart(cells[["p", "p_cross", "p_onset"]], ["p"]) == ()
    assert seeds_apart(cells.assign(p_cross_a=np.nan, p_cross_b=np.nan), ["p"]) == ()


def test_too_few_cells_or_one_prime_are_not_compared() -> None:
    cells = shared(noise=0.01, link=1.0)
    assert seeds_apart(cells[:3], ["p"]) == ()
    assert seeds_apart(cells.assign(p=97), ["p"]) == ()
    one_way = cells.assign(p_onset_b=[*cells["p_onset_b"][:3], *[np.nan] * 7])
    assert seeds_apart(one_way, ["p"]) == ()


def test_seed_halves_come_with_the_frame_of_cells(cells: Callable[..., Any]) -> None:
    drawn = cells(rng=np.random.default_rng(3))
    mem, _ = drawn.pair()
    table = cells_frame([make_cell(97, {}, 1.0, mem, drawn.grok(onset=0.7e5), n_resamples=0)])
    assert table[["p_cross_a", "p_cross_b", "p_onset_a", "p_onset_b"]].notna().all(axis=None)
