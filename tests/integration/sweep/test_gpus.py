"""Sweeps on a Ray that says it has GPUs: what is chosen, what is refused, and what is said of it.

The two GPUs are logical: Ray shares them out as it does real ones, but no worker finds a device.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixtures.commands import Commands, free_ports, settings_environment, wait_until
from fixtures.database import Database

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

TINY = """\
description: tiny
positions: none
primes: [5]
seeds: [1]
settings: {batch_size: 8}
stop: {max_epochs: 3}
speed: {widths: [8]}
"""

# What the cluster offers to a sweep without options, and how Ray shares the GPUs out by it.
SHARED_OUT = """
import json, sys, time
from collections import Counter
from groktime.service.sweep.cluster import cluster, gpu_share, members
with cluster(sys.argv[1], None):
    import ray
    resources, _ = members()
    share = gpu_share(None, "auto", resources)

    @ray.remote(num_cpus=1, num_gpus=share)
    class Bundle:
        def gpu(self):
            return ray.get_gpu_ids()

    bundles = [Bundle.remote() for _ in range(int(resources["GPU"] / share))]
    held = [ray.get(bundle.gpu.remote()) for bundle in bundles]
    print(json.dumps({"share": share, "held": held}))
"""


@pytest.fixture(scope="module")
def address(shared_commands: Commands) -> str:
    """A head of eight CPUs and two logical GPUs."""
    port, jobs, agent = free_ports(3)
    shared_commands.start(
        *("start", "--head", "--block", "--num-cpus", "8", "--num-gpus", "2"),
        *("--port", str(port), "--node-ip-address", "127.0.0.1"),
        *("--object-store-memory", "100000000", "--dashboard-port", str(jobs)),
        *("--dashboard-agent-listen-port", str(agent)),
        program=("ray",),
    )
    check = ("health-check", "--address", f"127.0.0.1:{port}")
    wait_until(lambda: shared_commands.run(*check, program=("ray",))[0] == 0)
    return f"127.0.0.1:{port}"


@pytest.fixture
def suite(tmp_path: Path) -> str:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return str(path)


@pytest.fixture
def settings(shared_database: Database, tmp_path: Path) -> dict[str, str]:
    return settings_environment(database_url=shared_database.url, checkpoints=tmp_path / "c")


def test_four_bundles_share_each_gpu_where_nobody_says_otherwise(
    address: str, commands: Commands
) -> None:
    import sys

    code, output = commands.run("-c", SHARED_OUT, address, program=(sys.executable,))
    assert code == 0, output
    found = json.loads(output.splitlines()[-1])
    assert found["share"] == 0.25
    held = [gpu for bundle in found["held"] for gpu in bundle]
    assert sorted(held.count(gpu) for gpu in set(held)) == [4, 4]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--device", "cuda"), "device = 'cuda' is not there"),
        (("--gpus-per-bundle", "0.25"), "device = 'cuda' is not there"),
        (("--gpus-per-bundle", "4"), "--gpus-per-bundle = 4, but the cluster has 2 GPUs"),
        (("--gpus-per-bundle", "1.5"), "only whole GPUs"),
        (("--device", "cuda", "--gpus-per-bundle", "0"), "needs --gpus-per-bundle"),
        (("--device", "tpu"), "--device = 'tpu' is not accepted; accepted: auto, cpu, cuda"),
    ],
)
def test_gpus_that_were_asked_for_and_cannot_be_had_are_refused(
    address: str,
    commands: Commands,
    suite: str,
    settings: dict[str, str],
    options: tuple[str, ...],
    told: str,
) -> None:
    code, output = commands.run("sweep", suite, "--address", address, *options, **settings)
    assert code == 2
    assert told in " ".join(output.split())


def test_gpus_that_nobody_asked_for_and_no_worker_can_use_are_said_to_be_unused(
    address: str, commands: Commands, suite: str, settings: dict[str, str]
) -> None:
    code, output = commands.run("sweep", suite, "--address", address, **settings)
    assert code == 0, output
    said = " ".join(output.split())
    assert "1 run on cpu: 8 bundles at once; its GPUs are not used: device = 'cuda'" in said
    assert "1 run trained" in said
