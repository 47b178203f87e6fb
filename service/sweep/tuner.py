"""One Ray Tune experiment that is fed: a trial is given its runs when it can start.

Nothing that matters is kept here: a feed makes every suggestion from what the database holds, so
a sweep that was killed goes on where it was. Tune only schedules, and never tries a trial again by
itself. The feed of a located suite is asked for the next run, without an end set before.
"""

from __future__ import annotations

import logging
import math
import os
import re
import secrets
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import ray
from ray import cloudpickle, tune
from ray._private.state import actors
from ray.exceptions import RayActorError
from ray.tune.experiment import Trial
from ray.tune.search import Searcher
from sqlalchemy import Engine

from groktime.db.claims import NODE_DIED, node_deaths, revoke_leases
from groktime.db.engine import retrying
from groktime.service.errors import SweepError
from groktime.service.logs import redact
from groktime.service.settings import Settings
from groktime.service.sweep.cluster import FEWEST_WAITING, ClusterCapacity, slots_to_ask_for
from groktime.service.sweep.interruption import check_interruption
from groktime.service.sweep.locator import SYSTEMIC_CRASHES, TRIES, Locator
from groktime.service.sweep.selection import SweepOptions, SweepReport
from groktime.workers.trainable import BundleTrainable, WorkerConfig

LONGEST_REASON = 300  # characters
RECOUNT_SECONDS = 5.0  # of the room on a cluster
RETRIES = 1  # a crashed bundle goes on once from its checkpoints
FORGIVEN_DEATHS = 5  # of nodes with one run; more count as crashes
MOST_TRIALS = 20_000  # of one Tuner
NODE_MISSED_SECONDS = 90  # in which Ray tells a node that is gone from one that is slow
LOOK_SECONDS = 0.5  # between looks at workers that do not answer

# What Ray says of an actor whose machine is gone; it has no type of its own for this.
NODE_IS_GONE = ("its node has died", "the actor's node was")
# Tune lets go of an actor at once, in one of these ways, which says nothing of how it ended.
LET_GO = ("OUT_OF_SCOPE", "REF_DELETED", "RAY_KILL")
UNAVAILABLE = re.compile(r"The actor ([0-9a-f]+) is unavailable")


@dataclass(frozen=True)
class Crash:
    """How a worker ended: one line of what Ray wrote, and whether its node is what died.

    Of a worker that does not answer only its actor is known, until Ray knows which of the two it
    was.
    """

    reason: str
    node_died: bool = False
    silent_actor: str | None = None


Spares = Callable[[Sequence[int]], Sequence[int]]  # runs of a stack's shape that nobody has begun


def _none(stack: Sequence[int]) -> Sequence[int]:
    return ()


class Feed(Protocol):
    """Where a searcher gets its runs from."""

    def next(self, live: Collection[int]) -> Sequence[Sequence[int]] | None:
        """Stacks of run numbers for the next trial; None: nothing as long as `live` ones train."""
        ...

    def crashed(self, runs: Sequence[int], reason: str) -> None:
        """The trial of these runs crashed, and so did its second try; nobody holds them."""
        ...

    def trained(self, runs: Sequence[int]) -> None:
        """The trial of these runs ended well."""
        ...


@dataclass
class _Order:
    """What one trial trains, and how often it has crashed; leases begin with its name."""

    name: str
    stacks: Sequence[Sequence[int]]
    tries: int = 0
    is_first: bool = True  # and not tried before

    @property
    def runs(self) -> list[int]:
        return [run for stack in self.stacks for run in stack]


class FedSearcher(Searcher):
    """Ray Tune's way to ask a feed: one trial trains the stacks that the feed gave it.

    A trial whose worker crashed goes on once from its checkpoints before the feed hears of it. The
    death of a node is nobody's fault and does not count, unless five have died with one run.
    """

    def __init__(
        self,
        feed: Feed,
        engine: Engine,
        name: str,
        at_once: Callable[[], int] | None = None,
        spares: Spares | None = None,
    ) -> None:
        """`at_once` counts how many trials there may be now; without it, what Ray has room for.

        `spares` are further runs that a worker may take into the places of a stack's that ended.
        """
        super().__init__(metric="training_seconds", mode="min")
        self._feed, self._engine, self.name = feed, engine, name
        self._spares = spares
        self._live: dict[str, _Order] = {}
        self._again: deque[_Order] = deque()
        self._silent: dict[str, tuple[Crash, float]] = {}  # and until when Ray is asked
        self._looked_at = -math.inf
        self._count, self._most, self._counted_at = at_once, 0, -math.inf
        self.refused: str | None = None
        self.given = 0
        self.retried = 0
        self.training_seconds = 0.0

    def suggest(self, trial_id: str) -> Any:
        """The next trial; None waits for one that is being trained."""
        order = self._next()
        if order is None:
            # With nothing live Tune would ask once a second for ten minutes.
            return None if self._live else Searcher.FINISHED
        self.given += 1
        order.name = f"{self.name}/{self.given}"
        self._live[trial_id] = order
        # What crashed is tried alone, so that no other run can be the cause.
        spare = self._spares if self._spares is not None and order.is_first else _none
        return {
            "bundle": {
                "name": order.name,
                "stacks": [list(stack) for stack in order.stacks],
                "spares": [list(spare(stack)) for stack in order.stacks],
            }
        }

    def _next(self) -> _Order | None:
        self._look_for_silent()
        # Tune keeps a record of each trial to its end.
        if self._is_full() or self.refused or self.given >= MOST_TRIALS:
            return None
        if self._again:
            return self._again.popleft()
        held = [run for order in (*self._live.values(), *self._again) for run in order.runs]
        stacks = self._feed.next(held)
        return None if stacks is None else _Order("", stacks)

    def _is_full(self) -> bool:
        """Nodes come and go, so the count is made again."""
        if self._count is not None and time.monotonic() - self._counted_at >= RECOUNT_SECONDS:
            self._most, self._counted_at = self._count(), time.monotonic()
        return self._count is not None and len(self._live) >= self._most

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """A trial that crashed is told of with its error by the callback, after this."""
        if error or trial_id not in self._live:
            return
        order = self._live.pop(trial_id)
        if result and result.get("refused"):
            self.refused = result["refused"]  # no retry mends it, and it concerns all
        else:
            self._feed.trained(order.runs)

    def crashed(self, trial_id: str, crash: Crash) -> None:
        """The trial's worker ended before it was done, or does not answer.

        Nothing waits here: on a large cluster nodes die all the time, and others come free.
        """
        if crash.silent_actor is None:
            self._ended(trial_id, crash)
        else:
            self._silent[trial_id] = crash, time.monotonic() + NODE_MISSED_SECONDS

    def _look_for_silent(self) -> None:
        """See what Ray knows by now of workers that did not answer."""
        if not self._silent or time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        for trial_id, (crash, deadline) in list(self._silent.items()):
            assert crash.silent_actor is not None
            gone = node_is_gone(crash.silent_actor)
            if gone is not None or time.monotonic() >= deadline:
                del self._silent[trial_id]
                self._ended(trial_id, Crash(crash.reason, node_died=bool(gone)))

    def _ended(self, trial_id: str, crash: Crash) -> None:
        """Let the trial's runs go on, by another trial or as the feed says."""
        order = self._live.pop(trial_id)
        counts = self._counts(order, crash)
        if counts and order.tries >= RETRIES:
            self._feed.crashed(order.runs, crash.reason)
            return
        order.tries += counts
        order.is_first = False
        self._again.append(order)
        self.retried += 1

    def _counts(self, order: _Order, crash: Crash) -> bool:
        """End what the dead worker held, and say whether its end counts against the runs.

        That a node died is noted with the attempts: the count outlives this sweep.
        """
        reason = NODE_DIED if crash.node_died else f"crashed: {crash.reason}"
        retrying(lambda: revoke_leases(self._engine, f"{order.name}@", reason))
        if not crash.node_died:
            return True
        deaths = retrying(lambda: node_deaths(self._engine, order.runs))
        return max(deaths.values(), default=0) > FORGIVEN_DEATHS

    def add_to(self, report: SweepReport) -> None:
        """Add what this one did to a sweep's report."""
        report.bundles += self.given
        report.retried += self.retried
        report.training_seconds += self.training_seconds

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its parts to restore them; this one is made anew from Postgres instead."""
        return {"name": self.name}

    def save(self, checkpoint_path: str) -> None:
        """Nothing: Postgres has it."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: Postgres has it."""


@dataclass
class _Listener(tune.Callback):
    """Tells the searcher what Tune tells callbacks only, and ends Tune when it was interrupted."""

    searcher: FedSearcher = field(repr=False)

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        check_interruption()

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        self.searcher.training_seconds += result["training_seconds"]

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        forget_metrics(trial)

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        self.searcher.crashed(trial.trial_id, crash_of(trial))
        forget_metrics(trial)


def forget_metrics(trial: Trial) -> None:
    """Let go of the statistics of every metric that Tune would keep to the end, 15 kB a trial."""
    trial.metric_analysis.clear()
    trial.metric_n_steps.clear()


def crash_of(trial: Trial) -> Crash:
    """What Ray wrote about the end of a trial's worker: the exception, or that the worker died."""
    if not trial.error_file:
        return Crash("unknown")
    told = Path(trial.error_file).read_text("utf-8", errors="replace")
    lines = [line.strip() for line in told.splitlines()[1:] if line.strip()]
    died = next((line for line in lines if "died" in line), None)
    reason = redact(died or lines[-1])[:LONGEST_REASON] if lines else "unknown"
    if any(words in told for words in NODE_IS_GONE) or _preempted(trial):
        return Crash(reason, node_died=True)
    silent = UNAVAILABLE.search(told)
    return Crash(reason, silent_actor=silent[1] if silent else None)


def _preempted(trial: Trial) -> bool:
    """Whether Ray knows that the worker's machine was taken away."""
    if not trial.pickled_error_file:
        return False
    try:
        error = cloudpickle.loads(Path(trial.pickled_error_file).read_bytes())
    except Exception:  # an exception of a package that is not here, for one
        return False
    return isinstance(error, RayActorError) and error.preempted


def node_is_gone(actor_id: str) -> bool | None:
    """Whether the machine of a worker that does not answer is gone; None: not known yet.

    A broken connection is told at once. That the node behind it has died is known only when it
    has missed its checks, that the worker alone has died as soon as its node says so.
    """
    actor = actors(actor_id)
    if not actor:
        return False
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    alive = {node["NodeID"] for node in nodes if node["Alive"]}
    if actor["Address"]["NodeID"] not in alive:
        return True
    if actor["State"] != "DEAD":
        return None
    cause = str(actor["DeathCause"])
    if "NODE_DIED" in cause:
        return True
    return None if any(word in cause for word in LET_GO) else False


def run_tuner(
    searcher: FedSearcher,
    worker: WorkerConfig,
    gpus: float = 0.0,
    waiting: int = FEWEST_WAITING,
) -> None:
    """Train what the searcher gives out; returns when it has nothing left.

    So many bundles may wait for a node, or for their worker to start.
    Secrets travel in `worker` through the object store, never in a trial's config, which Ray
    shows on its dashboard.
    """
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(waiting)
    asked: dict[str, float] = {"cpu": 1, **({"gpu": gpus} if gpus else {})}
    trainable = tune.with_resources(
        tune.with_parameters(BundleTrainable, worker=worker), dict(asked)
    )
    with tempfile.TemporaryDirectory(prefix="groktime-tune-") as storage:
        tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                num_samples=-1,
                reuse_actors=True,
                trial_name_creator=lambda trial: f"bundle_{trial.trial_id}",
                trial_dirname_creator=lambda trial: f"bundle_{trial.trial_id}",
            ),
            run_config=tune.RunConfig(
                name=searcher.name,
                storage_path=storage,
                verbose=0,
                # The searcher decides who tries again.
                failure_config=tune.FailureConfig(max_failures=0),
                # Runs have checkpoints of their own; a trial that cannot save would be failed.
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                callbacks=[_Listener(searcher)],
                log_to_file=False,
            ),
        ).fit()


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
    searcher = FedSearcher(
        locator,
        locator.engine,
        f"{name}-{report.bundles}",
        at_once=lambda: slots_to_ask_for(capacity.gpus, options.workers, settings),
    )
    worker = WorkerConfig.of(settings, database_url, capacity.device)
    run_tuner(searcher, worker, capacity.gpus)
    searcher.add_to(report)
    if searcher.refused:
        raise SweepError(searcher.refused)
    if locator.is_systemic:
        raise SweepError(f"{SYSTEMIC_CRASHES} runs in a row crashed: {locator.last_reason}")
    locator.fail_crashed()
