"""A located suite on Ray Tune: its feed is asked for the next run, without an end set before."""

from __future__ import annotations

import secrets

from groktime.db.claims import revoke_leases
from groktime.db.engine import retrying
from groktime.service.errors import SweepError
from groktime.service.settings import Settings
from groktime.service.sweep.cluster import ClusterCapacity, slots_now
from groktime.service.sweep.locator import SYSTEMIC_CRASHES, TRIES, Locator
from groktime.service.sweep.selection import SweepOptions, SweepReport
from groktime.service.sweep.tuner import FedSearcher, run_tuner
from groktime.workers.trainable import WorkerConfig


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
        # Later choices know more: none is made before there is room for it.
        at_once=lambda: slots_now(capacity.gpus, options.workers),
    )
    worker = WorkerConfig.of(settings, database_url, capacity.device)
    run_tuner(searcher, worker, capacity.gpus)
    searcher.add_to(report)
    if searcher.refused:
        raise SweepError(searcher.refused)
    if locator.is_systemic:
        raise SweepError(f"{SYSTEMIC_CRASHES} runs in a row crashed: {locator.last_reason}")
    locator.fail_crashed()
