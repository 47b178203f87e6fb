"""What a sweep costs beside training: planning, starting bundles, the driver's memory, idling.

Ratios are of one run on one machine; times are for orientation only.

    python benchmarks/sweep.py [--quick]
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from sqlalchemy import Engine

from db import embedded
from db.engine import connect
from db.migrating import migrate
from service.settings import Settings
from service.suites import load_suite
from service.suites.expansion import expand
from service.sweep.cluster import cluster
from service.sweep.cost import CostModel
from service.sweep.job import SweepOptions, prepare
from service.sweep.plan import Bundle, Pending, Stack, plan
from service.sweep.running import run_sweep

# Runs that train to their cap, so that both sweeps do the same work.
WORK = """\
description: the same work for one worker and for two
positions: none
primes: [43, 47, 53, 59]
seeds: {{from: 1, to: {seeds}}}
settings: {{batch_size: {{steps: 12.36}}}}
stop: {{max_epochs: {epochs}, train: 1.0}}
order: seeds_first
speed: {{widths: [16, 20, 24, 32]}}
"""


@contextmanager
def temporary_database() -> Iterator[tuple[str, Engine, Path]]:
    home = Path(tempfile.mkdtemp(prefix="gt-", dir="/tmp"))
    try:
        url = embedded.start(home)
        engine = connect(url, check_schema=False)
        migrate(engine)
        yield url, engine, home
        engine.dispose()
    finally:
        embedded.stop(home)
        shutil.rmtree(home)


def resident_megabytes() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def planning(table: Table) -> None:
    suite = load_suite("central")
    begin = time.perf_counter()
    members = expand(suite.file, suite.document).members
    specs = {member.spec.key: member.spec for member in members}
    expanded = time.perf_counter()
    pending = [Pending(number, spec) for number, spec in enumerate(specs.values())]
    bundles = plan(pending, CostModel(), workers=64)
    planned = time.perf_counter()
    table.add_row("central: runs", f"{len(specs):,}", "")
    table.add_row("central: expand and key", f"{expanded - begin:.2f} s", "")
    table.add_row(
        "central: plan", f"{planned - expanded:.2f} s", f"{len(bundles):,} bundles, 64 workers"
    )


def timed_sweep(workers: int, seeds: int, epochs: int) -> tuple[float, float, float]:
    """Seconds from the first bundle to the last run, of training, and in trials."""
    with temporary_database() as (url, engine, home):
        path = home / "work.yaml"
        path.write_text(WORK.format(seeds=seeds, epochs=epochs))
        suite = load_suite(path)
        settings = Settings(home=home)
        options = SweepOptions(workers=workers)
        quiet = Console(file=io.StringIO())
        # Workers start and build the engine on a first, small part.
        run_sweep(suite, url, engine, settings, replace(options, limit=2 * workers), quiet)
        begin = time.perf_counter()
        _, report = run_sweep(suite, url, engine, settings, options, quiet)
        elapsed = time.perf_counter() - begin
    return elapsed, report.training_seconds, report.bundle_seconds


def two_workers(table: Table, quick: bool) -> None:
    seeds, epochs = (2, 100) if quick else (6, 400)
    with cluster(None, 2):
        one, trained_one, _ = timed_sweep(1, seeds, epochs)
        two, trained, trials = timed_sweep(2, seeds, epochs)
    table.add_row("one worker", f"{one:.1f} s", f"{trained_one / one:.1%} of it training")
    table.add_row("two workers", f"{two:.1f} s", f"{trained / (2 * two):.1%} of both training")
    table.add_row("share of trial time training", f"{trained / trials:.1%}", "two workers")
    table.add_row("speed-up of two workers", f"{one / two:.2f}", "aim 1.9")


def trivial_bundles(table: Table, count: int) -> None:
    """Bundles of a run that is closed already: what remains is Ray, Tune and one query."""
    with temporary_database() as (url, engine, home), cluster(None, 2):
        from service.sweep.tuner import Resources, tune_bundles
        from workers.trainable import WorkerOrders

        path = home / "work.yaml"
        path.write_text(WORK.format(seeds=1, epochs=1))
        suite = load_suite(path)
        settings = Settings(home=home)
        quiet = Console(file=io.StringIO())
        run_sweep(suite, url, engine, settings, SweepOptions(limit=2), quiet)
        job = prepare(suite, engine, SweepOptions())
        run = next(run for run in job.runs.values() if run.state == "done")
        bundle = Bundle((Stack((Pending(run.id, run.spec),), 1.0),))
        orders = WorkerOrders.of(settings, url, "cpu")
        few = max(10, count // 10)
        tune_bundles([bundle] * few, orders, "warm", Resources(at_once=2))
        before, begin = resident_megabytes(), time.perf_counter()
        tune_bundles([bundle] * count, orders, "trivial", Resources(at_once=2))
        seconds = time.perf_counter() - begin
        grown = resident_megabytes() - before
    table.add_row(f"{count:,} trivial bundles", f"{1000 * seconds / count:.0f} ms each", "")
    table.add_row(
        "driver memory", f"{before:.0f} MB before", f"{1024 * grown / count:+.0f} KB a bundle"
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="less work, rougher numbers")
    arguments.add_argument("--only", choices=["planning", "workers", "bundles"])
    chosen = arguments.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    table = Table("sweep", "measured", "", title=f"sweep, {os.cpu_count()} cores")
    if chosen.only in (None, "planning"):
        planning(table)
    if chosen.only in (None, "workers"):
        two_workers(table, chosen.quick)
    if chosen.only in (None, "bundles"):
        trivial_bundles(table, 200 if chosen.quick else 2000)
    Console().print(table)


if __name__ == "__main__":
    main()
