"""ΔE: how long generalisation comes after fitting the training set, the regime of every P, and
P_onset, the parameter count from which generalisation is delayed, i.e. grokking.

The robust onset is the midpoint of a Firth-penalised logit. Firth (1993), Biometrika 80, 27: the
log-likelihood plus ½ log |I(β)|, finite even when the data are separated. Heinze & Schemper
(2002), Stat. Med. 21, 2409: profile intervals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from scipy import optimize
from scipy.special import expit, log_expit, ndtri

from groktime.service.analysis import Method, check_method
from groktime.service.analysis.inputs import (
    ROUNDING,
    BoolArray,
    FloatArray,
    GrokRuns,
    IntArray,
    finite,
)
from groktime.service.analysis.located import located_onset_limits

Regime = Literal["under_capacity", "memorised_only", "immediate", "grokking", "mixed"]


@dataclass(frozen=True, eq=False)
class Delays:
    """Per-run delays ΔE = max(0, E_val − E_train), epochs; one entry per run with a delay.

    A censored delay is a lower bound: validation had not reached its threshold when the run
    stopped. `delayed`: it is at least the minimum that the runs are asked for. Runs that never
    reached the training threshold have no delay and are counted in
    `n_untrained`; runs stopped before the minimum delay after they fitted training, in
    `n_undetermined`.
    """

    method: Method
    width: IntArray
    params: FloatArray
    seed: IntArray
    run: IntArray  # ids
    e_train: FloatArray
    e_val: FloatArray  # NaN: not reached
    delay: FloatArray
    delayed: BoolArray
    censored: BoolArray
    n_untrained: int
    n_undetermined: int

    def counted(self) -> FloatArray:
        """The delays with those below the minimum as 0."""
        return np.where(self.delayed, self.delay, 0.0)


@dataclass(frozen=True, kw_only=True)
class OnsetPoint:
    """Delays at one width: how many seeds have one, and how many of these are positive."""

    width: int
    params: int
    minimum: Annotated[float, Field(description="least delay over seeds, epochs")]
    positive: int
    seeds: int


@dataclass(frozen=True)
class WidthRegime:
    """The regime of one width by majority of its seeds, and how many seeds are in each.

    A diverged run counts as one that never got further.
    """

    width: int
    params: int
    regime: Annotated[Regime, Field(description="mixed: no regime has most seeds")]
    under_capacity: int
    memorised_only: int
    immediate: int
    grokking: int


def delays(runs: GrokRuns, *, method: str = "robust") -> Delays:
    """ΔE of every run that reached the training threshold.

    paper: a run whose validation never got there counts as last epoch − E_train + 1 exactly.
    robust: the same number as a lower bound, marked censored, and only when the run went on
    long enough to be delayed.
    """
    chosen = check_method(method)
    trained = ~np.isnan(runs.e_train)
    open_ended = trained & np.isnan(runs.e_val)
    least = runs.min_delay.after(runs.e_train) * (1 - ROUNDING)
    undetermined = open_ended & (runs.last_epoch + 1 - runs.e_train < np.maximum(least, 1.5))
    if chosen == "paper":
        undetermined = np.zeros_like(undetermined)
    kept = trained & ~undetermined
    e_val = np.where(np.isnan(runs.e_val), runs.last_epoch + 1, runs.e_val)
    delay = np.maximum(0.0, e_val[kept] - runs.e_train[kept])
    return Delays(
        method=chosen,
        width=runs.width[kept],
        params=runs.params[kept],
        seed=runs.seed[kept],
        run=runs.run[kept],
        e_train=runs.e_train[kept],
        e_val=runs.e_val[kept],
        delay=delay,
        delayed=delay >= least[kept],
        censored=open_ended[kept] & (chosen == "robust"),
        n_untrained=int(np.sum(~trained)),
        n_undetermined=int(np.sum(undetermined)),
    )


def delay_curve(width: IntArray, params: FloatArray, delay: FloatArray) -> tuple[OnsetPoint, ...]:
    """Minimum of ΔE over the seeds of each P, ascending (a lower bound counts as its bound)."""
    points = []
    for size in np.unique(params):
        here = params == size
        points.append(
            OnsetPoint(
                width=int(width[here][0]),
                params=int(size),
                minimum=float(delay[here].min()),
                positive=int(np.sum(delay[here] > 0)),
                seeds=int(here.sum()),
            )
        )
    return tuple(points)


def run_regimes(runs: GrokRuns) -> list[Regime]:
    """The regime of every single run.

    under-capacity: training never fitted; memorised only: fitted, validation never followed;
    immediate: ΔE below the minimum delay; grokking: at least that.
    """
    labels: list[Regime] = []
    least = runs.min_delay.after(runs.e_train) * (1 - ROUNDING)
    for e_train, e_val, enough in zip(runs.e_train, runs.e_val, least, strict=True):
        if np.isnan(e_train):
            labels.append("under_capacity")
        elif np.isnan(e_val):
            labels.append("memorised_only")
        else:
            labels.append("grokking" if e_val - e_train >= enough else "immediate")
    return labels


def regimes(runs: GrokRuns) -> tuple[WidthRegime, ...]:
    """The regime of every P, by majority of its seeds, ascending in P."""
    labels = np.array(run_regimes(runs))
    rows = []
    for params in np.unique(runs.params):
        here = runs.params == params
        counts = Counter(str(label) for label in labels[here])
        (top, most), *rest = counts.most_common()
        tied = bool(rest) and rest[0][1] == most
        rows.append(
            WidthRegime(
                width=int(runs.width[here][0]),
                params=int(params),
                regime="mixed" if tied else top,  # type: ignore[arg-type]
                under_capacity=counts["under_capacity"],
                memorised_only=counts["memorised_only"],
                immediate=counts["immediate"],
                grokking=counts["grokking"],
            )
        )
    return tuple(rows)


REACH = 20.0  # how far beyond the data, in their ranges, an interval end is looked for
ITERATIONS = 200
TINY_STEP = 1e-10
SLOPES = 17  # tried at once
ZOOMS = 6  # each narrows the slope eightfold; the maximum is flat, so six are plenty


@dataclass(frozen=True, eq=False)
class Grouped:
    """k = `positive` of n = `total` at each x."""

    x: FloatArray
    positive: FloatArray
    total: FloatArray


@dataclass(frozen=True)
class FirthFit:
    """logit P(y = 1) = intercept + slope·x."""

    intercept: float
    slope: float

    @property
    def midpoint(self) -> float:
        """Where P(y = 1) = ½; NaN without a slope."""
        return -self.intercept / self.slope if self.slope else float("nan")


def penalised_log_likelihood(intercept: FloatArray, slope: FloatArray, data: Grouped) -> FloatArray:
    """Σ k log π + (n − k) log(1 − π) + ½ log |XᵀWX|, W = n π (1 − π), for many (β₀, β₁)."""
    eta = intercept[:, None] + slope[:, None] * data.x
    weight = data.total * expit(eta) * expit(-eta)
    s0, s1, s2 = weight.sum(1), weight @ data.x, weight @ (data.x * data.x)
    determinant = np.maximum(s0 * s2 - s1 * s1, 1e-300)
    likelihood = log_expit(eta) @ data.positive + log_expit(-eta) @ (data.total - data.positive)
    return np.asarray(likelihood + 0.5 * np.log(determinant), dtype=np.float64)


def firth_logit(x: FloatArray, positive: FloatArray, total: FloatArray) -> FirthFit:
    """Fit k of n positives at each x; at least two different x are needed."""
    centre, scale = float(np.mean(x)), float(np.ptp(x))
    intercept, slope = _maximise(Grouped((x - centre) / scale, positive, total))
    return FirthFit(
        intercept=intercept - slope * centre / scale,
        slope=slope / scale,
    )


def midpoint_interval(fit: FirthFit, data: Grouped, level: float) -> tuple[float, float]:
    """Profile-likelihood interval of the midpoint; ∓inf where the profile never rejects.

    It holds the c at which the best fit with P(y = 1 at c) = ½ loses less than ½ χ²₁(level).
    """
    centre, scale = float(np.mean(data.x)), float(np.ptp(data.x))
    scaled = Grouped((data.x - centre) / scale, data.positive, data.total)
    slope, middle = fit.slope * scale, (fit.midpoint - centre) / scale
    best = float(
        penalised_log_likelihood(np.array([-slope * middle]), np.array([slope]), scaled)[0]
    )
    drop = 0.5 * float(ndtri(0.5 + level / 2)) ** 2  # ½ χ²₁(level)

    def excess(c: float) -> float:
        return best - _profile(c, slope, scaled) - drop

    low, high = _end(excess, middle, -1.0), _end(excess, middle, 1.0)
    return centre + scale * low, centre + scale * high


def _maximise(data: Grouped) -> tuple[float, float]:
    """Fisher scoring on Firth's score Σ (k − nπ + h(½ − π)) x, halving steps that overshoot."""
    design = np.column_stack([np.ones_like(data.x), data.x])
    beta = np.zeros(2)
    best = float(penalised_log_likelihood(beta[:1], beta[1:], data)[0])
    for _ in range(ITERATIONS):
        pi = expit(design @ beta)
        weight = data.total * pi * (1 - pi)
        inverse = np.linalg.inv(design.T @ (weight[:, None] * design))
        hat = weight * np.einsum("ij,jk,ik->i", design, inverse, design)
        step = inverse @ (design.T @ (data.positive - data.total * pi + hat * (0.5 - pi)))
        while True:
            value = float(penalised_log_likelihood((beta + step)[:1], (beta + step)[1:], data)[0])
            if value >= best or float(np.abs(step).max()) < TINY_STEP:
                break
            step = step / 2
        beta, best = beta + step, max(value, best)
        if float(np.abs(step).max()) < TINY_STEP:
            break
    return float(beta[0]), float(beta[1])


def _profile(c: float, slope: float, data: Grouped) -> float:
    """Penalised log-likelihood maximised over the slope, the midpoint held at c.

    Zooming in on the best of a row of slopes: one array operation for each zoom.
    """
    low, high = -4.0 * abs(slope) - 10.0, 4.0 * abs(slope) + 10.0
    best = -np.inf
    for _ in range(ZOOMS):
        slopes = np.linspace(low, high, SLOPES)
        values = penalised_log_likelihood(-slopes * c, slopes, data)
        at = int(np.argmax(values))
        best = max(best, float(values[at]))
        low, high = slopes[max(at - 1, 0)], slopes[min(at + 1, SLOPES - 1)]
    return best


def _end(excess: Callable[[float], float], middle: float, side: float) -> float:
    """The nearest point on one side where the profile drops by the critical amount."""
    inside, step = middle, 0.05
    while step < REACH:
        outside = middle + side * step
        if excess(outside) > 0:
            return float(optimize.brentq(excess, inside, outside, xtol=1e-6))
        inside, step = outside, step * 1.6
    return side * float(np.inf)


FLAT = 1e-6  # a rise of the logit over the whole grid below this is none

OnsetStatus = Literal[
    "exact", "fitted", "separated", "reentrant", "at_floor", "above_range", "insufficient_data"
]


OnsetInterval = Literal["profile", "located"]


@dataclass(frozen=True, kw_only=True)
class OnsetEstimate:
    """P_onset; an end is None where the data do not bound it on that side."""

    estimate: Annotated[float | None, Field(description="parameters")] = None
    low: float | None = None
    high: float | None = None
    level: Annotated[float | None, Field(description="null: low and high are a bracket")] = None
    interval: Annotated[
        OnsetInterval | None,
        Field(description="located: chosen runs, with the recorded scale of P(delayed)"),
    ] = None
    rule: str
    status: OnsetStatus
    at_floor: Annotated[bool, Field(description="already grokking at the smallest P measured")] = (
        False
    )
    at_cap: Annotated[bool, Field(description="only at the largest P measured, or not there")] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class Onset:
    """P_onset of one cell with the delay curve it was read from."""

    p_onset: OnsetEstimate
    points: tuple[OnsetPoint, ...]
    seeds: int
    censored: Annotated[int, Field(description="delays that are lower bounds")]
    untrained: Annotated[int, Field(description="runs that never fitted the training set")]
    undetermined: Annotated[int, Field(description="runs stopped in the epoch they fitted it")]
    missing: int


def paper_onset(params: FloatArray, minimum: FloatArray) -> tuple[float | None, bool, bool]:
    """Smallest measured P above the largest P whose seed-minimum ΔE is 0; at_floor, at_cap."""
    if len(params) == 0:
        return None, False, False
    order = np.argsort(params, kind="stable")
    params, minimum = params[order], minimum[order]
    zeros = np.flatnonzero(minimum == 0)
    if len(zeros) == 0:
        return float(params[0]), True, len(params) == 1
    first = int(zeros[-1]) + 1
    if first == len(params):
        return None, False, True
    return float(params[first]), False, first == len(params) - 1


def onset(runs: GrokRuns, *, method: str = "robust", level: float | None = 0.95) -> Onset:
    """The onset of grokking in one cell; `level` None: without the interval, which takes longest.

    paper: the exact-zero rule on the seed minimum, which moves with the number of seeds.
    robust: P50 of P(ΔE > 0 given log P).
    """
    chosen = check_method(method)
    runs = runs.for_onset()
    per_run = delays(runs, method=chosen)
    points = delay_curve(per_run.width, per_run.params, per_run.counted())
    return Onset(
        p_onset=_by_paper(points)
        if chosen == "paper"
        else _by_logit(points, level, located=runs.located),
        points=points,
        seeds=len(np.unique(per_run.seed)),
        censored=int(per_run.censored.sum()),
        untrained=per_run.n_untrained,
        undetermined=per_run.n_undetermined,
        missing=runs.n_missing,
    )


def _by_paper(points: tuple[OnsetPoint, ...]) -> OnsetEstimate:
    estimate, at_floor, at_cap = paper_onset(
        np.array([p.params for p in points], dtype=np.float64),
        np.array([p.minimum for p in points]),
    )
    status: OnsetStatus = "exact"
    if not points:
        status = "insufficient_data"
    elif estimate is None:
        status = "above_range"
    elif at_floor:
        status = "at_floor"
    return OnsetEstimate(
        estimate=estimate,
        rule="smallest P above the largest P with seed-minimum delay 0",
        status=status,
        at_floor=at_floor,
        at_cap=at_cap,
    )


def _by_logit(
    points: tuple[OnsetPoint, ...], level: float | None, *, located: bool
) -> OnsetEstimate:
    found = partial(OnsetEstimate, rule="P at which half of the seeds are delayed")
    if len(points) < 2:
        return found(status="insufficient_data")
    smallest, largest = float(points[0].params), float(points[-1].params)
    if all(p.positive == p.seeds for p in points):
        return found(status="at_floor", high=smallest, at_floor=True)
    if all(p.positive == 0 for p in points):
        return found(status="above_range", low=largest, at_cap=True)
    last_zero = float(max(p.params for p in points if p.positive < p.seeds))
    first_positive = float(min(p.params for p in points if p.positive))
    data = Grouped(
        np.log([float(p.params) for p in points]),
        np.array([float(p.positive) for p in points]),
        np.array([float(p.seeds) for p in points]),
    )
    if last_zero < first_positive:
        between = found(
            estimate=float(np.sqrt(last_zero * first_positive)),
            low=last_zero,
            high=first_positive,
            status="separated",
            at_cap=first_positive == largest,
        )
        return between if level is None or not located else _located(between, data, level)
    fit = firth_logit(data.x, data.positive, data.total)
    reentrant = _reentrant(points)
    below = fit.midpoint < data.x[0] - ROUNDING
    above = fit.midpoint > data.x[-1] + ROUNDING
    if fit.slope * np.ptp(data.x) < FLAT or (reentrant and (below or above)):
        return found(status="reentrant")
    if below:
        return found(status="at_floor", high=smallest, at_floor=True)
    if above:
        return found(status="above_range", low=largest, at_cap=True)
    inside = found(
        estimate=float(np.exp(fit.midpoint)), status="reentrant" if reentrant else "fitted"
    )
    if level is None:
        return inside
    if located:
        return _located(inside, data, level)
    low, high = midpoint_interval(fit, data, level)
    return replace(
        inside,
        low=finite(np.exp(low)) or None,  # exp(−∞): open
        high=finite(np.exp(high)),
        level=level,
        interval="profile",
    )


def _located(found: OnsetEstimate, data: Grouped, level: float) -> OnsetEstimate:
    """The same estimate with the interval of chosen runs, which are few and close together."""
    low, high = located_onset_limits(data.x, data.positive, data.total, level)
    return replace(
        found, low=float(np.exp(low)), high=float(np.exp(high)), level=level, interval="located"
    )


def _reentrant(points: tuple[OnsetPoint, ...]) -> bool:
    """Some P has no delayed seed although at a smaller one all are."""
    none = [p.params for p in points if p.positive == 0]
    every = [p.params for p in points if p.positive == p.seeds]
    return bool(none and every) and max(none) > min(every)
