"""A suite that is located: Ray Tune asks for the next run, Postgres says what is known.

The searcher keeps nothing that matters. Every suggestion is made from what the database holds, so
a sweep that was killed goes on where it was, and what other sweeps have trained counts as well.
"""

from __future__ import annotations

import logging
import secrets
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from ray import tune
from ray.tune.search import Searcher
from sqlalchemy import Engine, text

from groktime.db.claims import expire, fail_runs, reopen, revoke_leases
from groktime.db.retry import retrying
from groktime.service.errors import SweepError
from groktime.service.settings import Settings
from groktime.service.suites import Suite
from groktime.service.sweep.cluster import ClusterCapacity
from groktime.service.sweep.locate import Choice
from groktime.service.sweep.located import Cell, LocatedCells, described, known_runs
from groktime.service.sweep.selection import SweepOptions, SweepReport, register
from groktime.service.sweep.tuner import RETRIES, Outcomes
from groktime.workers.trainable import BundleTrainable, WorkerConfig


class Locator:
    """What a located suite knows, read from Postgres, and the run it wants next."""

    def __init__(self, suite: Suite, engine: Engine, options: SweepOptions) -> None:
        self.suite, self.engine = suite, engine
        self._located = LocatedCells(suite, options.selection.primes)
        self.cells, self.design = self._located.cells, self._located.design
        self.registered = register(suite, engine)
        if options.retry_failed:
            known = self.known()
            reopen(engine, [row.id for row in known if row.state == "failed"])

    def refresh(self) -> None:
        """Read what every cell has, and think again about what it lacks."""
        self._located.learn(retrying(self.known))

    def known(self) -> Sequence[Any]:
        """The suite's runs as the database has them, with their first passages."""
        with self.engine.connect() as connection:
            return known_runs(connection, self.registered.suite_id, self.suite.analysis)

    def unfinished(self) -> list[int]:
        """Numbers of runs that were chosen before and never closed: they are trained first."""
        return [row.id for row in retrying(self.known) if row.state in ("pending", "stale")]

    def next(self) -> tuple[Cell, Choice, int] | None:
        """The best run of the cell that has had the least, registered; None: nothing is wanted."""
        wanting = [
            cell
            for cell in self.cells
            if cell.progress and cell.progress.choices and cell.runs < self.design.max_runs
        ]
        if not wanting:
            return None
        cell = min(wanting, key=lambda one: one.runs)
        assert cell.progress is not None
        choice = cell.progress.choices[0]
        spec = cell.specs[choice.kind, choice.width, choice.seed]
        register(self.suite, self.engine, [spec])
        with self.engine.connect() as connection:
            number = connection.scalar(
                text("SELECT id FROM runs WHERE key = :key"), {"key": spec.key}
            )
        assert isinstance(number, int), "the run was registered just now"
        cell.taken.add((choice.kind, choice.width, choice.seed))
        return cell, choice, number


class LocateSearcher(Searcher):
    """Locator in Ray Tune's terms: one trial trains one run."""

    def __init__(self, locator: Locator, name: str, say: Callable[[str], None]) -> None:
        super().__init__(metric="training_seconds", mode="min")
        self.locator, self.name, self._say = locator, name, say
        self._live: dict[str, int] = {}
        self._first = locator.unfinished()
        self.count = 0

    def suggest(self, trial_id: str) -> Any:
        """The next run; None waits for one that is being trained."""
        if self._first:
            number = self._first.pop(0)
        else:
            self.locator.refresh()
            found = self.locator.next()
            if found is None:
                return None if self._live else Searcher.FINISHED
            cell, choice, number = found
            self._say(
                f"{cell.label}: {choice.kind} d={choice.width} seed {choice.seed} "
                f"({choice.why}); {described(cell)}"
            )
        self._live[trial_id] = number
        self.count += 1
        bundle = {"number": self.count, "name": f"{self.name}/{self.count}", "stacks": [[number]]}
        return {"bundle": bundle}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """A run that crashed its worker to the end is failed, and not asked for again."""
        number = self._live.pop(trial_id, None)
        if error and number is not None:
            retrying(lambda: revoke_leases(self.locator.engine, self.name))
            retrying(lambda: fail_runs(self.locator.engine, [number], "crashed: see its worker"))

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its parts to restore them; this one is made anew from Postgres instead."""
        return {"name": self.name}

    def save(self, checkpoint_path: str) -> None:
        """Nothing: Postgres has it."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: Postgres has it."""


def run_located(
    suite: Suite,
    engine: Engine,
    settings: Settings,
    database_url: str,
    options: SweepOptions,
    capacity: ClusterCapacity,
    say: Callable[[str], None],
) -> tuple[Locator, SweepReport]:
    """Train until every cell is located, out of seeds or out of its budget."""
    retrying(lambda: expire(engine))
    locator = Locator(suite, engine, options)
    name = f"locate-{secrets.token_hex(4)}"
    report, outcomes = SweepReport(), Outcomes()
    searcher = LocateSearcher(locator, name, say)
    locator.refresh()
    before = sum(len(cell.findings) for cell in locator.cells)
    if locator.unfinished() or any(c.progress and c.progress.choices for c in locator.cells):
        try:
            _tune(searcher, settings, database_url, options, capacity, outcomes)
        finally:
            retrying(lambda: revoke_leases(engine, name))
    if outcomes.refused:
        raise SweepError("; ".join(sorted(outcomes.refused)))
    locator.refresh()
    report.bundles, report.retried = searcher.count, outcomes.retried
    report.training_seconds = outcomes.training_seconds
    report.trained = sum(len(cell.findings) for cell in locator.cells) - before
    report.failed = {
        row.id: row.reason or "" for row in retrying(locator.known) if row.state == "failed"
    }
    return locator, report


def _tune(
    searcher: LocateSearcher,
    settings: Settings,
    database_url: str,
    options: SweepOptions,
    capacity: ClusterCapacity,
    outcomes: Outcomes,
) -> None:
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    worker = WorkerConfig.of(settings, database_url, capacity.device)
    asked: dict[str, float] = {"cpu": 1}
    if options.gpus_per_bundle:
        asked["gpu"] = options.gpus_per_bundle
    trainable = tune.with_resources(tune.with_parameters(BundleTrainable, worker=worker), asked)
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
