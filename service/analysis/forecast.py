"""Forecast P_cross and P_onset of primes from the speed laws of others, and score the forecasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from scipy import optimize, stats

from groktime.service.analysis.inputs import FloatArray, constant
from groktime.service.analysis.laws import (
    GENERALISATION_WINDOW,
    MEMORISATION_WINDOW,
    GeneralisationLaw,
    LawFit,
    LawPoints,
    Window,
    fit_law,
    generalisation_law,
    law_points,
)
from groktime.service.analysis.survival import SpeedCurve
from groktime.service.errors import AnalysisError

SEARCH_DECADES = 4.0  # around P_mem, where the two laws are asked to cross
MIN_PRIMES = 2


@dataclass(frozen=True, eq=False)
class PrimeEvidence:
    """What is measured of one prime: both speed curves' points and, if known, the two P."""

    prime: int
    k_mem: float
    t_mem: LawPoints
    t_gen: LawPoints
    p_cross: float | None
    p_onset: float | None


def prime_evidence(
    prime: int,
    k_mem: float,
    c_model: float,
    t_mem: SpeedCurve,
    t_gen: SpeedCurve,
    p_cross: float | None,
    p_onset: float | None,
) -> PrimeEvidence:
    """The evidence of one prime from its two speed curves and, where known, its two P."""
    bits = {prime: k_mem}
    return PrimeEvidence(
        prime,
        k_mem,
        law_points({prime: t_mem}, bits, c_model),
        law_points({prime: t_gen}, bits, c_model),
        p_cross,
        p_onset,
    )


@dataclass(frozen=True)
class Predicted:
    """A forecast quantity with its prediction interval, parameters."""

    estimate: float
    low: float
    high: float
    level: float


@dataclass(frozen=True)
class PrimeForecast:
    """Forecast of one prime; None where the laws do not cross or no calibration exists.

    `baseline_cross` and `baseline_onset` are what the fitted primes' values say when regressed
    on log p alone: a forecast by the laws is worth something only if it beats them.
    """

    prime: int
    law_crossing: float | None
    p_cross: Predicted | None
    p_onset: Predicted | None
    baseline_cross: float | None
    baseline_onset: float | None


@dataclass(frozen=True, eq=False)
class Forecast:
    """Laws fitted on some primes and what they say of others."""

    fitted_primes: tuple[int, ...]
    c_model: float
    memorisation: LawFit
    generalisation: GeneralisationLaw
    memorisation_window: Window | None
    generalisation_window: Window | None
    level: float
    predictions: tuple[PrimeForecast, ...]


def law_crossing(
    memorisation: LawFit,
    generalisation: GeneralisationLaw,
    prime: int,
    k_mem: float,
    c_model: float,
) -> float | None:
    """The largest P at which b·e^{a K/(C P)} = A·p^c·P^{−β}, within four decades of P_mem.

    The memorisation law falls through the generalisation law from above there; None when the
    laws do not meet.
    """
    centre = np.log(k_mem / c_model)
    reach = SEARCH_DECADES * np.log(10)
    log_p = np.linspace(centre - reach, centre + reach, 801)

    def difference(log_params: FloatArray) -> FloatArray:
        params = np.exp(log_params)
        f = k_mem / (c_model * params)
        gen = np.log(generalisation.time(prime, params))
        return np.asarray(np.log(memorisation.b) + memorisation.a * f - gen, dtype=np.float64)

    values = difference(log_p)
    falls = np.flatnonzero((values[:-1] > 0) & (values[1:] <= 0))
    if len(falls) == 0:
        return None
    k = falls[-1]
    root = optimize.brentq(
        lambda z: float(difference(np.array([z]))[0]), log_p[k], log_p[k + 1], xtol=1e-12
    )
    return float(np.exp(root))


def forecast(
    evidence: Sequence[PrimeEvidence],
    predict: Mapping[int, float],
    c_model: float,
    *,
    memorisation_window: Window | None = MEMORISATION_WINDOW,
    generalisation_window: Window | None = GENERALISATION_WINDOW,
    level: float = 0.95,
) -> Forecast:
    """Fit T_mem = b·e^{af} and T_gen = A·p^c·P^{−β} on `evidence`, predict other primes.

    `predict` maps a prime to its K_mem (bits). The law's crossing is shifted by its mean
    leave-one-prime-out error on the fitted primes, and the interval is the t prediction
    interval of those errors: it contains both the fit's and the laws' own error.
    """
    primes = tuple(e.prime for e in evidence)
    named = len(set(primes))
    if named < MIN_PRIMES:
        raise AnalysisError(
            f"fit: {named} named; at least {MIN_PRIMES} are needed, three for intervals"
        )
    overlap = sorted(set(primes) & set(predict))
    if overlap:
        raise AnalysisError(f"predict: {overlap[0]} is also fitted; only other primes are accepted")
    windows = memorisation_window, generalisation_window
    laws = _laws(evidence, windows)
    if laws is None:
        raise AnalysisError(
            f"fit: too few reached widths inside f in {memorisation_window} for T_mem "
            f"or {generalisation_window} for T_gen"
        )
    errors = _leave_one_out_errors(evidence, c_model, windows)
    predictions = []
    for prime, k_mem in predict.items():
        point = law_crossing(*laws, prime, k_mem, c_model)
        predictions.append(
            PrimeForecast(
                prime=prime,
                law_crossing=point,
                p_cross=_shifted(point, errors["p_cross"], level),
                p_onset=_shifted(point, errors["p_onset"], level),
                baseline_cross=_baseline(evidence, "p_cross", prime),
                baseline_onset=_baseline(evidence, "p_onset", prime),
            )
        )
    return Forecast(primes, c_model, *laws, *windows, level, tuple(predictions))


def _laws(
    evidence: Sequence[PrimeEvidence], windows: tuple[Window | None, Window | None]
) -> tuple[LawFit, GeneralisationLaw] | None:
    mem = _joined([e.t_mem for e in evidence]).inside(windows[0])
    gen = _joined([e.t_gen for e in evidence])
    memorisation = fit_law(mem, "exponential")
    generalisation = generalisation_law(gen, windows[1])
    if memorisation is None or generalisation is None:
        return None
    return memorisation, generalisation


def _joined(points: Sequence[LawPoints]) -> LawPoints:
    return LawPoints(
        np.concatenate([p.prime for p in points]),
        np.concatenate([p.params for p in points]),
        np.concatenate([p.fraction for p in points]),
        np.concatenate([p.time for p in points]),
    )


def _leave_one_out_errors(
    evidence: Sequence[PrimeEvidence],
    c_model: float,
    windows: tuple[Window | None, Window | None],
) -> dict[str, FloatArray]:
    """log10(observed / law) of each fitted prime, the laws fitted on the others."""
    errors: dict[str, list[float]] = {"p_cross": [], "p_onset": []}
    for i, own in enumerate(evidence):
        laws = _laws([e for j, e in enumerate(evidence) if j != i], windows)
        point = None if laws is None else law_crossing(*laws, own.prime, own.k_mem, c_model)
        for quantity, observed in (("p_cross", own.p_cross), ("p_onset", own.p_onset)):
            if point is not None and observed is not None:
                errors[quantity].append(float(np.log10(observed / point)))
    return {q: np.array(e) for q, e in errors.items()}


def _shifted(point: float | None, errors: FloatArray, level: float) -> Predicted | None:
    count = len(errors)
    if point is None or count < 2:
        return None
    centre = np.log10(point) + float(errors.mean())
    half = float(stats.t.ppf(0.5 + level / 2, count - 1)) * float(errors.std(ddof=1))
    half *= float(np.sqrt(1 + 1 / count))
    return Predicted(
        float(10**centre), float(10 ** (centre - half)), float(10 ** (centre + half)), level
    )


def _baseline(evidence: Sequence[PrimeEvidence], quantity: str, prime: int) -> float | None:
    known = [(e.prime, v) for e in evidence if (v := getattr(e, quantity)) is not None]
    if not known:
        return None
    x = np.log10(np.array([p for p, _ in known], dtype=np.float64))
    y = np.log10(np.array([v for _, v in known], dtype=np.float64))
    if len(known) < 3 or constant(x):
        return float(10 ** y.mean())
    line = stats.linregress(x, y)
    return float(10 ** (line.intercept + line.slope * np.log10(prime)))


OfPrime = Literal["p_cross", "p_onset", "residual"]
OfSuite = Literal["c_model", "median_residual", "residual_sd", "rho", "loo_ratio"]
PRIME_QUANTITIES: tuple[OfPrime, ...] = get_args(OfPrime)
SUITE_QUANTITIES: tuple[OfSuite, ...] = get_args(OfSuite)
ON_LOG_SCALE = ("p_cross", "p_onset", "c_model", "loo_ratio")  # positive; errors in dex


@dataclass(frozen=True)
class Statement:
    """What somebody expects of one quantity, and why.

    Of a prime: P_cross, P_onset or log10 of their ratio. Of a suite: C_model, the residuals'
    median and standard deviation, Spearman's rho of P_cross and P_onset, or the leave-one-out
    error of the crossing over that of log p (`loo_ratio`; below 1 the crossing predicts better).
    `setting` names swept settings, `convention` clock and thresholds other than the suite's.
    """

    quantity: OfPrime | OfSuite
    low: float
    high: float
    level: float
    why: str
    prime: int | None = None
    setting: Mapping[str, Any] = field(default_factory=dict)
    convention: Mapping[str, Any] = field(default_factory=dict)

    @property
    def estimate(self) -> float:
        """The middle of the interval, on the quantity's own scale."""
        if self.quantity in ON_LOG_SCALE:
            return float(np.sqrt(self.low * self.high))
        return (self.low + self.high) / 2


@dataclass(frozen=True)
class Score:
    """One forecast quantity against the measurement made afterwards.

    Errors are in dex, those of residuals and of rho in their own units. `interval_score` is the
    Winkler score on that scale (width plus 2/α times the miss), the lower the better;
    `beats_baseline` compares absolute errors.
    """

    prime: int | None
    quantity: str
    predicted: float
    low: float
    high: float
    observed: float
    error: float
    inside: bool
    interval_score: float
    baseline_error: float | None
    beats_baseline: bool | None
    setting: Mapping[str, Any] = field(default_factory=dict)
    convention: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ForecastScore:
    """All scores with their summary; `unscored` counts quantities still unmeasured.

    `rmse` is over the errors in dex.
    """

    scores: tuple[Score, ...]
    rmse: float | None
    coverage: float | None
    baseline_rmse: float | None
    unscored: int


def score_forecast(
    predictions: Sequence[PrimeForecast],
    observed: Mapping[int, tuple[float | None, float | None]],
) -> ForecastScore:
    """Compare forecasts with (P_cross, P_onset) measured afterwards, by prime.

    Gneiting & Raftery (2007), J. Am. Stat. Assoc. 102, 359: the interval score.
    """
    scores: list[Score] = []
    unscored = 0
    for prediction in predictions:
        seen = observed.get(prediction.prime, (None, None))
        for quantity, value in zip(("p_cross", "p_onset"), seen, strict=True):
            predicted: Predicted | None = getattr(prediction, quantity)
            if value is None or predicted is None:
                unscored += 1
                continue
            baseline = getattr(prediction, quantity.replace("p_", "baseline_"))
            scores.append(_score(prediction.prime, quantity, predicted, value, baseline))
    return _summary(scores, unscored)


def score_statements(
    statements: Sequence[Statement], observed: Sequence[float | None]
) -> ForecastScore:
    """Compare statements with what was measured of each afterwards; None: not measured yet."""
    scores = [
        _score(s.prime, s.quantity, Predicted(s.estimate, s.low, s.high, s.level), value, None, s)
        for s, value in zip(statements, observed, strict=True)
        if value is not None
    ]
    return _summary(scores, len(statements) - len(scores))


def _summary(scores: Sequence[Score], unscored: int) -> ForecastScore:
    against = [s.baseline_error for s in scores if s.baseline_error is not None]
    return ForecastScore(
        scores=tuple(scores),
        rmse=_rms([s.error for s in scores if s.quantity in ON_LOG_SCALE]),
        coverage=float(np.mean([s.inside for s in scores])) if scores else None,
        baseline_rmse=_rms(against),
        unscored=unscored,
    )


def _score(
    prime: int | None,
    quantity: str,
    predicted: Predicted,
    observed: float,
    baseline: float | None,
    statement: Statement | None = None,
) -> Score:
    def scaled(value: float) -> float:
        return float(np.log10(value)) if quantity in ON_LOG_SCALE else value

    truth, low, high = scaled(observed), scaled(predicted.low), scaled(predicted.high)
    miss = max(low - truth, truth - high, 0.0)
    error = truth - scaled(predicted.estimate)
    baseline_error = None if baseline is None else truth - scaled(baseline)
    return Score(
        prime=prime,
        quantity=quantity,
        predicted=predicted.estimate,
        low=predicted.low,
        high=predicted.high,
        observed=observed,
        error=error,
        inside=bool(miss == 0),
        interval_score=float(high - low + 2 / (1 - predicted.level) * miss),
        baseline_error=baseline_error,
        beats_baseline=None if baseline_error is None else abs(error) < abs(baseline_error),
        setting=statement.setting if statement else {},
        convention=statement.convention if statement else {},
    )


def _rms(errors: Sequence[float]) -> float | None:
    return float(np.sqrt(np.mean(np.square(errors)))) if errors else None
