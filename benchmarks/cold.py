"""Processor time of the first answers after a change, without HTTP: Python's and Postgres's.

Before each round the suites that have a run at p = 113 get a new revision, as when that run closes.
Then questions are put one after the other, as the routes put them, so that later ones show what
they share with earlier ones. Processor time is what other work on the machine disturbs least; the
median of the rounds is told. Linux only: the backend's time is read from /proc.

    python -m benchmarks.cold --url URL [--rounds 9]

URL is a database that benchmarks/api.py or benchmarks/paper_database.py has filled.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sqlalchemy import Connection, Engine, text

from benchmarks.api import raise_revision
from groktime.db.engine import connect
from groktime.service.answers.choice import choose
from groktime.service.answers.crossing import crossing, delay, speeds
from groktime.service.answers.question import Question, reading

OPEN = Question(prime=113)
NAMED = Question(prime=113, suite="central")

QUESTIONS: dict[str, Callable[[Connection], object]] = {
    "which suite answers": lambda connection: choose(connection, OPEN),
    "/crossing": lambda connection: crossing(connection, NAMED),
    "then /speeds": lambda connection: speeds(connection, NAMED),
    "then /delay": lambda connection: delay(connection, NAMED),
}


def backend_ms(pid: int) -> float:
    """Milliseconds on a processor; workers of a parallel plan are not counted."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def rounds(reader: Engine, owner: Engine, count: int) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in QUESTIONS}
    for turn in range(count + 1):  # the first imports and plans, and is not counted
        raise_revision(owner)
        with reading(reader) as connection:
            pid = connection.scalar(text("SELECT pg_backend_pid()"))
            assert pid is not None
            for name, put in QUESTIONS.items():
                server, here = backend_ms(pid), time.thread_time()
                put(connection)
                here, server = time.thread_time() - here, backend_ms(pid) - server
                if turn:
                    found[name].append((1000 * here, server))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", required=True, help="a database that is filled already")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    owner = connect(options.url)
    found = rounds(connect(options.url, "reader"), owner, options.rounds)
    print(f"load {os.getloadavg()[0]:.1f}; processor ms, medians of {options.rounds} rounds\n")
    print(f"{'':<22}{'Python':>8}{'Postgres':>10}")
    for name, times in found.items():
        here, server = (statistics.median(part) for part in zip(*times, strict=True))
        print(f"{name:<22}{here:>8.1f}{server:>10.1f}")


if __name__ == "__main__":
    main()
