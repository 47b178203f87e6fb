"""Forecasts of a suite from another one, or stated by hand, before it has any run."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures.database import Database
from fixtures.seeded import TINY as SUITE
from fixtures.seeded import record, register

from groktime.api.tables import forecast_rows
from groktime.db.claims import claim
from groktime.db.suites import freeze_suite, get_forecast, open_runs
from groktime.service.answers.forecast import (
    forecast_for,
    score,
    state_forecast,
    store_forecast,
)
from groktime.service.answers.question import NotEnough, Question
from groktime.service.commands.forecast import read_statements
from groktime.service.errors import InputError, SuiteError
from groktime.service.suites import Suite, load_suite

TINY = Question(suite="tiny")


@pytest.fixture
def planned(seeded: Database, tmp_path: Path) -> Suite:
    """A frozen suite of one more prime, of which nothing is trained."""
    path = tmp_path / "planned.yaml"
    path.write_text(SUITE.replace("[23, 29, 31]", "[37]"))
    suite = load_suite(path)
    register(seeded.engine, suite)
    freeze_suite(seeded.engine, "planned")
    return suite


def train(database: Database, suite: Suite) -> None:
    ids = open_runs(database.engine, register(database.engine, suite))
    record(database.engine, claim(database.engine, list(ids.values()), "seeding", 60))


def test_the_laws_of_one_suite_forecast_another_that_is_trained_afterwards(
    seeded: Database, planned: Suite
) -> None:
    with seeded.engine.begin() as connection:
        answer = forecast_for(connection, "planned", TINY, [23, 29, 31], [37])
        number = store_forecast(connection, answer)
    assert (answer.suite, answer.fitted_suite, answer.known_before) == ("planned", "tiny", ())
    train(seeded, planned)
    with seeded.engine.begin() as connection:
        found = score(connection, number)
        late = forecast_for(connection, "planned", TINY, [23, 29, 31], [37])
    assert found.suite == "planned"
    assert {row.quantity for row in found.score.scores} == {"p_cross", "p_onset"}
    assert late.known_before == (37,), "after the first run it is no forecast any more"


def test_what_somebody_expects_is_scored_like_any_forecast(
    seeded: Database, planned: Suite, tmp_path: Path
) -> None:
    file = tmp_path / "expected.yaml"
    file.write_text(
        "- {quantity: p_cross, prime: 37, low: 1, high: 2, why: far too low}\n"
        "- {quantity: p_onset, prime: 37, low: 1, high: 1000000000, why: anything goes}\n"
    )
    with seeded.engine.begin() as connection:
        number = state_forecast(connection, "planned", read_statements(file, 0.9))
        stored = get_forecast(connection, number)
    assert stored is not None
    why = [statement["why"] for statement in stored.predictions["statements"]]
    assert why == ["far too low", "anything goes"]
    assert stored.spec["known_before"] == []
    train(seeded, planned)
    with seeded.engine.begin() as connection:
        inside = {row.quantity: row.inside for row in score(connection, number).score.scores}
        scored = get_forecast(connection, number)
    assert inside == {"p_cross": False, "p_onset": True}
    assert scored is not None
    assert [row["inside"] for row in forecast_rows(scored)] == [False, True]


def test_a_suite_is_forecast_as_a_whole_at_its_settings_and_by_other_clocks(
    seeded: Database, tmp_path: Path
) -> None:
    file = tmp_path / "expected.yaml"
    file.write_text(
        "- {quantity: rho, low: 0.5, high: 1, why: the order stays}\n"
        "- {quantity: median_residual, low: -9, high: -8, why: nonsense}\n"
        "- {quantity: residual_sd, low: 0, high: 9, why: some}\n"
        "- {quantity: residual, prime: 29, low: -2, high: 2, why: some}\n"
        "- {quantity: median_residual, convention: {t_mem: 0.9, labels: random}, "
        "low: -9, high: 9, why: some}\n"
        "- {quantity: c_model, setting: {weight_decay: 99}, low: 1, high: 2, why: no such runs}\n"
    )
    with seeded.engine.begin() as connection:
        number = state_forecast(connection, "tiny", read_statements(file, 0.9))
        found = score(connection, number)
        stored = get_forecast(connection, number)
    assert stored is not None
    assert stored.spec["runs_before"] > 0, "a forecast that comes late is seen to"
    assert [(row.quantity, row.inside) for row in found.score.scores] == [
        ("rho", True),
        ("median_residual", False),
        ("residual_sd", True),
        ("residual", True),
        ("median_residual", True),
    ]
    assert found.score.unscored == 1
    rows = forecast_rows(stored)
    assert [row["setting"] for row in rows][-1] == "weight_decay=99"
    assert "t_mem=0.9" in [row["convention"] for row in rows][-2]


def test_what_a_suite_inherits_does_not_score_what_was_stated_of_it(
    seeded: Database, tmp_path: Path
) -> None:
    """Only runs of its own are new."""
    (tmp_path / "tiny.yaml").write_text(SUITE)
    path = tmp_path / "more.yaml"
    path.write_text(
        SUITE.replace("[23, 29, 31]", "[37]") + "\ninherits:\n  - {suite: ./tiny.yaml}\n"
    )
    file = tmp_path / "expected.yaml"
    file.write_text("- {quantity: p_cross, prime: 29, low: 1, high: 2, why: x}\n")
    register(seeded.engine, load_suite(path))
    with seeded.engine.begin() as connection:
        number = state_forecast(connection, "more", read_statements(file, 0.9))
        with pytest.raises(NotEnough, match="has been measured yet"):
            score(connection, number)


def test_an_onset_is_not_scored_by_inherited_runs_alone(seeded: Database, tmp_path: Path) -> None:
    """Own speed runs measure a crossing anew, not an onset, nor what is said of all cells."""
    (tmp_path / "tiny.yaml").write_text(SUITE)
    path = tmp_path / "more.yaml"
    seeds = SUITE.replace("seeds: {from: 1, to: 5}", "seeds: [6]", 1)
    assert seeds != SUITE
    path.write_text(seeds + "\ninherits:\n  - {suite: ./tiny.yaml}\n")
    file = tmp_path / "expected.yaml"
    file.write_text(
        "- {quantity: p_cross, prime: 29, low: 1, high: 1e9, why: x}\n"
        "- {quantity: p_onset, prime: 29, low: 1, high: 1e9, why: x}\n"
        "- {quantity: rho, low: -1, high: 1, why: x}\n"
    )
    suite = load_suite(path)
    ids = open_runs(seeded.engine, register(seeded.engine, suite))
    speed = [ids[run.key] for run in suite.runs() if run.kind == "speed"]
    record(seeded.engine, claim(seeded.engine, speed, "seeding", 60))
    with seeded.engine.begin() as connection:
        number = state_forecast(connection, "more", read_statements(file, 0.9))
        found = score(connection, number).score
    assert [row.quantity for row in found.scores] == ["p_cross"]
    assert found.unscored == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "a list of quantity"),
        ("- {quantity: p_cross, prime: 37, low: 1, high: 2}", "all of them"),
        ("- {quantity: speed, prime: 37, low: 1, high: 2, why: x}", "p_cross, p_onset"),
        ("- {quantity: c_model, prime: 37, low: 1, high: 2, why: x}", "of the suite"),
        ("- {quantity: p_cross, low: 1, high: 2, why: x}", "name it"),
        ("- {quantity: rho, setting: {speed: 1}, low: 0, high: 1, why: x}", "weight_decay"),
        ("- {quantity: rho, convention: {t_mem: 2}, low: 0, high: 1, why: x}", "not an accuracy"),
        (2 * "- {quantity: rho, low: 0, high: 1, why: x}\n", "stated twice"),
        ("- {quantity: p_cross, prime: 37, low: 3, high: 2, why: x}", "low ≤ high"),
        ("- {quantity: p_cross, prime: 37, low: x, high: 2, why: x}", "low ≤ high"),
    ],
)
def test_a_statement_that_says_nothing_checkable_is_refused(
    tmp_path: Path, content: str, words: str
) -> None:
    file = tmp_path / "expected.yaml"
    file.write_text(content)
    with pytest.raises((InputError, SuiteError), match=words):
        read_statements(file, 0.95)
