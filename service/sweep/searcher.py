"""Runs for Ray Tune as a feed wants them, one trial after the other, without an end set before.

Nothing that matters is kept here: the feed makes every suggestion from what the database holds, so
a sweep that was killed goes on where it was.
"""

from __future__ import annotations

import logging
import secrets
import tempfile
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from ray import tune
from ray.tune.search import Searcher
from sqlalchemy import Engine

from groktime.db.claims import revoke_leases
from groktime.db.retry import retrying
from groktime.service.errors import SweepError
from groktime.service.settings import Settings
from groktime.service.sweep.cluster import ClusterCapacity
from groktime.service.sweep.locator import SYSTEMIC_CRASHES, TRIES, Locator
from groktime.service.sweep.selection import SweepOptions, SweepReport
from groktime.service.sweep.tuner import RETRIES, Outcomes
from groktime.workers.trainable import BundleTrainable, WorkerConfig


class Feed(Protocol):
    """Where a searcher gets its runs from."""

    def next(self, live: Collection[int]) -> Sequence[Sequence[int]] | None:
        """Stacks of run numbers for the next trial; None: nothing as long as `live` ones train."""
        ...

    def crashed(self, runs: Sequence[int]) -> None:
        """The trial of these runs crashed to the end; nobody holds them."""
        ...

    def trained(self, runs: Sequence[int]) -> None:
        """The trial of these runs ended well."""
        ...


class FedSearcher(Searcher):
    """Ray Tune's way to ask a feed: one trial trains the stacks that the feed gave it."""

    def __init__(self, feed: Feed, engine: Engine, name: str) -> None:
        super().__init__(metric="training_seconds", mode="min")
        self._feed, self._engine, self.name = feed, engine, name
        self._live: dict[str, tuple[str, list[int]]] = {}  # by trial: its owner's name and runs
        self.count = 0
        self.stopped = False

    def suggest(self, trial_id: str) -> Any:
        """The next trial; None waits for one that is being trained."""
        live = [run for _, runs in self._live.values() for run in runs]
        stacks = None if self.stopped else self._feed.next(live)
        if stacks is None:
            return None if self._live else Searcher.FINISHED
        self.count += 1
        name = f"{self.name}/{self.count}"
        self._live[trial_id] = (name, [run for stack in stacks for run in stack])
        bundle = {"number": self.count, "name": name, "stacks": [list(stack) for stack in stacks]}
        return {"bundle": bundle}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tune says this once a trial, after its retries; without a result where it crashed."""
        if trial_id not in self._live:
            return
        name, runs = self._live.pop(trial_id)
        if error:
            retrying(lambda: revoke_leases(self._engine, f"{name}@"))
            self._feed.crashed(runs)
        elif result and result.get("refused"):
            self.stopped = True  # no retry mends it, and it concerns all
        else:
            self._feed.trained(runs)

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its parts to restore them; this one is made anew from Postgres instead."""
        return {"name": self.name}

    def save(self, checkpoint_path: str) -> None:
        """Nothing: Postgres has it."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: Postgres has it."""


def run_located(
    locator: Locator,
    settings: Settings,
    database_url: str,
    options: SweepOptions,
    capacity: ClusterCapacity,
) -> SweepReport:
    """Train until every cell is located, has nothing left to learn or is out of its budget."""
    name = f"locate-{secrets.token_hex(4)}"
    report = SweepReport()
    before = sum(cell.runs for cell in locator.cells)
    try:
        while locator.wants or locator.others_have_ended():
            with locator.setting_aside(f"{name}-"):
                _tune(locator, name, settings, database_url, options, capacity, report)
    finally:
        retrying(lambda: revoke_leases(locator.engine, f"{name}-"))
    stuck = locator.stuck()
    if stuck:
        numbers = ", ".join(map(str, stuck))
        raise SweepError(f"runs {numbers} came back unfinished {TRIES} times; see workers' logs")
    report.failed = locator.failed()
    report.trained = sum(cell.runs for cell in locator.cells) - before
    report.left_to_others = len(locator.held_by_others())
    return report


def _tune(
    locator: Locator,
    name: str,
    settings: Settings,
    database_url: str,
    options: SweepOptions,
    capacity: ClusterCapacity,
    report: SweepReport,
) -> None:
    """One experiment, until nothing is wanted any more; its counts are added to the report."""
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    worker = WorkerConfig.of(settings, database_url, capacity.device)
    asked: dict[str, float] = {"cpu": 1}
    if capacity.gpus:
        asked["gpu"] = capacity.gpus
    trainable = tune.with_resources(tune.with_parameters(BundleTrainable, worker=worker), asked)
    searcher = FedSearcher(locator, locator.engine, f"{name}-{report.bundles}")
    outcomes = Outcomes()
    with tempfile.TemporaryDirectory(prefix="groktime-tune-") as storage:
        tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                num_samples=-1,
                max_concurrent_trials=capacity.slots,
                reuse_actors=True,
                trial_name_creator=lambda trial: f"run_{trial.trial_id}",
                trial_dirname_creator=lambda trial: f"run_{trial.trial_id}",
            ),
            run_config=tune.RunConfig(
                name=searcher.name,
                storage_path=storage,
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=RETRIES),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                callbacks=[outcomes],
                log_to_file=False,
            ),
        ).fit()
    report.bundles += max(1, searcher.count)
    report.retried += outcomes.retried
    report.training_seconds += outcomes.training_seconds
    if outcomes.refused:
        raise SweepError("; ".join(sorted(outcomes.refused)))
    if locator.is_systemic:
        raise SweepError(
            f"{SYSTEMIC_CRASHES} runs in a row crashed: {next(iter(outcomes.crashed.values()))}"
        )
    locator.fail_crashed()
