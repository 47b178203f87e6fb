"""Checkpoints that a killed worker left behind are forgotten by the next sweep."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from fixtures.runs import grok_spec

from groktime.service.sweep.selection import StoredRun, delete_finished_checkpoints
from groktime.workers.checkpoints import CheckpointStore


def test_only_finished_runs_lose_their_checkpoints(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    states = [
        ("done", None),
        ("failed", "diverged"),
        ("failed", "crashed: The actor died"),
        ("running", None),
        ("stale", None),
        ("pending", None),
    ]
    runs = []
    for number, (state, reason) in enumerate(states, start=1):
        spec = grok_spec(seed=number)
        store.save(spec.key, 3, "fingerprint", {"weights": np.zeros(2, dtype=np.float32)}, {})
        runs.append(StoredRun(number, spec, state, reason, 1.0, 3))
    others = grok_spec(seed=99)  # of another suite: none of this sweep's business
    store.save(others.key, 3, "fingerprint", {"weights": np.zeros(2, dtype=np.float32)}, {})
    assert delete_finished_checkpoints(tmp_path, runs) == 2
    assert store.keys() == {run.spec.key for run in runs[2:]} | {others.key}
    assert delete_finished_checkpoints(tmp_path, runs) == 0


def test_a_driver_that_does_not_see_the_folder_has_nothing_to_forget(tmp_path: Path) -> None:
    run = StoredRun(1, grok_spec(), "done", None, 1.0, 3)
    assert delete_finished_checkpoints(tmp_path / "elsewhere", [run]) == 0
