from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groktime.service.analysis.crossing import crossing, resampled_crossings, seed_block_weights
from groktime.service.analysis.inputs import ByKind, FirstPassages
from groktime.service.analysis.roots import deciding_knots
from groktime.service.analysis.survival import kaplan_meier_curve
from groktime.service.errors import AnalysisError


def exact(
    params: list[float], times: list[float], seeds: int = 1, cap: float = 1e9
) -> FirstPassages:
    """The same time for every seed at each P; times beyond the cap are censored there."""
    p = np.repeat(params, seeds).astype(float)
    t = np.repeat(times, seeds).astype(float)
    reached = t <= cap
    return FirstPassages(
        width=np.repeat(np.arange(2, 2 + len(params)), seeds),
        params=p,
        seed=np.tile(np.arange(seeds), len(params)),
        epoch=np.where(reached, t, np.nan),
        last_epoch=np.minimum(t, cap),
    )


P4 = [1e4, 1e5, 1e6, 1e7]


def rates(params: list[float], at: float, slope: float) -> FirstPassages:
    """1/T a line in log10 P that is 0.001 at 10^at; slope in shares of that a decade."""
    rate = [1e-3 * (1 + slope * (np.log10(p) - at)) for p in params]
    return exact(params, [1 / r for r in rate])


def test_two_lines_cross_where_algebra_says() -> None:
    # 1/T_mem = .001 + .005 z, 1/T_gen = .006 + .001 z, z = log10 P − 4: equal at z = 1.25.
    params = [1e4, 3e5, 5e6, 1e7]
    z = np.log10(params) - 4
    found = crossing(
        exact(params, list(1 / (0.001 + 0.005 * z))), exact(params, list(1 / (0.006 + 0.001 * z)))
    )
    assert found.status == "crossed"
    assert found.p_cross.estimate == pytest.approx(10**5.25)
    assert found.epochs == pytest.approx(1 / 0.00725)
    assert [r.direction for r in found.roots] == ["mem_becomes_faster"]


@given(
    at=st.floats(4.5, 6.5),
    steep=st.floats(0.1, 0.35),
    shallow=st.floats(0.0, 0.08),
)
def test_shifted_lines_cross_where_they_were_put(at: float, steep: float, shallow: float) -> None:
    params = list(np.geomspace(1e4, 1e7, 9))
    found = crossing(rates(params, at, steep), rates(params, at, shallow))
    assert found.status == "crossed"
    assert np.log10(found.p_cross.estimate or 0) == pytest.approx(at)


@given(factor=st.floats(0.01, 100))
@settings(max_examples=20)
def test_scaling_params_scales_the_crossing(factor: float) -> None:
    rng = np.random.default_rng(5)
    mem = exact(P4, [900, 400, 120, 60], seeds=5)
    gen = exact(P4, [500, 300, 200, 150], seeds=5)
    mem = replace(mem, epoch=mem.epoch + rng.integers(0, 60, len(mem)), last_epoch=mem.epoch + 60)
    one = crossing(mem, gen, n_resamples=200)
    other = crossing(
        replace(mem, params=mem.params * factor),
        replace(gen, params=gen.params * factor),
        n_resamples=200,
    )
    assert one.p_cross.low is not None
    assert one.p_cross.high is not None
    assert other.p_cross.estimate == pytest.approx((one.p_cross.estimate or 0) * factor)
    assert other.p_cross.low == pytest.approx(one.p_cross.low * factor)
    assert other.p_cross.high == pytest.approx(one.p_cross.high * factor)


def test_order_of_runs_changes_nothing(cells: Callable[..., Any]) -> None:
    mem, gen = cells(cap=700.0).pair()
    order = np.random.default_rng(3).permutation(len(mem))
    shuffled = crossing(mem.where(order), gen, n_resamples=500)
    straight = crossing(mem, gen, n_resamples=500)
    assert shuffled.p_cross.estimate == straight.p_cross.estimate
    assert shuffled.p_cross == straight.p_cross


@given(st.permutations(range(6)))
@settings(max_examples=20)
def test_permuting_seed_names_changes_no_estimate(names: list[int]) -> None:
    rng = np.random.default_rng(1)
    mem, gen = exact(P4, [900, 400, 120, 60], seeds=6), exact(P4, [500, 300, 200, 150], seeds=6)
    mem = replace(mem, epoch=mem.epoch + rng.integers(0, 60, len(mem)), last_epoch=mem.epoch + 60)
    renamed = np.array(names)
    before = crossing(mem, gen, n_resamples=0)
    after = crossing(
        replace(mem, seed=renamed[mem.seed]), replace(gen, seed=renamed[gen.seed]), n_resamples=0
    )
    assert after.p_cross.estimate == before.p_cross.estimate


def test_memorisation_unreached_on_one_side_is_a_bracket() -> None:
    found = crossing(exact(P4, [9999, 9999, 50, 40], cap=1000), exact(P4, [500, 300, 200, 150]))
    assert found.status == "bracketed"
    assert (found.roots[0].low, found.roots[0].high) == pytest.approx((1e5, 1e6))
    assert found.p_cross.estimate == pytest.approx(np.sqrt(1e11))
    assert found.epochs is None


def test_both_unreached_is_unresolved_and_widens_the_bracket() -> None:
    found = crossing(
        exact(P4, [900, 9999, 50, 40], cap=1000), exact(P4, [500, 9999, 200, 150], cap=1000)
    )
    assert found.status == "bracketed"
    assert found.unresolved_widths == (3,)
    assert (found.roots[0].low, found.roots[0].high) == pytest.approx((1e4, 1e6))


@pytest.mark.parametrize(
    ("mem", "gen", "status"),
    [
        ([900, 800, 700, 600], [50, 40, 30, 20], "mem_always_slower"),
        ([9, 8, 7, 6], [50, 40, 30, 20], "mem_always_faster"),
        ([9999] * 4, [50, 40, 30, 20], "mem_always_slower"),
        ([50, 40, 30, 20], [9999] * 4, "mem_always_faster"),
        ([9999] * 4, [9999] * 4, "unresolved"),
    ],
)
def test_curves_that_do_not_cross_say_so(mem: list[float], gen: list[float], status: str) -> None:
    found = crossing(exact(P4, mem, cap=1000), exact(P4, gen, cap=1000))
    assert found.status == status
    assert found.p_cross.estimate is None
    assert found.roots == ()


def test_the_paper_returns_a_point_even_then_and_flags_the_edge() -> None:
    found = crossing(exact(P4, [900, 800, 700, 600]), exact(P4, [50, 40, 30, 20]), method="paper")
    assert found.status == "closest_approach"
    # Where the ratio is smallest, not the difference.
    assert found.p_cross.estimate == pytest.approx(1e4)
    assert found.at_edge


def test_a_curve_with_one_width_is_insufficient() -> None:
    assert crossing(exact([1e4], [10]), exact(P4, [1, 2, 3, 4])).status == "insufficient_data"


def test_no_runs_at_all_is_insufficient() -> None:
    nothing = exact([], [])
    for method in ("paper", "robust"):
        assert crossing(nothing, nothing, method=method).status == "insufficient_data"


def test_all_roots_are_listed_and_the_falling_one_is_the_crossing() -> None:
    # Faster at both ends, slower in the middle: two crossings.
    found = crossing(exact(P4, [100, 400, 150, 60]), exact(P4, [300, 200, 200, 150]))
    assert [r.direction for r in found.roots] == ["mem_becomes_slower", "mem_becomes_faster"]
    assert found.p_cross.estimate == found.roots[1].params


def test_a_wiggle_around_one_crossing_gives_its_middle_root() -> None:
    params = [1e4, 2e4, 4e4, 8e4]
    found = crossing(exact(params, [200, 90, 110, 50]), exact(params, [100] * 4))
    assert len(found.roots) == 3
    assert found.p_cross.estimate == found.roots[1].params


def test_curves_on_different_widths_meet_between_them() -> None:
    mem = exact([1e4, 1e6], [1e4, 1e2])
    gen = exact([1e4, 1e5, 1e6], [1e3, 1e3, 1e3])
    found = crossing(mem, gen)
    # 1/T: 1e-4, 1e-2 against 1e-3.
    assert found.p_cross.estimate == pytest.approx(10 ** (4 + 2 / 11))


def test_nothing_is_known_between_a_reached_and_an_unreached_width() -> None:
    mem = exact([1e4, 1e6], [9999, 50], cap=1000)
    gen = exact([1e4, 1e5, 1e6], [300, 300, 300])
    found = crossing(mem, gen)
    assert found.status == "bracketed"
    assert (found.roots[0].low, found.roots[0].high) == pytest.approx((1e4, 1e6))


def test_fewer_than_three_common_seeds_give_no_interval() -> None:
    found = crossing(
        exact(P4, [900, 400, 120, 60], seeds=2), exact(P4, [500, 300, 200, 150], seeds=5)
    )
    assert found.p_cross.level is None
    assert found.p_cross.probability is None


@pytest.mark.parametrize(("seeds", "few"), [(3, True), (4, True), (5, False)])
def test_fewer_than_five_seeds_are_marked(seeds: int, few: bool) -> None:
    found = crossing(
        exact(P4, [900, 400, 120, 60], seeds=seeds), exact(P4, [500, 300, 200, 150], seeds=seeds)
    )
    assert found.p_cross.level == 0.95
    assert found.p_cross.few_seeds is few
    assert found.p_cross.probability == 1.0


def noisy(seeds: int = 5) -> tuple[FirstPassages, FirstPassages]:
    """Every seed crosses between 1e5 and 1e6, each somewhere else."""
    rng = np.random.default_rng(7)
    mem, gen = exact(P4, [900, 400, 120, 60], seeds), exact(P4, [500, 300, 200, 150], seeds)
    time = mem.epoch + rng.integers(0, 60, len(mem))
    return replace(mem, epoch=time, last_epoch=time), gen


def thinned(runs: FirstPassages, params: float, seeds: set[int]) -> FirstPassages:
    """The runs with only these seeds left at one size."""
    return runs.where((runs.params != params) | np.isin(runs.seed, sorted(seeds)))


some_seeds = st.sets(st.integers(0, 4), min_size=1)


@given(first=some_seeds, last=some_seeds)
@settings(max_examples=20)
def test_widths_away_from_the_crossing_may_have_any_seeds(first: set[int], last: set[int]) -> None:
    """The sign there is the same in every seed, so which of them were run cannot matter."""
    mem, gen = noisy()
    full = crossing(mem, gen, n_resamples=300)
    found = crossing(thinned(thinned(mem, 1e4, first), 1e7, last), gen, n_resamples=300)
    assert found.p_cross.estimate == full.p_cross.estimate
    assert found.p_cross == full.p_cross
    assert found.p_cross.probability == 1.0


def test_a_width_whose_seeds_are_not_drawn_uses_its_own() -> None:
    mem, gen = noisy()
    mem = thinned(mem, 1e6, {3})
    weights = np.array([[5], [0], [0], [0], [0]], dtype=np.uint8)  # seed 0 five times
    seeds = np.arange(5)
    low, high, crosses = resampled_crossings(mem, gen, seeds, weights, powers=(1.0,))
    both = np.isin(mem.seed, [0]) | ((mem.params == 1e6) & (mem.seed == 3))
    alone = crossing(mem.where(both), gen.where(gen.seed == 0), n_resamples=0)
    assert crosses.tolist() == [True]
    assert low[0] == high[0] == pytest.approx(np.log(alone.p_cross.estimate or 0))


def test_a_width_without_any_common_seed_stays_where_it_was_measured() -> None:
    mem, gen = noisy()
    mem = replace(mem, seed=np.where(mem.params == 1e4, mem.seed + 100, mem.seed))
    found = crossing(mem, gen, n_resamples=300)
    assert found.p_cross == crossing(*noisy(), n_resamples=300).p_cross
    assert found.p_cross.probability == 1.0


@pytest.mark.parametrize("kind", ["mem", "gen"])
@pytest.mark.parametrize("params", [1e5, 1e6])
def test_a_single_seed_beside_the_crossing_carries_no_interval(kind: str, params: float) -> None:
    runs = dict(zip(("mem", "gen"), noisy(), strict=True))
    runs[kind] = thinned(runs[kind], params, {2})
    found = crossing(**runs)
    assert found.status == "crossed"
    p_cross = found.p_cross
    assert (p_cross.level, p_cross.probability, p_cross.few_seeds) == (None, None, True)


@pytest.mark.parametrize(("left", "few"), [({0, 1}, True), ({0, 1, 2, 3}, True), (set(), False)])
def test_few_seeds_beside_the_crossing_are_marked(left: set[int], few: bool) -> None:
    mem, gen = noisy(seeds=6)
    found = crossing(thinned(mem, 1e6, left) if left else mem, gen)
    assert found.p_cross.level == 0.95
    assert found.p_cross.few_seeds is few


def test_a_limit_that_rests_on_a_single_seed_is_marked() -> None:
    """The root lies between full widths, but resamples reach the next width."""
    mem, gen = exact(P4, [900, 290, 120, 60], seeds=5), exact(P4, [500, 300, 200, 150], seeds=5)
    slow = (mem.params == 1e5) & (mem.seed < 3)
    time = np.where(slow, 310.0, mem.epoch)
    mem = replace(mem, epoch=time, last_epoch=time)
    found = crossing(thinned(mem, 1e4, {4}), gen)
    assert 1e5 < (found.p_cross.estimate or 0) < 1e6
    assert found.p_cross.low is not None
    assert 1e4 < found.p_cross.low < 1e5
    assert found.p_cross.few_seeds
    full = crossing(mem, gen).p_cross
    assert full is not None
    assert (found.p_cross.low, found.p_cross.high) == (full.low, full.high)
    assert not full.few_seeds


def test_an_interval_beyond_the_measured_widths_is_open() -> None:
    # Three of ten seeds never get faster than generalisation at the largest width.
    mem = exact(P4, [900, 800, 700, 100], seeds=10)
    slow = (mem.params == 1e7) & (mem.seed < 4)
    time = np.where(slow, 600.0, mem.epoch)
    mem = replace(mem, epoch=time, last_epoch=time)
    found = crossing(mem, exact(P4, [500, 400, 300, 200], seeds=10))
    assert (found.p_cross.level, found.p_cross.high) == (0.95, None)
    assert 0.5 < (found.p_cross.probability or 0) < 1


def test_vectorised_resamples_equal_a_plain_loop(cells: Callable[..., Any]) -> None:
    """Ragged seeds, censoring and different widths: every resample by brute force."""
    mem, gen = cells(cap=600.0, seeds=6, gen_noise=0.4, mem_noise=0.3).pair()
    rng = np.random.default_rng(2)
    mem = mem.where(rng.random(len(mem)) > 0.15)
    gen = gen.where((rng.random(len(gen)) > 0.15) & (gen.width != 56))
    for width in (mem.width.min(), 56, mem.width.max()):  # not drawn in most resamples
        mem = mem.where((mem.width != width) | (mem.seed == mem.seed[mem.width == width][0]))
    early = np.isnan(mem.epoch) & (rng.random(len(mem)) > 0.5)
    mem = replace(mem, last_epoch=np.where(early, 300.0, mem.last_epoch))
    seeds = np.array(sorted(set(mem.seeds) & set(gen.seeds)))
    weights = seed_block_weights(len(seeds), 60, seed=4)
    low, high, crosses = resampled_crossings(mem, gen, seeds, weights, powers=(1.0,))
    for b in range(weights.shape[1]):
        drawn = np.repeat(seeds, weights[:, b])
        found = crossing(_redraw(mem, drawn), _redraw(gen, drawn), n_resamples=0)
        assert bool(crosses[b]) == (len(found.roots) > 0)
        if found.p_cross.estimate is not None:
            assert np.exp(0.5 * (low[b] + high[b])) == pytest.approx(found.p_cross.estimate)


@pytest.mark.parametrize("noise", [0.02, 0.4])
@pytest.mark.parametrize("cap", [600.0, 1e6])
@pytest.mark.parametrize("thin", [0.0, 0.2])
def test_widths_of_one_sign_are_left_out_without_a_trace(
    cells: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    noise: float,
    cap: float,
    thin: float,
) -> None:
    mem, gen = cells(cap=cap, seeds=6, gen_noise=noise, mem_noise=noise).pair()
    rng = np.random.default_rng(7)
    mem = mem.where(rng.random(len(mem)) >= thin)
    gen = gen.where((rng.random(len(gen)) >= thin) & (gen.width % 3 > 0))
    seeds = np.array(sorted(set(mem.seeds) & set(gen.seeds)))
    weights = seed_block_weights(len(seeds), 400, seed=5)
    kept: list[float] = []

    def counted(*curves: Any) -> np.ndarray:
        keep = deciding_knots(*curves)
        kept.append(keep.mean())
        return keep

    monkeypatch.setattr("groktime.service.analysis.crossing.deciding_knots", counted)
    found = resampled_crossings(mem, gen, seeds, weights)
    assert noise > 0.1 or min(kept) < 0.7
    monkeypatch.setattr(
        "groktime.service.analysis.crossing.deciding_knots",
        lambda curve, _: np.ones(len(curve.rate), dtype=bool),
    )
    for part, whole in zip(found, resampled_crossings(mem, gen, seeds, weights), strict=True):
        assert np.array_equal(part, whole)


def _redraw(runs: FirstPassages, drawn: np.ndarray) -> FirstPassages:
    """Repeat each run as often as its seed was drawn, under new seed names.

    A width none of whose seeds was drawn keeps its own runs.
    """
    parts = [(np.flatnonzero(runs.seed == s), i) for i, s in enumerate(drawn)]
    left = ~np.isin(runs.width, runs.width[np.isin(runs.seed, drawn)])
    parts += [(np.array([i]), 100 + i) for i in np.flatnonzero(left)]
    at = np.concatenate([p for p, _ in parts])
    names = np.concatenate([np.full(len(p), i) for p, i in parts])
    return FirstPassages(
        runs.width[at], runs.params[at], names, runs.epoch[at], runs.last_epoch[at]
    )


def test_censored_seeds_raise_the_robust_centre_and_not_the_papers() -> None:
    runs = exact([1e4, 1e5], [100, 100], seeds=5)
    censored = runs.seed >= 2
    runs = replace(
        runs,
        epoch=np.where(censored, np.nan, runs.epoch),
        last_epoch=np.where(censored, 1000.0, runs.last_epoch),
    )
    assert np.all(np.isinf(kaplan_meier_curve(runs).centre))
    found = crossing(runs, runs, method="paper")
    assert [point.value for point in found.curves.t_mem] == [100, 100]


def test_steps_scale_epochs_and_not_params() -> None:
    mem = replace(exact(P4, [900, 400, 120, 60]), steps_per_epoch=13)
    gen = replace(exact(P4, [500, 300, 200, 150]), steps_per_epoch=13)
    epochs, steps = crossing(mem, gen), crossing(mem, gen, units="steps")
    assert steps.p_cross.estimate == pytest.approx(epochs.p_cross.estimate)
    assert steps.epochs == pytest.approx(13 * (epochs.epochs or 0))
    assert steps.units == "steps"


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(AnalysisError, match="method: 'best' is not one of paper, robust"):
        crossing(exact(P4, [4, 3, 2, 1]), exact(P4, [1, 2, 3, 4]), method="best")


def test_counts_of_both_kinds_come_back_with_the_answer() -> None:
    mem = replace(exact(P4, [9999, 400, 120, 60], seeds=4, cap=1000), missing={5: 2})
    found = crossing(mem, exact(P4, [500, 300, 200, 150], seeds=3))
    assert found.seeds == ByKind(speed=4, grok=3)
    assert found.censored == ByKind(speed=4, grok=0)
    assert found.missing == ByKind(speed=2, grok=0)


@pytest.mark.parametrize("unresolved", [[1e3], [2e7], [1e3, 2e3, 2e7]])
@pytest.mark.parametrize(
    ("mem", "gen", "status"),
    [
        ([9, 8, 7, 6], [50, 40, 30, 20], "mem_always_faster"),
        ([900, 800, 700, 600], [50, 40, 30, 20], "mem_always_slower"),
        ([900, 300, 100, 50], [300, 200, 150, 120], "crossed"),
    ],
)
def test_widths_at_which_nothing_was_reached_decide_nothing(
    mem: list[float], gen: list[float], status: str, unresolved: list[float]
) -> None:
    alone = crossing(exact(P4, mem, 5, 1000), exact(P4, gen, 5, 1000))
    params = sorted(P4 + unresolved)

    def among(times: list[float]) -> FirstPassages:
        known = dict(zip(P4, times, strict=True))
        return exact(params, [known.get(p, 9999) for p in params], 5, 1000)

    found = crossing(among(mem), among(gen))
    assert found.status == alone.status == status
    said = alone.p_cross.probability if status == "crossed" else None  # it may cross there
    assert found.p_cross == replace(alone.p_cross, probability=said)
    assert len(found.unresolved_widths) == len(unresolved)


@settings(max_examples=60)
@given(st.data())
def test_unresolved_widths_never_narrow_an_interval_or_strengthen_a_status(data: Any) -> None:
    strength = {"insufficient_data": 0, "unresolved": 0, "bracketed": 2, "crossed": 3}
    strength |= {"mem_always_slower": 1, "mem_always_faster": 1}
    sizes = P4[: data.draw(st.integers(1, 4))]
    times = st.lists(
        st.sampled_from([20, 60, 150, 400, 9999]), min_size=len(sizes), max_size=len(sizes)
    )
    mem, gen = data.draw(times), data.draw(times)
    extra = data.draw(st.lists(st.sampled_from([3e3, 3e4, 3e5, 3e6, 3e7]), unique=True, min_size=1))
    params = sorted(sizes + extra)

    def runs(times: list[float], among: list[float], spread: float) -> FirstPassages:
        known = dict(zip(sizes, times, strict=True))
        base = exact(among, [known.get(p, 9999) for p in among], 5, 1000)
        time = np.round(base.epoch * (1 + spread * (base.seed - 2)))
        return replace(base, epoch=time, last_epoch=np.where(np.isnan(time), 1000.0, time))

    before = crossing(runs(mem, sizes, 0.05), runs(gen, sizes, 0.1), n_resamples=200)
    after = crossing(runs(mem, params, 0.05), runs(gen, params, 0.1), n_resamples=200)
    assert strength[after.status] <= strength[before.status]
    if {before.status, after.status} <= {"mem_always_slower", "mem_always_faster"}:
        assert after.status == before.status
    if after.p_cross.level:  # a limit that was not there before would be a narrower interval
        assert (after.p_cross.low or 0) <= (before.p_cross.low or 0) * (1 + 1e-9)
        assert (after.p_cross.high or np.inf) >= (before.p_cross.high or np.inf) * (1 - 1e-9)
    if after.p_cross.probability is not None:
        assert before.p_cross.probability == after.p_cross.probability == 1


def test_one_width_of_known_order_tells_nothing_of_the_others() -> None:
    mem, gen = exact(P4, [9999] * 3 + [180], 5, 200), exact(P4, [9999] * 4, 5, 200)
    found = crossing(mem, gen)
    assert found.status == "unresolved"
    assert (found.p_cross.low, found.p_cross.high, found.p_cross.level) == (None, None, None)
    assert found.advice is not None
    assert found.advice.kind == "longer"


def test_it_is_not_said_how_likely_curves_cross_where_some_widths_are_open() -> None:
    mem, gen = [9999, 400, 100, 50], [9999, 500, 150, 120]
    found = crossing(exact(P4, mem, 5, 1000), exact(P4, gen, 5, 1000))
    assert found.status == "mem_always_faster"
    assert found.p_cross.high == pytest.approx(P4[1])
    assert found.p_cross.probability is None
    known = crossing(exact(P4, [600, *mem[1:]], 5, 1000), exact(P4, [700, *gen[1:]], 5, 1000))
    assert known.p_cross.probability == 0


def test_a_run_stopped_before_the_other_speed_was_reached_says_nothing_of_the_order() -> None:
    mem = exact(P4, [9999] * 4, cap=40)
    found = crossing(mem, exact(P4, [500, 400, 30, 20], cap=1000))
    assert found.status == "mem_always_slower"
    assert found.unresolved_widths == (2, 3)
    assert found.p_cross.level is None or (found.p_cross.low or 0) >= 1e6
    nothing = crossing(mem, exact(P4, [500, 400, 300, 200], cap=1000))
    assert nothing.status == "unresolved"


def at_widths(widths: list[int], times: list[float], cap: float = 1e9) -> FirstPassages:
    params = [float(2 * 115 * d + 2 * (16 * d * d + 2 * d) + d) for d in widths]
    runs = exact(params, times, 5, cap)
    return replace(runs, width=np.repeat(widths, 5))


@pytest.mark.parametrize(("left", "coarse"), [(290.0, False), (400.0, True)])
def test_a_bracket_over_which_memorising_changes_threefold_is_coarse(
    left: float, coarse: bool
) -> None:
    mem = at_widths([40, 48, 64, 80], [2000, left, 100, 60])
    found = crossing(mem, at_widths([40, 48, 64, 80], [150] * 4))
    assert found.bracket is not None
    assert (found.bracket.low_width, found.bracket.high_width) == (48, 64)
    assert found.bracket.change == pytest.approx(left / 100)
    assert found.bracket.coarse is coarse
    assert (found.advice is not None) is coarse


def test_a_coarse_bracket_asks_for_the_speed_width_between() -> None:
    mem = at_widths([40, 48, 64, 80], [2000, 900, 100, 60])
    advice = crossing(mem, at_widths([40, 48, 64, 80], [150] * 4)).advice
    assert advice is not None
    assert (advice.kind, advice.width) == ("speed", 56)
    of_eight = crossing(mem, at_widths([40, 48, 64, 80], [150] * 4), width_step=16).advice
    assert of_eight is None or of_eight.kind != "speed"  # 48 and 64 are neighbours there


@pytest.mark.parametrize(
    ("mem", "gen", "kind", "width"),
    [
        ([900, 800, 700, 600], [50, 40, 30, 20], "both", 100),
        ([9, 8, 7, 6], [50, 40, 30, 20], "both", 32),
        ([9999, 9999, 70, 60], [9999, 9999, 90, 80], "longer", 48),
        ([9999] * 4, [9999] * 4, "longer", 80),
        ([9999, 9999, 50, 20], [300, 200, 150, 120], "both", 56),
    ],
)
def test_advice_leads_to_where_the_crossing_is(
    mem: list[float], gen: list[float], kind: str, width: int
) -> None:
    widths = [40, 48, 64, 80]
    advice = crossing(at_widths(widths, mem, 1000), at_widths(widths, gen, 1000)).advice
    assert advice is not None
    assert (advice.kind, advice.width) == (kind, width)
    assert advice.why


# T_mem as measured at the ten primes: b (1 − f/f_c)^−γ, and a generalisation that falls slowly.
CRITICAL, STEEPNESS, AT_ONE = 0.42, 3.7, 30.0


@pytest.mark.parametrize(("gap", "within"), [(0.05, 0.01), (0.07, 0.01), (0.15, 0.03)])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_curves_of_the_measured_shape_cross_where_they_do(
    gap: float, within: float, share: float
) -> None:
    truth, capacity = 1.2e5, 2e4  # P_cross and P_mem
    params = 10 ** (np.log10(truth) + gap * (np.arange(-2, 3) + 1 - share))

    def t_mem(p: Any) -> Any:
        return AT_ONE * (1 - capacity / p / CRITICAL) ** -STEEPNESS

    def t_gen(p: Any) -> Any:
        return t_mem(truth) * (p / truth) ** -0.4

    params = params[capacity / params < CRITICAL]
    found = crossing(
        exact(list(params), list(t_mem(params))), exact(list(params), list(t_gen(params)))
    )
    assert abs(np.log10((found.p_cross.estimate or 0) / truth)) < within
