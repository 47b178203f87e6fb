"""What is read from the database: the suite asked, and its runs with their first passages.

All statements of one question run in one transaction that sees one moment of the database, so
that an answer and the revision it carries belong together.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from sqlalchemy import Connection, Engine, text

from groktime.db.queries.suites import SuiteRecord, find_suite, suite_names
from groktime.service.answers.question import (
    Clock,
    Convention,
    NotEnough,
    Question,
    QuestionError,
    Thresholds,
    Unknown,
    convention,
)
from groktime.service.errors import SuiteError

if TYPE_CHECKING:
    import pandas as pd

    from groktime.db.queries.frames import Passage

PRIMES = """
SELECT DISTINCT r.prime FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE r.kind <> 'capacity' AND (CAST(:suite_id AS integer) IS NULL OR sr.suite_id = :suite_id)
ORDER BY r.prime
"""


def analysis_damage(spec: Mapping[str, Any]) -> str | None:
    """What is wrong with a stored spec's `analysis`; its other parts answer no question."""
    from groktime.service.suites.schema import Analysis

    try:
        Analysis.model_validate(spec.get("analysis") or {})
    except ValidationError as problem:
        first = problem.errors()[0]
        return f"analysis.{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return None


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection whose statements all see the same moment of the database."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        yield connection


def primes_of(connection: Connection, suite_id: int | None = None) -> list[int]:
    """Primes that have runs, in one suite or in all."""
    return list(connection.scalars(text(PRIMES), {"suite_id": suite_id}))


def asked_precision(suite: SuiteRecord) -> float:
    """Standard deviation of each point that ends a cell of a located suite, dex."""
    from groktime.service.suites.schema import Design

    design = suite.spec.get("design")
    asked = design.get("precision") if isinstance(design, Mapping) else None
    return float(asked) if asked is not None else Design().precision


def read_suite(connection: Connection, name: str) -> SuiteRecord:
    """The suite of this name; refuses others with the names there are."""
    found = find_suite(connection, name)
    if found is None:
        there = suite_names(connection)
        raise Unknown("suite", name, there, f"{name!r} is not in the database")
    if (damage := found.damage or analysis_damage(found.spec)) is not None:
        raise SuiteError(f"suite {name} is damaged: {damage}")
    return found


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
    from groktime.db.queries.frames import runs_frame

    passages = _passages(clock, thresholds or Thresholds())
    filters = {} if prime is None else {"prime": prime}
    return runs_frame(connection, suite.id, ("speed", "grok"), passages, filters)


def _passages(clock: Clock, asked: Thresholds) -> dict[str, Passage]:
    """The first passages that answers about cells are made of."""
    from groktime.db.queries.frames import Passage

    return {
        "t_mem": Passage(clock, asked.t_mem, "speed"),
        "e_train": Passage(clock, asked.e_train, "grok"),
        "e_val": Passage("val", asked.e_val, "grok"),
        "t_gen": Passage("val", asked.t_gen, "grok"),
    }


def read_capacity(connection: Connection, suite: SuiteRecord) -> pd.DataFrame:
    """The suite's capacity runs, one row each."""
    from groktime.db.queries.frames import runs_frame

    return runs_frame(connection, suite.id, "capacity")


def put(connection: Connection, question: Question) -> tuple[SuiteRecord, Convention]:
    """Read the suite that is named and settle the conventions."""
    assert question.suite is not None, "choose() names the suite"
    suite = read_suite(connection, question.suite)
    return suite, convention(suite.analysis, question)


class Kept:
    """An LRU that threads share; a value is good as long as its stamp is the same."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, tuple[Hashable, object]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, stamp: Hashable) -> object | None:
        with self._lock:
            found = self._values.get(key)
            if found is None or found[0] != stamp:
                return None
            self._values.move_to_end(key)
            return found[1]

    def put(self, key: Hashable, stamp: Hashable, value: object) -> None:
        with self._lock:
            self._values[key] = (stamp, value)
            self._values.move_to_end(key)
            if len(self._values) > self._most:
                self._values.popitem(last=False)


@dataclass(frozen=True, eq=False)
class PrimeRuns:
    """What one prime of a suite is answered from: its runs, and the suite's capacity runs."""

    runs: pd.DataFrame
    capacity: pd.DataFrame


MOST_PRIMES = 16  # kept, some megabytes each
_prime_runs = Kept(MOST_PRIMES)


def prime_runs(
    connection: Connection, suite: SuiteRecord, convention: Convention, prime: int
) -> PrimeRuns:
    """All that answers about one prime need, read by one statement and kept for this revision."""
    from groktime.db.queries.frames import runs_frame

    clock, thresholds = convention.clock, convention.thresholds
    where = (str(connection.engine.url), suite.id, prime, clock, thresholds)
    stamp = (suite.hash, suite.revision)
    kept = _prime_runs.get(where, stamp)
    if isinstance(kept, PrimeRuns):
        return kept
    passages = _passages(clock, thresholds)
    frame = runs_frame(
        connection, suite.id, ("speed", "grok"), passages, {"prime": prime}, whole=("capacity",)
    )
    count = int((frame["kind"] != "capacity").sum())  # these come first
    found = PrimeRuns(frame.iloc[:count], frame.iloc[count:])
    _prime_runs.put(where, stamp, found)
    return found


def asked_runs(
    connection: Connection, suite: SuiteRecord, convention: Convention, prime: int | None
) -> pd.DataFrame:
    """The suite's runs up to the widest model asked for, of all primes or of one.

    Where none is left, the refusal names what left it out.
    """
    if prime is None:
        clock, thresholds = convention.clock, convention.thresholds
        runs = read_runs(connection, suite, clock=clock, thresholds=thresholds)
    else:
        runs = prime_runs(connection, suite, convention, prime).runs
    if not len(runs):
        if prime is None:
            raise NotEnough("suite", suite.name, "a suite with runs", f"{suite.name} has no runs")
        there = primes_of(connection, suite.id)
        raise Unknown("prime", prime, there, f"{prime} is not in {suite.name}")
    widest = convention.max_width
    if widest is None:
        return runs
    least = int(runs["width"].min())
    if widest < least:
        why = f"{widest} leaves no width; the smallest is {least}"
        raise QuestionError("max_width", widest, f"{least} or more", why)
    return runs[runs["width"] <= widest]
