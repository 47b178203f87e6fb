"""Forgetting checkpoints that outlived their run.

A worker closes a run and then deletes its checkpoints. One that is killed in between, or that
wakes up too late, leaves a folder that no other worker will look at again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from service.sweep.selection import StoredRun
from workers.checkpoints import CheckpointStore


def tidy(checkpoints: Path, runs: Iterable[StoredRun]) -> int:
    """Delete the checkpoints of finished runs; returns of how many runs.

    A run whose workers crashed keeps them: it may be tried again from there.
    """
    store = CheckpointStore(checkpoints)
    finished = {run.spec.key for run in runs if run.state == "done" or run.reason == "diverged"}
    left = finished & store.keys()
    for key in left:
        store.delete(key)
    return len(left)
