"""A worker takes further runs of the same shape into the places of those that have ended."""

from __future__ import annotations

from pathlib import Path

import pytest
import ray
from fixtures.database import Database
from ray import tune

from groktime.db.claims import claim
from groktime.service.settings import Settings
from groktime.service.suites import load_suite
from groktime.service.sweep.selection import SweepOptions, prepare
from groktime.workers.trainable import BundleTrainable, WorkerConfig

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

SIX = """\
description: six
positions: none
primes: [5]
seeds: [1, 2, 3, 4, 5, 6]
settings: {batch_size: 16}
stop: {max_epochs: 12}
speed:
  widths: [4]
"""


def test_spares_are_trained_by_the_same_worker_unless_another_has_them(
    ray_cluster: None, database: Database, tmp_path: Path
) -> None:
    path = tmp_path / "six.yaml"
    path.write_text(SIX)
    runs = list(prepare(load_suite(path), database.engine, SweepOptions()).runs)
    worker = WorkerConfig.of(Settings(checkpoints=tmp_path / "checkpoints"), database.url, "cpu")

    claim(database.engine, runs[3:4], "another worker", 600.0)
    bundle = {"name": "sweep-1-0/1", "stacks": [runs[:2]], "spares": [runs[2:]]}
    trainable = tune.with_parameters(BundleTrainable, worker=worker)
    actor = ray.remote(num_cpus=1)(trainable).remote({"bundle": bundle})
    assert ray.get(actor.train.remote())["done"]
    ray.get(actor.stop.remote())
    assert database.scalar("SELECT count(*) FROM runs WHERE state = 'done'") == 5
    assert database.scalar(f"SELECT owner FROM runs WHERE id = {runs[3]}") == "another worker"
    assert database.scalar("SELECT count(*) FROM curve") == database.scalar(
        "SELECT sum(last_epoch) FROM runs"
    )
    owners = "SELECT count(DISTINCT owner) FROM attempts WHERE owner LIKE 'sweep-1-0/1@%'"
    assert database.scalar(owners) == 1
    assert database.scalar("SELECT max(attempt) FROM runs") == 1
