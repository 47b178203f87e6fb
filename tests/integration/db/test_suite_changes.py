"""A suite whose file changes: nothing goes without being told, and earlier results stay."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fixtures.curves import record_all
from fixtures.database import Database
from sqlalchemy import Engine, text
from typer.testing import CliRunner

from groktime.db.claims import claim
from groktime.db.maintenance import plan_prune
from groktime.db.records import get_suite
from groktime.db.suites import ChangedSuite, Registered, open_runs, register_suite, suite_change
from groktime.service.commands.suite import app, settle_change
from groktime.service.errors import SuiteError
from groktime.service.settings import get_settings
from groktime.service.suites import Suite, load_suite

SUITE = """
description: five runs
positions: none
primes: [7, 11]
seeds: [1, 2]
stop: {max_epochs: 50}
speed: {widths: [8]}
capacity: {widths: [8], primes: [7], seeds: [1], examples: [20]}
"""

# Each edit, whether runs go, and whether the earlier definition must stay.
EDITS = {
    "a prime more": ("primes: [7, 11]", "primes: [7, 11, 13]", False),
    "a prime less": ("primes: [7, 11]", "primes: [7]", True),
    "another prime": ("primes: [7, 11]", "primes: [7, 13]", True),
    "a seed more": ("seeds: [1, 2]\nstop", "seeds: [1, 2, 3]\nstop", False),
    "a seed less": ("seeds: [1, 2]\nstop", "seeds: [1]\nstop", True),
    "another width": ("speed: {widths: [8]}", "speed: {widths: [12]}", True),
    "a width more": ("speed: {widths: [8]}", "speed: {widths: [8, 12]}", False),
    "a kind more": ("speed: {", "grok: {widths: [8]}\nspeed: {", False),
    "a kind less": ("speed: {widths: [8]}", "grok: {widths: [8]}", True),
    "another cap": ("max_epochs: 50", "max_epochs: 60", True),
    "a setting": ("speed: {", "settings: {lr: 0.002}\nspeed: {", True),
    "an axis": ("speed: {", "axes: {weight_decay: [0.5, 1.0]}\nspeed: {", False),
    "positions": ("positions: none", "positions: rope", True),
    "the analysis": ("speed: {", "analysis: {method: paper}\nspeed: {", True),
    "the order": ("speed: {", "order: seeds_first\nspeed: {", False),
}


def written(folder: Path, content: str) -> Suite:
    path = folder / "mine.yaml"
    path.write_text(content)
    return load_suite(path)


def definition(suite: Suite) -> tuple[Any, ...]:
    return (suite.name, suite.stored(), suite.digest, suite.runs())


def keys(engine: Engine, suite: str) -> set[str]:
    """Keys of the runs of a suite that have results."""
    query = text(
        "SELECT r.key FROM suites s JOIN suite_runs sr ON sr.suite_id = s.id "
        "JOIN runs r ON r.id = sr.run_id WHERE s.name = :name AND r.closed_at IS NOT NULL"
    )
    with engine.connect() as connection:
        return set(connection.scalars(query, {"name": suite}))


@pytest.fixture
def trained(database: Database, tmp_path: Path) -> Suite:
    """The suite with all its runs done."""
    suite = written(tmp_path, SUITE)
    ids = open_runs(database.engine, register_suite(database.engine, *definition(suite)).suite_id)
    record_all(database.engine, claim(database.engine, list(ids.values()), "test", 60), epochs=20)
    return suite


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_refused_until_told_and_loses_no_result(
    trained: Suite, database: Database, tmp_path: Path, edit: str
) -> None:
    old, new, keeps = EDITS[edit]
    engine = database.engine
    before = keys(engine, "mine")
    assert len(before) == len(trained.runs())
    changed = written(tmp_path, SUITE.replace(old, new))
    assert changed.digest != trained.digest

    with pytest.raises(ChangedSuite) as refused:
        register_suite(engine, *definition(changed))
    assert "--replace" in str(refused.value)
    with engine.connect() as connection:
        assert get_suite(connection, "mine").hash == trained.digest
    assert keys(engine, "mine") == before
    shown = suite_change(engine, *definition(changed))
    assert shown == refused.value.change
    assert shown.comes == len({r.key for r in changed.runs()} - before)
    assert shown.goes == shown.goes_closed == len(before - {r.key for r in changed.runs()})

    registered = register_suite(engine, *definition(changed), replace=True)
    assert registered.earlier == ("mine.v1" if keeps else None)
    assert keys(engine, "mine") == before & {r.key for r in changed.runs()}
    assert keys(engine, "mine") | keys(engine, "mine.v1") == before
    if keeps:
        with engine.connect() as connection:
            earlier, now = get_suite(connection, "mine.v1"), get_suite(connection, "mine")
        assert earlier.hash == trained.digest
        assert now.revision >= 1
        assert keys(engine, "mine.v1") == before
    with engine.connect() as connection:
        assert plan_prune(connection, None).runs == 0


def test_each_earlier_version_has_a_name_of_its_own_and_revisions_never_go_back(
    trained: Suite, database: Database, tmp_path: Path
) -> None:
    engine = database.engine
    revisions = []
    for number, cap in enumerate((60, 70, 80), start=1):
        changed = written(tmp_path, SUITE.replace("max_epochs: 50", f"max_epochs: {cap}"))
        registered = register_suite(engine, *definition(changed), replace=True)
        assert registered.earlier == f"mine.v{number}"
        ids = open_runs(engine, registered.suite_id)
        record_all(engine, claim(engine, list(ids.values()), "test", 60), epochs=20)
        revisions.append(registered.revision)
    assert revisions == sorted(set(revisions))


def test_another_description_is_no_other_definition(
    trained: Suite, database: Database, tmp_path: Path
) -> None:
    worded = written(tmp_path, SUITE.replace("five runs", "5 runs"))
    assert suite_change(database.engine, *definition(worded)) is None
    registered = register_suite(database.engine, *definition(worded))
    assert (registered.linked, registered.unlinked) == (0, 0)
    with database.engine.connect() as connection:
        assert get_suite(connection, "mine").spec["description"] == "5 runs"


def test_a_suite_without_results_is_changed_without_asking(
    database: Database, tmp_path: Path
) -> None:
    register_suite(database.engine, *definition(written(tmp_path, SUITE)))
    changed = written(tmp_path, SUITE.replace("primes: [7, 11]", "primes: [7]"))
    found: Registered = register_suite(database.engine, *definition(changed))
    assert found.unlinked == 2
    assert found.earlier is None


def test_the_command_shows_what_comes_and_goes_and_what_it_costs(
    trained: Suite, database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = written(tmp_path, SUITE.replace("primes: [7, 11]", "primes: [7, 13]"))
    with pytest.raises(ChangedSuite):
        settle_change(changed, database.engine, replace=False)
    said = capsys.readouterr().err
    assert "2 runs come, 2 go (2 closed, 40 epochs)" in said
    assert re.search(r"take about \d+\.\d core-hours", said)
    settle_change(changed, database.engine, replace=True)
    assert "mine.v1" in capsys.readouterr().err
    settle_change(changed, database.engine, replace=False)
    assert capsys.readouterr().err == ""


def test_a_bad_suite_can_be_deleted_and_its_runs_stay(
    trained: Suite, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROKTIME_DATABASE_URL", database.url)
    get_settings.cache_clear()
    name = "../../..\r\n\u202e"
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE suites SET name = :name, spec = '[1, 2]'"), {"name": name})
    runner = CliRunner()
    with pytest.raises(SuiteError) as unknown:
        runner.invoke(app, ["delete", "mine"], catch_exceptions=False)
    assert str(unknown.value).isprintable()
    result = runner.invoke(app, ["delete", name], input="n\n")
    assert result.exit_code == 1
    result = runner.invoke(app, ["delete", name, "--yes"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "5 that no other suite has (5 closed) stay" in result.stdout
    assert database.scalar("SELECT count(*) FROM suites") == 0
    assert database.scalar("SELECT count(*) FROM runs") == 5
    get_settings.cache_clear()


@pytest.mark.parametrize("name", ["../x", "a b", "", "ü", "x" * 101])
def test_a_name_that_nobody_could_ask_for_is_not_registered(database: Database, name: str) -> None:
    with pytest.raises(SuiteError, match="is not a name"):
        register_suite(database.engine, name, {}, "0" * 64, [])
