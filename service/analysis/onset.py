"""P_onset: the parameter count from which generalisation is delayed, i.e. grokking.

The robust onset is the midpoint of a Firth-penalised logit. Firth (1993), Biometrika 80, 27: the
log-likelihood plus ½ log |I(β)|, finite even when the data are separated. Heinze & Schemper
(2002), Stat. Med. 21, 2409: profile intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import optimize
from scipy.special import expit, log_expit, ndtri

from groktime.service.analysis.conventions import Method, check_method
from groktime.service.analysis.delay import DelayCurve, delay_curve, delays
from groktime.service.analysis.inputs import FloatArray, GrokRuns
from groktime.service.analysis.ties import ROUNDING

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


@dataclass(frozen=True, eq=False)
class Onset:
    """P_onset of one cell.

    `bracket` is [largest P with no positive delay, smallest P with all positive], inverted in
    status `reentrant`, with NaN where there is no such P. `at_floor`: already grokking at the
    smallest measured P; `at_cap`: only at the largest, or not even there.
    """

    method: Method
    rule: str
    status: OnsetStatus
    params: float | None
    low: float | None
    high: float | None
    level: float | None
    bracket: tuple[float, float]
    at_floor: bool
    at_cap: bool
    curve: DelayCurve
    seeds: int
    n_untrained: int
    n_undetermined: int
    n_censored: int
    missing: int


def paper_onset(params: FloatArray, minimum: FloatArray) -> tuple[float | None, bool, bool]:
    """Smallest measured P above the largest P whose seed-minimum ΔE is 0; at_floor, at_cap."""
    if len(params) == 0:
        return None, False, False
    order = np.argsort(params)
    params, minimum = params[order], minimum[order]
    zeros = np.flatnonzero(minimum == 0)
    if len(zeros) == 0:
        return float(params[0]), True, len(params) == 1
    first = int(zeros[-1]) + 1
    if first == len(params):
        return None, False, True
    return float(params[first]), False, first == len(params) - 1


def onset(runs: GrokRuns, *, method: str = "robust", level: float = 0.95) -> Onset:
    """The onset of grokking in one cell.

    paper: the exact-zero rule on the seed minimum, which moves with the number of seeds.
    robust: P50 of P(ΔE > 0 given log P).
    """
    chosen = check_method(method)
    runs = runs.for_onset()
    per_run = delays(runs, method=chosen)
    curve = delay_curve(per_run.params, per_run.counted(), per_run.width)
    found = _by_paper(curve) if chosen == "paper" else _by_logit(curve, level)
    return Onset(
        method=chosen,
        curve=curve,
        seeds=len(np.unique(per_run.seed)),
        n_untrained=per_run.n_untrained,
        n_undetermined=per_run.n_undetermined,
        n_censored=int(per_run.censored.sum()),
        missing=runs.n_missing,
        **found,
    )


def _bracket(curve: DelayCurve) -> tuple[float, float]:
    none = curve.params[curve.positive == 0]
    every = curve.params[curve.positive == curve.seeds]
    return (
        float(none.max()) if len(none) else float("nan"),
        float(every.min()) if len(every) else float("nan"),
    )


def _by_paper(curve: DelayCurve) -> dict[str, Any]:
    params, at_floor, at_cap = paper_onset(curve.params, curve.minimum)
    status: OnsetStatus = "exact"
    if len(curve.params) == 0:
        status = "insufficient_data"
    elif params is None:
        status = "above_range"
    elif at_floor:
        status = "at_floor"
    return {
        "rule": "smallest P above the largest P with seed-minimum delay 0",
        "status": status,
        "params": params,
        "low": None,
        "high": None,
        "level": None,
        "bracket": _bracket(curve),
        "at_floor": at_floor,
        "at_cap": at_cap,
    }


def _by_logit(curve: DelayCurve, level: float) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "rule": "P at which half of the seeds are delayed",
        "params": None,
        "low": None,
        "high": None,
        "level": None,
        "bracket": _bracket(curve),
        "at_floor": False,
        "at_cap": False,
    }
    if len(curve.params) < 2:
        return answer | {"status": "insufficient_data"}
    if np.all(curve.positive == curve.seeds):
        return answer | {"status": "at_floor", "high": float(curve.params[0]), "at_floor": True}
    if np.all(curve.positive == 0):
        return answer | {"status": "above_range", "low": float(curve.params[-1]), "at_cap": True}
    last_zero = float(curve.params[curve.positive < curve.seeds].max())
    first_positive = float(curve.params[curve.positive > 0].min())
    if last_zero < first_positive:
        return answer | {
            "status": "separated",
            "params": float(np.sqrt(last_zero * first_positive)),
            "low": last_zero,
            "high": first_positive,
            "at_cap": bool(first_positive == curve.params[-1]),
        }
    return answer | _from_fit(curve, level)


def _from_fit(curve: DelayCurve, level: float) -> dict[str, Any]:
    x = np.log(curve.params)
    data = Grouped(x, curve.positive.astype(np.float64), curve.seeds.astype(np.float64))
    fit = firth_logit(data.x, data.positive, data.total)
    none_below, all_above = _bracket(curve)
    reentrant = none_below > all_above
    below, above = fit.midpoint < x[0] - ROUNDING, fit.midpoint > x[-1] + ROUNDING
    if fit.slope * np.ptp(x) < FLAT or (reentrant and (below or above)):
        return {"status": "reentrant"}
    if below:
        return {"status": "at_floor", "high": float(curve.params[0]), "at_floor": True}
    if above:
        return {"status": "above_range", "low": float(curve.params[-1]), "at_cap": True}
    low, high = midpoint_interval(fit, data, level)
    return {
        "status": "reentrant" if reentrant else "fitted",
        "params": float(np.exp(fit.midpoint)),
        "low": float(np.exp(low)),
        "high": float(np.exp(high)),
        "level": level,
    }
