"""A cluster that Ray's own autoscaler makes larger for what waits, from no CPU at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fixtures.autoscaled import write_config
from fixtures.commands import Commands, free_ports, settings_environment, wait_until
from fixtures.database import Database

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

MOST = 3  # nodes of one CPU

GRID = """\
description: three runs of different shapes that train until another node has come
positions: none
primes: [47]
seeds: [1]
settings: {batch_size: 128}
stop: {max_epochs: 20000}
speed: {widths: [8, 10, 12]}
"""
LOCATED = """\
description: located
positions: none
primes: [53]
seeds: [42, 43]
settings: {batch_size: {steps: 12.36}}
stop: {max_epochs: 1000}
design: {place: [crossing], widths: [28, 32, 36, 40], precision: 0.1, max_runs: 8}
"""

# Each node has one CPU, so each owner is a worker on a node of its own.
AT_ONCE = "SELECT count(DISTINCT owner) FROM runs WHERE state = 'running'"


@pytest.fixture
def address(commands: Commands, tmp_path: Path) -> str:
    """The head of a cluster without any CPU, and its autoscaler."""
    port, jobs, agent = free_ports(3)
    config = tmp_path / "autoscaler.json"
    write_config(config, f"127.0.0.1:{port}", cpus=1, most=MOST)
    tests = str(Path(__file__).parents[2])
    paths = filter(None, [tests, os.environ.get("PYTHONPATH")])
    commands.start(
        *("start", "--head", "--block", "--num-cpus", "0", "--port", str(port)),
        *("--node-ip-address", "127.0.0.1", "--object-store-memory", "100000000"),
        *("--dashboard-port", str(jobs), "--dashboard-agent-listen-port", str(agent)),
        *("--autoscaling-config", str(config)),
        program=("ray",),
        PYTHONPATH=os.pathsep.join(paths),
        AUTOSCALER_UPDATE_INTERVAL_S="1",
        RAY_FAKE_CLUSTER="1",
    )
    check = ("health-check", "--address", f"127.0.0.1:{port}")
    wait_until(lambda: commands.run(*check, program=("ray",))[0] == 0, seconds=120)
    return f"127.0.0.1:{port}"


@pytest.mark.parametrize("suite", [GRID, LOCATED], ids=["grid", "located"])
def test_a_sweep_makes_the_cluster_grow(
    suite: str, address: str, commands: Commands, database: Database, tmp_path: Path
) -> None:
    (tmp_path / "grows.yaml").write_text(suite)
    settings = settings_environment(
        database_url=database.url, checkpoints=tmp_path / "checkpoints", most_cpus=MOST
    )
    words = ("sweep", str(tmp_path / "grows.yaml"), "--address", address)
    sweep = commands.start(*words, **settings)

    def together() -> bool:
        assert sweep.poll() is None, sweep.communicate()[0]
        return bool(database.scalar(AT_ONCE) >= 2)

    wait_until(together, seconds=600)
    said, _ = sweep.communicate(timeout=900)
    assert sweep.returncode == 0, said
    assert database.scalar("SELECT count(*) FROM runs WHERE state = 'done'") >= MOST
