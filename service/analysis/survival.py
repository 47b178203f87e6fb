"""First passages with right-censoring: Kaplan–Meier summaries, and the speed curves of a cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field
from scipy.special import ndtri

from groktime.service.analysis import Units
from groktime.service.analysis.inputs import BoolArray, FirstPassages, FloatArray, IntArray, finite

CountArray = npt.NDArray[Any]  # uint8 for fewer than 256 seeds, else int64
IndexArray = npt.NDArray[Any]

HALF_TOLERANCE = 1e-12  # S(t) = 1/2 is met exactly by small samples; products round


def censoring_times(runs: FirstPassages) -> FloatArray:
    """Observation times: the passage, or the last epoch, or +inf for a diverged run.

    A diverged run counts as never reached, so it stays at risk for ever; leaving the risk
    set where it diverged would pretend that it might have reached the threshold later.
    """
    times = np.where(np.isnan(runs.epoch), runs.last_epoch, runs.epoch)
    return np.where(np.isnan(runs.epoch) & runs.diverged, np.inf, times)


def risk_order(time: FloatArray, event: BoolArray) -> IntArray:
    """Sort by time, events before censorings at the same time (Kaplan–Meier's convention)."""
    return np.lexsort((~event, time)).astype(np.int64)


@dataclass(frozen=True)
class MedianInterval:
    """A Kaplan–Meier median with its Brookmeyer–Crowley interval; +inf = not reached."""

    estimate: float
    low: float
    high: float
    level: float


@dataclass(frozen=True)
class KaplanMeier:
    """The product-limit curve S(t) = Π (1 − d_i / r_i), as it stands after each event time.

    `greenwood` is Σ d_i / (r_i (r_i − d_i)), the variance of log S; inf once S is 0.
    Kaplan & Meier (1958), J. Am. Stat. Assoc. 53, 457.
    """

    at: tuple[float, ...]
    survival: tuple[float, ...]
    greenwood: tuple[float, ...]

    @classmethod
    def of(cls, time: FloatArray, event: BoolArray) -> KaplanMeier:
        """The curve of a handful of runs; plain numbers, as arrays of ten cost more."""
        order = risk_order(time, event)
        pairs = list(zip(time[order].tolist(), event[order].tolist(), strict=True))
        at: list[float] = []
        survival: list[float] = []
        greenwood: list[float] = []
        s, g, i = 1.0, 0.0, 0
        while i < len(pairs):
            t, is_event = pairs[i]
            at_risk, deaths = len(pairs) - i, 0
            while i < len(pairs) and pairs[i] == (t, True):
                deaths, i = deaths + 1, i + 1
            if not is_event:
                i += 1
                continue
            s *= 1.0 - deaths / at_risk
            g = g + deaths / (at_risk * (at_risk - deaths)) if at_risk > deaths else math.inf
            at.append(t)
            survival.append(s)
            greenwood.append(g)
        return cls(tuple(at), tuple(survival), tuple(greenwood))

    def median(self) -> float:
        """The median, +inf when it is not reached.

        Where S is flat at exactly 1/2 the midpoint of the flat stretch is taken (so uncensored
        data give the ordinary median); a stretch that no later event ends is not reached.
        """
        low = self._first(lambda s: s <= 0.5 + HALF_TOLERANCE)
        high = self._first(lambda s: s < 0.5 - HALF_TOLERANCE)
        return 0.5 * (low + high)

    def median_interval(self, level: float = 0.95) -> MedianInterval:
        """The median with the interval of Brookmeyer & Crowley (1982), log-log transform.

        It holds the times t at which S(t) = 1/2 is not rejected, with Greenwood's variance on
        the scale log(−log S), as R's survfit(conf.type = "log-log").
        """
        z = float(ndtri(0.5 + level / 2))
        low = high = math.inf
        for t, s, g in zip(self.at, self.survival, self.greenwood, strict=True):
            half = 0.0 if s <= 0 else z * math.sqrt(g) / abs(math.log(s))
            lower = s ** math.exp(half) if s > 0 else 0.0
            upper = s ** math.exp(-half) if s > 0 else 0.0
            low = min(low, t) if lower <= 0.5 + HALF_TOLERANCE else low
            high = min(high, t) if upper <= 0.5 + HALF_TOLERANCE else high
        return MedianInterval(self.median(), low, high, level)

    def restricted_mean(self, horizon: float) -> float:
        """∫₀^horizon S(t) dt, in the units of time.

        For information beside a median: it depends on the horizon, so it never decides a
        crossing. Beyond the last observation S is carried on at its last value (Gill's tail),
        so a censored run is worth at least what it was worth as an event.
        """
        area, since, s = 0.0, 0.0, 1.0
        for t, after in zip(self.at, self.survival, strict=True):
            if t >= horizon:
                break
            area, since, s = area + s * (t - since), t, after
        return area + s * (horizon - since)

    def _first(self, holds: Callable[[float], bool]) -> float:
        """The first event time after which S satisfies a condition, +inf if none."""
        found = (t for t, s in zip(self.at, self.survival, strict=True) if holds(s))
        return next(found, math.inf)


def _median_table(
    time: FloatArray, event: BoolArray, weights: CountArray
) -> tuple[FloatArray, IndexArray]:
    """All medians that can occur and which one each resample has.

    A median is the midpoint of two events (usually the same one), so the table has one entry
    per pair, with +inf after the last event, and NaN at the end for an empty draw.
    """
    order = risk_order(time, event)
    event_times = np.append(time[order][event[order]], np.inf)
    drawn = weights[order]
    n_events = len(event_times) - 1
    # Twice the draws and every pair of events must fit the type; bytes make this fast.
    largest = max(2 * len(drawn) * int(drawn.max(initial=0)), (n_events + 1) ** 2)
    total = np.add.reduce(drawn, axis=0, dtype=np.min_scalar_type(largest))
    if np.all(event[order][:n_events]):
        low, high = _middle_by_counting(drawn[:n_events], total)
    else:
        low, high = _middle_by_product(event[order], drawn, total)
    pick = low
    pick *= n_events + 1
    pick += high
    if not np.all(total):
        pick[total == 0] = (n_events + 1) ** 2
    midpoints = 0.5 * (event_times[:, None] + event_times[None, :])
    return np.append(midpoints.ravel(), np.nan), pick


def _middle_by_counting(drawn: CountArray, total: IndexArray) -> tuple[IndexArray, IndexArray]:
    """Where no run is censored before an event S = 1 − ECDF, and counting finds the middle.

    Returns for each resample the index of the first event with S ≤ 1/2 and of the first with
    S < 1/2; the number of events where there is none.
    """
    twice_seen, low, high = (np.zeros_like(total) for _ in range(3))
    before = np.empty(total.shape, dtype=np.bool_)
    as_count = before.view(np.uint8)  # adding the bytes of a comparison spares a cast
    for row in drawn:
        twice_seen += row
        twice_seen += row
        np.less(twice_seen, total, out=before)
        low += as_count
        np.less_equal(twice_seen, total, out=before)
        high += as_count
    return low, high


def _middle_by_product(
    event: BoolArray, drawn: CountArray, total: IndexArray
) -> tuple[IndexArray, IndexArray]:
    """The same indices by the product-limit formula, when censorings precede events.

    Treating tied events one after the other gives the same product as treating them at once.
    """
    at_risk = total.astype(np.float64)
    survival = np.ones(total.shape)
    low, high = np.zeros_like(total), np.zeros_like(total)
    for is_event, row in zip(event, drawn, strict=True):
        if is_event:
            survival *= 1.0 - row / np.maximum(at_risk, 1.0)
            low += (survival > 0.5 + HALF_TOLERANCE).view(np.uint8)
            high += (survival >= 0.5 - HALF_TOLERANCE).view(np.uint8)
        at_risk -= row
    return low, high


@dataclass(frozen=True, eq=False)
class SpeedCurve:
    """Parallel arrays over widths, ascending in P; `centre` is +inf where not reached."""

    width: IntArray
    params: FloatArray
    centre: FloatArray


def mean_over_reached(runs: FirstPassages) -> SpeedCurve:
    """The paper's centre: the mean over seeds that reached the threshold; other widths vanish.

    Dropping the seeds that never reached it is survivorship bias: kept to reproduce.
    """
    width, params, centre = [], [], []
    for w in np.unique(runs.width):
        here = (runs.width == w) & ~np.isnan(runs.epoch)
        if np.any(here):
            width.append(w)
            params.append(runs.params[here][0])
            centre.append(runs.epoch[here].mean())
    order = np.argsort(np.array(params), kind="stable") if params else np.array([], dtype=np.int64)
    return SpeedCurve(
        np.array(width, dtype=np.int64)[order],
        np.array(params, dtype=np.float64)[order],
        np.array(centre, dtype=np.float64)[order],
    )


def kaplan_meier_curve(runs: FirstPassages) -> SpeedCurve:
    """The robust centre: the Kaplan–Meier median over seeds at each width."""
    width, params, members = _by_width(runs)
    time, event = censoring_times(runs), ~np.isnan(runs.epoch)
    centre = [KaplanMeier.of(time[m], event[m]).median() for m in members]
    return SpeedCurve(width, params, np.array(centre, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class ResampledMedians:
    """Kaplan–Meier medians of every width when seeds are drawn as blocks.

    A width has few medians that can occur, so B resamples keep which of them is theirs, and rates
    are made for some resamples at a time: ten thousand at once are larger than a cache, and memory
    that is asked for and given back again and again costs more than the arithmetic.
    """

    params: FloatArray  # (widths,)
    medians: FloatArray  # that can occur, width after width
    pick: IndexArray  # (widths, B): where each resample's stands among them

    @classmethod
    def of(cls, runs: FirstPassages, seeds: IntArray, weights: CountArray) -> ResampledMedians:
        """`weights` is (seeds, B), row i counting the draws of `seeds[i]`, sorted.

        A width uses the drawn seeds it has; where it has none of them it uses all its own, as the
        estimate does, so that no resample loses a width.
        """
        time, event = censoring_times(runs), ~np.isnan(runs.epoch)
        a_block = np.isin(runs.seed, seeds)
        row = np.searchsorted(seeds, runs.seed)
        _, params, members = _by_width(runs)
        most = sum((len(m) + 1) ** 2 + 1 for m in members)
        pick = np.empty((len(members), weights.shape[1]), dtype=np.min_scalar_type(most))
        tables, before = [np.empty(0)], 0
        for k, m in enumerate(members):
            drawn = m[a_block[m]]
            medians, own = _median_table(time[drawn], event[drawn], weights[row[drawn]])
            if len(drawn) < len(seeds):  # only then can a resample have drawn none of them
                medians[-1] = KaplanMeier.of(time[m], event[m]).median()
            np.add(own, before, out=pick[k], dtype=pick.dtype)
            tables.append(medians)
            before += len(medians)
        return cls(params, np.concatenate(tables), pick)

    def rates(self, power: float = 1.0) -> Callable[[slice], FloatArray]:
        """(1 / median)^power of the resamples that are asked for, (widths, resamples)."""
        occurring = (1 / self.medians) ** power
        return lambda resamples: np.take(occurring, self.pick[:, resamples])


def rate_bounds(runs: FirstPassages) -> tuple[FloatArray, FloatArray]:
    """P of every width and the least and largest 1 / median of any draw of its runs, (widths, 2).

    The least is 0 where a run is censored: then there may be draws without a median.
    """
    time, event = censoring_times(runs), ~np.isnan(runs.epoch)
    _, params, members = _by_width(runs)
    bounds = np.zeros((len(members), 2))
    for k, m in enumerate(members):
        reached = time[m][event[m]]
        if len(reached) == len(m):
            bounds[k, 0] = 1 / reached.max()
        if len(reached):
            bounds[k, 1] = 1 / reached.min()
    return params, bounds


def horizons(runs: FirstPassages) -> FloatArray:
    """How long each width was watched, ascending in P: an unreached median lies beyond it."""
    time = censoring_times(runs)
    return np.array([time[m].max() for m in _by_width(runs)[2]], dtype=np.float64)


def _by_width(runs: FirstPassages) -> tuple[IntArray, FloatArray, list[IntArray]]:
    """Widths and P ascending in P, and the positions of each width's runs."""
    if len(runs) == 0:
        return np.empty(0, dtype=np.int64), np.empty(0), []
    order = np.argsort(runs.params, kind="stable")
    starts = np.flatnonzero(np.diff(runs.params[order])) + 1
    members = np.split(order, starts)
    first = np.array([m[0] for m in members])
    return runs.width[first], runs.params[first], members


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """A speed at one width; `value` is None where the median (or every seed) is unreached."""

    width: int
    params: int
    value: Annotated[float | None, Field(description="centre over seeds; null: not reached")]
    seeds: int
    reached: int
    censored: int
    diverged: int
    missing: int


@dataclass(frozen=True, kw_only=True)
class SpeedCurves:
    """Both curves whose crossing was sought."""

    t_mem: tuple[CurvePoint, ...]
    t_gen: tuple[CurvePoint, ...]


def curve_points(curve: SpeedCurve, runs: FirstPassages) -> tuple[CurvePoint, ...]:
    """The centre of every width that has finished runs, ascending in P."""
    centre = {int(w): float(c) for w, c in zip(curve.width, curve.centre, strict=True)}
    return tuple(
        CurvePoint(
            width=width,
            params=params,
            value=finite(centre.get(width)),
            **_counts(runs, here, width),
        )
        for width, params, here in _widths(runs)
    )


def _widths(runs: FirstPassages) -> Iterator[tuple[int, int, IntArray]]:
    """Width, P and the positions of its runs by seed, ascending in P."""
    widths, params, members = _by_width(runs)
    for width, p, here in zip(widths, params, members, strict=True):
        yield int(width), int(p), here[np.argsort(runs.seed[here], kind="stable")]


def _counts(runs: FirstPassages, here: IntArray, width: int) -> dict[str, int]:
    """What became of the runs of one width."""
    open_ended, diverged = np.isnan(runs.epoch[here]), runs.diverged[here]
    return {
        "seeds": len(here),
        "reached": int(np.count_nonzero(~open_ended)),
        "censored": int(np.count_nonzero(open_ended & ~diverged)),
        "diverged": int(np.count_nonzero(open_ended & diverged)),
        "missing": int(runs.missing.get(width, 0)),
    }


@dataclass(frozen=True, kw_only=True)
class SeedSpeed:
    """One run's first passage; `value` None: it stopped at `last` without reaching."""

    run: int
    seed: int
    value: float | None
    last: float
    diverged: bool


@dataclass(frozen=True, kw_only=True)
class SpeedPoint:
    """One width: the seeds' first passages and their centres, in the units asked for."""

    width: int
    params: int
    fraction: Annotated[float, Field(description="f = K_mem / (C_model P)")]
    median: Annotated[float | None, Field(description="Kaplan–Meier; null: not reached")]
    low: Annotated[float | None, Field(description="Brookmeyer–Crowley; null: not reached")]
    high: float | None
    mean_reached: Annotated[
        float | None, Field(description="the paper's centre: seeds that reached it only")
    ]
    restricted_mean: Annotated[
        float | None, Field(description="for information; depends on `horizon`")
    ]
    horizon: float
    seeds: int
    reached: int
    censored: int
    diverged: int
    missing: int
    values: tuple[SeedSpeed, ...]


def common_horizon(runs: FirstPassages) -> float:
    """The latest time at which every run was still watched or had reached the threshold."""
    watched = runs.last_epoch[np.isnan(runs.epoch) & ~runs.diverged]
    if len(watched):
        return float(watched.min())
    return float(np.nanmax(np.append(runs.epoch, 1.0)))


def speeds(
    runs: FirstPassages,
    *,
    p_mem: float,
    units: Units = "epochs",
    level: float = 0.95,
    horizon: float | None = None,
) -> tuple[SpeedPoint, ...]:
    """Summaries of first passages at every width, ascending in P."""
    if units == "steps":
        runs = runs.in_steps()
    limit = common_horizon(runs) if horizon is None else horizon
    time, event = censoring_times(runs), ~np.isnan(runs.epoch)
    seeds = _seed_speeds(runs)
    points = []
    for width, params, here in _widths(runs):
        reached = runs.epoch[here][event[here]]
        curve = KaplanMeier.of(time[here], event[here])
        middle = curve.median_interval(level)
        points.append(
            SpeedPoint(
                width=width,
                params=params,
                fraction=p_mem / params,
                median=finite(middle.estimate),
                low=finite(middle.low),
                high=finite(middle.high),
                mean_reached=float(reached.mean()) if len(reached) else None,
                restricted_mean=finite(curve.restricted_mean(limit)),
                horizon=limit,
                **_counts(runs, here, width),
                values=tuple(seeds[i] for i in here.tolist()),
            )
        )
    return tuple(points)


def _seed_speeds(runs: FirstPassages) -> list[SeedSpeed]:
    """Of every run; whole columns become plain numbers at once."""
    columns = (runs.run, runs.seed, runs.epoch, runs.last_epoch, runs.diverged)
    return [
        SeedSpeed(
            run=int(run),
            seed=int(seed),
            value=finite(epoch),
            last=float(last),
            diverged=bool(diverged),
        )
        for run, seed, epoch, last, diverged in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]
