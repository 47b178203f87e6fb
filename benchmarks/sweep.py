"""What a sweep costs beside training: planning, starting, idling, bundles, the driver's memory.

Ratios are of one run on one machine; times are for orientation only. Training is counted from
the first claim of a run to the end of the last: what comes before is told as starting, what
comes after as ending. The processor seconds of each group of processes (workers, driver, Postgres,
each part of Ray) are told, too: on a machine that others use they say what the wall time cannot.

    python benchmarks/sweep.py [--quick] [--only planning|idling|workers|bundles]

All of it takes about ten minutes on two quiet cores, with --quick about two.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil
from rich.console import Console
from rich.table import Table
from sqlalchemy import Engine, text

from groktime.db import embedded
from groktime.db.engine import connect, migrate
from groktime.service.settings import Settings
from groktime.service.suites import Suite, load_suite
from groktime.service.suites.expansion import expand
from groktime.service.sweep.cluster import IDLE, cluster
from groktime.service.sweep.cost import CostModel
from groktime.service.sweep.driver import run_sweep
from groktime.service.sweep.plan import Pending, plan
from groktime.service.sweep.selection import SweepOptions, prepare

# Sizes of the mini suite, cut short. Runs are deterministic: every sweep of it is the same work.
WORK = """\
description: the same work for one worker and for two
positions: none
primes: [43, 47, 53, 59]
seeds: {{from: 1, to: {seeds}}}
settings: {{batch_size: {{steps: 12.36}}}}
stop: {{max_epochs: {epochs}}}
speed: {{widths: [16, 20, 24, 32]}}
grok: {{widths: [16, 20, 24, 32]}}
"""

TIMES = """
SELECT extract(epoch FROM (SELECT min(started_at) FROM attempts)) AS first_claim,
       extract(epoch FROM (SELECT max(closed_at) FROM runs)) AS last_end
"""


@dataclass(frozen=True)
class Place:
    """A scratch home with a database, and a suite in it."""

    url: str
    engine: Engine
    suite: Suite
    settings: Settings


@contextmanager
def place(seeds: int, epochs: int) -> Iterator[Place]:
    home = Path(tempfile.mkdtemp(prefix="gt-", dir="/tmp"))
    try:
        url = embedded.start(home)
        engine = connect(url, check_schema=False)
        migrate(engine)
        path = home / "work.yaml"
        path.write_text(WORK.format(seeds=seeds, epochs=epochs))
        yield Place(url, engine, load_suite(path), Settings(home=home))
        engine.dispose()
    finally:
        embedded.stop(home)
        shutil.rmtree(home)


def planning(table: Table) -> None:
    suite = load_suite("central")
    begin = time.perf_counter()
    members = expand(suite.file, suite.document).members
    specs = {member.spec.key: member.spec for member in members}
    expanded = time.perf_counter()
    pending = [Pending(number, spec) for number, spec in enumerate(specs.values())]
    bundles = plan(pending, CostModel(rate=1e11), workers=64)
    planned = time.perf_counter()
    table.add_row("central: expand and key", f"{expanded - begin:.2f} s", f"{len(specs):,} runs")
    table.add_row(
        "central: plan", f"{planned - expanded:.2f} s", f"{len(bundles):,} bundles, 64 workers"
    )


class Processors:
    """Adds up the processor seconds of all processes of a sweep, by what they are for.

    Read every second, since most have ended with the sweep; whose a process is, is asked once: a
    look at all of them twice a second took a tenth of a core, which counted as the driver's and was
    missing to the second worker. `home`: where its Postgres is.
    """

    def __init__(self, home: Path | None) -> None:
        self._home = home
        self._here = psutil.Process()
        self._ours: dict[tuple[int, float], bool] = {}
        self._used: dict[tuple[int, float], tuple[str, float]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._driver = time.process_time()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._driver = time.process_time() - self._driver

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error):
                    self._note(process)

    def _note(self, process: psutil.Process) -> None:
        key = process.pid, process.create_time()
        if key not in self._ours:
            self._ours[key] = self._is_ours(process)
        if self._ours[key]:
            line = " ".join(process.cmdline())
            group = next((name for part, name in GROUPS.items() if part in line), "others")
            if process.name() == "postgres":
                group = "Postgres"
            self._used[key] = group, sum(process.cpu_times()[:2])

    def _is_ours(self, process: psutil.Process) -> bool:
        above = process.parents()
        if process.name() != "postgres":
            return self._here in above
        servers = [one for one in (process, *above) if one.name() == "postgres"]
        return self._home is None or str(self._home) in " ".join(servers[-1].cmdline())

    def seconds(self) -> dict[str, float]:
        found = {"driver": self._driver}
        for group, used in self._used.values():
            found[group] = found.get(group, 0.0) + used
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))


LOOK_SECONDS = 1.0

# What a process is for, by a part of its command line.
GROUPS = {
    "Agent": "Ray's agents",
    "raylet/raylet": "raylet",
    "gcs_server": "Ray's control store",
    "ray::": "workers",
    "default_worker.py": "workers",
    "log_monitor.py": "Ray's log monitor",
    "dashboard.py": "Ray's dashboard",
    "monitor.py": "Ray's autoscaler",
}


@dataclass(frozen=True)
class Timed:
    """Seconds of one sweep, and how many of all workers' seconds of training were training."""

    starting: float
    training: float
    ending: float
    share: float
    processors: dict[str, float]


def timed_sweep(workers: int, seeds: int, epochs: int) -> Timed:
    """One sweep from the call to its return, cluster and all, as `groktime sweep` does it."""
    with place(seeds, epochs) as at:
        quiet = Console(file=io.StringIO())
        begin = time.time()
        with Processors(at.settings.home) as processors:
            _, report = run_sweep(
                at.suite, at.url, at.engine, at.settings, SweepOptions(workers=workers), quiet
            )
        end = time.time()
        with at.engine.connect() as connection:
            first, last = map(float, connection.execute(text(TIMES)).one())
    if report.failed or report.retried:
        raise SystemExit(f"the sweep was disturbed: {report}")
    share = report.training_seconds / (workers * (last - first))
    return Timed(first - begin, last - first, end - last, share, processors.seconds())


def two_workers(table: Table, quick: bool) -> None:
    compile_engine()
    seeds, epochs = (1, 150) if quick else (3, 450)
    one, two = timed_sweep(1, seeds, epochs), timed_sweep(2, seeds, epochs)
    for name, sweep in (("one worker", one), ("two workers", two)):
        around = f"starting {sweep.starting:.1f} s, ending {sweep.ending:.1f} s"
        table.add_row(f"{name}: first claim to last end", f"{sweep.training:.1f} s", around)
    table.add_row("share of worker time in training", f"{one.share:.1%}", "one worker")
    table.add_row("share of worker time in training", f"{two.share:.1%}", "two workers, aim 95 %")
    for name, sweep in (("one worker", one), ("two workers", two)):
        all_seconds = sum(sweep.processors.values())
        for group, used in sweep.processors.items():
            table.add_row(f"{name}: {group}", f"{used:.1f} s of CPU", f"{used / all_seconds:.1%}")
    table.add_row("speed-up of two workers", f"{one.training / two.training:.2f}", "aim 1.9")


def compile_engine() -> None:
    """Once, before anything is timed, and not in this process, whose memory is measured."""
    build = "from groktime.workers.native import unavailable; unavailable()"
    subprocess.run([sys.executable, "-c", build], check=True)


RAYS_OWN = {
    "RAY_LOG_MONITOR_MANY_FILES_THRESHOLD": "1000",
    "LOG_NAME_UPDATE_INTERVAL_S": "0.5",
}


def idling(table: Table, seconds: float) -> None:
    """What a cluster without work takes of a core, by Ray's own intervals and by ours."""
    for name, intervals in (("Ray's intervals", RAYS_OWN), ("ours", IDLE)):
        os.environ.update(intervals)
        with cluster(None, 2):
            time.sleep(10)  # it has started
            before = _by_group()
            time.sleep(seconds)
            used = {group: spent - before.get(group, 0) for group, spent in _by_group().items()}
        for group, spent in sorted(used.items(), key=lambda pair: -pair[1]):
            table.add_row(f"idle, {name}: {group}", f"{spent / seconds:.2%} of a core", "")
        whole = sum(used.values()) / seconds
        table.add_row(f"idle, {name}: in all", f"{whole:.2%} of a core", "")


def _by_group() -> dict[str, float]:
    with Processors(None) as processors:
        time.sleep(1.5 * LOOK_SECONDS)  # it reads once
    return {group: spent for group, spent in processors.seconds().items() if group != "driver"}


def trivial_bundles(table: Table, count: int, workers: int) -> None:
    """Bundles of a run that is closed already: what remains is Ray, Tune and one query.

    One Tuner, as the driver has it; its process's memory is read as the bundles end.
    """
    with place(1, 1) as at, cluster(None, workers):
        from groktime.service.sweep.tuner import FedSearcher, run_tuner
        from groktime.workers.trainable import WorkerConfig

        memory = [resident_megabytes()]

        class Trivial:
            """A feed of the same run again and again."""

            left, ended = count, 0

            def next(self, live: Collection[int]) -> list[list[int]] | None:
                self.left -= 1
                return [[run.id]] if self.left >= 0 else None

            def trained(self, runs: Sequence[int]) -> None:
                self.ended += 1
                if self.ended % max(1, count // 4) == 0:
                    memory.append(resident_megabytes())
                if self.ended % 1000 == 0:  # many take an hour
                    each = 1000 * (time.perf_counter() - begin) / self.ended
                    told = f"{self.ended:,} bundles, {each:.0f} ms each, "
                    sys.stderr.write(f"{told}{resident_megabytes():.0f} MB\n")

            def crashed(self, runs: Sequence[int], reason: str) -> None:
                raise SystemExit(f"trivial bundles failed: {reason}")

        job = prepare(at.suite, at.engine, SweepOptions())
        run = next(iter(job.runs.values()))
        with at.engine.begin() as connection:
            closed = "UPDATE runs SET state = 'failed', reason = 'closed', closed_at = now()"
            connection.execute(text(closed))
        searcher = FedSearcher(Trivial(), at.engine, "trivial", lambda: 2 * workers)
        begin, processor = time.perf_counter(), time.process_time()
        run_tuner(searcher, WorkerConfig.of(at.settings, at.url, "cpu"))
        seconds, processor = time.perf_counter() - begin, time.process_time() - processor
        memory.append(resident_megabytes())
        if searcher.refused:
            raise SystemExit(f"trivial bundles failed: {searcher.refused}")
    table.add_row(
        f"{count:,} trivial bundles, one Tuner",
        f"{1000 * seconds / count:.0f} ms each",
        f"{workers} workers; {1000 * processor / count:.0f} ms of the driver's processor",
    )
    shown = " → ".join(f"{megabytes:.0f}" for megabytes in memory)
    table.add_row("driver memory, MB", shown, "before, at each quarter, and at the end")
    grown = 1024 * (memory[-1] - memory[1]) / (count - count // 4)
    table.add_row("driver memory a bundle", f"{grown:+.1f} KB", "after the first quarter")


def resident_megabytes() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return float("nan")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="less work, rougher numbers")
    arguments.add_argument("--only", choices=["planning", "idling", "bundles", "workers"])
    arguments.add_argument("--bundles", type=int, help="trivial ones, 2000 where nothing is said")
    arguments.add_argument("--workers", type=int, default=2, help="that run trivial bundles")
    chosen = arguments.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    table = Table("sweep", "measured", "", title=f"sweep, {os.cpu_count()} cores")
    begin = time.monotonic()
    if chosen.only in (None, "planning"):
        planning(table)
    if chosen.only in (None, "idling"):
        idling(table, 20 if chosen.quick else 60)
    if chosen.only in (None, "bundles"):
        count = chosen.bundles or (200 if chosen.quick else 2000)
        trivial_bundles(table, count, chosen.workers)
    if chosen.only in (None, "workers"):
        two_workers(table, chosen.quick)
    Console().print(table, f"{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
