"""P_onset: the parameter count from which generalisation is delayed, i.e. grokking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from service.analysis.delay import DelayCurve, delay_curve, delays
from service.analysis.firth import Grouped, firth_logit, midpoint_interval
from service.analysis.inputs import FloatArray, GrokRuns, Method, check_method

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
    per_run = delays(runs, method=chosen)
    curve = delay_curve(per_run.params, per_run.delay, per_run.width)
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
    outside = not x[0] <= fit.midpoint <= x[-1]
    if fit.slope * np.ptp(x) < FLAT or (reentrant and outside):
        return {"status": "reentrant"}
    if fit.midpoint < x[0]:
        return {"status": "at_floor", "high": float(curve.params[0]), "at_floor": True}
    if fit.midpoint > x[-1]:
        return {"status": "above_range", "low": float(curve.params[-1]), "at_cap": True}
    low, high = midpoint_interval(fit, data, level)
    return {
        "status": "reentrant" if reentrant else "fitted",
        "params": float(np.exp(fit.midpoint)),
        "low": float(np.exp(low)),
        "high": float(np.exp(high)),
        "level": level,
    }
