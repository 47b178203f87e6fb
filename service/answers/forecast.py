"""Forecasts of primes not trained yet from those that are, written down and scored later; and what
was fixed of a suite before its first run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Literal, cast

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError
from sqlalchemy import Connection, text

from groktime.db.records import SuiteRecord
from groktime.db.suites import (
    CLAIMED,
    ForecastRow,
    get_forecast,
    insert_forecast,
    list_forecasts,
)
from groktime.db.suites import score_forecast as store_score
from groktime.service.analysis import ANALYSIS_VERSION
from groktime.service.analysis.capacity import BitsPerParameter
from groktime.service.analysis.forecast import (
    PRIME_QUANTITIES,
    Forecast,
    ForecastScore,
    PrimeEvidence,
    PrimeForecast,
    Statement,
    prime_evidence,
    score_forecast,
    score_statements,
)
from groktime.service.analysis.forecast import forecast as fit_forecast
from groktime.service.analysis.survival import kaplan_meier_curve, mean_over_reached
from groktime.service.answers.capacity import bits_per_parameter, capacity
from groktime.service.answers.cell import Cell, CellResults, cells, closed
from groktime.service.answers.cell_tests import CellTests, cell_tests
from groktime.service.answers.choice import baseline_cells, choose
from groktime.service.answers.context import CellContext
from groktime.service.answers.crossing import crossing, crossing_of
from groktime.service.answers.question import (
    NOTHING,
    Choice,
    Convention,
    NotEnough,
    Question,
    QuestionError,
    Setting,
    Thresholds,
    Unknown,
    asked_runs,
    put,
    read_capacity,
    read_suite,
)
from groktime.service.spec import ModularData

TRAINED_PRIMES = """
SELECT DISTINCT r.prime FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = :suite AND NOT sr.inherited AND r.kind = 'grok' AND r.state = 'done'
  AND r.prime = ANY(:primes)
ORDER BY r.prime
"""

TRAINED_RUNS = """
SELECT count(*) FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = :suite AND NOT sr.inherited AND r.state = 'done'
"""

# Own runs by kind and prime, and whether one has finished.
OWN_RUNS = """
SELECT r.kind, r.prime, bool_or(r.state = 'done') AS finished
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = :suite AND NOT sr.inherited
GROUP BY r.kind, r.prime
"""

MOST_PRIMES = 200  # a forecast names them one by one


@dataclass(frozen=True, kw_only=True)
class ForecastAnswer:
    """What the laws of the fitted primes say of others, and everything they rest on.

    `known_before` are predicted primes with finished runs at the time: those are a check of the
    laws, not a forecast.
    """

    suite: str
    suite_id: int
    revision: int
    setting: Setting
    convention: Convention
    c_model: BitsPerParameter
    forecast: Forecast
    known_before: tuple[int, ...]
    chosen: Choice = NOTHING
    fitted_suite: str | None = None  # where the laws come from, if from another suite


@dataclass(frozen=True, kw_only=True)
class ScoreAnswer:
    """A stored forecast beside what was measured since."""

    id: int
    suite: str
    revision: int
    fitted_primes: tuple[int, ...]
    known_before: tuple[int, ...]
    score: ForecastScore


def forecast(
    connection: Connection, question: Question, fit: Sequence[int], predict: Sequence[int]
) -> ForecastAnswer:
    """Fit T_mem and T_gen on some primes of one setting and predict others."""
    _check_primes("fit", fit)
    _check_primes("predict", predict)
    question = choose(connection, question, "suite")
    suite, convention = put(connection, question)
    runs = asked_runs(connection, suite, convention, None)
    found, chosen = baseline_cells(
        list(cells(runs, question.filters, convention.labels)), one_per_prime=True
    )
    there = {cell.prime: cell for cell in found}
    for prime in fit:
        if prime not in there:
            raise Unknown("fit", prime, sorted(there), f"{prime} is not in {suite.name}")
    c_model = bits_per_parameter(
        connection,
        suite,
        read_capacity(connection, suite),
        found[0].values,
        convention.method,
        convention.level,
    )
    evidence = [
        _evidence(CellContext(suite, CellResults(there[prime], convention)), c_model)
        for prime in sorted(set(fit))
    ]
    complexity = {
        prime: _k_mem(there.get(prime), found[0], prime) for prime in sorted(set(predict))
    }
    made = fit_forecast(
        evidence,
        complexity,
        c_model.value,
        memorisation_window=convention.fraction_window,
        level=convention.level,
    )
    if all(p.p_cross is None and p.p_onset is None for p in made.predictions):
        raise NotEnough(
            "fit",
            list(fit),
            "three primes or more, each with both speeds at several widths",
            f"the laws of {len(evidence)} primes give no calibrated prediction",
        )
    return ForecastAnswer(
        suite=suite.name,
        suite_id=suite.id,
        revision=suite.revision,
        setting=found[0].setting,
        convention=convention,
        c_model=c_model,
        forecast=made,
        known_before=tuple(p for p in complexity if p in there and len(closed(there[p].grok)[0])),
        chosen=question.choice | chosen,
    )


def forecast_for(
    connection: Connection,
    target: str,
    question: Question,
    fit: Sequence[int],
    predict: Sequence[int],
) -> ForecastAnswer:
    """What the laws of one suite say of another, which need not have a run yet."""
    answer = forecast(connection, question, fit, predict)
    suite = read_suite(connection, target)
    return replace(
        answer,
        suite=suite.name,
        suite_id=suite.id,
        revision=suite.revision,
        setting={},
        fitted_suite=answer.suite,
        known_before=trained_primes(connection, suite.id, predict),
        chosen=NOTHING,
    )


def trained_primes(connection: Connection, suite_id: int, primes: Sequence[int]) -> tuple[int, ...]:
    """Those of the primes that have finished grok runs of the suite's own."""
    found = connection.scalars(
        text(TRAINED_PRIMES), {"suite": suite_id, "primes": sorted(set(primes))}
    )
    return tuple(found)


def trained_runs(connection: Connection, suite_id: int) -> int:
    """Finished runs of the suite's own: with any, a forecast of it comes late."""
    return int(connection.scalar(text(TRAINED_RUNS), {"suite": suite_id}) or 0)


def state_forecast(connection: Connection, target: str, statements: Sequence[Statement]) -> int:
    """Write down what somebody expects of a suite, without a law behind it; returns its number."""
    suite, convention = put(connection, Question(suite=target))
    primes = [statement.prime for statement in statements if statement.prime is not None]
    spec = {
        "revision": suite.revision,
        "analysis_version": ANALYSIS_VERSION,
        "setting": {},
        "convention": asdict(convention),
        "fitted_primes": [],
        "known_before": list(trained_primes(connection, suite.id, primes)),
        "runs_before": trained_runs(connection, suite.id),
    }
    stored = {"primes": [], "statements": [asdict(statement) for statement in statements]}
    return insert_forecast(connection, suite.id, spec, stored)


def store_forecast(connection: Connection, answer: ForecastAnswer) -> int:
    """Write the forecast down with its making; returns its number."""
    made = answer.forecast
    spec = {
        "revision": answer.revision,
        "analysis_version": ANALYSIS_VERSION,
        "setting": dict(answer.setting),
        "convention": asdict(answer.convention),
        "c_model": asdict(answer.c_model),
        "fitted_primes": list(made.fitted_primes),
        "memorisation": asdict(made.memorisation),
        "generalisation": asdict(made.generalisation),
        "memorisation_window": made.memorisation_window,
        "generalisation_window": made.generalisation_window,
        "known_before": list(answer.known_before),
        "runs_before": trained_runs(connection, answer.suite_id),
        **({"fitted_suite": answer.fitted_suite} if answer.fitted_suite else {}),
    }
    primes = [asdict(prediction) for prediction in made.predictions]
    return insert_forecast(connection, answer.suite_id, spec, {"primes": primes})


def score(connection: Connection, forecast_id: int) -> ScoreAnswer:
    """Compare a stored forecast with the crossings and onsets measured since, and keep that."""
    stored = get_forecast(connection, forecast_id)
    if stored is None:
        raise Unknown(
            "id", forecast_id, "the number that `groktime forecast` printed", "no such forecast"
        )
    result, revision = score_of(connection, stored)
    if not result.scores:
        raise NotEnough(
            "id",
            forecast_id,
            "a forecast whose primes have been trained",
            f"nothing of {stored.suite} that forecast {forecast_id} predicts has been measured yet",
        )
    store_score(connection, forecast_id, {"revision": revision, **asdict(result)})
    return ScoreAnswer(
        id=forecast_id,
        suite=stored.suite,
        revision=revision,
        fitted_primes=tuple(stored.spec["fitted_primes"]),
        known_before=tuple(stored.spec["known_before"]),
        score=result,
    )


def score_of(connection: Connection, stored: ForecastRow) -> tuple[ForecastScore, int]:
    """A forecast beside what has been measured by now, and the suite's revision."""
    statements = _read_statements(stored.predictions)
    if not statements:
        return _score_of_laws(connection, stored)
    suite = read_suite(connection, stored.suite)
    own = {
        (row.kind, row.prime): bool(row.finished)
        for row in connection.execute(text(OWN_RUNS), {"suite": suite.id})
    }
    answers: dict[str, Mapping[str, float | None]] = {}  # one of several statements is read once
    observed: list[float | None] = []
    for statement in statements:
        if not _begun(statement, own):
            observed.append(None)
            continue
        asked = _asked(statement)
        if asked not in answers:
            answers[asked] = measured(connection, suite.name, statement)
        observed.append(answers[asked].get(statement.quantity))
    return score_statements(statements, observed), suite.revision


def _begun(statement: Statement, own: Mapping[tuple[str, int], bool]) -> bool:
    """Have runs of the suite's own finished that bear on the statement?

    What a suite inherits was measured before: that is no test of what was stated. A crossing
    needs own runs at its prime, an onset and a residual own grok runs there; what is said of all
    cells needs own runs of every kind that the suite trains.
    """
    finished = {key for key, done in own.items() if done}
    if statement.quantity == "c_model":
        return any(kind == "capacity" for kind, _ in finished)
    if statement.prime is None:
        return bool(finished) and {kind for kind, _ in own} == {kind for kind, _ in finished}
    kinds = ("speed", "grok") if statement.quantity == "p_cross" else ("grok",)
    return any((kind, statement.prime) in finished for kind in kinds)


def _score_of_laws(connection: Connection, stored: ForecastRow) -> tuple[ForecastScore, int]:
    """The score of what laws predicted, and the revision of the suite it is of."""
    predictions = _read_predictions(stored.predictions)
    observed, revision = {}, 0
    for prediction in predictions:
        question = _question(stored.suite, prediction.prime, stored.spec)
        try:
            found = crossing(connection, question)
        except Unknown:
            continue
        revision = found.revision
        observed[prediction.prime] = (found.p_cross.estimate, found.p_onset.estimate)
    return score_forecast(predictions, observed), revision


def _asked(statement: Statement) -> str:
    """The question that tells the statement's quantity; statements that share it share this."""
    told_by = "cells"
    if statement.quantity in (*PRIME_QUANTITIES, "c_model"):
        told_by = "capacity" if statement.quantity == "c_model" else "crossing"
    return json.dumps(
        [told_by, statement.prime, dict(statement.setting), dict(statement.convention)],
        sort_keys=True,
    )


def measured(
    connection: Connection, suite: str, statement: Statement
) -> Mapping[str, float | None]:
    """The quantity a statement is about as it has been measured, and others that the same answer
    tells; None or not there: not yet."""
    question = Question(
        suite=suite, prime=statement.prime, filters=statement.setting, **statement.convention
    )
    try:
        if statement.quantity in PRIME_QUANTITIES:
            found = crossing(connection, question)
            return {
                "p_cross": found.p_cross.estimate,
                "p_onset": found.p_onset.estimate,
                "residual": found.residual,
            }
        if statement.quantity == "c_model":
            fit = capacity(connection, question).fit
            return {"c_model": None if fit is None else fit.slope}
        return _of_cells(cell_tests(connection, question))
    except QuestionError:
        return {}  # a prime, a setting or a clock without runs yet


def _of_cells(found: CellTests) -> dict[str, float | None]:
    """Quantities of all cells; none where fewer than half of them tell it."""
    residuals = [cell.residual for cell in found.cells if cell.residual is not None]
    if len(residuals) < found.n_total / 2:
        return {}
    nested, spearman = found.tests.nested, found.tests.spearman
    errors: list[float | None] = []
    if nested is not None and {"M1", "MP"} <= nested.models.keys():
        errors = [nested.models[name].loo_rmse for name in ("M1", "MP")]
    of_crossing, of_prime = errors or (None, None)
    return {
        "median_residual": float(np.median(residuals)) if residuals else None,
        "residual_sd": float(np.std(residuals, ddof=1)) if len(residuals) > 1 else None,
        "rho": None if spearman is None else spearman.rho,
        "loo_ratio": of_crossing / of_prime if of_crossing and of_prime else None,
    }


def _check_primes(name: str, primes: Sequence[int]) -> None:
    if not primes or len(primes) > MOST_PRIMES:
        why = f"{len(primes)} primes named"
        raise QuestionError(name, list(primes), f"1 to {MOST_PRIMES} primes", why)


def _evidence(asked: CellContext, c_model: BitsPerParameter) -> PrimeEvidence:
    """Both speed curves of a fitted prime, centred as the method says, and its two P."""
    cell, convention = asked.cell, asked.convention
    centre = kaplan_meier_curve if convention.method == "robust" else mean_over_reached
    mem, gen = asked.results.mem, asked.results.grok.generalisation()
    if convention.units == "steps":
        mem, gen = mem.in_steps(), gen.in_steps()
    measured = crossing_of(asked, c_model)
    return prime_evidence(
        cell.prime,
        cell.k_mem,
        c_model.value,
        centre(mem),
        centre(gen),
        measured.p_cross.estimate,
        measured.p_onset.estimate,
    )


def _k_mem(own: Cell | None, like: Cell, prime: int) -> float:
    """K_mem of a prime: its planned runs' where there are some, else by the suite's own data."""
    if own is not None:
        return own.k_mem
    if like.values["task"] != "modular":
        raise QuestionError(
            "predict", prime, "primes of modular tasks", f"{prime}: the task has no primes"
        )
    named = ("operation", "train_fraction", "split")
    try:
        data = ModularData.model_validate(
            {"prime": prime} | {name: like.values[name] for name in named}
        )
    except ValidationError as error:
        raise QuestionError("predict", prime, "primes", str(error.errors()[0]["msg"])) from None
    return data.n_train * math.log2(prime + 2)


def _read_statements(stored: Mapping[str, Any]) -> tuple[Statement, ...]:
    return TypeAdapter(tuple[Statement, ...]).validate_python(stored.get("statements", ()))


def _read_predictions(stored: Mapping[str, Any]) -> tuple[PrimeForecast, ...]:
    return TypeAdapter(tuple[PrimeForecast, ...]).validate_python(stored["primes"])


def _question(suite: str, prime: int, spec: Mapping[str, Any]) -> Question:
    """The question whose answer the forecast predicted: same setting and conventions."""
    convention = spec["convention"]
    thresholds = Thresholds(**convention["thresholds"])
    return Question(
        suite=suite,
        prime=prime,
        filters=cast(Setting, spec["setting"]),
        labels=convention["labels"],
        method=convention["method"],
        clock=convention["clock"],
        units=convention["units"],
        max_width=convention["max_width"],
        level=convention["level"],
        **asdict(thresholds),
    )


# A run that is shared with another suite was trained for that one where it is older.
BEGUN = """
SELECT s.frozen_at, s.recorded ->> 'frozen' AS claimed, min(b.started_at) AS first_run,
    count(*) FILTER (WHERE b.started_at < s.frozen_at) AS trained_before,
    count(b.started_at) AS trained
FROM suites s LEFT JOIN LATERAL (
    SELECT min(a.started_at) AS started_at
    FROM suite_runs sr JOIN attempts a ON a.run_id = sr.run_id
    WHERE sr.suite_id = s.id AND NOT sr.inherited GROUP BY sr.run_id) b ON true
WHERE s.id = :suite GROUP BY s.id
"""

When = Literal["before", "after", "never", "untrained"]


@dataclass(frozen=True, kw_only=True)
class ScoredForecast:
    """A forecast of the suite beside what has been measured of it by now."""

    id: int
    created_at: datetime
    before_first_run: bool
    claimed: Annotated[bool, Field(description="its time is the word of a dump")]
    fitted_suite: Annotated[str | None, Field(description="whose laws it rests on; null: stated")]
    score: ForecastScore


@dataclass(frozen=True, kw_only=True)
class Registration:
    """When a suite was frozen, when its first run began, and its forecasts, oldest first.

    `frozen`: before or after the first run, never, or before any (`untrained`). Of the suite's own
    `trained` runs `trained_before` had begun when it was frozen, perhaps for another suite.
    """

    frozen: When
    frozen_at: datetime | None
    claimed: bool
    first_run: datetime | None
    trained_before: int
    trained: int
    forecasts: tuple[ScoredForecast, ...]


def registration(connection: Connection, suite: SuiteRecord) -> Registration:
    """What was fixed beforehand, with every forecast scored as of now."""
    row = connection.execute(text(BEGUN), {"suite": suite.id}).one()
    return Registration(
        frozen=_when(row.frozen_at, row.first_run),
        frozen_at=row.frozen_at,
        claimed=row.claimed is not None,
        first_run=row.first_run,
        trained_before=row.trained_before,
        trained=row.trained,
        forecasts=tuple(
            _scored(connection, stored, row.first_run)
            for stored in reversed(list_forecasts(connection, suite.id))
        ),
    )


def _when(frozen_at: datetime | None, first_run: datetime | None) -> When:
    if frozen_at is None:
        return "never"
    if first_run is None:
        return "untrained"
    return "before" if frozen_at <= first_run else "after"


def _scored(
    connection: Connection, stored: ForecastRow, first_run: datetime | None
) -> ScoredForecast:
    fitted = stored.spec.get("fitted_suite") or stored.suite
    return ScoredForecast(
        id=stored.id,
        created_at=stored.created_at,
        before_first_run=first_run is None or stored.created_at <= first_run,
        claimed=CLAIMED in stored.spec,
        fitted_suite=fitted if stored.spec.get("fitted_primes") else None,
        score=score_of(connection, stored)[0],
    )
