"""A sweep may be stopped or killed at any moment: nothing is lost and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from fixtures.commands import Commands, settings_environment, wait_until
from fixtures.database import Database

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

LONG = """\
description: two bundles that train for six seconds each on a fast machine
positions: none
primes: [47]
seeds: [1]
settings: {batch_size: 128}
stop: {max_epochs: 10000}
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
    return dict(
        settings_environment(
            database_url=database.url,
            checkpoints=tmp_path / "checkpoints",
            checkpoint_seconds=0.2,
            lease_seconds=5,
        )
    )


@pytest.fixture
def own_cluster(tmp_path: Path) -> dict[str, str]:
    """A sweep so started has a cluster and a token of its own."""
    return {"RAY_AUTH_MODE": "", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "no-token")}


@pytest.fixture
def address(ray_cluster: None) -> str:
    """Of the cluster that all tests share, which a sweep may join."""
    import ray

    found: str = ray.get_runtime_context().gcs_address
    return found


# Another could still be starting, and Ray gives such a one a minute to find that all is over.
ONE_WORKER = ("--workers", "1")
TRAINING = "SELECT count(*) FROM runs WHERE state = 'running' AND last_epoch > 20"


def wait_for(process: subprocess.Popen[str], true: Callable[[], Any]) -> None:
    """Wait for the condition while the sweep goes on; one that has ended says why."""
    wait_until(lambda: process.poll() is not None or true())
    assert process.poll() is None, process.communicate()[0]


def listening(processes: list[int]) -> set[str]:
    """Addresses that any of the processes can be reached at."""
    return {
        one.laddr.ip.removeprefix("::ffff:")
        for one in psutil.net_connections("tcp")
        if one.status == psutil.CONN_LISTEN and one.pid in processes
    }


def test_an_interrupted_sweep_gives_its_leases_back_and_leaves_no_process(
    commands: Commands,
    database: Database,
    suite_file: str,
    environment: dict[str, str],
    own_cluster: dict[str, str],
) -> None:
    process = commands.start("sweep", suite_file, *ONE_WORKER, **environment, **own_cluster)
    wait_for(process, lambda: database.scalar(TRAINING))
    assert listening(commands.left_behind()) == {"127.0.0.1"}, "nobody else can reach its cluster"
    os.kill(process.pid, signal.SIGINT)
    gives_its_leases_back(process, database)
    wait_until(lambda: not commands.left_behind())


def test_a_terminated_sweep_gives_its_leases_back(
    commands: Commands,
    database: Database,
    suite_file: str,
    environment: dict[str, str],
    address: str,
) -> None:
    process = commands.start("sweep", suite_file, *ONE_WORKER, "--address", address, **environment)
    wait_for(process, lambda: database.scalar(TRAINING))
    os.kill(process.pid, signal.SIGTERM)
    gives_its_leases_back(process, database)


def gives_its_leases_back(process: subprocess.Popen[str], database: Database) -> None:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert database.scalar("SELECT count(*) FROM runs WHERE state = 'running'") == 0


def test_after_a_killed_driver_the_next_sweep_goes_on(
    commands: Commands,
    database: Database,
    suite_file: str,
    environment: dict[str, str],
    own_cluster: dict[str, str],
    address: str,
) -> None:
    one_run = ("sweep", suite_file, "--width", "8")
    process = commands.start(*one_run, *ONE_WORKER, **environment, **own_cluster)
    checkpoints = Path(environment["GROKTIME_CHECKPOINTS"])
    wait_for(process, lambda: list(checkpoints.rglob("*.checkpoint")))
    # Ray takes a while to notice that the driver is gone: the worker stands still until it has, or
    # it could end the run and leave nothing to go on with.
    worker = int(database.scalar("SELECT owner FROM runs WHERE state = 'running'").split(":")[-1])
    os.kill(worker, signal.SIGSTOP)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: {*commands.left_behind()} <= {worker})
    with suppress(ProcessLookupError):  # Ray has ended it already, or it ends as it wakes up
        os.kill(worker, signal.SIGCONT)
    wait_until(lambda: not commands.left_behind())
    assert database.scalar("SELECT count(*) FROM runs WHERE state <> 'done' AND last_epoch > 0")

    code, output = commands.run(*one_run, "--address", address, **environment)
    assert code == 0, output
    assert database.scalar("SELECT count(*) FROM runs WHERE state = 'done'") == 1
    assert database.scalar("SELECT max(resume_epoch) FROM attempts") > 0
    assert database.scalar("SELECT count(*) FROM curve") == database.scalar(
        "SELECT sum(last_epoch) FROM runs"
    )


def test_a_wrong_suite_writes_nothing_and_ends_with_two(
    commands: Commands, database: Database, tmp_path: Path, environment: dict[str, str]
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(LONG.replace("[8, 10]", "[8, 11]"))
    code, output = commands.run("sweep", str(path), **environment)
    assert code == 2
    assert "line 8: speed.widths[1]: 11 is odd; widths are even" in output
    assert database.scalar("SELECT count(*) FROM suites") == 0


def test_a_dry_run_plans_and_writes_nothing(
    commands: Commands, database: Database, suite_file: str, environment: dict[str, str]
) -> None:
    code, output = commands.run("sweep", suite_file, "--dry-run", **environment)
    assert code == 0, output
    assert "2 to train" in output
    assert database.scalar("SELECT count(*) FROM suites") == 0
