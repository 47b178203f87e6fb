"""A sweep over several nodes: work spreads, and nodes may come and go."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.commands import Commands, settings_environment, wait_until
from fixtures.database import Database
from sqlalchemy import text

MANY = """\
description: many small stacks
positions: none
primes: [17, 19, 23]
seeds: [1, 2]
settings: {batch_size: 64, dropout: 0.6}  # never fits, so it trains to the cap
stop: {max_epochs: 30000, train: 1.0}
speed:
  widths: [8, 12, 16, 20]
"""

# An owner is BUNDLE@HOST:PID.
WORKERS = "SELECT count(DISTINCT split_part(owner, '@', 2)) FROM attempts"


def scalar(database: Database, query: str) -> Any:
    with database.engine.connect() as connection:
        return connection.scalar(text(query))


@pytest.fixture
def suite_file(tmp_path: Path) -> str:
    path = tmp_path / "many.yaml"
    path.write_text(MANY)
    return str(path)


@pytest.fixture
def environment(database: Database, tmp_path: Path) -> dict[str, str]:
    return dict(
        settings_environment(
            database_url=database.url,
            checkpoints=tmp_path / "checkpoints",
            checkpoint_seconds=0.2,
            lease_seconds=20,
            home=tmp_path,
        )
    )


@pytest.fixture
def nodes() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        shutdown_at_exit=False,
        head_node_args={"num_cpus": 0, "include_dashboard": False},
    )
    yield cluster
    cluster.shutdown()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_work_spreads_over_nodes_and_goes_on_when_one_dies_and_another_joins(
    nodes: Any,
    commands: Commands,
    database: Database,
    suite_file: str,
    environment: dict[str, str],
) -> None:
    nodes.add_node(num_cpus=1)
    doomed = nodes.add_node(num_cpus=1)
    process = commands.start("sweep", suite_file, "--address", nodes.address, **environment)
    wait_until(lambda: scalar(database, WORKERS) >= 2)
    nodes.remove_node(doomed, allow_graceful=False)
    nodes.add_node(num_cpus=1)
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    assert scalar(database, "SELECT count(*) FROM runs WHERE state = 'done'") == 24
    assert scalar(database, WORKERS) >= 3
    assert scalar(database, "SELECT count(*) FROM curve") == scalar(
        database, "SELECT sum(last_epoch) FROM runs"
    )


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


@pytest.mark.long
def test_nodes_started_by_hand_may_be_killed_and_replaced(
    commands: Commands, database: Database, suite_file: str, environment: dict[str, str]
) -> None:
    address = f"127.0.0.1:{free_port()}"
    local = ("--node-ip-address", "127.0.0.1", "--object-store-memory", "100000000", "--block")
    ray = ("ray", "start")
    head = ("--head", "--port", address.rpartition(":")[2], "--num-cpus", "0")
    commands.start(*head, "--include-dashboard", "false", *local, program=ray, **environment)

    def join() -> int:
        node = commands.start(
            "--address", address, "--num-cpus", "1", *local, program=ray, **environment
        )
        return node.pid

    listening(address)
    join()
    doomed = join()
    process = commands.start("sweep", suite_file, "--address", address, **environment)
    wait_until(lambda: scalar(database, WORKERS) >= 2)
    os.killpg(doomed, signal.SIGKILL)
    join()
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    assert scalar(database, "SELECT count(*) FROM runs WHERE state = 'done'") == 24


def listening(address: str) -> None:
    host, _, port = address.rpartition(":")

    def open_port() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    wait_until(open_port)
