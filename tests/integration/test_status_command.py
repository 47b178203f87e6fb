"""`groktime status` and `sweep --dry-run`: what they say of runs that others hold or have lost."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures.commands import Commands
from fixtures.database import Database
from fixtures.located import small_cell, train_located
from fixtures.seeded import register
from sqlalchemy import text

from groktime.db.claims import claim
from groktime.db.suites import open_runs
from groktime.service.suites import load_suite

SUITE = """\
description: three runs
positions: none
primes: [5]
seeds: [1, 2, 3]
stop: {max_epochs: 5}
grok: {widths: [8]}
"""

Ask = Callable[..., str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "held.yaml"
    path.write_text(SUITE)
    return path


@pytest.fixture
def ask(database: Database, commands: Commands, file: Path) -> Ask:
    """A command on a database where one run is held, one was lost with its worker, one is free."""
    suite = load_suite(file)
    held, lost, _ = open_runs(database.engine, register(database.engine, suite)).values()
    claim(database.engine, [held], "alive", 600)
    claim(database.engine, [lost], "gone", 600)
    with database.engine.begin() as connection:
        over = "UPDATE runs SET lease_until = now() - interval '1 minute' WHERE id = :id"
        connection.execute(text(over), {"id": lost})

    def answer(*arguments: str) -> str:
        code, output = commands.run(*arguments, GROKTIME_DATABASE_URL=database.url)
        assert code == 0, output
        return output

    return answer


def test_a_run_whose_lease_is_over_is_stale_before_anybody_takes_it(ask: Ask) -> None:
    (answer,) = json.loads(ask("status", "held", "--json"))
    states = answer["states"]
    assert (states["running"], states["stale"], states["pending"]) == (1, 1, 1)
    assert "0/3" in ask("status", "held")
    listed = ask("status").splitlines()
    assert listed[0].split() == ["suite", "runs", "done", "running", "stale", "left"]
    assert listed[1].split()[:5] == ["held", "3", "0", "1", "1"]


def test_status_needs_neither_analysis_nor_training(
    ask: Ask, commands: Commands, database: Database
) -> None:
    for arguments in (["status"], ["status", "held"]):
        code = (
            "import sys; from groktime.service.cli import app; "
            f"app({arguments!r}, standalone_mode=False); "
            "print(*sys.modules, sep='\\n')"
        )
        program = (sys.executable, "-c", code)
        status, output = commands.run(program=program, GROKTIME_DATABASE_URL=database.url)
        assert status == 0, output
        heavy = {"numpy", "pandas", "scipy", "torch", "ray", "sqlalchemy.orm", "alembic", "yaml"}
        assert heavy & set(output.split()) == set()


@pytest.mark.usefixtures("ask")
def test_a_suite_that_is_not_there_is_answered_with_those_that_are(
    database: Database, commands: Commands
) -> None:
    code, output = commands.run("status", "hold", GROKTIME_DATABASE_URL=database.url)
    assert code == 2
    assert "suite: 'hold' is not in the database; accepted: held; groktime sweep NAME" in output


def test_a_run_that_another_sweep_holds_is_not_planned(ask: Ask, file: Path) -> None:
    plan = json.loads(ask("sweep", str(file), "--dry-run", "--json"))
    assert (plan["selected"], plan["running"], plan["to_train"]) == (3, 1, 2)


def test_a_plan_without_a_database_says_so(commands: Commands, file: Path) -> None:
    home = f"/tmp/gt-none-{os.getpid()}"  # a short path that does not exist
    code, output = commands.run("sweep", str(file), "--dry-run", GROKTIME_HOME=home)
    assert code == 0, output
    assert "3 to train" in output
    assert "no database is running" in output


def test_a_located_suite_shows_both_points_what_they_took_and_what_is_next(
    database: Database, commands: Commands
) -> None:
    suite = small_cell()
    train_located(database.engine, suite, 6)
    code, told = commands.run(
        "status", suite.name, GROKTIME_DATABASE_URL=database.url, COLUMNS="200"
    )
    assert code == 0, told
    for words in ("P_cross", "P_onset", "core time", "p = 29", "located to 0.08 dex"):
        assert words in told
    code, told = commands.run("status", suite.name, "--json", GROKTIME_DATABASE_URL=database.url)
    ((cell,),) = [answer["placement"]["cells"] for answer in json.loads(told)]
    assert (cell["runs"], len(cell["steps"])) == (6, 6)
    assert cell["next"][0]["why"]
