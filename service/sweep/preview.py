"""What a sweep would do, without doing it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine, text

from service.suites import Suite
from service.sweep.cost import expected_epochs, flops_per_epoch
from service.sweep.job import SweepOptions
from service.sweep.means import Means
from service.sweep.plan import Pending, plan
from service.sweep.progress import duration
from service.sweep.selection import StoredRun, in_order, learnt_cost

KNOWN = """
SELECT key, reason, seconds, last_epoch,
    CASE WHEN state = 'running' AND lease_until < now() THEN 'stale' ELSE state END AS state
FROM runs WHERE key = ANY(:keys)
"""


@dataclass(frozen=True)
class Preview:
    """Runs that would be trained, in how many bundles and stacks, and what they would cost."""

    suite: str
    selected: int
    done: int
    failed: int
    running: int  # in the hands of another sweep
    to_train: int
    bundles: int
    stacks: int
    model_epochs: float
    flops: float
    core_seconds: float
    workers: int  # bundles trained at once

    def __str__(self) -> str:
        return (
            f"{self.suite}: {self.selected:,} runs selected, {self.done:,} done, "
            f"{self.failed:,} failed, {self.running:,} being trained, {self.to_train:,} to train "
            f"in {self.bundles:,} bundles of {self.stacks:,} stacks; about "
            f"{self.model_epochs:,.0f} model-epochs, {self.flops:.2g} FLOPs, "
            f"{duration(self.core_seconds)} of one core, "
            f"{duration(self.core_seconds / self.workers)} with {self.workers} at once"
        )


def preview(suite: Suite, engine: Engine | None, options: SweepOptions, means: Means) -> Preview:
    """Plan against what the database knows, or against nothing where there is none."""
    chosen = options.selection.chosen(suite.runs())
    known = {}
    if engine is not None:
        with engine.connect() as connection:
            rows = connection.execute(text(KNOWN), {"keys": [spec.key for spec in chosen]})
            known = {row.key: row for row in rows}
    runs: dict[int, StoredRun] = {}
    for number, spec in enumerate(chosen, start=1):
        row = known.get(spec.key)
        stored = (row.state, row.reason, row.seconds, row.last_epoch) if row else None
        # Runs that are not in the database yet have no number there.
        runs[-number] = StoredRun(-number, spec, *(stored or ("pending", None, None, 0)))
    out = {"done", "running"} if options.retry_failed else {"done", "running", "failed"}
    still = in_order(suite, [run for run in runs.values() if run.state not in out])
    pending = [Pending(run.id, run.spec) for run in still[: options.limit]]
    cost = learnt_cost(runs)
    bundles = plan(
        pending,
        cost,
        workers=means.slots,
        order=suite.file.order,
        room=means.room,
        on_gpu=means.on_gpu,
    )
    return Preview(
        suite=suite.name,
        selected=len(runs),
        done=sum(run.state == "done" for run in runs.values()),
        failed=sum(run.state == "failed" for run in runs.values()),
        running=sum(run.state == "running" for run in runs.values()),
        to_train=len(pending),
        bundles=len(bundles),
        stacks=sum(len(bundle.stacks) for bundle in bundles),
        model_epochs=sum(expected_epochs(run.spec) for run in pending),
        flops=sum(flops_per_epoch(run.spec) * expected_epochs(run.spec) for run in pending),
        core_seconds=sum(bundle.seconds for bundle in bundles),
        workers=means.slots,
    )
