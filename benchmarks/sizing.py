"""What a deployment has to provide: bytes, connections, memory and processor time.

    python benchmarks/sizing.py [--filled] [--json]

Trains a small suite as `groktime sweep` does, on a scratch embedded server, and looks at the
server and the workers meanwhile. Times are processor time of one thread, so that what else the
machine does matters little; deploy/README.md works its tables out from these figures. With
--filled only the bytes of a fuller database are printed, whose curves are made up: a few thousand
epochs weigh too much, since their pages are half empty.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psycopg2
import torch

from benchmarks.paper_database import fill
from groktime.db import embedded
from groktime.db.engine import connect, migrate
from groktime.service.spec import ModelSpec, ModularData, RunSpec, ThresholdStop
from groktime.workers.devices import cpu_name
from groktime.workers.engines import choose_engine, make_stack

SUITE = """
description: Enough runs to weigh.
positions: none
primes: [23]
seeds: {from: 42, to: 44}
settings: {batch_size: 64}
stop: {max_epochs: 400}
speed: {widths: [16, 24]}
grok: {widths: [16, 24]}
"""
FILLED = ("mini",), 500_000  # suites, epochs
CASES = ((59, 24), (59, 48), (113, 32), (113, 64), (113, 128))

ACTIVITY = """
SELECT application_name, count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() GROUP BY 1
"""
# Tables with their indexes and the visibility map.
SIZES = """
SELECT (SELECT count(*) FROM curve), (SELECT count(*) FROM runs),
       pg_total_relation_size('curve'), pg_relation_size('curve'),
       pg_total_relation_size('runs'), pg_database_size(current_database())
"""


def central(prime: int, width: int) -> RunSpec:
    """A run of the central setting."""
    return RunSpec(
        kind="grok",
        data=ModularData(prime=prime),
        model=ModelSpec(width=width),
        stop=ThresholdStop(train=0.99, val=0.98),
        seed=42,
    )


def processor_ms(spec: RunSpec) -> float:
    """Processor milliseconds of one model and epoch."""
    stack = make_stack([spec], device="cpu")
    stack.advance(1)
    best = float("inf")
    for _ in range(3):
        begin = time.process_time()
        stack.advance(3)
        best = min(best, (time.process_time() - begin) / 3)
    return 1000 * best


def resident_bytes(home: Path) -> int:
    """Memory of the largest worker whose environment names this home."""
    largest = 0
    for folder in Path("/proc").iterdir():
        try:
            if not (folder / "cmdline").read_bytes().startswith(b"ray::"):
                continue
            if f"GROKTIME_HOME={home}".encode() not in (folder / "environ").read_bytes():
                continue
            status = (folder / "status").read_text()
        except OSError:
            continue
        for line in status.splitlines():
            if line.startswith("VmRSS"):
                largest = max(largest, int(line.split()[1]) * 1024)
    return largest


def sweep_figures(home: Path) -> dict[str, float]:
    """Train the suite with one worker and weigh what came of it."""
    suite = home / "weighed.yaml"
    suite.write_text(SUITE)
    environment = {**os.environ, "GROKTIME_HOME": str(home)}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    embedded.start(home)
    database = psycopg2.connect(
        host=str(embedded.data_directory(home)), user=embedded.SUPERUSER, dbname=embedded.DATABASE
    )
    database.autocommit = True
    cursor = database.cursor()

    def number(statement: str) -> float:
        cursor.execute(statement)
        return float(cursor.fetchone()[0])

    sweep = subprocess.Popen(
        ["groktime", "sweep", str(suite), "--workers", "1"],
        env=environment,
        stdout=sys.stderr,
    )
    most: Counter[str] = Counter()
    memory = 0
    while sweep.poll() is None:
        cursor.execute(ACTIVITY)
        connected = Counter(dict(cursor.fetchall()))
        most |= connected
        most["all"] = max(most["all"], connected.total())
        memory = max(memory, resident_bytes(home))
        time.sleep(0.1)
    if sweep.returncode:
        raise SystemExit("the sweep failed")
    cursor.execute("VACUUM ANALYZE curve")
    figures = weighed(cursor)
    dump = home / "weighed.dump"
    subprocess.run(
        ["groktime", "db", "dump", "weighed", str(dump)],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    checkpoints = [path.stat().st_size for path in (home / "checkpoints").rglob("*.npz")]
    figures |= {
        "bytes an epoch in a dump": dump.stat().st_size / figures["epochs recorded"],
        "connections of a sweep with one worker": most["all"],
        "connections as writer": most["groktime writer"],
        "MB resident of a worker": memory / 1e6,
    }
    if checkpoints:
        figures["bytes of the largest checkpoint left"] = max(checkpoints)
    database.close()
    return figures


def weighed(cursor: Any) -> dict[str, float]:
    """Bytes of what the database holds."""
    cursor.execute(SIZES)
    rows, runs, curve, heap, run_bytes, whole = cursor.fetchone()
    return {
        "epochs recorded": rows,
        "bytes an epoch, table and index": curve / rows,
        "bytes an epoch, table alone": heap / rows,
        "bytes a run, without its curve": run_bytes / runs,
        "MB of an empty database": (whole - curve - run_bytes) / 1e6,
    }


def filled_figures(home: Path) -> dict[str, float]:
    """Weigh a database that holds a suite of made-up curves."""
    engine = connect(embedded.start(home), check_schema=False)
    migrate(engine)
    fill(engine, *FILLED)
    held = engine.raw_connection()
    figures = weighed(held.cursor())
    held.close()
    engine.dispose()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filled", action="store_true", help="bytes of a fuller database alone")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    torch.set_num_threads(1)
    home = Path(tempfile.mkdtemp(prefix="gts", dir="/tmp"))
    try:
        figures = filled_figures(home) if options.filled else sweep_figures(home)
    finally:
        embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)
    os.environ.setdefault("GROKTIME_HOME", str(home))
    for prime, width in () if options.filled else CASES:
        figures[f"processor ms a model-epoch, p={prime} d={width}"] = processor_ms(
            central(prime, width)
        )
    if options.json:
        print(json.dumps(figures))
        return
    print(f"{cpu_name()}, {choose_engine(central(59, 24), 'auto', 'cpu')} engine")
    for name, value in figures.items():
        print(f"{name:48s} {value:12,.1f}")


if __name__ == "__main__":
    main()
