"""Score forecasts against what was measured afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from service.analysis.forecast import Predicted, PrimeForecast


@dataclass(frozen=True)
class Score:
    """One forecast quantity against the measurement made afterwards, errors in dex.

    `interval_score` is the Winkler score on log10 (width plus 2/α times the miss), the lower
    the better; `beats_baseline` compares absolute errors.
    """

    prime: int
    quantity: str
    predicted: float
    observed: float
    error: float
    inside: bool
    interval_score: float
    baseline_error: float | None
    beats_baseline: bool | None


@dataclass(frozen=True)
class ForecastScore:
    """All scores with their summary; `unscored` counts quantities still unmeasured."""

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
    against = [s.baseline_error for s in scores if s.baseline_error is not None]
    return ForecastScore(
        scores=tuple(scores),
        rmse=_rms([s.error for s in scores]),
        coverage=float(np.mean([s.inside for s in scores])) if scores else None,
        baseline_rmse=_rms(against),
        unscored=unscored,
    )


def _score(
    prime: int, quantity: str, predicted: Predicted, observed: float, baseline: float | None
) -> Score:
    truth = np.log10(observed)
    low, high = np.log10(predicted.low), np.log10(predicted.high)
    miss = max(low - truth, truth - high, 0.0)
    error = float(truth - np.log10(predicted.estimate))
    baseline_error = None if baseline is None else float(truth - np.log10(baseline))
    return Score(
        prime=prime,
        quantity=quantity,
        predicted=predicted.estimate,
        observed=observed,
        error=error,
        inside=bool(miss == 0),
        interval_score=float(high - low + 2 / (1 - predicted.level) * miss),
        baseline_error=baseline_error,
        beats_baseline=None if baseline_error is None else abs(error) < abs(baseline_error),
    )


def _rms(errors: Sequence[float]) -> float | None:
    return float(np.sqrt(np.mean(np.square(errors)))) if errors else None
