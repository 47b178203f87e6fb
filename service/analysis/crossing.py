"""P_cross: where the memorisation and generalisation speed curves of one cell cross."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from service.analysis.closest_approach import closest_approach
from service.analysis.inputs import (
    BoolArray,
    FirstPassages,
    FloatArray,
    IntArray,
    Method,
    Units,
    check_method,
)
from service.analysis.resampling import quantile_outward, seed_block_weights
from service.analysis.roots import SignChanges, at_knots, knots, sign_changes
from service.analysis.speed_curve import (
    SpeedCurve,
    kaplan_meier_curve,
    log_medians_under_weights,
    mean_over_reached,
)
from service.analysis.survival import CountArray
from service.errors import AnalysisError

MIN_SEEDS = 3  # fewer common seeds than this: no interval
MIN_BESIDE = 2  # nor with fewer of them than this at a width beside the crossing
ROUNDING = 1e-9
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


@dataclass(frozen=True)
class Root:
    """One sign change of log T_mem − log T_gen; `low` = `high` unless it is only bracketed."""

    params: float  # the root, or the geometric mean of its bracket
    low: float
    high: float
    epochs: float | None  # both speeds at the root, in the crossing's units; None in a bracket
    direction: Direction

    @property
    def bracketed(self) -> bool:
        return self.low < self.high


@dataclass(frozen=True)
class CrossingInterval:
    """Seed-block bootstrap interval of P_cross.

    `low` = 0 or `high` = inf: the interval is open there, because too many resamples cross
    outside the measured widths or do not cross at all. `few_seeds`: a width beside the crossing
    or inside the interval has fewer than five of the seeds drawn.
    """

    low: float
    high: float
    level: float
    n_resamples: int
    n_seeds: int
    few_seeds: bool


@dataclass(frozen=True, eq=False)
class Crossing:
    """P_cross of one cell with everything that went into it."""

    method: Method
    status: Status
    params: float | None  # the estimate of P_cross
    epochs: float | None  # both speeds there
    roots: tuple[Root, ...]
    interval: CrossingInterval | None
    p_crosses: float | None  # share of resamples with a sign change; None without resampling
    few_seeds: bool  # too few for a good interval, or for any
    at_edge: bool  # paper: the closest approach is an end of the common range
    unresolved_widths: tuple[int, ...]
    t_mem: SpeedCurve
    t_gen: SpeedCurve
    units: Units
    clock: str  # of the memorisation runs
    thresholds: tuple[float, float]  # memorisation, generalisation
    seeds: tuple[int, int]
    censored: tuple[int, int]
    diverged: tuple[int, int]
    missing: tuple[int, int]


def crossing(
    mem: FirstPassages,
    gen: FirstPassages,
    *,
    method: str = "robust",
    units: Units = "epochs",
    n_resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> Crossing:
    """Where T_mem(P) and T_gen(P) of one cell cross.

    robust: sign changes of log T_mem − log T_gen of Kaplan–Meier medians, linear in log P, with
    a seed-block bootstrap interval. paper: closest approach of the means over reached seeds.
    """
    chosen = check_method(method)
    if not 0 < level < 1:
        raise AnalysisError(f"level: {level!r} is not between 0 and 1")
    if units == "steps":
        mem, gen = mem.in_steps(), gen.in_steps()
    if chosen == "paper":
        return _paper(mem, gen)
    return _robust(mem, gen, n_resamples, level, seed)


def _paper(mem: FirstPassages, gen: FirstPassages) -> Crossing:
    t_mem, t_gen = mean_over_reached(mem), mean_over_reached(gen)
    closest = closest_approach(t_mem.params, t_mem.centre, t_gen.params, t_gen.centre)
    return Crossing(
        method="paper",
        status="insufficient_data" if closest is None else "closest_approach",
        params=None if closest is None else closest.params,
        epochs=None if closest is None else closest.epochs,
        roots=(),
        interval=None,
        p_crosses=None,
        few_seeds=False,
        at_edge=closest is not None and closest.at_edge,
        unresolved_widths=(),
        t_mem=t_mem,
        t_gen=t_gen,
        **_making(mem, gen),
    )


def _robust(
    mem: FirstPassages, gen: FirstPassages, n_resamples: int, level: float, seed: int
) -> Crossing:
    t_mem, t_gen = kaplan_meier_curve(mem), kaplan_meier_curve(gen)
    at = knots(t_mem.params, t_gen.params)
    log_mem = at_knots(at, t_mem.params, np.log(t_mem.centre)[:, None])
    log_gen = at_knots(at, t_gen.params, np.log(t_gen.centre)[:, None])
    changes = sign_changes(at, _difference(log_mem, log_gen))
    roots = _roots(at, log_gen[:, 0], changes)
    main = int(_main_change(changes)[0])
    status = _status(len(at), changes, roots[main] if main >= 0 else None)
    beside = _beside(at, changes, roots[main] if main >= 0 else None)
    blocks = _blocks(mem, gen)
    interval, p_crosses = _interval(mem, gen, blocks, beside, n_resamples, level, seed)
    return Crossing(
        method="robust",
        status=status,
        params=roots[main].params if main >= 0 else None,
        epochs=roots[main].epochs if main >= 0 else None,
        roots=roots,
        interval=interval,
        p_crosses=p_crosses,
        few_seeds=interval.few_seeds if interval else blocks.fewest(*beside) < FEW_SEEDS,
        at_edge=False,
        unresolved_widths=_unresolved(t_mem, t_gen),
        t_mem=t_mem,
        t_gen=t_gen,
        **_making(mem, gen),
    )


def _making(mem: FirstPassages, gen: FirstPassages) -> dict[str, Any]:
    return {
        "units": mem.units,
        "clock": mem.clock,
        "thresholds": (mem.threshold, gen.threshold),
        "seeds": (len(mem.seeds), len(gen.seeds)),
        "censored": (mem.n_censored, gen.n_censored),
        "diverged": (mem.n_diverged, gen.n_diverged),
        "missing": (mem.n_missing, gen.n_missing),
    }


def _difference(log_mem: FloatArray, log_gen: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore"):  # inf − inf: both unreached, unknown
        return log_mem - log_gen


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


def _roots(at: FloatArray, log_t: FloatArray, changes: SignChanges) -> tuple[Root, ...]:
    roots = []
    for k in np.flatnonzero(changes.found[:, 0]):
        low, high = float(changes.low[k, 0]), float(changes.high[k, 0])
        epochs = float(np.exp(np.interp(low, at, log_t))) if low == high else None
        roots.append(
            Root(
                params=float(np.exp(0.5 * (low + high))),
                low=float(np.exp(low)),
                high=float(np.exp(high)),
                epochs=epochs,
                direction="mem_becomes_faster" if changes.downward[k, 0] else "mem_becomes_slower",
            )
        )
    return tuple(roots)


def _status(n_knots: int, changes: SignChanges, main: Root | None) -> Status:
    if n_knots < 2:
        return "insufficient_data"
    if main is not None:
        return "bracketed" if main.bracketed else "crossed"
    if changes.resolved[0] == 0:
        return "unresolved"
    return "mem_always_slower" if changes.any_slower[0] else "mem_always_faster"


def _unresolved(t_mem: SpeedCurve, t_gen: SpeedCurve) -> tuple[int, ...]:
    """Widths measured in both kinds at which neither median was reached."""
    mem_open = set(t_mem.width[np.isinf(t_mem.centre)].tolist())
    gen_open = set(t_gen.width[np.isinf(t_gen.centre)].tolist())
    return tuple(sorted(mem_open & gen_open))


def _beside(at: FloatArray, changes: SignChanges, main: Root | None) -> tuple[float, float]:
    """The range of P that decides where the crossing is: the root, or the end it lies beyond."""
    if main is not None:
        return main.low, main.high
    if len(at) == 0:
        return 0.0, np.inf
    first, last = float(np.exp(at[0])), float(np.exp(at[-1]))
    if changes.resolved[0] == 0:
        return first, last
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


def _interval(
    mem: FirstPassages,
    gen: FirstPassages,
    blocks: _Blocks,
    beside: tuple[float, float],
    n_resamples: int,
    level: float,
    seed: int,
) -> tuple[CrossingInterval | None, float | None]:
    if len(blocks.seeds) < MIN_SEEDS or n_resamples < 1:
        return None, None
    if blocks.fewest(*beside) < MIN_BESIDE:
        return None, None  # a single seed has no spread: the limits would claim certainty
    weights = seed_block_weights(len(blocks.seeds), n_resamples, seed)
    low, high, crosses = resampled_crossings(mem, gen, blocks.seeds, weights)
    if len(low) == 0:
        return None, None
    tail = 0.5 * (1 - level)
    lower = float(np.exp(quantile_outward(low, tail, upward=False)))
    upper = float(np.exp(quantile_outward(high, 1 - tail, upward=True)))
    fewest = blocks.fewest(min(lower, beside[0]), max(upper, beside[1]))
    interval = CrossingInterval(
        low=lower,
        high=upper,
        level=level,
        n_resamples=n_resamples,
        n_seeds=len(blocks.seeds),
        few_seeds=fewest < FEW_SEEDS,
    )
    return interval, float(crosses.mean())


def resampled_crossings(
    mem: FirstPassages, gen: FirstPassages, seeds: IntArray, weights: CountArray
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """log P_cross of every resample as the range (low, high) it is known to, and if it crosses.

    A resample without a crossing has it beyond the measured widths, on the side the sign says:
    the range is then open to ∓inf.
    """
    mem_params, log_mem = log_medians_under_weights(mem, seeds, weights)
    gen_params, log_gen = log_medians_under_weights(gen, seeds, weights)
    at = knots(mem_params, gen_params)
    if len(at) < 2:
        return np.empty(0), np.empty(0), np.empty(0, dtype=np.bool_)
    difference = _difference(at_knots(at, mem_params, log_mem), at_knots(at, gen_params, log_gen))
    changes = sign_changes(at, difference)
    main = _main_change(changes)
    crosses = main >= 0
    rank = np.cumsum(changes.found, axis=0, dtype=np.int16)
    is_main = changes.found & (rank == (main + 1).astype(np.int16))
    k = np.argmax(is_main, axis=0)
    column = np.arange(len(main))
    low, high = changes.low[k, column], changes.high[k, column]
    only_slower = changes.any_slower & ~changes.any_faster
    only_faster = changes.any_faster & ~changes.any_slower
    low = np.where(crosses, low, np.where(only_slower, at[-1], -np.inf))
    high = np.where(crosses, high, np.where(only_faster, at[0], np.inf))
    return low, high, crosses
