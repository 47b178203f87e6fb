"""The interval of a crossing placed by few, chosen runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from groktime.service.analysis.crossing import CrossingEstimate, crossing
from groktime.service.analysis.delay import onset
from groktime.service.analysis.inputs import FirstPassages, GrokRuns
from groktime.service.analysis.located import Noise, Side, pooled, root_spread, slope_at

SIZES = {28: 28_644, 32: 36_832, 36: 46_044, 40: 56_280}
Times = Mapping[int, Sequence[float]]  # by width, one of each seed


def passages(times: Times, *, located: bool = True) -> FirstPassages:
    rows = [(w, SIZES[w], s, t) for w, of in times.items() for s, t in enumerate(of)]
    width, params, seed, epoch = (np.array(column) for column in zip(*rows, strict=True))
    return FirstPassages(width, params, seed, epoch, epoch, located=located)


def placed(
    seeds: int, noise: float = 0.0, *, located: bool = True, level: float = 0.95
) -> CrossingEstimate:
    """A cell that crosses at 50,000 with a slope of 4, and seeds spread by the noise."""
    spread = np.linspace(-noise, noise, seeds) if seeds > 1 else np.zeros(1)
    mem = {w: [300 * (50_000 / p) ** 4 * math.exp(e) for e in spread] for w, p in SIZES.items()}
    gen = {w: [300.0 * math.exp(e) for e in spread] for w in SIZES}
    return crossing(
        passages(mem, located=located), passages(gen), level=level, n_resamples=200
    ).p_cross


def test_two_seeds_of_chosen_runs_have_a_located_interval() -> None:
    found = placed(2)
    assert found.interval == "located"
    assert found.few_seeds
    assert found.estimate is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.estimate < found.high
    assert found.probability is None
    grid = placed(2, located=False)
    assert grid.interval is None, "two seeds cannot be resampled"


def test_five_seeds_are_resampled_however_they_were_chosen() -> None:
    found = placed(5, 0.05)
    assert found.interval == "bootstrap"


def test_noise_widens_it_and_seeds_and_a_lower_level_narrow_it() -> None:
    def width(found: CrossingEstimate) -> float:
        assert found.low is not None
        assert found.high is not None
        return math.log(found.high / found.low)

    assert width(placed(2, 0.3)) > width(placed(2, 0.01))
    assert width(placed(4, 0.01)) < width(placed(2, 0.01))
    ratio = width(placed(2, level=0.8)) / width(placed(2))
    assert ratio == pytest.approx(1.2816 / 1.96, rel=1e-3)


def test_pooled_noise_starts_from_what_is_expected_and_counts_a_wild_seed() -> None:
    assert pooled([], 0.12, 4) == pytest.approx(0.12)
    assert pooled([[5.0]], 0.12, 4) == pytest.approx(0.12), "a single seed has no spread"
    assert pooled([[5.0, 5.0]] * 50, 0.12, 4) < 0.04
    assert pooled([[5.0, 5.0, 6.0]], 0.12, 4) == pytest.approx(math.sqrt((4 * 0.12**2 + 1) / 6))


def test_the_spread_of_a_root_falls_with_slope_and_seeds_to_what_the_bracket_allows() -> None:
    noise = Noise(0.1, 0.1)
    one = root_spread([Side(1.0, 1, 1), Side(0.0, 1, 1)], -4.0, 0.1, noise)
    assert one == pytest.approx(math.hypot(math.sqrt(0.02) / 4, 0.008))
    assert root_spread([Side(1.0, 2, 2), Side(0.0, 1, 1)], -4.0, 0.1, noise) < one
    assert root_spread([Side(1.0, 1, 1), Side(0.0, 1, 1)], -8.0, 0.1, noise) < one


def test_the_slope_is_that_of_the_widths_around_where_they_tell_it() -> None:
    line = {x / 10: -4.0 * x / 10 for x in range(-4, 5)}
    assert slope_at(line, 0.0, 0.1, Noise(0.001, 0.001)) == pytest.approx(-4.0, rel=1e-3)
    flat = {0.0: 0.01, 0.1: 0.0}
    assert slope_at(flat, 0.0, 0.1, Noise(0.001, 0.001)) == -0.5, "flat curves cross anywhere"


def test_noise_that_changes_the_sign_makes_no_slope_steep() -> None:
    pair = {0.0: 0.3, 0.05: -0.3}
    assert slope_at(pair, 0.0, 0.05, Noise(0.12, 0.18)) > -3.0, "a chord of -12 is noise"
    around = {x / 10: -2.0 * x / 10 for x in range(-5, 6)} | pair
    assert -3.0 < slope_at(around, 0.0, 0.05, Noise(0.12, 0.18)) < -2.0


def chosen(delayed: Mapping[int, Sequence[bool]], *, located: bool) -> GrokRuns:
    """Grok runs by width, one of each seed, that are delayed or not."""
    rows = [(w, SIZES[w], s, yes) for w, of in delayed.items() for s, yes in enumerate(of)]
    width, params, seed, yes = (np.array(column) for column in zip(*rows, strict=True))
    train = np.full(len(width), 100.0)
    val = np.where(yes, 150.0, 100.0)
    return GrokRuns(width, params, seed, train, val, val, val, located=located)


def test_one_no_and_one_yes_of_chosen_runs_leave_more_open_than_their_bracket() -> None:
    runs: dict[int, list[bool]] = {28: [False], 32: [False], 36: [True], 40: [True]}
    grid = onset(chosen(runs, located=False)).p_onset
    assert (grid.low, grid.high, grid.level, grid.interval) == (36_832, 46_044, None, None)
    found = onset(chosen(runs, located=True)).p_onset
    assert (found.status, found.level, found.interval) == ("separated", 0.95, "located")
    assert found.estimate == grid.estimate
    assert found.low is not None
    assert found.high is not None
    assert found.low < 36_832 < 46_044 < found.high


def test_seeds_and_a_lower_level_narrow_the_onset_of_chosen_runs() -> None:
    def width(seeds: int, level: float = 0.95) -> float:
        runs = {28: [False] * seeds, 32: [False] * seeds, 36: [True] * seeds, 40: [True] * seeds}
        found = onset(chosen(runs, located=True), level=level).p_onset
        assert found.low is not None
        assert found.high is not None
        return math.log(found.high / found.low)

    assert width(4) < width(2) < width(1)
    assert width(2, 0.5) < width(2)


def test_the_onset_of_chosen_runs_that_overlap_has_a_located_interval_around_it() -> None:
    runs = {28: [False, False], 32: [False, True], 36: [False, True], 40: [True, True]}
    found = onset(chosen(runs, located=True)).p_onset
    grid = onset(chosen(runs, located=False)).p_onset
    assert (found.status, found.interval) == ("fitted", "located")
    assert (grid.estimate, grid.interval) == (found.estimate, "profile")
    assert found.low is not None
    assert found.high is not None
    assert found.estimate is not None
    assert found.low < found.estimate < found.high


def test_seeds_kept_apart_serve_one_point_each() -> None:
    widths = np.repeat(list(SIZES), 2)
    sizes = np.repeat(list(SIZES.values()), 2).astype(float)
    seeds = np.tile([0, 1], len(SIZES))
    train = np.full(len(seeds), 100.0)
    # Seed 0 is never delayed, seed 1 above 40,000.
    val = np.where((seeds == 1) & (sizes > 40_000), 200.0, 100.0)
    runs = GrokRuns(widths, sizes, seeds, train, val, val + 100 * seeds, np.full(len(seeds), 400.0))
    both = onset(runs)
    apart = GrokRuns(
        widths,
        sizes,
        seeds,
        train,
        val,
        val + 100 * seeds,
        np.full(len(seeds), 400.0),
        crossing_seeds=frozenset({0}),
    )
    assert both.seeds == 2
    assert onset(apart).seeds == 1
    assert onset(apart).p_onset.estimate == pytest.approx(math.sqrt(36_832 * 46_044), rel=0.05)
    assert set(apart.generalisation().seed) == {0}
    assert len(runs.generalisation()) == len(runs)
