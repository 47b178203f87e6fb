"""How fast epochs get into the database and questions get their answers out of it.

    python -m benchmarks.database [--quick] [--json]        progress goes to standard error

Fills a scratch embedded server: ingest by the recorder's own transaction beside executemany in
turns, eight writers at once, the recorder's share of the time of a real bundle, then a database
as large as the paper and the queries behind the routes. --quick does it with a smaller one.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from sqlalchemy import Engine, text

from benchmarks.paper_database import PAPER, PAPER_ROWS, QUICK, QUICK_ROWS, fill
from benchmarks.route_queries import measure_queries
from groktime.db import embedded
from groktime.db.claims import Claim, claim
from groktime.db.curve import COLUMNS, METRICS, Part, absent_columns, encode, write
from groktime.db.engine import connect, migrate
from groktime.db.recorder import Recorder
from groktime.db.suites import open_runs, register_suite
from groktime.service.spec import FixedStop, ModelSpec, ModularData, OptimiserSpec, RunSpec

FLUSH_ROWS = 5_000
RUNS = 10  # of one writer; a flush holds FLUSH_ROWS / RUNS epochs of each
WRITERS = 8

EXECUTEMANY = f"""
INSERT INTO curve (run_id, epoch, {", ".join(COLUMNS)})
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


def spec(seed: int, *, prime: int = 113, width: int = 32, epochs: int = 1_000_000) -> RunSpec:
    return RunSpec(
        kind="grok",
        data=ModularData(prime=prime),
        model=ModelSpec(width=width),
        optimiser=OptimiserSpec(batch_size=128 if prime < 97 else 512),
        stop=FixedStop(max_epochs=epochs),
        seed=seed,
    )


def claims_of(engine: Engine, name: str, specs: list[RunSpec]) -> list[Claim]:
    suite = register_suite(engine, name, {}, name, specs)
    return claim(engine, list(open_runs(engine, suite.suite_id).values()), name, 3_600)


def metrics(rows: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    found = np.zeros(rows, dtype=METRICS)
    for column in COLUMNS:
        found[column] = rng.random(rows) * 1_000
    return found


def ingest(engine: Engine, claims: list[Claim], flushes: int, first_epoch: int = 1) -> float:
    """Seconds for so many flushes by the recorder's transaction, encoding included."""
    each = FLUSH_ROWS // len(claims)
    rows = metrics(each)
    held = engine.raw_connection()
    started = time.perf_counter()
    for flush in range(flushes):
        epoch = first_epoch + flush * each
        parts = [
            Part(
                c.run_id,
                c.attempt,
                epoch - 1,
                epoch - 1 + each,
                [encode(c.run_id, epoch, rows, absent_columns(c.spec))],
            )
            for c in claims
        ]
        write(held.driver_connection, parts, 3_600)
    seconds = time.perf_counter() - started
    held.close()
    return seconds


def executemany(engine: Engine, claims: list[Claim], first_epoch: int) -> float:
    """Seconds for one flush of as many rows by plain inserts."""
    each = FLUSH_ROWS // len(claims)
    rows = metrics(each).tolist()
    values = [
        (c.run_id, first_epoch + offset, *row) for c in claims for offset, row in enumerate(rows)
    ]
    held = engine.raw_connection()
    started = time.perf_counter()
    driver: Any = held.driver_connection
    with driver.cursor() as cursor:
        cursor.executemany(EXECUTEMANY, values)
    driver.commit()
    seconds = time.perf_counter() - started
    held.close()
    return seconds


def measure_ingest(engine: Engine, rounds: int) -> dict[str, float]:
    """The recorder's transaction and executemany take turns."""
    copied = claims_of(engine, "copied", [spec(seed) for seed in range(RUNS)])
    plain = claims_of(engine, "plain", [spec(100 + seed) for seed in range(RUNS)])
    each = FLUSH_ROWS // RUNS
    flushes = 5
    ingest(engine, copied, 1)  # warm
    copy_seconds, plain_seconds = [], []
    for turn in range(rounds):
        copy_seconds.append(ingest(engine, copied, flushes, 1 + each * (1 + turn * flushes)))
        plain_seconds.append(executemany(engine, plain, 1 + each * turn))
    fast = FLUSH_ROWS * flushes / statistics.median(copy_seconds)
    slow = FLUSH_ROWS / statistics.median(plain_seconds)
    return {
        "ingest_rows_per_s": fast,
        "ingest_best_rows_per_s": FLUSH_ROWS * flushes / min(copy_seconds),
        "executemany_rows_per_s": slow,
        "ingest_ratio": fast / slow,
    }


def _writer(url: str, number: int, flushes: int, ready: Any, results: Any) -> None:
    engine = connect(url, "writer")
    seeds = range(1_000 * (number + 1), 1_000 * (number + 1) + RUNS)
    claims = claims_of(engine, f"writer {number}", [spec(seed) for seed in seeds])
    ready.wait()
    started = time.monotonic()
    ingest(engine, claims, flushes)
    results.put((started, time.monotonic()))
    engine.dispose()


def measure_writers(url: str, flushes: int) -> dict[str, float]:
    """Rows a second of eight processes together."""
    context = multiprocessing.get_context("spawn")
    ready, results = context.Barrier(WRITERS), context.Queue()
    workers = [
        context.Process(target=_writer, args=(url, number, flushes, ready, results))
        for number in range(WRITERS)
    ]
    for worker in workers:
        worker.start()
    times = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    seconds = max(end for _, end in times) - min(start for start, _ in times)
    return {"writers": WRITERS, "writers_rows_per_s": WRITERS * flushes * FLUSH_ROWS / seconds}


class Timed:
    """A sink that counts the time training spends in it; without a recorder it drops the rows."""

    def __init__(self, recorder: Recorder | None) -> None:
        self.recorder, self.seconds = recorder, 0.0

    def _timed(self, call: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        try:
            return call()
        finally:
            self.seconds += time.perf_counter() - started

    def record(self, run: int, first_epoch: int, rows: Any) -> bool:
        recorder = self.recorder
        if recorder is None:
            return True
        return bool(self._timed(lambda: recorder.record(run, first_epoch, rows)))

    def flush(self) -> None:
        if self.recorder is not None:
            self._timed(self.recorder.flush)

    def finish(self, run: int, outcome: Any) -> None:
        recorder = self.recorder
        if recorder is not None:
            self._timed(lambda: recorder.finish(run, outcome))

    def owns(self, run: int) -> bool:
        return self.recorder is None or self.recorder.owns(run)


def measure_overhead(engine: Engine, epochs: int, rounds: int) -> dict[str, float]:
    """A real bundle with and without recording, in turns."""
    from groktime.workers.training import train  # here, since the eight writers need no torch

    dropped, recorded, waited = [], [], []
    for turn in range(rounds):
        specs = [spec(500 + 10 * turn + s, prime=47, epochs=epochs) for s in range(8)]
        started = time.perf_counter()
        train(specs, Timed(None), device="cpu")
        dropped.append(time.perf_counter() - started)
        claims = claims_of(engine, f"bundle {turn}", specs)
        started = time.perf_counter()
        with Recorder(engine, claims, lease_seconds=60) as recorder:
            sink = Timed(recorder)
            train([c.spec for c in claims], sink, device="cpu")
        recorded.append(time.perf_counter() - started)
        waited.append(sink.seconds)
    return {
        "bundle_seconds": min(recorded),
        "overhead_waiting": min(w / r for w, r in zip(waited, recorded, strict=True)),
        "overhead_difference": min(recorded) / min(dropped) - 1,
    }


def tell(words: str) -> None:
    """Say how far it is; standard output is for the results alone."""
    print(f"{time.strftime('%H:%M:%S')} {words}", file=sys.stderr, flush=True)


def measure(home: Path, quick: bool) -> dict[str, Any]:
    url = embedded.start(home)
    engine = connect(url, check_schema=False)
    migrate(engine)
    found: dict[str, Any] = {"quick": quick}
    tell("1 of 5: ingest on one connection")
    found |= measure_ingest(engine, 3 if quick else 10)
    tell(f"2 of 5: {WRITERS} writers")
    found |= measure_writers(url, 4 if quick else 20)
    tell("3 of 5: a bundle with and without recording")
    found |= measure_overhead(engine, 30 if quick else 300, 1 if quick else 2)
    with engine.begin() as connection:
        connection.execute(text("TRUNCATE suites, runs, suite_runs, attempts, curve CASCADE"))
    names, suite, prime = (QUICK, "mini", 59) if quick else (PAPER, "central", 113)
    wanted = QUICK_ROWS if quick else PAPER_ROWS
    tell(f"4 of 5: a database of {wanted:,} epochs")
    started = time.perf_counter()
    runs, rows = fill(engine, names, wanted, tell)
    found |= {"runs": runs, "curve_rows": rows, "fill_seconds": time.perf_counter() - started}
    tell(f"5 of 5: queries on {runs:,} runs and {rows:,} epochs")
    with connect(url, "reader").connect() as connection:
        size = connection.scalar(text("SELECT pg_total_relation_size('curve')"))
        found["bytes_per_epoch"] = int(size or 0) / rows
        found |= measure_queries(connection, suite, prime)
    engine.dispose()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small database, under 50 s")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="gt-bench-", dir="/tmp"))
    try:
        found = measure(home, arguments.quick)
    finally:
        embedded.stop(home)
        shutil.rmtree(home)
    if arguments.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        if name == "explain":
            for question, scans in value.items():
                print("\n".join(f"  {question:12} {scan}" for scan in scans))
        else:
            print(
                f"{name:26} {value:>14,.3f}"
                if isinstance(value, float)
                else f"{name:26} {value:>14}"
            )


if __name__ == "__main__":
    main()
