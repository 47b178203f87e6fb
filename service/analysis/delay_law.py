"""How long is the delay? The law of the weight norm beside the crossing, on primes left out.

The norm law: once the training set is fitted, weight decay shrinks the squared norm V of the
weights as e^(−2κηλt) in optimiser steps t, and the network generalises when V reaches V*. So the
delay is ln(V_mem/V*)/(2κηλ), with V_mem the squared norm at E_train (arXiv 2605.18845). κ and V*
are calibrated on some primes; other primes are predicted.

Every law here says delay = max(0, α + β·x) with its own x. A run without delay tells only that
α + β·x is at most about zero, so α and β are the maximum-likelihood estimates of a Tobit model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import numpy as np
from pydantic import Field
from scipy import optimize, stats

from groktime.service.analysis.inputs import BoolArray, FloatArray, IntArray
from groktime.service.analysis.ties import constant
from groktime.service.errors import AnalysisError

Predictor = Literal["constant", "size", "crossing", "norm", "norm_per_parameter"]
PREDICTORS: tuple[Predictor, ...] = get_args(Predictor)
LEAST_RUNS = 4  # of the primes that a law is calibrated on


@dataclass(frozen=True, eq=False)
class DelayedRuns:
    """Runs that fitted and generalised, in parallel columns; delays in optimiser steps."""

    prime: IntArray
    params: FloatArray
    p_cross: FloatArray  # of the run's cell, NaN where it has none
    squared_norm: FloatArray  # V at E_train
    rate: FloatArray  # ηλ
    delay: FloatArray  # steps from E_train to E_val, at least 0

    def __post_init__(self) -> None:
        lengths = {len(getattr(self, name)) for name in self.__dataclass_fields__}
        if len(lengths) > 1:
            raise AnalysisError(f"columns of delayed runs differ in length: {sorted(lengths)}")
        if np.any(self.delay < 0) or np.any(self.squared_norm <= 0):
            raise AnalysisError("delays are 0 or more, and squared norms above 0")

    def __len__(self) -> int:
        return len(self.prime)

    def where(self, keep: BoolArray) -> DelayedRuns:
        return DelayedRuns(**{n: getattr(self, n)[keep] for n in self.__dataclass_fields__})


@dataclass(frozen=True)
class HeldOut:
    """One law's errors on primes that it was not calibrated on, in optimiser steps.

    `rmse_by_prime` weighs primes alike; `told_apart` is the share of runs that are rightly said
    to have a delay or none.
    """

    law: Predictor
    runs: int
    primes: int
    rmse: float
    rmse_by_prime: float
    median_error: Annotated[float, Field(description="median of |predicted − measured|")]
    told_apart: float


@dataclass(frozen=True)
class NormCalibration:
    """κ and V* of all primes together; None where delays do not grow with the norm."""

    law: Predictor
    kappa: float | None
    v_star: Annotated[
        float | None, Field(description="squared norm, or per parameter, where delays end")
    ]


@dataclass(frozen=True)
class DelayLaws:
    """Every law's held-out errors, smallest first, and the norm law calibrated on all primes."""

    runs: int
    delayed: Annotated[int, Field(description="of them with a delay above 0")]
    primes: tuple[int, ...]
    held_out: tuple[HeldOut, ...]
    calibration: tuple[NormCalibration, ...]


def delay_laws(runs: DelayedRuns) -> DelayLaws | None:
    """Predict each prime's delays by laws calibrated on the others; None with too few runs.

    All laws are compared on the same runs: those whose cell has a crossing.
    """
    known = runs.where(np.isfinite(runs.p_cross))
    primes = np.unique(known.prime)
    if len(primes) < 3 or len(known) < 2 * LEAST_RUNS:
        return None
    found = [held for law in PREDICTORS if (held := _held_out(known, law, primes)) is not None]
    return DelayLaws(
        runs=len(known),
        delayed=int(np.sum(known.delay > 0)),
        primes=tuple(int(p) for p in primes),
        held_out=tuple(sorted(found, key=lambda held: held.rmse)),
        calibration=tuple(_calibration(known, law) for law in ("norm", "norm_per_parameter")),
    )


def _x(runs: DelayedRuns, law: Predictor) -> FloatArray:
    """What the delay is linear in; the norm's carries 1/(ηλ), so that β = 1/(2κ)."""
    if law == "constant":
        return np.zeros(len(runs))
    if law == "size":
        return np.log(runs.params)
    if law == "crossing":
        return np.log(runs.params / runs.p_cross)
    volume = runs.squared_norm if law == "norm" else runs.squared_norm / runs.params
    return np.asarray(np.log(volume) / runs.rate, dtype=np.float64)


def _ones(runs: DelayedRuns, law: Predictor) -> FloatArray:
    """What α multiplies: V* is one, while ηλ may differ between runs."""
    if law in ("norm", "norm_per_parameter"):
        return np.asarray(1 / runs.rate, dtype=np.float64)
    return np.ones(len(runs))


def _held_out(runs: DelayedRuns, law: Predictor, primes: IntArray) -> HeldOut | None:
    predicted = np.full(len(runs), np.nan)
    for prime in primes:
        out = runs.prime == prime
        kept = runs.where(~out)
        fit = tobit(_ones(kept, law), _x(kept, law), kept.delay)
        if fit is None:
            return None
        own = runs.where(out)
        predicted[out] = np.maximum(0, fit[0] * _ones(own, law) + fit[1] * _x(own, law))
    errors = predicted - runs.delay
    by_prime = [float(np.mean(errors[runs.prime == p] ** 2)) for p in primes]
    return HeldOut(
        law=law,
        runs=len(runs),
        primes=len(primes),
        rmse=float(np.sqrt(np.mean(errors**2))),
        rmse_by_prime=float(np.sqrt(np.mean(by_prime))),
        median_error=float(np.median(np.abs(errors))),
        told_apart=float(np.mean((predicted > 0) == (runs.delay > 0))),
    )


def _calibration(runs: DelayedRuns, law: Predictor) -> NormCalibration:
    fit = tobit(_ones(runs, law), _x(runs, law), runs.delay)
    if fit is None or fit[1] <= 0:
        return NormCalibration(law, None, None)
    return NormCalibration(law, 1 / (2 * fit[1]), float(np.exp(-fit[0] / fit[1])))


def tobit(ones: FloatArray, x: FloatArray, y: FloatArray) -> tuple[float, float] | None:
    """α and β of y = max(0, α·ones + β·x + ε) by maximum likelihood; None if they are unknown.

    In Olsen's parameters (α/σ, β/σ, 1/σ) the likelihood has one maximum. Olsen (1978),
    Econometrica 46, 1211. A constant x leaves β at 0.
    """
    above = y > 0
    if len(y) < LEAST_RUNS or above.sum() < 2:
        return None
    level = not constant(x / ones)
    # Columns of like size, so that the search is well conditioned.
    centre = float(np.mean(x / ones)) if level else 0.0
    scale = float(np.std(x / ones)) if level else 1.0
    unit = float(np.mean(ones))
    design = np.column_stack([ones, (x - centre * ones) / scale])[:, : 1 + level] / unit
    size = float(y[above].std() or y[above].mean())
    target = y / size

    def cost(given: FloatArray) -> tuple[float, FloatArray]:
        gamma, log_theta = given[:-1], given[-1]
        theta = np.exp(log_theta)
        line = design @ gamma
        z = theta * target[above] - line[above]
        low = -line[~above]
        ratio = np.exp(stats.norm.logpdf(low) - stats.norm.logcdf(low))
        value = 0.5 * np.sum(z**2) - above.sum() * log_theta - stats.norm.logcdf(low).sum()
        slope = -design[above].T @ z + design[~above].T @ ratio
        by_theta = np.sum(z * target[above]) * theta - above.sum()
        return float(value), np.append(slope, by_theta)

    start = np.append(np.linalg.lstsq(design, target, rcond=None)[0], 0.0)
    found = optimize.minimize(cost, start, jac=True, method="BFGS", options={"gtol": 1e-8})
    gamma = found.x[:-1] * size / np.exp(found.x[-1]) / unit
    if not np.all(np.isfinite(gamma)):
        return None
    beta = float(gamma[1] / scale) if level else 0.0
    return float(gamma[0]) - beta * centre, beta
