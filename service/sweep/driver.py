"""Driving a sweep: plan what is open, train it through Ray Tune, deal with what crashed, repeat.

Postgres knows what is done, so the driver keeps nothing that matters: it may be killed at any
moment, and the next sweep of the suite goes on.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence

from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from db.abandoning import abandon, give_up
from db.claims import expire
from db.lasting import first_line, lasting, may_pass
from service.errors import SweepError
from service.settings import Settings
from service.sweep.job import Job, SweepOptions, SweepReport
from service.sweep.means import Means
from service.sweep.plan import Bundle, Pending, halves, plan
from service.sweep.progress import SweepProgress
from service.sweep.selection import learnt_cost, stored_runs
from service.sweep.tidying import tidy
from service.sweep.tuner import Outcomes, Resources, most_bundles, tune_bundles
from workers.trainable import WorkerOrders

log = logging.getLogger(__name__)

SYSTEMIC_BUNDLES = 4  # so many crashing without any progress are no fault of single runs
FRUITLESS_ROUNDS = 3  # rounds in which nothing moves before the sweep gives up

LEASES = """
SELECT id, extract(epoch FROM lease_until - clock_timestamp()) AS left, lease_until FROM runs
WHERE id = ANY(:ids) AND state = 'running'
"""

MOVED = """
SELECT count(*) FILTER (WHERE state IN ('done', 'failed')) AS closed, sum(last_epoch) AS epochs
FROM runs WHERE id = ANY(:ids)
"""

CLOSED = "SELECT id FROM runs WHERE id = ANY(:ids) AND closed_at IS NOT NULL"


class Sweep:
    """One sweep over a connected cluster."""

    def __init__(
        self,
        job: Job,
        engine: Engine,
        settings: Settings,
        database_url: str,
        options: SweepOptions,
        means: Means,
    ) -> None:
        self.job, self.engine, self.settings, self.options = job, engine, settings, options
        self.name = f"sweep-{secrets.token_hex(4)}"
        self.means = means
        self.report = SweepReport()
        self._orders = WorkerOrders.of(settings, database_url, means.device)

    def run(self, progress: SweepProgress) -> SweepReport:
        """Train until every selected run is closed or in the hands of another sweep."""
        split: list[Bundle] = []
        fruitless = 0
        before = lasting(self._moved)
        try:
            while fruitless < FRUITLESS_ROUNDS:
                lasting(lambda: expire(self.engine))
                bundles = [*split, *self._plan(split)]
                if not bundles:
                    if self._others_have_ended(progress):
                        continue
                    return self._finish()
                most = most_bundles(self.means.slots)
                now, split = bundles[:most], split[most:]
                outcomes = self._train(now)
                after = lasting(self._moved)
                if after == before and len(outcomes.crashed) == len(now) >= SYSTEMIC_BUNDLES:
                    reason = next(iter(outcomes.crashed.values()))
                    raise SweepError(f"all {len(now)} bundles crashed at once: {reason}")
                split += self._split(now, outcomes, progress)
                fruitless = fruitless + 1 if after == before and not split else 0
                before = after
        finally:
            self._leave()
        raise SweepError(
            f"no run of {self.job.suite.name} went on in {fruitless} rounds; see the workers' logs"
        )

    def _leave(self) -> None:
        """Give leases back; while the database is away they end by themselves."""
        try:
            abandon(self.engine, self.name)
        except DBAPIError as error:
            if not may_pass(error.orig):
                raise
            log.warning("leases are not given back: %s", first_line(error.orig))

    def _plan(self, split: Sequence[Bundle]) -> list[Bundle]:
        apart = {run.id for bundle in split for run in bundle.runs}
        ids = [run_id for run_id in self.job.runs if run_id not in apart]
        specs = [self.job.runs[run_id].spec for run_id in ids]
        suite_id = self.job.registered.suite_id
        chosen = lasting(lambda: stored_runs(self.engine, suite_id, specs))
        pending = [
            Pending(run.id, run.spec)
            for run in chosen.values()
            if run.state in ("pending", "stale")
        ]
        if not pending:
            return []
        return plan(
            pending,
            learnt_cost(chosen),
            workers=self.means.slots,
            order=self.job.suite.file.order,
            room=self.means.room,
            on_gpu=self.means.on_gpu,
        )

    def _train(self, bundles: Sequence[Bundle]) -> Outcomes:
        """One Tuner; a refusal that concerns all bundles ends the sweep."""
        outcomes = tune_bundles(
            bundles,
            self._orders,
            f"{self.name}-{self.report.bundles}",
            Resources(self.options.gpus_per_bundle, self.options.workers),
        )
        self.report.bundles += len(bundles)
        self.report.retried += outcomes.retried
        self.report.training_seconds += outcomes.training_seconds
        lasting(lambda: abandon(self.engine, self.name))
        if outcomes.refused:
            raise SweepError("; ".join(sorted(outcomes.refused)))
        return outcomes

    def _split(
        self, bundles: Sequence[Bundle], outcomes: Outcomes, progress: SweepProgress
    ) -> list[Bundle]:
        """Halve what crashed, until a run that crashes by itself can be told from its mates."""
        smaller: list[Bundle] = []
        for number, reason in sorted(outcomes.crashed.items()):
            bundle = self._still_open(bundles[number])
            if bundle is None:
                continue
            if len(bundle.runs) > 1:
                progress.say(f"a bundle of {len(bundle.runs)} runs crashed and is split: {reason}")
                smaller += halves(bundle)
                continue
            (run,) = bundle.runs
            self._give_up(run.id, f"crashed: {reason}")
            progress.say(f"run {run.id} crashes its worker: {reason}")
        return smaller

    def _give_up(self, run_id: int, reason: str) -> None:
        lasting(lambda: give_up(self.engine, [run_id], reason))

    def _still_open(self, bundle: Bundle) -> Bundle | None:
        """The bundle without the runs that ended before the crash."""
        ids = [run.id for run in bundle.runs]
        return bundle.without(lasting(lambda: self._closed(ids)))

    def _closed(self, ids: list[int]) -> set[int]:
        with self.engine.connect() as connection:
            return set(connection.scalars(text(CLOSED), {"ids": ids}))

    def _others_have_ended(self, progress: SweepProgress) -> bool:
        """Wait for leases of other sweeps; True when a run became free.

        A lease that is renewed belongs to a living worker: its runs are left to it.
        """
        held = lasting(self._leases)
        if not held:
            return False
        left = max(left for left, _ in held.values())
        progress.say(f"{len(held)} runs are leased to another sweep; waiting {left:.0f} s for them")
        deadline = time.monotonic() + left + 1.0
        while time.monotonic() < deadline:
            time.sleep(0.5)
            now = lasting(self._leases)
            if any(
                run_id in now and now[run_id][1] != until for run_id, (_, until) in held.items()
            ):
                self.report.left_to_others = len(now)
                return False
            if not now:
                break
        return bool(lasting(lambda: expire(self.engine))) or not lasting(self._leases)

    def _leases(self) -> dict[int, tuple[float, object]]:
        with self.engine.connect() as connection:
            rows = connection.execute(text(LEASES), {"ids": list(self.job.runs)})
            return {row.id: (max(0.0, float(row.left)), row.lease_until) for row in rows}

    def _moved(self) -> tuple[int, int]:
        with self.engine.connect() as connection:
            row = connection.execute(text(MOVED), {"ids": list(self.job.runs)}).one()
        return row.closed, row.epochs or 0

    def _finish(self) -> SweepReport:
        chosen = [run.spec for run in self.job.runs.values()]
        suite_id = self.job.registered.suite_id
        after = lasting(lambda: stored_runs(self.engine, suite_id, chosen))
        tidy(self.settings.checkpoint_dir, after.values())
        closed = {run_id for run_id, run in after.items() if run.state in ("done", "failed")}
        self.report.trained = len(closed & set(self.job.open))
        self.report.failed = {
            run.id: run.reason or "" for run in after.values() if run.state == "failed"
        }
        return self.report
