"""Kaplan–Meier summaries of first passages with right-censoring, alone and resampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from service.analysis.inputs import BoolArray, FirstPassages, FloatArray, IntArray

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


def kaplan_meier(time: FloatArray, event: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Event times and the survival S just after each: S(t) = Π (1 − d_i / r_i).

    Kaplan & Meier (1958), J. Am. Stat. Assoc. 53, 457.
    """
    at = np.unique(time[event])
    at_risk = np.array([np.sum(time >= t) for t in at], dtype=np.float64)
    deaths = np.array([np.sum((time == t) & event) for t in at], dtype=np.float64)
    return at, np.asarray(np.cumprod(1.0 - deaths / at_risk), dtype=np.float64)


def median_survival(time: FloatArray, event: BoolArray) -> float:
    """Kaplan–Meier median, +inf when it is not reached.

    Where S is flat at exactly 1/2 the midpoint of the flat stretch is taken (so uncensored
    data give the ordinary median); a stretch that no later event ends is not reached.
    """
    once = np.ones((len(time), 1), dtype=np.uint8)
    return float(median_under_weights(time, event, once)[0])


def median_under_weights(time: FloatArray, event: BoolArray, weights: CountArray) -> FloatArray:
    """Kaplan–Meier medians of one width under many weightings of its runs.

    `weights` is (runs, B): how often each run was drawn in each resample. Returns (B,), +inf
    where the median is not reached, NaN where nothing was drawn.
    """
    values, pick = _median_table(time, event, weights)
    return np.asarray(values[pick], dtype=np.float64)


def log_median_under_weights(time: FloatArray, event: BoolArray, weights: CountArray) -> FloatArray:
    """Natural logarithms of the same medians, taken before they are spread over resamples."""
    values, pick = _median_table(time, event, weights)
    return np.asarray(np.log(values)[pick], dtype=np.float64)


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
    total = np.add.reduce(drawn, axis=0, dtype=np.int32)
    # Twice the draws and every pair of events must fit the type; bytes make this fast.
    largest = max(2 * int(total.max(initial=0)), (n_events + 1) ** 2)
    total = total.astype(np.min_scalar_type(largest))
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


def restricted_mean(time: FloatArray, event: BoolArray, horizon: float) -> float:
    """Restricted mean ∫₀^horizon S(t) dt, in the units of `time`.

    For information beside a median: it depends on the horizon, so it never decides a crossing.
    Beyond the last observation S is carried on at its last value (Gill's tail), so a censored
    run is worth at least what it was worth as an event.
    """
    at, survival = kaplan_meier(time, event)
    inside = at < horizon
    edges = np.concatenate([[0.0], at[inside], [horizon]])
    heights = np.concatenate([[1.0], survival[inside]])
    return float(np.sum(np.diff(edges) * heights))


@dataclass(frozen=True)
class MedianInterval:
    """A Kaplan–Meier median with its Brookmeyer–Crowley interval; +inf = not reached."""

    estimate: float
    low: float
    high: float
    level: float


def median_interval(time: FloatArray, event: BoolArray, level: float = 0.95) -> MedianInterval:
    """Kaplan–Meier median with the interval of Brookmeyer & Crowley (1982), log-log transform.

    The interval holds the times t at which S(t) = 1/2 is not rejected, with Greenwood's
    variance on the scale log(−log S), as R's survfit(conf.type = "log-log").
    """
    estimate = median_survival(time, event)
    at, survival = kaplan_meier(time, event)
    if len(at) == 0:
        return MedianInterval(estimate, np.inf, np.inf, level)
    at_risk = np.array([np.sum(time >= t) for t in at], dtype=np.float64)
    deaths = np.array([np.sum((time == t) & event) for t in at], dtype=np.float64)
    z = float(stats.norm.ppf(0.5 + level / 2))
    with np.errstate(divide="ignore", invalid="ignore"):
        greenwood = np.cumsum(deaths / (at_risk * (at_risk - deaths)))
        loglog = np.log(-np.log(survival))
        half = z * np.sqrt(greenwood) / np.abs(np.log(survival))
        lower_band = np.exp(-np.exp(loglog + half))
        upper_band = np.exp(-np.exp(loglog - half))
    lower_band = np.where(survival <= 0, 0.0, lower_band)
    upper_band = np.where(survival <= 0, 0.0, upper_band)
    low = _first_below_half(at, lower_band)
    high = _first_below_half(at, upper_band)
    return MedianInterval(estimate, low, high, level)


def _first_below_half(at: FloatArray, band: FloatArray) -> float:
    below = np.flatnonzero(band <= 0.5 + HALF_TOLERANCE)
    return float(at[below[0]]) if len(below) else float(np.inf)
