"""The statements that answers send: how long the server takes for them, and by which indexes.

Each question is put once over a connection that writes down what it sends; then the statements
alone are timed and explained. So what is measured is what the routes ask, whatever that is.
"""

from __future__ import annotations

import io
import re
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2.extensions
from sqlalchemy import Connection, text

from groktime.service.answers.context import cell_context
from groktime.service.answers.crossing import crossing, delay, speeds
from groktime.service.answers.question import Question, read_runs, read_suite
from groktime.service.answers.runs import run_curve
from groktime.service.answers.suites import coverage

OFF_LADDER = {"t_mem": 0.9725, "t_gen": 0.9725, "e_train": 0.9725, "e_val": 0.9725}
REPEATS = 5

COPIED = re.compile(r"COPY \((.*)\) TO STDOUT WITH \(FORMAT csv\)", re.DOTALL)
SCAN = re.compile(r"((?:Seq|Index|Index Only|Bitmap Heap|Bitmap Index) Scan .*?)  \(")

LONGEST_RUN = "SELECT id FROM runs WHERE kind = 'grok' ORDER BY last_epoch DESC, id LIMIT 1"


def questions(connection: Connection, suite: str, prime: int) -> dict[str, Callable[[], object]]:
    """What is context, by the name its time gets."""
    run = connection.scalar(text(LONGEST_RUN))
    assert run is not None
    one = Question(suite=suite, prime=prime)
    off = Question(suite=suite, prime=prime, **OFF_LADDER)
    return {
        "revision": lambda: read_suite(connection, suite),
        "crossing": lambda: crossing(connection, one),
        "speeds": lambda: speeds(connection, one),
        "delay": lambda: delay(connection, one),
        "whole_suite": lambda: read_runs(connection, read_suite(connection, suite)),
        "coverage": lambda: coverage(connection, read_suite(connection, suite)),
        "curve": lambda: run_curve(connection, run),
        "off_ladder": lambda: cell_context(connection, off),
    }


def measure_queries(connection: Connection, suite: str, prime: int) -> dict[str, Any]:
    """Milliseconds by question, the scans of each, and how often the curve was scanned whole."""
    found: dict[str, Any] = {}
    scans: dict[str, list[str]] = {}
    for name, put in questions(connection, suite, prime).items():
        with watched(connection) as sent:
            put()
        found[f"{name}_ms"] = timed(lambda sent=sent: send(connection, sent))
        scans[name] = [scan for statement in sent for scan in explained(connection, statement)]
    found["curve_scans"] = curve_scans(connection)
    found["explain"] = {name: sorted(set(lines)) for name, lines in scans.items()}
    return found


@contextmanager
def watched(connection: Connection) -> Iterator[list[str]]:
    """The statements that read, with their values, as they are sent meanwhile."""
    sent: list[str] = []

    class Cursor(psycopg2.extensions.cursor):
        def execute(self, query: Any, values: Any = None) -> None:
            super().execute(query, values)
            self._keep(self.query.decode())

        def copy_expert(self, sql: Any, *arguments: Any) -> None:
            super().copy_expert(sql, *arguments)
            self._keep(sql)

        def _keep(self, statement: str) -> None:
            if statement.lstrip().startswith(("SELECT", "WITH", "COPY (")):
                sent.append(statement)

    driver: Any = connection.connection.driver_connection
    before = driver.cursor_factory
    driver.cursor_factory = Cursor
    try:
        yield sent
    finally:
        driver.cursor_factory = before


def send(connection: Connection, statements: list[str]) -> None:
    """Send the statements again and take their rows."""
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor:
        for statement in statements:
            if COPIED.fullmatch(statement):
                cursor.copy_expert(statement, io.BytesIO())
            else:
                cursor.execute(statement)
                cursor.fetchall()


def timed(call: Callable[[], object]) -> float:
    """Milliseconds, the median of some calls after a first one."""
    call()
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return 1_000 * statistics.median(times)


def explained(connection: Connection, statement: str) -> list[str]:
    """How the server reads each table for the statement."""
    copied = COPIED.fullmatch(statement)
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor:
        cursor.execute(f"EXPLAIN {copied[1] if copied else statement}")
        return [scan[1] for (line,) in cursor.fetchall() if (scan := SCAN.search(line))]


def curve_scans(connection: Connection) -> int:
    """Sequential scans of the curve in this transaction: the queries above must make none."""
    query = text("SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'curve'")
    return int(connection.scalar(query) or 0)
