"""Was a suite frozen, and forecast, before its first run? And did the forecast hold?"""

from __future__ import annotations

from pathlib import Path

from fixtures.database import Database
from fixtures.seeded import TINY as SUITE
from fixtures.seeded import record, register

from groktime.db.claims import claim
from groktime.db.suites import freeze_suite, open_runs
from groktime.service.answers.forecast import Registration, registration, state_forecast
from groktime.service.answers.question import read_suite
from groktime.service.commands.forecast import read_statements
from groktime.service.report.tables import frozen_sentence
from groktime.service.suites import Suite, load_suite


def planned(folder: Path) -> Suite:
    """A suite that shares no run with those of the fixture."""
    path = folder / "planned.yaml"
    path.write_text(SUITE.replace("[23, 29, 31]", "[37]").replace("primes: [23]", "primes: [37]"))
    return load_suite(path)


def train(database: Database, suite: Suite) -> None:
    ids = open_runs(database.engine, register(database.engine, suite))
    record(database.engine, claim(database.engine, list(ids.values()), "seeding", 60))


def state(database: Database, folder: Path) -> None:
    file = folder / "expected.yaml"
    file.write_text(
        "- {quantity: p_cross, prime: 37, low: 1, high: 1000000000, why: anything}\n"
        "- {quantity: p_onset, prime: 37, low: 1, high: 2, why: nonsense}\n"
    )
    with database.engine.begin() as connection:
        state_forecast(connection, "planned", read_statements(file, 0.9))


def found(database: Database) -> Registration:
    with database.engine.connect() as connection:
        return registration(connection, read_suite(connection, "planned"))


def test_a_suite_frozen_and_forecast_before_its_first_run_is_said_to_be_and_scored(
    seeded: Database, tmp_path: Path
) -> None:
    suite = planned(tmp_path)
    register(seeded.engine, suite)
    freeze_suite(seeded.engine, "planned")
    state(seeded, tmp_path)
    assert (found(seeded).frozen, found(seeded).trained) == ("untrained", 0)
    train(seeded, suite)
    told = found(seeded)
    assert (told.frozen, told.trained_before) == ("before", 0)
    assert frozen_sentence(told).startswith("Frozen before the first run")
    (forecast,) = told.forecasts
    assert forecast.before_first_run
    assert [row.inside for row in forecast.score.scores] == [True, False]


def test_what_is_frozen_or_forecast_after_the_first_run_is_said_to_be(
    seeded: Database, tmp_path: Path
) -> None:
    suite = planned(tmp_path)
    train(seeded, suite)
    told = found(seeded)
    assert told.frozen == "never"
    assert "may have been chosen while it trained" in frozen_sentence(told)
    freeze_suite(seeded.engine, "planned")
    state(seeded, tmp_path)
    told = found(seeded)
    assert told.frozen == "after"
    assert (told.trained_before, told.trained) == (len(suite.runs()), len(suite.runs()))
    assert f"{told.trained} of its {told.trained} runs had begun" in frozen_sentence(told)
    assert not told.forecasts[0].before_first_run
