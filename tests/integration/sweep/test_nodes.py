"""A sweep over several nodes: work spreads, and nodes may come and go."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from fixtures.commands import Commands, free_ports, settings_environment, wait_until
from fixtures.database import Database
from sqlalchemy import text

TWO_BUNDLES = """\
description: two runs of different shapes that train for six seconds each on a fast machine
positions: none
primes: [47]
seeds: [1]
settings: {batch_size: 128}
stop: {max_epochs: 10000}
speed:
  widths: [8, 10]  # cannot memorise that much, so they train to the cap
"""

# How soon a node that is gone is missed; one that is only slow has ten seconds for each answer.
QUICKLY_MISSED = {"health_check_period_ms": 500, "health_check_initial_delay_ms": 1000}

# An owner is BUNDLE@HOST:PID.
OWNERS = "SELECT DISTINCT owner FROM runs WHERE state = 'running'"


def next_worker(sweep: subprocess.Popen[str], database: Database, *known: int) -> int:
    """The process of a worker that trains and is none of those, when there is one."""

    def found() -> int | None:
        assert sweep.poll() is None, sweep.communicate()[0]
        with database.engine.connect() as connection:
            owners = connection.scalars(text(OWNERS)).all()
        pids = (int(owner.rpartition(":")[2]) for owner in owners)
        return next((pid for pid in pids if pid not in known), None)

    pid: int = wait_until(found)
    return pid


def is_under(worker: int, node: int) -> bool:
    """Whether the worker was started by this node's process."""
    return node in {parent.pid for parent in psutil.Process(worker).parents()}


@pytest.fixture
def suite_file(tmp_path: Path) -> str:
    path = tmp_path / "two.yaml"
    path.write_text(TWO_BUNDLES)
    return str(path)


@pytest.fixture
def environment(database: Database, tmp_path: Path) -> dict[str, str]:
    return dict(
        settings_environment(
            database_url=database.url,
            checkpoints=tmp_path / "checkpoints",
            checkpoint_seconds=0.2,
            lease_seconds=600,
        )
    )


def spread_lose_and_replace(
    sweep: subprocess.Popen[str],
    database: Database,
    nodes: tuple[int, int],
    kill: Callable[[int], None],
    add: Callable[[], int],
) -> None:
    """Of two nodes that train, kill one: another that joins goes on with its work, to the end.

    The worker on the node that stays is held still meanwhile, so that it cannot do it all.
    """
    busy = next_worker(sweep, database)
    os.kill(busy, signal.SIGSTOP)
    try:
        lost = next_worker(sweep, database, busy)
        (doomed,) = (node for node in nodes if is_under(lost, node))
        assert not is_under(busy, doomed)
        kill(doomed)
        added = add()
        heir = next_worker(sweep, database, busy, lost)
        assert is_under(heir, added)
    finally:
        os.kill(busy, signal.SIGCONT)
    output, _ = sweep.communicate(timeout=400)
    assert sweep.returncode == 0, output


def everything_is_trained_once(database: Database) -> None:
    assert database.scalar("SELECT count(*) FROM runs WHERE state = 'done'") == 2
    assert database.scalar("SELECT max(attempt) FROM runs") == 2
    assert database.scalar("SELECT count(*) FROM curve") == database.scalar(
        "SELECT sum(last_epoch) FROM runs"
    )


@pytest.fixture
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    started = Cluster(
        initialize_head=True,
        shutdown_at_exit=False,
        head_node_args={
            "num_cpus": 0,
            "include_dashboard": False,
            "_system_config": QUICKLY_MISSED,
        },
    )
    yield started
    started.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_work_spreads_over_nodes_and_goes_on_when_one_dies_and_another_joins(
    cluster: Any,
    commands: Commands,
    database: Database,
    suite_file: str,
    environment: dict[str, str],
) -> None:
    nodes: dict[int, Any] = {}

    def add() -> int:
        node = cluster.add_node(num_cpus=1, wait=False)
        pid: int = node.all_processes["raylet"][0].process.pid
        nodes[pid] = node
        return pid

    def kill(pid: int) -> None:
        cluster.remove_node(nodes[pid], allow_graceful=False)

    both = add(), add()
    process = commands.start("sweep", suite_file, "--address", cluster.address, **environment)
    spread_lose_and_replace(process, database, both, kill, add)
    everything_is_trained_once(database)
    why = "SELECT string_agg(reason, '; ') FROM attempts"
    assert database.scalar(why) == "its node died"


@pytest.mark.long
def test_nodes_started_by_hand_may_be_killed_and_replaced(
    commands: Commands, database: Database, suite_file: str, environment: dict[str, str]
) -> None:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    local = ("--node-ip-address", "127.0.0.1", "--object-store-memory", "100000000", "--block")

    def start(*arguments: str) -> int:
        node = commands.start(*arguments, *local, program=("ray", "start"), **environment)
        assert node.stdout is not None
        said = []
        for line in node.stdout:
            said.append(line)
            if "Ray runtime started" in line:
                return node.pid
        raise AssertionError("a node did not start: " + "".join(said))

    def join() -> int:
        return start("--address", address, "--num-cpus", "1")

    def kill(pid: int) -> None:
        node = psutil.Process(pid)
        for process in (*node.children(recursive=True), node):
            process.kill()

    port = address.rpartition(":")[2]
    start("--head", "--port", port, "--num-cpus", "0", "--include-dashboard", "false")
    both = join(), join()
    process = commands.start("sweep", suite_file, "--address", address, **environment)
    spread_lose_and_replace(process, database, both, kill, join)
    everything_is_trained_once(database)
