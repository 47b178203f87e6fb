"""Forecasts made on a database before their runs exist, and scored once they do."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from fixtures.commands import Commands
from fixtures.database import Database
from fixtures.seeded import CROSSING, p_cross, record, register
from fixtures.seeded import TINY as SUITE

from groktime.api.tables import FORECAST_COLUMNS, forecast_rows
from groktime.db.claims import claim
from groktime.db.suites import get_forecast, open_runs
from groktime.service.answers.crossing import crossing
from groktime.service.answers.forecast import forecast, score, store_forecast
from groktime.service.answers.question import NotEnough, Question, QuestionError, Unknown
from groktime.service.errors import AnalysisError
from groktime.service.suites import load_suite

TINY = Question(suite="tiny")


def k_mem(prime: int) -> float:
    return prime * (prime - 1) // 2 * math.log2(prime + 2)


def test_a_prime_that_has_no_run_is_predicted_near_the_law_the_curves_were_made_by(
    seeded: Database,
) -> None:
    with seeded.engine.begin() as connection:
        answer = forecast(connection, TINY, [23, 29, 31], [37])
    (predicted,) = answer.forecast.predictions
    assert answer.known_before == ()
    assert predicted.p_cross is not None
    assert predicted.p_cross.low < p_cross(k_mem(37)) < predicted.p_cross.high
    assert abs(math.log10(predicted.p_cross.estimate / (CROSSING * k_mem(37)))) < 0.3


def train_another_prime(database: Database, folder: Path) -> None:
    """The suite grows by a prime, and its runs are recorded."""
    path = folder / "tiny.yaml"
    path.write_text(SUITE.replace("[23, 29, 31]", "[23, 29, 31, 37]"))
    suite = load_suite(path)
    ids = open_runs(database.engine, register(database.engine, suite))
    wanted = [ids[s.key] for s in suite.runs() if s.key in ids and s.data.prime == 37]
    record(database.engine, claim(database.engine, wanted, "seeding", 60))


def test_a_forecast_is_scored_against_the_answers_about_runs_trained_afterwards(
    seeded: Database, tmp_path: Path
) -> None:
    with seeded.engine.begin() as connection:
        number = store_forecast(connection, forecast(connection, TINY, [23, 29, 31], [37]))
    train_another_prime(seeded, tmp_path)
    with seeded.engine.begin() as connection:
        found = score(connection, number)
        measured = crossing(connection, Question(suite="tiny", prime=37))
        stored = get_forecast(connection, number)
    by_quantity = {row.quantity: row for row in found.score.scores}
    assert found.known_before == ()
    assert by_quantity["p_cross"].observed == measured.p_cross.estimate
    assert by_quantity["p_onset"].observed == measured.p_onset.estimate
    assert by_quantity["p_cross"].inside
    assert stored is not None
    assert stored.score is not None
    assert stored.score["rmse"] == pytest.approx(found.score.rmse)
    assert stored.score["revision"] == measured.revision
    cross, onset = forecast_rows(stored)
    assert (cross["prime"], cross["quantity"], onset["quantity"]) == (37, "p_cross", "p_onset")
    assert cross["low"] < cross["estimate"] < cross["high"]
    assert onset["observed"] == measured.p_onset.estimate
    assert set(cross) == set(FORECAST_COLUMNS)


def test_a_prime_trained_before_its_forecast_is_said_to_be_known(
    seeded: Database, tmp_path: Path
) -> None:
    train_another_prime(seeded, tmp_path)
    with seeded.engine.begin() as connection:
        assert forecast(connection, TINY, [23, 29, 31], [37]).known_before == (37,)


def test_a_forecast_whose_primes_are_not_trained_cannot_be_scored_yet(seeded: Database) -> None:
    with seeded.engine.begin() as connection:
        number = store_forecast(connection, forecast(connection, TINY, [23, 29, 31], [37]))
        with pytest.raises(NotEnough, match="has been measured yet"):
            score(connection, number)
        stored = get_forecast(connection, number)
    assert stored is not None
    assert stored.score is None


@pytest.mark.parametrize(
    ("fit", "predict", "kind", "words"),
    [
        ([23, 97], [37], Unknown, "fit: 97 is not in tiny"),
        ([23, 29], [38], QuestionError, "predict: .*38 is not a prime"),
        ([23], [37], AnalysisError, "at least 2"),
        ([23, 29], [23], AnalysisError, "23 is also fitted"),
        ([], [37], QuestionError, "fit: 0 primes"),
    ],
)
def test_primes_that_cannot_be_fitted_or_predicted_are_refused(
    seeded: Database, fit: list[int], predict: list[int], kind: type[Exception], words: str
) -> None:
    with seeded.engine.begin() as connection, pytest.raises(kind, match=words):
        forecast(connection, TINY, fit, predict)


def test_a_width_below_all_others_is_refused_by_its_own_name(seeded: Database) -> None:
    narrow = replace(TINY, max_width=4)
    with (
        seeded.engine.begin() as connection,
        pytest.raises(QuestionError, match="max_width: 4 leaves no width; the smallest is 8"),
    ):
        forecast(connection, narrow, [23, 29, 31], [37])


@pytest.mark.parametrize("filters", [{}, {"weight_decay": 0.1}])
def test_a_swept_suite_is_fitted_at_one_setting_named_or_its_baseline(
    seeded: Database, filters: dict[str, float]
) -> None:
    question = Question(suite="decay", filters=filters)
    with (
        seeded.engine.begin() as connection,
        pytest.raises(NotEnough, match="the laws of 2 primes give no calibrated prediction"),
    ):
        forecast(connection, question, [23, 29], [31])


def test_both_spellings_of_the_command_work(
    seeded: Database, commands: Commands, tmp_path: Path
) -> None:
    url = seeded.url
    asked = ("--fit", "23,29,31", "--predict", "37", "--json")
    code, output = commands.run("forecast", "tiny", *asked, GROKTIME_DATABASE_URL=url)
    assert code == 0, output
    made = json.loads(output.splitlines()[-1])
    train_another_prime(seeded, tmp_path)
    code, output = commands.run(
        "forecast", "score", str(made["id"]), "--json", GROKTIME_DATABASE_URL=url
    )
    assert code == 0, output
    assert {row["prime"] for row in json.loads(output.splitlines()[-1])["scores"]} == {37}
    code, output = commands.run("forecast", "score", "999", GROKTIME_DATABASE_URL=url)
    assert code == 2
    assert output.startswith("groktime: id: no such forecast; accepted:")
