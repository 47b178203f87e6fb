"""Damage is found, and pruning deletes what only one suite has."""

from __future__ import annotations

import pytest
from fixtures.curves import record_all
from fixtures.database import Database
from fixtures.runs import claim_all, grok_spec, register, speed_spec
from sqlalchemy import text

from groktime.db.maintenance import check, plan_prune, prune
from groktime.db.suites import delete_suite
from groktime.service.errors import DatabaseError

SPECS = [grok_spec(seed=seed) for seed in range(3)]


@pytest.fixture
def recorded(database: Database) -> Database:
    record_all(database.engine, claim_all(database.engine, SPECS))
    return database


def change(database: Database, statement: str) -> None:
    with database.engine.begin() as connection:
        connection.execute(text(statement))


def findings(database: Database) -> dict[str, list[int]]:
    with database.engine.connect() as connection:
        return {finding.check: finding.runs for finding in check(connection).findings}


def test_a_recorded_database_is_sound(recorded: Database) -> None:
    assert findings(recorded) == {}


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("INSERT INTO curve (run_id, epoch) VALUES (99, 1)", {"orphans": [99]}),
        ("DELETE FROM curve WHERE run_id = 2 AND epoch = 7", {"gaps": [2]}),
        ("INSERT INTO curve (run_id, epoch) VALUES (2, 41)", {"beyond": [2]}),
        (
            "ALTER TABLE curve DROP CONSTRAINT pk_curve; "
            "INSERT INTO curve SELECT * FROM curve WHERE run_id = 3 AND epoch = 5",
            {"repeats": [3]},
        ),
        (
            "UPDATE runs SET first_online = NULL WHERE id = 1",
            {"unsummarised": [1], "passages": [1]},
        ),
        ("UPDATE runs SET first_val[50] = 3 WHERE id = 1", {"passages": [1]}),
        (
            "UPDATE attempts SET state = 'running', ended_at = NULL WHERE run_id = 1",
            {"attempts": [1]},
        ),
    ],
)
def test_damage_is_found(recorded: Database, damage: str, found: dict[str, list[int]]) -> None:
    change(recorded, damage)
    assert findings(recorded) == found


def test_pruning_keeps_what_another_suite_has(recorded: Database) -> None:
    register(recorded.engine, [SPECS[0], speed_spec()], name="other")
    with recorded.engine.begin() as connection:
        plan = plan_prune(connection, "little")
        assert (plan.runs, plan.done, plan.epochs, plan.shared) == (2, 2, 80, 1)
        assert prune(connection, "little") == plan
        assert connection.scalar(text("SELECT count(*) FROM runs")) == 2
        assert connection.scalar(text("SELECT count(*) FROM curve")) == 40
    assert findings(recorded) == {}


def test_pruning_raises_the_revision(recorded: Database) -> None:
    query = text("SELECT revision FROM suites WHERE name = 'little'")
    with recorded.engine.begin() as connection:
        before = connection.scalar(query)
        prune(connection, "little")
        assert connection.scalar(query) == before + 1


def test_runs_of_no_suite_can_be_pruned(recorded: Database) -> None:
    with recorded.engine.begin() as connection:
        delete_suite(connection, "little")
        assert check(connection).unlinked == 3
        assert prune(connection, None).runs == 3
        assert check(connection).unlinked == 0


def test_runs_that_are_being_trained_are_not_pruned(database: Database) -> None:
    claim_all(database.engine, SPECS)
    with (
        database.engine.begin() as connection,
        pytest.raises(DatabaseError, match="being trained"),
    ):
        prune(connection, "little")
