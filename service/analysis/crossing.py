"""P_cross: where the memorisation and generalisation speed curves of one cell cross."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from groktime.service.analysis import Units, check_method
from groktime.service.analysis.inputs import (
    ROUNDING,
    BoolArray,
    ByKind,
    FirstPassages,
    FloatArray,
    IntArray,
    finite,
)
from groktime.service.analysis.located import located_limits
from groktime.service.analysis.roots import (
    Rates,
    SignChanges,
    at_knots,
    closest_approach,
    deciding_knots,
    knots,
    sign_changes,
)
from groktime.service.analysis.survival import (
    CountArray,
    ResampledMedians,
    SpeedCurve,
    SpeedCurves,
    curve_points,
    horizons,
    kaplan_meier_curve,
    mean_over_reached,
    rate_bounds,
)
from groktime.service.errors import AnalysisError


def seed_block_weights(n_seeds: int, n_resamples: int, seed: int) -> npt.NDArray[np.uint8]:
    """How often each seed is drawn in each bootstrap resample, (seeds, B).

    The same draw serves every width and both kinds of run: the same seed gives the same split
    everywhere, so widths are not independent and must be resampled together.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, n_seeds, size=(n_resamples, n_seeds))
    drawn += n_seeds * np.arange(n_resamples)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=n_resamples * n_seeds)
    counts = counts.reshape(n_resamples, n_seeds).T
    return np.ascontiguousarray(counts, dtype=np.uint8 if n_seeds < 256 else np.int64)


def quantile_outward(values: FloatArray, probability: float, *, upward: bool) -> float:
    """An order statistic at or beyond the quantile, so that infinities stay infinities."""
    at = probability * (len(values) - 1)
    if abs(at - round(at)) < ROUNDING * len(values):
        at = round(at)
    index = int(np.ceil(at) if upward else np.floor(at))
    return float(np.partition(values, index)[index])


MIN_SEEDS = 3  # fewer common seeds than this: no interval
MIN_BESIDE = 2  # nor with fewer of them than this at a width beside the crossing
FEW_SEEDS = 5  # fewer than this: an interval, marked as resting on few seeds

Status = Literal[
    "crossed",
    "bracketed",
    "mem_always_slower",
    "mem_always_faster",
    "unresolved",
    "insufficient_data",
    "closest_approach",
]
Direction = Literal["mem_becomes_faster", "mem_becomes_slower"]
IntervalKind = Literal["bootstrap", "located"]
AdviceKind = Literal["speed", "grok", "both", "longer", "seeds"]

# Exponents q of T^−q that is linear in log P: the estimate's is 1, and T_mem of a width left out
# is predicted too high with ½ and too low with 2 (docs/statistics.md).
POWERS = (0.5, 1.0, 2.0)
COARSE = 3.0  # a change of T_mem over its bracket from which the place of a root is coarse
LEAST_RESOLVED = 2  # widths of known order below which nothing is said of the others
STEP = 2  # widths are even; with H heads they are multiples of 2H
BEYOND = 1.25  # how much further out a width is looked for
WIDE = 0.1  # decades: an interval wider than this is worth more seeds
AT_ONCE = 2**16  # rates of resamples, half a megabyte: several arrays of them stay in the cache


@dataclass(frozen=True, kw_only=True)
class Root:
    """One sign change of log T_mem − log T_gen; `low` < `high` when it is only bracketed.

    `params` is the root, or the geometric mean of its bracket.
    """

    params: float
    low: float
    high: float
    epochs: Annotated[float | None, Field(description="both speeds there, in the answer's units")]
    direction: Direction
    bracketed: bool


@dataclass(frozen=True, kw_only=True)
class CrossingEstimate:
    """P_cross with its interval: of a seed-block bootstrap, or `located` by the delta method.

    `level` None: no interval (fewer than 3 common seeds, fewer than 2 of them at a width beside
    the crossing, or the paper's method). An end that is None beside a level is open: too many
    resamples cross beyond the measured widths.
    """

    estimate: Annotated[float | None, Field(description="parameters")]
    low: float | None = None
    high: float | None = None
    level: float | None = None
    few_seeds: Annotated[
        bool, Field(description="fewer than 5 common seeds at a width that the interval rests on")
    ]
    resamples: int = 0
    probability: Annotated[
        float | None,
        Field(
            description="share of resamples in which the curves cross; null where they may cross "
            "at widths at which the faster one is not known"
        ),
    ] = None
    interval: Annotated[
        IntervalKind | None,
        Field(description="located: chosen runs, few seeds, delta method with pooled noise"),
    ] = None

    @property
    def decades(self) -> float:
        """How far the interval spans, from one parameter where it is open below."""
        if self.high is None:
            return math.inf
        return math.log10(self.high / max(self.low or 0.0, 1.0))


@dataclass(frozen=True)
class Bracket:
    """The neighbouring speed widths around P_cross, which the seeds' interval knows nothing of.

    `change` is how many times T_mem falls between them, None where one is unreached. It is
    steep and convex: over a threefold change or more, interpolation may be off by more than the
    interval says (`coarse`).
    """

    low: float
    high: float
    low_width: int
    high_width: int
    change: float | None
    coarse: bool


@dataclass(frozen=True)
class Advice:
    """The next runs that would teach most about P_cross.

    speed, grok: train this kind at the width; both: both kinds; longer: raise the cap of the
    runs there; seeds: more seeds at the widths beside the crossing.
    """

    kind: AdviceKind
    width: int
    why: str


@dataclass(frozen=True, eq=False)
class Crossing:
    """P_cross of one cell with everything that went into it.

    Status and limits rest on widths with a known sign only. `unresolved_widths` are the others:
    neither speed was reached there, or one was stopped before the other arrived, and the crossing
    may be among them.
    """

    units: Units
    status: Status
    p_cross: CrossingEstimate
    epochs: float | None  # both speeds there
    roots: tuple[Root, ...]
    at_edge: bool  # paper: the closest approach is an end of the common range
    unresolved_widths: tuple[int, ...]
    bracket: Bracket | None  # None without a crossing, and for the paper
    advice: Advice | None
    curves: SpeedCurves
    seeds: ByKind
    censored: ByKind
    diverged: ByKind
    missing: ByKind


def crossing(
    mem: FirstPassages,
    gen: FirstPassages,
    *,
    method: str = "robust",
    units: Units = "epochs",
    n_resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
    width_step: int = STEP,
) -> Crossing:
    """Where T_mem(P) and T_gen(P) of one cell cross.

    robust: where the Kaplan–Meier medians change order, 1/T linear in log P between widths, with
    a seed-block bootstrap interval. paper: closest approach of the means over reached seeds.
    `width_step` is how far apart widths must be, for the advice.
    """
    chosen = check_method(method)
    if not 0 < level < 1:
        raise AnalysisError(f"level: {level!r} is not between 0 and 1")
    if units == "steps":
        mem, gen = mem.in_steps(), gen.in_steps()
    if chosen == "paper":
        return _paper(mem, gen)
    return _robust(mem, gen, n_resamples, level, seed, width_step)


def _paper(mem: FirstPassages, gen: FirstPassages) -> Crossing:
    t_mem, t_gen = mean_over_reached(mem), mean_over_reached(gen)
    closest = closest_approach(t_mem.params, t_mem.centre, t_gen.params, t_gen.centre)
    return Crossing(
        status="insufficient_data" if closest is None else "closest_approach",
        p_cross=CrossingEstimate(
            estimate=None if closest is None else closest.params, few_seeds=False
        ),
        epochs=None if closest is None else closest.epochs,
        roots=(),
        at_edge=closest is not None and closest.at_edge,
        unresolved_widths=(),
        bracket=None,
        advice=None,
        **_rests_on(mem, gen, t_mem, t_gen),
    )


def _robust(
    mem: FirstPassages,
    gen: FirstPassages,
    n_resamples: int,
    level: float,
    seed: int,
    width_step: int,
) -> Crossing:
    t_mem, t_gen = kaplan_meier_curve(mem), kaplan_meier_curve(gen)
    at = knots(t_mem.params, t_gen.params)
    mem_rate = at_knots(at, t_mem.params, 1 / t_mem.centre[:, None], horizons(mem))
    gen_rate = at_knots(at, t_gen.params, 1 / t_gen.centre[:, None], horizons(gen))
    changes = sign_changes(np.log(at), mem_rate, gen_rate)
    roots = _roots(np.log(at), gen_rate.rate[:, 0], changes)
    chosen = int(_main_change(changes)[0])
    main = roots[chosen] if chosen >= 0 else None
    status = _status(len(at), changes, main)
    beside = _beside(changes, main)
    blocks = _blocks(mem, gen)
    limits = None
    if mem.located and status == "crossed" and blocks.fewest(*beside) < FEW_SEEDS:
        assert main is not None, "it crosses"
        limits = located_limits(mem, gen, t_mem, t_gen, main.params, level)
    if limits is None:
        p_cross = _estimate(mem, gen, main, blocks, beside, n_resamples, level, seed)
    else:
        assert main is not None, "it crosses"
        p_cross = CrossingEstimate(
            estimate=main.params,
            low=finite(limits[0]) or None,
            high=finite(limits[1]),
            level=level,
            few_seeds=True,
            interval="located",
        )
    unresolved = _unresolved(at, changes, t_mem, t_gen)
    if status == "unresolved":
        p_cross = CrossingEstimate(estimate=None, few_seeds=p_cross.few_seeds)
    elif unresolved and (p_cross.probability or 0.0) < 1:
        p_cross = replace(p_cross, probability=None)
    bracket = None if main is None else _bracket(t_mem, main)
    return Crossing(
        status=status,
        p_cross=p_cross,
        epochs=None if main is None else main.epochs,
        roots=roots,
        at_edge=False,
        unresolved_widths=unresolved,
        bracket=bracket,
        advice=_advice(status, bracket, p_cross, beside, t_mem, t_gen, unresolved, width_step),
        **_rests_on(mem, gen, t_mem, t_gen),
    )


def _bracket(t_mem: SpeedCurve, main: Root) -> Bracket:
    """The speed widths next to the root, or around the stretch that it is known to lie in."""
    left = int(np.searchsorted(t_mem.params, main.low * (1 + ROUNDING), side="right")) - 1
    right = int(np.searchsorted(t_mem.params, main.high * (1 - ROUNDING), side="left"))
    left, right = max(left, 0), min(right, len(t_mem.params) - 1)
    if left == right:  # the root is at a measured width
        left, right = max(left - 1, 0), min(right + 1, len(t_mem.params) - 1)
        at_width = True
    else:
        at_width = False
    ends = t_mem.centre[left], t_mem.centre[right]
    finite = bool(np.all(np.isfinite(ends)))
    change = float(max(ends) / min(ends)) if finite else None
    return Bracket(
        low=float(t_mem.params[left]),
        high=float(t_mem.params[right]),
        low_width=int(t_mem.width[left]),
        high_width=int(t_mem.width[right]),
        change=change,
        coarse=not at_width and (change is None or change > COARSE),
    )


def _advice(
    status: Status,
    bracket: Bracket | None,
    p_cross: CrossingEstimate,
    beside: tuple[float, float],
    t_mem: SpeedCurve,
    t_gen: SpeedCurve,
    unresolved: tuple[int, ...],
    step: int,
) -> Advice | None:
    """What to train next; None where nothing is measured yet or nothing is left to ask for."""
    if status == "insufficient_data" or len(t_mem.width) == 0 or len(t_gen.width) == 0:
        return None
    if bracket is not None:
        return _advice_inside(bracket, p_cross, t_gen, beside, step)
    if status == "unresolved":
        width = max(unresolved, default=int(t_mem.width[-1]))
        return Advice("longer", width, "the faster one is known at fewer than two widths")
    slower = status == "mem_always_slower"
    edge = beside[1] if slower else beside[0]
    side = "above" if slower else "below"
    open_there = [
        int(w)
        for w, p in zip(t_mem.width, t_mem.params, strict=True)
        if int(w) in unresolved and (p > edge if slower else p < edge)
    ]
    if open_there:
        nearest = min(open_there) if slower else max(open_there)
        return Advice(
            "longer",
            nearest,
            f"a crossing would lie {side} P = {edge:,.0f}, where the faster one is not known yet",
        )
    width = int(t_mem.width[np.argmin(np.abs(t_mem.params - edge))])
    further = _stepped(width * BEYOND if slower else width / BEYOND, step)
    if further == width:
        further = width + step if slower else max(width - step, step)
    if further == width:
        return None
    return Advice("both", further, f"a crossing would lie {side} every width with both speeds")


def _advice_inside(
    bracket: Bracket,
    p_cross: CrossingEstimate,
    t_gen: SpeedCurve,
    beside: tuple[float, float],
    step: int,
) -> Advice | None:
    middle = _between(bracket.low_width, bracket.high_width, step)
    if bracket.change is None:
        if middle is not None:
            return Advice("both", middle, "T_mem or T_gen was not reached beside the crossing")
        return Advice(
            "longer", bracket.low_width, "not reached beside the crossing; no width between"
        )
    if bracket.coarse and middle is not None:
        why = f"T_mem changes {bracket.change:.1f}-fold between the widths around the crossing"
        return Advice("speed", middle, why)
    near = int(np.argmin(np.abs(np.log(t_gen.params) - 0.5 * np.log(beside[0] * beside[1]))))
    if p_cross.few_seeds:
        return Advice("seeds", int(t_gen.width[near]), "few seeds beside the crossing")
    if p_cross.decades > WIDE:
        why = f"the interval spans {p_cross.decades:.2f} decades"
        return Advice("seeds", int(t_gen.width[near]), why)
    return None


def _stepped(width: float, step: int) -> int:
    return max(step, step * round(width / step))


def _between(low: int, high: int, step: int) -> int | None:
    """The allowed width nearest to the geometric mean of two; None when there is none inside."""
    inside = range(step * (low // step + 1), high, step)
    middle = float(np.sqrt(low * high))
    return min(inside, key=lambda width: abs(width - middle), default=None)


def _rests_on(
    mem: FirstPassages, gen: FirstPassages, t_mem: SpeedCurve, t_gen: SpeedCurve
) -> dict[str, Any]:
    return {
        "units": mem.units,
        "curves": SpeedCurves(t_mem=curve_points(t_mem, mem), t_gen=curve_points(t_gen, gen)),
        **counts(mem, gen),
    }


def counts(mem: FirstPassages, gen: FirstPassages) -> dict[str, Any]:
    """How many seeds and runs of either kind stand behind an answer about both."""
    return {
        "seeds": ByKind(speed=len(mem.seeds), grok=len(gen.seeds)),
        "censored": ByKind(speed=mem.n_censored, grok=gen.n_censored),
        "diverged": ByKind(speed=mem.n_diverged, grok=gen.n_diverged),
        "missing": ByKind(speed=mem.n_missing, grok=gen.n_missing),
    }


def _main_change(changes: SignChanges) -> IntArray:
    """The rank of the sign change that is P_cross in each resample, −1 where there is none.

    An odd number of changes is one net crossing blurred by noise: its middle one, so that
    wiggles bias it neither way. An even number is a detour: the last change after which
    memorisation is the faster one.
    """
    count = np.add.reduce(changes.found, axis=0, dtype=np.int64)
    starts_slower = np.where(count > 0, _first_is_downward(changes), False)
    even = np.where(starts_slower, count - 2, count - 1)
    return np.where(count == 0, -1, np.where(count % 2 == 1, (count - 1) // 2, even))


def _first_is_downward(changes: SignChanges) -> BoolArray:
    if len(changes.found) == 0:
        return np.zeros(changes.found.shape[1], dtype=np.bool_)
    first = np.argmax(changes.found, axis=0)
    columns = np.arange(changes.found.shape[1])
    return np.asarray(changes.downward[first, columns], dtype=np.bool_)


def _roots(at: FloatArray, rate: FloatArray, changes: SignChanges) -> tuple[Root, ...]:
    roots = []
    for k in np.flatnonzero(changes.found[:, 0]):
        low, high = (float(end[0]) for end in changes.place(np.array([k]), np.array([0])))
        epochs = float(1 / np.interp(low, at, rate)) if low == high else None
        roots.append(
            Root(
                params=float(np.exp(0.5 * (low + high))),
                low=float(np.exp(low)),
                high=float(np.exp(high)),
                epochs=epochs,
                direction="mem_becomes_faster" if changes.downward[k, 0] else "mem_becomes_slower",
                bracketed=low < high,
            )
        )
    return tuple(roots)


def _status(n_knots: int, changes: SignChanges, main: Root | None) -> Status:
    if n_knots < 2:
        return "insufficient_data"
    if main is not None:
        return "bracketed" if main.bracketed else "crossed"
    if changes.resolved[0] < LEAST_RESOLVED:
        return "unresolved"
    return "mem_always_slower" if changes.any_slower[0] else "mem_always_faster"


def _unresolved(
    at: FloatArray, changes: SignChanges, t_mem: SpeedCurve, t_gen: SpeedCurve
) -> tuple[int, ...]:
    """Widths measured in both kinds at which it is not known which is the faster."""
    open_there = np.isin(t_mem.params, at[~changes.known[:, 0]])
    both = open_there & np.isin(t_mem.params, t_gen.params)
    return tuple(sorted(t_mem.width[both].tolist()))


def _beside(changes: SignChanges, main: Root | None) -> tuple[float, float]:
    """The range of P that decides where the crossing is: the root, or the end it lies beyond."""
    if main is not None:
        return main.low, main.high
    if len(changes.resolved) == 0 or changes.resolved[0] == 0:
        return 0.0, np.inf
    first, last = float(np.exp(changes.first[0])), float(np.exp(changes.last[0]))
    return (last, last) if changes.any_slower[0] else (first, first)


@dataclass(frozen=True, eq=False)
class _Blocks:
    """The seeds drawn as blocks, and how many of them every width of either kind has."""

    seeds: IntArray  # ids present in both kinds, sorted
    params: tuple[FloatArray, FloatArray]
    counts: tuple[IntArray, IntArray]

    def fewest(self, low: float, high: float) -> int:
        """The fewest seeds at a width inside [low, high] or next to it, where both are measured."""
        if len(self.seeds) == 0:
            return 0
        low = max(low, *(float(p[0]) for p in self.params))
        high = min(high, *(float(p[-1]) for p in self.params))
        found = [len(self.seeds)]
        for params, counts in zip(self.params, self.counts, strict=True):
            # The ends come from logarithms: a width there is met within rounding.
            left = int(np.searchsorted(params, low * (1 + ROUNDING), side="right")) - 1
            right = int(np.searchsorted(params, high * (1 - ROUNDING), side="left"))
            found += counts[max(left, 0) : right + 1].tolist()
        return min(found)


def _blocks(mem: FirstPassages, gen: FirstPassages) -> _Blocks:
    seeds = np.array(sorted(set(mem.seeds) & set(gen.seeds)), dtype=np.int64)
    params, counts = [], []
    for runs in (mem, gen):
        of_kind = np.unique(runs.params)
        common = np.isin(runs.seed, seeds)
        pairs = np.unique(np.column_stack([runs.params[common], runs.seed[common]]), axis=0)
        params.append(of_kind)
        counts.append(np.bincount(np.searchsorted(of_kind, pairs[:, 0]), minlength=len(of_kind)))
    return _Blocks(seeds, (params[0], params[1]), (counts[0], counts[1]))


def _estimate(
    mem: FirstPassages,
    gen: FirstPassages,
    main: Root | None,
    blocks: _Blocks,
    beside: tuple[float, float],
    n_resamples: int,
    level: float,
    seed: int,
) -> CrossingEstimate:
    """The main root, with its interval where enough seeds are there to draw from."""
    fewest = blocks.fewest(*beside)
    alone = CrossingEstimate(
        estimate=None if main is None else main.params, few_seeds=fewest < FEW_SEEDS
    )
    if len(blocks.seeds) < MIN_SEEDS or n_resamples < 1:
        return alone
    if fewest < MIN_BESIDE:
        return alone  # a single seed has no spread: the limits would claim certainty
    weights = seed_block_weights(len(blocks.seeds), n_resamples, seed)
    low, high, crosses = resampled_crossings(mem, gen, blocks.seeds, weights)
    if len(low) == 0:
        return alone
    tail = 0.5 * (1 - level)
    lower = float(np.exp(quantile_outward(low, tail, upward=False)))
    upper = float(np.exp(quantile_outward(high, 1 - tail, upward=True)))
    fewest = blocks.fewest(min(lower, beside[0]), max(upper, beside[1]))
    return replace(
        alone,
        low=finite(lower) or None,  # exp(−∞): open
        high=finite(upper),
        level=level,
        few_seeds=fewest < FEW_SEEDS,
        resamples=n_resamples,
        interval="bootstrap",
        probability=float(crosses.mean()),
    )


def resampled_crossings(
    mem: FirstPassages,
    gen: FirstPassages,
    seeds: IntArray,
    weights: CountArray,
    powers: Sequence[float] = POWERS,
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """log P_cross of every resample as the range (low, high) it is known to, and if it crosses.

    Between widths the resamples take T^−q linear in log P by turns for each q of `powers`: how
    a curve runs there is not known, and the spread of its plausible ways belongs to the
    interval. Only widths at which resamples can differ are resampled: the others have one sign.
    A resample without a crossing has it beyond the widths of known sign, on the side
    the sign says: the range is then open to ∓inf.
    """
    mem_params, mem_bounds = rate_bounds(mem)
    gen_params, gen_bounds = rate_bounds(gen)
    at = knots(mem_params, gen_params)
    if len(at) < 2:
        return np.empty(0), np.empty(0), np.empty(0, dtype=np.bool_)
    mem_horizons, gen_horizons = horizons(mem), horizons(gen)
    keep = np.zeros(len(at), dtype=np.bool_)
    for q in powers:
        keep |= deciding_knots(
            at_knots(at, mem_params, mem_bounds**q, mem_horizons**q),
            at_knots(at, gen_params, gen_bounds**q, gen_horizons**q),
        )
    at = at[keep]
    mem, gen = _around(mem, mem_params, at), _around(gen, gen_params, at)
    mem_medians = ResampledMedians.of(mem, seeds, weights)
    gen_medians = ResampledMedians.of(gen, seeds, weights)
    mem_horizons, gen_horizons = horizons(mem), horizons(gen)
    count = weights.shape[1]
    low, high, crosses = np.empty(count), np.empty(count), np.empty(count, dtype=np.bool_)
    step = len(powers) * max(1, AT_ONCE // len(at))
    for turn, q in enumerate(powers):
        mem_rates, gen_rates = mem_medians.rates(q), gen_medians.rates(q)
        for first in range(turn, count, step):
            own = slice(first, first + step, len(powers))
            low[own], high[own], crosses[own] = _ranges(
                np.log(at),
                at_knots(at, mem_medians.params, mem_rates(own), mem_horizons**q),
                at_knots(at, gen_medians.params, gen_rates(own), gen_horizons**q),
            )
    return low, high, crosses


def _around(runs: FirstPassages, params: FloatArray, at: FloatArray) -> FirstPassages:
    """The runs of the widths that give the curve its values at the knots `at`."""
    right = np.clip(np.searchsorted(params, at), 1, len(params) - 1)
    return runs.where(np.isin(runs.params, params[np.union1d(right, right - 1)]))


def _ranges(
    log_knots: FloatArray, mem: Rates, gen: Rates
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Where each resample's main change can be, in log P, and whether there is one."""
    changes = sign_changes(log_knots, mem, gen)
    main = _main_change(changes)
    crosses = main >= 0
    rank = np.cumsum(changes.found, axis=0, dtype=np.int16)
    is_main = changes.found & (rank == (main + 1).astype(np.int16))
    only_slower = changes.any_slower & ~changes.any_faster
    only_faster = changes.any_faster & ~changes.any_slower
    low = np.where(only_slower, changes.last, -np.inf)
    high = np.where(only_faster, changes.first, np.inf)
    at_root = np.flatnonzero(crosses)
    low[at_root], high[at_root] = changes.place(np.argmax(is_main[:, at_root], axis=0), at_root)
    return low, high, crosses
