"""Driving a sweep: one Ray Tune experiment is fed with what is open, until nothing is.

Postgres knows what is done, so the driver keeps nothing that matters: it may be killed at any
moment, and the next sweep of the suite goes on.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Collection

from rich.console import Console
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from groktime.db.claims import expire, revoke_leases
from groktime.db.engine import first_line, is_transient, retrying
from groktime.service.errors import SweepError
from groktime.service.settings import Settings
from groktime.service.suites import Suite
from groktime.service.sweep.cluster import (
    ClusterCapacity,
    check_database_reaches,
    cluster_address,
    joined_cluster,
    members,
    slots_to_plan_for,
    waiting_bundles,
)
from groktime.service.sweep.interruption import check_interruption, interruptible
from groktime.service.sweep.locator import Locator
from groktime.service.sweep.plan import Bundle, BundleQueue, Pending, moved, plan
from groktime.service.sweep.selection import (
    PreparedSweep,
    StoredRun,
    SweepOptions,
    SweepProgress,
    SweepReport,
    check_located,
    delete_finished_checkpoints,
    learnt_cost,
    prepare,
    stored_runs,
    wanted_runs,
)
from groktime.service.words import count

# Ray reads how clusters are authenticated when it is imported, so this module imports what needs
# it (the tuner, the trainable) only where a cluster has been joined.

log = logging.getLogger(__name__)

FRUITLESS_ROUNDS = 3  # rounds in which nothing moves before the sweep gives up

LEASES = """
SELECT id, extract(epoch FROM lease_until - clock_timestamp()) AS left, lease_until FROM runs
WHERE id = ANY(:ids) AND state = 'running'
"""


class Sweep:
    """One sweep over a connected cluster."""

    def __init__(
        self,
        prepared: PreparedSweep,
        engine: Engine,
        settings: Settings,
        database_url: str,
        options: SweepOptions,
        capacity: ClusterCapacity,
    ) -> None:
        self.prepared, self.engine, self.settings, self.options = (
            prepared,
            engine,
            settings,
            options,
        )
        self.name = f"sweep-{secrets.token_hex(4)}"
        self.capacity = capacity
        self.report = SweepReport()
        self._tuners = 0
        from groktime.workers.trainable import WorkerConfig

        self._orders = WorkerConfig.of(settings, database_url, capacity.device)

    def run(self, progress: SweepProgress) -> SweepReport:
        """Train until every selected run is closed or in the hands of another sweep."""
        fruitless = 0
        before = self._moved()
        try:
            while fruitless < FRUITLESS_ROUNDS:
                check_interruption()
                retrying(lambda: expire(self.engine))
                if not self._open_runs():
                    if self._others_have_ended(progress):
                        continue
                    return self._finish()
                self._train(progress)
                after = self._moved()
                fruitless = fruitless + 1 if after == before else 0
                before = after
        finally:
            self._leave()
        raise SweepError(
            f"no run of {self.prepared.suite.name} went on in {fruitless} rounds; "
            "see the workers' logs"
        )

    def _leave(self) -> None:
        """Give leases back; while the database is away they end by themselves."""
        try:
            revoke_leases(self.engine, self.name)
        except DBAPIError as error:
            if not is_transient(error.orig):
                raise
            log.warning("leases are not given back: %s", first_line(error.orig))

    def _stored(self) -> dict[int, StoredRun]:
        specs = [run.spec for run in self.prepared.runs.values()]
        suite_id = self.prepared.registered.suite_id
        return retrying(lambda: stored_runs(self.engine, suite_id, specs))

    def _open_runs(self) -> list[StoredRun]:
        free = ("pending", "stale", "set_aside")
        return [run for run in self._stored().values() if run.state in free]

    def _plan(self, slots: int, begun: Collection[int]) -> list[Bundle]:
        """Bundles of the open runs that nobody has begun, cut for so many workers."""
        chosen = self._stored()
        free = ("pending", "stale", "set_aside")
        pending = [
            Pending(run.id, run.spec)
            for run in chosen.values()
            if run.state in free and run.id not in begun
        ]
        return plan(
            pending,
            learnt_cost(chosen),
            workers=slots,
            order=self.prepared.suite.file.order,
            stack_limit=self.capacity.stack_limit,
            on_gpu=self.capacity.on_gpu,
        )

    def _slots(self) -> int:
        return slots_to_plan_for(self.capacity.gpus, self.options.workers, self.settings)

    def _train(self, progress: SweepProgress) -> None:
        """One Tuner for all there is; what concerns all bundles ends the sweep."""
        from groktime.service.sweep.tuner import FedSearcher, run_tuner

        queue = BundleQueue(
            self.engine,
            list(self.prepared.runs),
            self._plan,
            self._slots,
            progress.say,
        )
        most = self.options.workers
        searcher = FedSearcher(
            queue,
            self.engine,
            f"{self.name}-{self._tuners}",
            at_once=(lambda: most) if most else None,
            # A CPU trains model after model, so there a free place is no loss.
            spares=queue.spares if self.capacity.on_gpu else None,
        )
        self._tuners += 1
        run_tuner(searcher, self._orders, self.capacity.gpus, waiting_bundles(self._slots()))
        searcher.add_to(self.report)
        retrying(lambda: revoke_leases(self.engine, self.name))
        if searcher.refused or queue.problem:
            raise SweepError(searcher.refused or queue.problem or "")
        queue.fail_suspects()

    def _others_have_ended(self, progress: SweepProgress) -> bool:
        """Wait for leases of other sweeps; True when a run became free.

        A lease that is renewed belongs to a living worker: its runs are left to it.
        """
        held = retrying(self._leases)
        if not held:
            return False
        left = max(left for left, _ in held.values())
        progress.say(f"{len(held)} runs are leased to another sweep; waiting {left:.0f} s for them")
        deadline = time.monotonic() + left + 1.0
        while time.monotonic() < deadline:
            time.sleep(0.5)
            now = retrying(self._leases)
            # Not renewed since: its worker may be dead, which the end of the lease will tell.
            silent = [r for r, (_, until) in held.items() if r in now and now[r][1] == until]
            if not silent or any(now[run_id][0] == 0 for run_id in silent):
                break
        if retrying(lambda: expire(self.engine)):
            return True
        self.report.left_to_others = len(retrying(self._leases))
        return not self.report.left_to_others

    def _leases(self) -> dict[int, tuple[float, object]]:
        with self.engine.connect() as connection:
            rows = connection.execute(text(LEASES), {"ids": list(self.prepared.runs)})
            return {row.id: (max(0.0, float(row.left)), row.lease_until) for row in rows}

    def _moved(self) -> tuple[int, int]:
        return retrying(lambda: moved(self.engine, list(self.prepared.runs)))

    def _finish(self) -> SweepReport:
        after = self._stored()
        delete_finished_checkpoints(self.settings.checkpoint_dir, after.values())
        closed = {run_id for run_id, run in after.items() if run.state in ("done", "failed")}
        self.report.trained = len(closed & set(self.prepared.open))
        self.report.failed = {
            run.id: run.reason or "" for run in after.values() if run.state == "failed"
        }
        return self.report


def run_sweep(
    suite: Suite,
    database_url: str,
    engine: Engine,
    settings: Settings,
    options: SweepOptions,
    console: Console,
    *,
    address: str | None = None,
) -> tuple[PreparedSweep, SweepReport]:
    """Train what is missing of the suite; `engine` is the database owner's.

    Nothing open means no cluster is started at all.
    """
    if suite.file.design is not None:
        return _run_located(suite, database_url, engine, settings, options, console, address)
    prepared = retrying(lambda: prepare(suite, engine, options))
    delete_finished_checkpoints(settings.checkpoint_dir, prepared.runs.values())
    if not prepared.open:
        failed = {
            run.id: run.reason or "" for run in prepared.runs.values() if run.state == "failed"
        }
        return prepared, SweepReport(failed=failed)
    where = cluster_address(address, settings.ray_address)
    display = SweepProgress(engine, suite.name, prepared.weights(), console)
    with display as progress, joined_cluster(options, settings, where) as capacity:
        open_runs = count(len(prepared.open), "run")
        console.print(f"{suite.name}: {open_runs} on {capacity.description}")
        _, nodes = members()
        check_database_reaches(database_url, nodes)
        with interruptible():
            sweep = Sweep(prepared, engine, settings, database_url, options, capacity)
            report = sweep.run(progress)
    return prepared, report


def _run_located(
    suite: Suite,
    database_url: str,
    engine: Engine,
    settings: Settings,
    options: SweepOptions,
    console: Console,
    address: str | None,
) -> tuple[PreparedSweep, SweepReport]:
    """Choose and train runs of a located suite until its cells are as precise as it asks.

    Where nothing is wanted no cluster is started.
    """

    def say(line: str) -> None:
        console.print(f"{suite.name}: {line}", highlight=False, soft_wrap=True)

    check_located(suite, options)
    locator = retrying(lambda: Locator(suite, engine, options, say))
    report = SweepReport(failed=locator.failed())
    if locator.wants or locator.held_by_others():
        where = cluster_address(address, settings.ray_address)
        with joined_cluster(options, settings, where) as capacity:
            from groktime.service.sweep.tuner import run_located

            say(f"{count(len(locator.cells), 'cell')} to locate on {capacity.description}")
            _, nodes = members()
            check_database_reaches(database_url, nodes)
            with interruptible():
                report = run_located(locator, settings, database_url, options, capacity)
    for cell in locator.cells:
        say(f"{cell.label}: {cell}")
    suite_id = locator.registered.suite_id
    runs = retrying(lambda: stored_runs(engine, suite_id, wanted_runs(suite, engine)))
    delete_finished_checkpoints(settings.checkpoint_dir, runs.values())
    return PreparedSweep(suite, locator.registered, runs, learnt_cost(runs)), report
