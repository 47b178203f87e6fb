"""What questions read from the database: the suite asked, and its runs with their passages.

All statements of one question run in one transaction that sees one moment of the database, so
that an answer and the revision it carries belong together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pandas as pd
from sqlalchemy import Connection, Engine, text

from db.queries.frames import Passage, runs_frame
from service.answers.making import Clock, Thresholds
from service.answers.refusals import Unknown

SUITES = """
SELECT s.id, s.name, s.spec, s.hash, s.revision, s.frozen_at IS NOT NULL AS frozen, s.recorded,
       EXISTS (SELECT FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
               WHERE sr.suite_id = s.id AND r.state = 'running') AS running,
       EXISTS (SELECT FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
               WHERE sr.suite_id = s.id
                 AND r.state IN ('pending', 'running', 'stale')) AS open
FROM suites s
"""

# The newest suite that has the prime, but the default one before all others.
CHOOSE_SUITE = """
SELECT s.name FROM suites s
WHERE CAST(:prime AS integer) IS NULL OR EXISTS (
    SELECT FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
    WHERE sr.suite_id = s.id AND r.prime = :prime AND r.kind <> 'capacity')
ORDER BY s.name = :default_suite DESC, s.created_at DESC, s.id DESC LIMIT 1
"""

PRIMES = """
SELECT DISTINCT r.prime FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE r.kind <> 'capacity' AND (CAST(:suite_id AS integer) IS NULL OR sr.suite_id = :suite_id)
ORDER BY r.prime
"""


@dataclass(frozen=True, kw_only=True)
class SuiteRecord:
    """A suite as the database has it.

    `running`: a worker trains one of its runs now; `open`: some of its runs are not closed;
    `recorded`: of a suite loaded from a dump, how that was made.
    """

    id: int
    name: str
    spec: Mapping[str, Any]
    hash: str
    revision: int
    frozen: bool
    recorded: Mapping[str, Any] | None
    running: bool
    open: bool

    @property
    def analysis(self) -> Mapping[str, Any]:
        """How the suite means to be analysed; empty where its file does not say."""
        written = self.spec.get("analysis")
        return written if isinstance(written, Mapping) else {}


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection whose statements all see the same moment of the database."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        yield connection


def suite_names(connection: Connection) -> list[str]:
    return list(connection.scalars(text("SELECT name FROM suites ORDER BY name")))


def primes_of(connection: Connection, suite_id: int | None = None) -> list[int]:
    """Primes that have runs, in one suite or in all."""
    return list(connection.scalars(text(PRIMES), {"suite_id": suite_id}))


def read_suite(connection: Connection, name: str) -> SuiteRecord:
    """The suite of this name; refuses others with the names there are."""
    row = connection.execute(text(SUITES + "WHERE s.name = :name"), {"name": name}).mappings()
    found = row.one_or_none()
    if found is None:
        there = suite_names(connection)
        raise Unknown("suite", name, there, f"{name!r} is not in the database")
    return SuiteRecord(**found)


def read_suites(connection: Connection) -> list[SuiteRecord]:
    """All suites, by name."""
    rows = connection.execute(text(SUITES + "ORDER BY s.name")).mappings()
    return [SuiteRecord(**row) for row in rows]


def find_suite(
    connection: Connection, name: str | None, prime: int | None, default_suite: str
) -> SuiteRecord:
    """The suite asked for; without a name the default one, else the newest with the prime."""
    if name is not None:
        return read_suite(connection, name)
    chosen = connection.scalar(text(CHOOSE_SUITE), {"prime": prime, "default_suite": default_suite})
    if chosen is not None:
        return read_suite(connection, chosen)
    if prime is None:
        raise Unknown("suite", None, [], "the database has no suite yet; train one first")
    raise Unknown("prime", prime, primes_of(connection), f"{prime} is in no suite")


def read_runs(
    connection: Connection,
    suite: SuiteRecord,
    *,
    clock: Clock = "online",
    thresholds: Thresholds | None = None,
    prime: int | None = None,
) -> pd.DataFrame:
    """The suite's speed and grok runs (inherited ones too), one row each: its spec's columns,
    state, last epoch, and first passages t_mem, t_gen, e_train, e_val in epochs (NaN: none)."""
    asked = thresholds or Thresholds()
    filters = {} if prime is None else {"prime": prime}
    speed = {"t_mem": Passage(clock, asked.t_mem)}
    grok = {
        "e_train": Passage(clock, asked.e_train),
        "e_val": Passage("val", asked.e_val),
        "t_gen": Passage("val", asked.t_gen),
    }
    return pd.concat(
        [
            runs_frame(connection, suite.id, "speed", speed, filters),
            runs_frame(connection, suite.id, "grok", grok, filters),
        ],
        ignore_index=True,
    )


def read_capacity(connection: Connection, suite: SuiteRecord) -> pd.DataFrame:
    """The suite's capacity runs, one row each."""
    return runs_frame(connection, suite.id, "capacity")
