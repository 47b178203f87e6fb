"""Postgres fed as a large cluster feeds it: many workers, few rows each, through PgBouncer.

    python -m benchmarks.feeding [--workers 200] [--rows 300] [--servers 50] [--seconds 60]

Nothing is trained: every worker claims a run, hands a recorder of its own as many made-up epochs as
its share of the rows, closes the run after some seconds and claims the next, as workers do. Claims,
flushes and closings are the product's own; PgBouncer (Debian's) is in transaction mode. All of it
is on one machine, the workers as threads of one process: times hold the cost of both sides.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import psutil
from fixtures.commands import wait_until
from fixtures.curves import Ended, curve
from fixtures.pgbouncer import pooled
from fixtures.runs import grok_spec, register
from sqlalchemy import Engine, text

from groktime.db import embedded
from groktime.db.claims import claim
from groktime.db.engine import connect, migrate, retrying
from groktime.db.maintenance import check
from groktime.db.recorder import FLUSH_SECONDS, Recorder
from groktime.db.suites import open_runs

LEASE_SECONDS = 60.0
RUN_SECONDS = 15.0  # of a run, and then the next
CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'groktime writer%'
"""
COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
RECORDED = "SELECT count(*) FROM curve"


@dataclass
class Seen:
    """What the workers took, in seconds, and how many connections the server held at most."""

    claims: list[float] = field(default_factory=list)
    flushes: list[float] = field(default_factory=list)
    closings: list[float] = field(default_factory=list)
    rows: int = 0
    connections: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, claiming: float, closing: float, rows: int) -> None:
        with self.lock:
            self.claims.append(claiming)
            self.closings.append(closing)
            self.rows += rows


def feed(url: str, runs: Iterator[int], rows: float, seconds: float, seen: Seen) -> None:
    """One worker: runs one after another, together `rows` epochs a second."""
    engine = connect(url, "writer", pool_size=0, check_schema=False)
    start, left, given = time.monotonic(), round(rows * seconds), 0
    while left:
        run = next(runs)
        began = time.monotonic()
        (held,) = retrying(lambda run=run: claim(engine, [run], f"worker-{run}", LEASE_SECONDS))
        claimed = time.monotonic()
        epochs = min(left, math.ceil(rows * RUN_SECONDS))
        made, flushed = curve(held.spec, epochs), claimed
        with Recorder(engine, [held], lease_seconds=LEASE_SECONDS) as recorder:
            for epoch in range(epochs):
                given += 1
                time.sleep(max(0.0, start + given / rows - time.monotonic()))
                recorder.record(0, epoch + 1, made[epoch : epoch + 1])
                if time.monotonic() - flushed >= FLUSH_SECONDS:
                    flushed = time.monotonic()
                    recorder.flush()
                    seen.flushes.append(time.monotonic() - flushed)
            closing = time.monotonic()
            recorder.finish(0, Ended(epochs))
        left -= epochs
        seen.add(claimed - began, time.monotonic() - closing, epochs)
    engine.dispose()


def watch(engine: Engine, over: threading.Event, seen: Seen) -> None:
    """Count the server's connections now and then."""
    while not over.wait(0.5):
        with engine.connect() as connection:
            seen.connections = max(seen.connections, connection.scalar(text(CONNECTIONS)) or 0)


def server_seconds(home: Path) -> float:
    """Processor time of the server's processes that live."""
    pid = int((embedded.data_directory(home) / "postmaster.pid").read_text().split()[0])
    server = psutil.Process(pid)
    return sum(sum(one.cpu_times()[:2]) for one in [server, *server.children()])


def number(engine: Engine, query: str) -> int:
    with engine.connect() as connection:
        return int(connection.scalar(text(query)) or 0)


def measure(home: Path, workers: int, rows: float, servers: int, seconds: float) -> None:
    url = embedded.start(home)
    engine = connect(url, check_schema=False)
    migrate(engine)
    count = workers * (2 + int(seconds / RUN_SECONDS))
    specs = [grok_spec(seed=seed) for seed in range(1, count + 1)]
    runs = iter(list(open_runs(engine, register(engine, specs).suite_id).values()))
    seen, over = Seen(), threading.Event()
    with pooled(home, url, servers=servers, clients=2 * workers) as through:
        watcher = threading.Thread(target=watch, args=(engine, over, seen))
        watcher.start()
        commits, began = number(engine, COMMITS), time.monotonic()
        spent, served = time.process_time(), server_seconds(home)
        with ThreadPoolExecutor(workers) as pool:
            each = rows / workers
            todo = [pool.submit(feed, through, runs, each, seconds, seen) for _ in range(workers)]
            for one in todo:
                one.result()
        took = time.monotonic() - began
        spent, served = time.process_time() - spent, server_seconds(home) - served
        over.set()
        watcher.join()
    # Backends have counted all they did when they have ended, which PgBouncer's end makes them do.
    wait_until(lambda: number(engine, CONNECTIONS) == 0)
    commits = number(engine, COMMITS) - commits
    with engine.connect() as connection:
        findings = check(connection).findings
    recorded = number(engine, RECORDED)
    engine.dispose()
    assert recorded == seen.rows, f"{seen.rows - recorded} epochs are missing"
    assert not findings, findings
    print(f"{workers} workers; server connections: {servers} allowed, {seen.connections} seen")
    rate = f"{recorded / took:.0f} epochs, {commits / took:.0f} transactions a second"
    print(f"{recorded:,} epochs of {len(seen.claims):,} runs in {took:.0f} s: {rate}")
    print("every epoch is there once, and `db check` finds nothing")
    for name, times in (
        ("claiming a run", seen.claims),
        ("a flush", seen.flushes),
        ("closing a run", seen.closings),
    ):
        times.sort()
        late = times[int(0.99 * (len(times) - 1))]
        print(f"{name}: median {1000 * statistics.median(times):.0f} ms, 99 % {1000 * late:.0f} ms")
    print(f"processor: workers {spent / took:.0%} of a core, Postgres {served / took:.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--rows", type=float, default=300.0, help="a second, of all workers")
    parser.add_argument("--servers", type=int, default=50, help="connections of PgBouncer's")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="gt-", dir="/tmp"))
    home.chmod(0o755)
    try:
        measure(home, options.workers, options.rows, options.servers, options.seconds)
    finally:
        embedded.stop(home)
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
