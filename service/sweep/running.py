"""Running a sweep from end to end: prepare, connect, train, report."""

from __future__ import annotations

from rich.console import Console
from sqlalchemy import Engine

from service.settings import Settings
from service.suites import Suite
from service.sweep.cluster import check_database_reaches, cluster_address, members
from service.sweep.interruption import terminated_as_interrupt
from service.sweep.job import Job, SweepOptions, SweepReport, prepare
from service.sweep.means import joined
from service.sweep.progress import SweepProgress
from service.sweep.tidying import tidy


def run_sweep(
    suite: Suite,
    database_url: str,
    engine: Engine,
    settings: Settings,
    options: SweepOptions,
    console: Console,
    *,
    address: str | None = None,
) -> tuple[Job, SweepReport]:
    """Train what is missing of the suite; `engine` is the database owner's.

    Nothing open means no cluster is started at all.
    """
    job = prepare(suite, engine, options)
    tidy(settings.checkpoint_dir, job.runs.values())
    if not job.open:
        failed = {run.id: run.reason or "" for run in job.runs.values() if run.state == "failed"}
        return job, SweepReport(failed=failed)
    where = cluster_address(address, settings.ray_address)
    display = SweepProgress(engine, suite.name, job.weights(), console)
    with display as progress, joined(options, settings, where) as means:
        # Imports Ray, whose ways of authentication are settled by now.
        from service.sweep.driver import Sweep

        _, nodes = members()
        check_database_reaches(database_url, nodes)
        with terminated_as_interrupt():
            sweep = Sweep(job, engine, settings, database_url, options, means)
            report = sweep.run(progress)
    return job, report
