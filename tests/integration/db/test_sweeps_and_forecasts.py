"""Sweeps and forecasts are written down and keep what was said about them."""

from __future__ import annotations

import pytest
from fixtures.database import Database
from fixtures.runs import grok_spec, register
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from groktime.db.suites import get_forecast, insert_forecast, list_forecasts, score_forecast
from groktime.db.sweeps import get_sweep, insert_sweep, list_sweeps, update_sweep


def test_a_sweep_goes_from_submitted_to_done(database: Database) -> None:
    with database.engine.begin() as connection:
        number = insert_sweep(connection, "little", submitted_by="me", filters={"prime": [7]})
        assert update_sweep(connection, number, state="running", job_id="raysubmit_1")
        assert update_sweep(connection, number, state="done", message="2 runs")
        found = get_sweep(connection, number)
    assert found is not None
    assert (found.state, found.job_id, found.message) == ("done", "raysubmit_1", "2 runs")
    assert found.filters == {"prime": [7]}


def test_sweeps_are_listed_newest_first(database: Database) -> None:
    with database.engine.begin() as connection:
        numbers = [insert_sweep(connection, name, submitted_by="me") for name in ("a", "b", "a")]
        assert [sweep.id for sweep in list_sweeps(connection)] == numbers[::-1]
        assert [sweep.id for sweep in list_sweeps(connection, suite="b")] == [numbers[1]]
        assert get_sweep(connection, numbers[-1] + 1) is None
        assert not update_sweep(connection, numbers[-1] + 1, state="done")


def test_a_sweep_has_no_other_states(database: Database) -> None:
    with database.engine.begin() as connection:
        number = insert_sweep(connection, "little", submitted_by="me")
    with database.engine.connect() as connection, pytest.raises(IntegrityError, match="ck_sweeps"):
        update_sweep(connection, number, state="asleep")  # type: ignore[arg-type]


def test_a_forecast_is_scored_once_measured(database: Database) -> None:
    suite = register(database.engine, [grok_spec()]).suite_id
    with database.engine.begin() as connection:
        number = insert_forecast(connection, suite, {"law": "t_mem"}, {"p_cross": 1e5})
        first = get_forecast(connection, number)
        assert score_forecast(connection, number, {"error": 0.1})
        (listed,) = list_forecasts(connection, suite)
        assert list_forecasts(connection, suite + 1) == []
        assert not score_forecast(connection, number + 1, {})
    assert first is not None
    assert (first.suite, first.score) == ("little", None)
    assert listed.predictions == {"p_cross": 1e5}
    assert listed.score == {"error": 0.1}


@pytest.mark.parametrize("filters", ["[1]", '"text"', "null", "5"])
def test_a_damaged_sweep_does_not_hide_the_others(database: Database, filters: str) -> None:
    with database.engine.begin() as connection:
        numbers = [insert_sweep(connection, "a", submitted_by="me") for _ in range(2)]
        connection.execute(
            text("UPDATE sweeps SET filters = CAST(:filters AS jsonb) WHERE id = :id"),
            {"filters": filters, "id": numbers[0]},
        )
        assert [sweep.id for sweep in list_sweeps(connection)] == numbers[::-1]
        damaged = get_sweep(connection, numbers[0])
    assert damaged is not None
    assert damaged.filters == {}
