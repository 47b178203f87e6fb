"""A sweep that is about to run: what is asked, registered, selected and priced; and its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Engine

from db.claims import reopen
from db.registering import Registered, register_suite
from service.spec import RunSpec
from service.suites import Suite
from service.sweep.cost import CostModel, expected_epochs
from service.sweep.progress import Weight
from service.sweep.selection import Selection, StoredRun, in_order, learnt_cost, stored_runs
from workers.stack import stack_shape


@dataclass(frozen=True)
class SweepOptions:
    """What part of a suite is trained, and with how much of the cluster."""

    selection: Selection = field(default_factory=Selection)
    limit: int | None = None
    gpus_per_bundle: float = 0.0
    workers: int | None = None
    retry_failed: bool = False


@dataclass(frozen=True)
class Job:
    """A sweep that is ready to run: registered, selected and priced."""

    suite: Suite
    registered: Registered
    runs: Mapping[int, StoredRun]
    cost: CostModel

    @property
    def open(self) -> list[int]:
        return [run.id for run in self.runs.values() if run.state not in ("done", "failed")]

    def weights(self) -> dict[int, Weight]:
        return {
            run.id: Weight(
                self.cost.seconds(run.spec, stack_shape(run.spec)), expected_epochs(run.spec)
            )
            for run in self.runs.values()
        }


@dataclass
class SweepReport:
    """What a sweep did."""

    trained: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    left_to_others: int = 0
    bundles: int = 0
    retried: int = 0
    training_seconds: float = 0.0


def prepare(suite: Suite, engine: Engine, options: SweepOptions) -> Job:
    """Register the suite and choose the runs of this sweep."""
    chosen = options.selection.chosen(suite.runs())
    registered = register(suite, engine)
    runs = stored_runs(engine, registered.suite_id, chosen)
    if options.retry_failed:
        reopen(engine, [run.id for run in runs.values() if run.state == "failed"])
        runs = stored_runs(engine, registered.suite_id, chosen)
    cost = learnt_cost(runs)
    if options.limit is not None:
        still = [run for run in runs.values() if run.state not in ("done", "failed")]
        runs = {run.id: run for run in in_order(suite, still)[: options.limit]} or runs
    return Job(suite, registered, runs, cost)


def register(suite: Suite, engine: Engine) -> Registered:
    """Make the database hold the suite; refuses a frozen one that has changed."""
    inherited: list[RunSpec] = [
        member.spec for donor in suite.inherited for member in donor.members
    ]
    return register_suite(engine, suite.name, suite.stored(), suite.digest, suite.runs(), inherited)
