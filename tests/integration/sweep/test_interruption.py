"""A sweep may be stopped or killed at any moment: nothing is lost and nothing left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from fixtures.commands import Commands, settings_environment, wait_until
from fixtures.database import Database
from sqlalchemy import text

pytestmark = pytest.mark.slow

LONG = """\
description: two stacks that train for some seconds
positions: none
primes: [47]
seeds: [1, 2]
settings: {batch_size: 128}
stop: {max_epochs: 5000}
speed:
  widths: [8, 10]  # cannot memorise that much, so they train to the cap
"""


@pytest.fixture
def suite_file(tmp_path: Path) -> str:
    path = tmp_path / "long.yaml"
    path.write_text(LONG)
    return str(path)


@pytest.fixture
def environment(database: Database, tmp_path: Path) -> dict[str, str]:
    settings = settings_environment(
        database_url=database.url,
        checkpoints=tmp_path / "checkpoints",
        checkpoint_seconds=0.2,
        lease_seconds=5,
        home=tmp_path,
    )
    return {**settings, "RAY_AUTH_MODE": "", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "no-token")}


def scalar(database: Database, query: str) -> Any:
    with database.engine.connect() as connection:
        return connection.scalar(text(query))


TRAINING = "SELECT count(*) FROM runs WHERE state = 'running' AND last_epoch > 20"


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_sweep_gives_its_leases_back_and_leaves_no_process(
    commands: Commands,
    database: Database,
    suite_file: str,
    environment: dict[str, str],
    stop: signal.Signals,
) -> None:
    process = commands.start("sweep", suite_file, **environment)
    wait_until(lambda: scalar(database, TRAINING))
    os.kill(process.pid, stop)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert scalar(database, "SELECT count(*) FROM runs WHERE state = 'running'") == 0
    wait_until(lambda: not commands.left_behind())


def test_after_a_killed_driver_the_next_sweep_goes_on(
    commands: Commands, database: Database, suite_file: str, environment: dict[str, str]
) -> None:
    process = commands.start("sweep", suite_file, **environment)
    checkpoints = Path(environment["GROKTIME_CHECKPOINTS"])
    wait_until(lambda: list(checkpoints.rglob("*.checkpoint")))
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not commands.left_behind())
    kept = scalar(database, "SELECT sum(last_epoch) FROM runs")
    assert kept > 0

    code, output = commands.run("sweep", suite_file, **environment)
    assert code == 0, output
    assert scalar(database, "SELECT count(*) FROM runs WHERE state = 'done'") == 4
    assert scalar(database, "SELECT max(resume_epoch) FROM attempts") > 0
    assert scalar(database, "SELECT count(*) FROM curve") == scalar(
        database, "SELECT sum(last_epoch) FROM runs"
    )


def test_a_wrong_suite_writes_nothing_and_ends_with_two(
    commands: Commands, database: Database, tmp_path: Path, environment: dict[str, str]
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(LONG.replace("[8, 10]", "[8, 11]"))
    code, output = commands.run("sweep", str(path), **environment)
    assert code == 2
    assert "line 8: speed.widths[1]: 11 is odd; widths are even" in output
    assert scalar(database, "SELECT count(*) FROM suites") == 0


def test_a_dry_run_plans_and_writes_nothing(
    commands: Commands, database: Database, suite_file: str, environment: dict[str, str]
) -> None:
    code, output = commands.run("sweep", suite_file, "--dry-run", **environment)
    assert code == 0, output
    assert "4 to train" in output
    assert scalar(database, "SELECT count(*) FROM suites") == 0


def test_failed_runs_make_the_exit_code_and_a_table(
    commands: Commands, database: Database, tmp_path: Path, environment: dict[str, str]
) -> None:
    path = tmp_path / "hot.yaml"
    path.write_text(
        "description: x\npositions: none\nprimes: [5]\nseeds: [1]\naxes: {lr: [1e-3, 1e30]}\n"
        "stop: {max_epochs: 5}\nspeed: {widths: [4]}\n"
    )
    code, output = commands.run("sweep", str(path), **environment)
    assert code == 1, output
    assert "failed runs" in output
    assert output.count("diverged") == 1
