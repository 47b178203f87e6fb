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


def test_pooled_noise_starts_from_what_is_expected_and_ignores_one_wild_seed() -> None:
    assert pooled([], 0.12, 4) == pytest.approx(0.12)
    assert pooled([[5.0]], 0.12, 4) == pytest.approx(0.12), "a single seed has no spread"
    assert pooled([[5.0, 5.0]] * 50, 0.12, 4) < 0.04
    wild = pooled([[5.0, 5.0, 9.0]], 0.12, 4)
    assert wild == pooled([[5.0, 5.0, 50.0]], 0.12, 4)


def test_the_spread_of_a_root_falls_with_slope_and_seeds_to_what_the_bracket_allows() -> None:
    noise = Noise(0.1, 0.1)
    one = root_spread([Side(1.0, 1, 1), Side(0.0, 1, 1)], -4.0, 0.1, noise)
    assert one == pytest.approx(math.hypot(math.sqrt(0.02) / 4, 0.008))
    assert root_spread([Side(1.0, 2, 2), Side(0.0, 1, 1)], -4.0, 0.1, noise) < one
    assert root_spread([Side(1.0, 1, 1), Side(0.0, 1, 1)], -8.0, 0.1, noise) < one


def test_the_slope_is_never_taken_as_steeper_than_the_widths_around_say() -> None:
    line = {x / 10: -4.0 * x / 10 for x in range(-4, 5)}
    assert slope_at(line, 0.0, 0.1) == pytest.approx(-4.0)
    assert slope_at({**line, 0.0: 0.5}, 0.0, 0.1) > -9.0
    assert slope_at({0.0: 0.01, 0.1: 0.0}, 0.0, 0.1) == -0.5, "flat curves cross anywhere"


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
