"""Registering a suite inserts what is missing, shares what exists, and keeps what is frozen."""

from __future__ import annotations

import pytest
from fixtures.database import Database
from fixtures.runs import capacity_spec, grok_spec, register, speed_spec
from sqlalchemy import text

from groktime.db.suites import freeze_suite, open_runs, spec_from_json
from groktime.service.errors import SuiteError


def test_registering_again_creates_nothing_and_keeps_the_revision(database: Database) -> None:
    runs = [grok_spec(), speed_spec(), capacity_spec()]
    first = register(database.engine, runs)
    second = register(database.engine, runs)
    assert (first.created, first.linked) == (3, 3)
    assert (second.created, second.linked, second.unlinked) == (0, 0, 0)
    assert second.revision == first.revision


def test_a_run_that_two_suites_ask_for_exists_once(database: Database) -> None:
    register(database.engine, [grok_spec(), speed_spec()], name="one")
    second = register(database.engine, [speed_spec(), capacity_spec()], name="two")
    assert second.created == 1
    with database.engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM runs")) == 3


def test_a_stored_run_has_its_spec_key_and_columns(database: Database) -> None:
    spec = grok_spec(width=16)
    register(database.engine, [spec])
    with database.engine.connect() as connection:
        row = connection.execute(text("SELECT * FROM runs")).one()
    stored = row._mapping
    assert spec_from_json(row.spec).key == spec.key == row.key
    assert {name: stored[name] for name in spec.columns()} == spec.columns()


def test_runs_a_changed_suite_no_longer_has_are_unlinked_but_kept(database: Database) -> None:
    register(database.engine, [grok_spec(), speed_spec()])
    changed = register(database.engine, [grok_spec()])
    assert changed.unlinked == 1
    with database.engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM runs")) == 2


def test_inherited_runs_are_linked_but_not_for_this_suite_to_train(database: Database) -> None:
    own, taken = grok_spec(seed=1), grok_spec(seed=2)
    suite = register(database.engine, [own], inherited=[taken, own])
    assert suite.linked == 2
    assert list(open_runs(database.engine, suite.suite_id)) == [own.key]


def test_a_frozen_suite_is_accepted_unchanged_and_refused_changed(database: Database) -> None:
    register(database.engine, [grok_spec()])
    frozen = freeze_suite(database.engine, "little")
    assert freeze_suite(database.engine, "little") == frozen
    register(database.engine, [grok_spec()])
    with pytest.raises(SuiteError, match=r"suite little was frozen .* another name"):
        register(database.engine, [speed_spec()])


def test_freezing_a_suite_that_does_not_exist_is_refused(database: Database) -> None:
    with pytest.raises(SuiteError, match="'nowhere' is not in the database"):
        freeze_suite(database.engine, "nowhere")
