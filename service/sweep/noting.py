"""Sweeps that run as Ray jobs, noted in the database: who asked for what, what became of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine

from db.lasting import lasting
from db.sweeps import SweepState, insert_sweep, update_sweep
from service.errors import GroktimeError, SweepError
from service.settings import Settings
from service.suites import load_suite
from service.sweep.job import Job, SweepOptions, SweepReport
from service.sweep.submit import submit_sweep

NUMBER = "GROKTIME_SWEEP_NUMBER"  # how a job knows which of the noted sweeps it is


def submit_noted(
    engine: Engine,
    suite: str,
    options: SweepOptions,
    settings: Settings,
    address: str,
    *,
    by: str,
    pass_database_url: bool = False,
) -> tuple[int, str]:
    """Note the sweep, then submit it; returns its number and Ray's id of the job.

    A refusal of Ray's is noted, too, but not a sweep of no runs. `engine` may write.
    """
    loaded = load_suite(suite)
    options.selection.chosen(loaded.runs())
    name = loaded.name
    with engine.begin() as connection:
        number = insert_sweep(connection, name, submitted_by=by, filters=as_asked(options))
    try:
        job = submit_sweep(
            suite,
            options,
            settings,
            address,
            pass_database_url=pass_database_url,
            environment={NUMBER: str(number)},
        )
    except SweepError as refused:
        note(engine, number, "failed", str(refused))
        raise
    with engine.begin() as connection:
        # Not its state: the job may have begun, and then has told it.
        update_sweep(connection, number, job_id=job)
    return number, job


def as_asked(options: SweepOptions) -> dict[str, Any]:
    """What differs from a sweep of the whole suite, in the words of `POST /sweeps`."""
    selection = options.selection
    filters = {
        "prime": list(selection.primes),
        "kind": list(selection.kinds),
        "width": list(selection.widths),
        "seed": list(selection.seeds),
    }
    resources = {
        "gpus_per_bundle": options.gpus_per_bundle,
        "workers": options.workers,
        "limit": options.limit,
    }
    asked = {
        "filters": {name: values for name, values in filters.items() if values},
        "resources": {name: value for name, value in resources.items() if value},
        "retry_failed": options.retry_failed,
    }
    return {name: value for name, value in asked.items() if value}


def noting(engine: Engine, sweep: Callable[[], tuple[Job, SweepReport]]) -> tuple[Job, SweepReport]:
    """Run the sweep; where this process is the job of a noted one, note how it goes and ends."""
    given = os.environ.get(NUMBER, "")
    if not given.isdigit():
        return sweep()
    number = int(given)
    note(engine, number, "running")
    try:
        job, report = sweep()
    except GroktimeError as problem:
        note(engine, number, "failed", str(problem))
        raise
    except KeyboardInterrupt:
        note(engine, number, "stopped")
        raise
    if report.failed:
        note(engine, number, "failed", f"{len(report.failed)} runs failed")
    else:
        note(engine, number, "done")
    return job, report


def note(engine: Engine, number: int, state: SweepState, message: str | None = None) -> None:
    """Write down how a noted sweep stands."""

    def write() -> None:
        with engine.begin() as connection:
            update_sweep(connection, number, state=state, message=message)

    lasting(write)
