"""A question: which suite, prime and setting, by which convention; why it is refused; and what is
read for it: the suite, and its runs with their first passages.

All statements of one question run in one transaction that sees one moment of the database, so
that an answer and the revision it carries belong together.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationError
from sqlalchemy import Connection, Engine, text

from groktime.db.records import SuiteRecord, find_suite, suite_names
from groktime.service.analysis import Method as Method
from groktime.service.analysis import MinimumDelay
from groktime.service.analysis import Units as Units
from groktime.service.errors import AnalysisError, SuiteError

if TYPE_CHECKING:
    import pandas as pd

    from groktime.db.frames import Passage

Clock = Literal["online", "eval"]
Labels = Literal["random", "shuffled"]
SettingValue = bool | int | float | str | None
Setting = Mapping[str, SettingValue]


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Accuracies whose first epochs are the clocks: T_mem, T_gen, E_train and E_val."""

    t_mem: float = 0.99
    t_gen: float = 0.99
    e_train: float = 0.99
    e_val: float = 0.98


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a question left open and was chosen for it, each with why; null: it was named."""

    suite: str | None = None
    prime: str | None = None
    setting: str | None = None
    other_settings: Annotated[
        tuple[Setting, ...], Field(description="settings that could have been asked for instead")
    ] = ()

    def __bool__(self) -> bool:
        return self != NOTHING

    def __or__(self, other: Choice) -> Choice:
        """Both choices as one."""
        return Choice(
            suite=other.suite or self.suite,
            prime=other.prime or self.prime,
            setting=other.setting or self.setting,
            other_settings=other.other_settings or self.other_settings,
        )


NOTHING = Choice()
CHOSEN = Field(description="what the question left open and why this was taken; null: nothing")

Accepted = Sequence[object] | Mapping[str, Sequence[object]] | str


class QuestionError(AnalysisError):
    """A question was refused: the parameter, its value and what is accepted."""

    def __init__(self, parameter: str, value: object, accepted: Accepted, why: str) -> None:
        super().__init__(f"{parameter}: {why}")
        self.parameter = parameter
        self.value = value
        self.accepted = accepted


class Unknown(QuestionError):
    """What was named is not in the database; `accepted` lists what is."""


class Ambiguous(QuestionError):
    """Several settings match; `accepted` maps each axis to the values to choose from."""


class NotEnough(QuestionError):
    """The runs that the answer needs have not been trained yet."""


DEFAULT_LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked; None leaves suite and prime to be chosen, conventions to the suite's own.

    `choice` says what has been chosen for it already.
    """

    prime: int | None = None
    suite: str | None = None
    default_suite: str = "central"
    filters: Mapping[str, SettingValue] = field(default_factory=dict)
    labels: Labels | None = None
    method: Method | None = None
    clock: Clock | None = None
    units: Units = "epochs"
    t_mem: float | None = None
    t_gen: float | None = None
    e_train: float | None = None
    e_val: float | None = None
    min_delay: float | None = None
    min_delay_share: float | None = None
    max_width: int | None = None
    level: float = DEFAULT_LEVEL
    choice: Choice = NOTHING

    def __post_init__(self) -> None:
        for name in ("t_mem", "t_gen", "e_train", "e_val"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise QuestionError(
                    name, value, "above 0, at most 1", f"{value} is not an accuracy"
                )
        if self.min_delay is not None and not 1 <= self.min_delay < math.inf:
            raise QuestionError(
                "min_delay", self.min_delay, "1 or more epochs", f"{self.min_delay} is below 1"
            )
        if self.min_delay_share is not None and not 0 <= self.min_delay_share < math.inf:
            why = f"{self.min_delay_share} is no share of E_train"
            raise QuestionError("min_delay_share", self.min_delay_share, "0 or more", why)
        if not 0.5 <= self.level <= 0.999:
            raise QuestionError(
                "level", self.level, "0.5 to 0.999", f"{self.level} is out of range"
            )


@dataclass(frozen=True, kw_only=True)
class Convention:
    """A question's conventions after the suite's analysis settings have filled the gaps."""

    method: Method
    clock: Clock
    units: Units
    labels: Labels | None
    thresholds: Thresholds
    min_delay: MinimumDelay
    max_width: int | None
    level: float
    fraction_window: tuple[float, float]


def _first(*values: float | None) -> float:
    """The first value that is given."""
    return next(value for value in values if value is not None)


def convention(analysis: Mapping[str, Any], question: Question) -> Convention:
    """The question's own values, else the suite's, else the defaults."""
    written = analysis.get("thresholds") or {}
    names = [f.name for f in fields(Thresholds)]
    thresholds = replace(Thresholds(), **{n: written[n] for n in names if n in written})
    asked = {n: getattr(question, n) for n in names if getattr(question, n) is not None}
    window = analysis.get("fraction_window") or (0.0, 0.25)
    return Convention(
        method=question.method or analysis.get("method") or "robust",
        clock=question.clock or analysis.get("clock") or "online",
        units=question.units,
        labels=question.labels,
        thresholds=replace(thresholds, **asked),
        min_delay=MinimumDelay(
            question.min_delay or analysis.get("min_delay") or 1.0,
            _first(question.min_delay_share, analysis.get("min_delay_share"), 0.0),
        ),
        max_width=question.max_width or analysis.get("max_width"),
        level=question.level,
        fraction_window=(float(window[0]), float(window[1])),
    )


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


def known_suite(connection: Connection, name: str) -> SuiteRecord:
    """The suite of this name, damaged or not; refuses others with the names there are."""
    found = find_suite(connection, name)
    if found is None:
        there = suite_names(connection)
        raise Unknown("suite", name, there, f"{name!r} is not in the database")
    return found


def read_suite(connection: Connection, name: str) -> SuiteRecord:
    """The suite of this name, which questions can be put to."""
    found = known_suite(connection, name)
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
    from groktime.db.frames import runs_frame

    passages = _passages(clock, thresholds or Thresholds())
    filters = {} if prime is None else {"prime": prime}
    return runs_frame(connection, suite.id, ("speed", "grok"), passages, filters)


def _passages(clock: Clock, asked: Thresholds) -> dict[str, Passage]:
    """The first passages that answers about cells are made of."""
    from groktime.db.frames import Passage

    return {
        "t_mem": Passage(clock, asked.t_mem, "speed"),
        "e_train": Passage(clock, asked.e_train, "grok"),
        "e_val": Passage("val", asked.e_val, "grok"),
        "t_gen": Passage("val", asked.t_gen, "grok"),
    }


def read_capacity(connection: Connection, suite: SuiteRecord) -> pd.DataFrame:
    """The suite's capacity runs, one row each."""
    from groktime.db.frames import runs_frame

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

    def last(self, key: Hashable) -> object | None:
        """The value put last, whatever its stamp."""
        with self._lock:
            found = self._values.get(key)
            return None if found is None else found[1]

    def put(self, key: Hashable, stamp: Hashable, value: object) -> None:
        with self._lock:
            self._values[key] = (stamp, value)
            self._values.move_to_end(key)
            if len(self._values) > self._most:
                self._values.popitem(last=False)


@dataclass(frozen=True, eq=False)
class PrimeRuns:
    """What one prime of a suite is answered from: its runs, and the suite's capacity runs.

    `rows` identifies the versions of the rows that were read; None: nobody looked.
    """

    runs: pd.DataFrame
    capacity: pd.DataFrame
    rows: Hashable = None


MOST_PRIMES = 32  # kept, some megabytes each
_prime_runs = Kept(MOST_PRIMES)


def prime_runs(
    connection: Connection, suite: SuiteRecord, convention: Convention, prime: int
) -> PrimeRuns:
    """All that answers about one prime need, read by one statement and kept for this revision."""
    kept = _prime_runs.get(_place(connection, suite, convention, prime), _moment(suite))
    if isinstance(kept, PrimeRuns):
        return kept
    return _read_primes(connection, suite, convention, {prime: None})[prime]


# Postgres marks each version of a row with the transaction that wrote it (xmin): where all versions
# are the same, nothing has changed. Prime NULL: the suite's capacity runs.
ROWS = """
SELECT CASE WHEN r.kind <> 'capacity' THEN r.prime END AS prime, count(*) AS runs,
    bit_xor(hashint8extended(2 * r.id::bigint + sr.inherited::int, r.xmin::text::bigint)) AS rows
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = :suite GROUP BY 1 ORDER BY 1
"""


def keep_primes(connection: Connection, suite: SuiteRecord, convention: Convention) -> list[int]:
    """The suite's primes, with their runs read by one statement for questions about each.

    A prime whose rows have not changed keeps what was read, and with it what was computed. Of a
    suite with more primes than are kept, runs are read as they are asked for.
    """
    moment = _moment(suite)
    read = connection.execute(text(ROWS), {"suite": suite.id})
    versions = {row.prime: (row.runs, row.rows) for row in read}
    capacity = versions.pop(None, None)
    if len(versions) > MOST_PRIMES:
        return list(versions)
    changed: dict[int, Hashable] = {}
    for prime, own in versions.items():
        place = _place(connection, suite, convention, prime)
        if _prime_runs.get(place, moment) is not None:
            continue
        rows = (suite.hash, own, capacity)
        last = _prime_runs.last(place)
        if isinstance(last, PrimeRuns) and last.rows == rows:
            _prime_runs.put(place, moment, last)
        else:
            changed[prime] = rows
    if changed:
        _read_primes(connection, suite, convention, changed)
    return list(versions)


def _place(
    connection: Connection, suite: SuiteRecord, convention: Convention, prime: int
) -> Hashable:
    return str(connection.engine.url), suite.id, prime, convention.clock, convention.thresholds


def _moment(suite: SuiteRecord) -> Hashable:
    return suite.hash, suite.revision


def _read_primes(
    connection: Connection,
    suite: SuiteRecord,
    convention: Convention,
    primes: Mapping[int, Hashable],
) -> dict[int, PrimeRuns]:
    """Read the runs of these primes; each is given with the versions of its rows."""
    from groktime.db.frames import runs_frame

    frame = runs_frame(
        connection,
        suite.id,
        ("speed", "grok"),
        _passages(convention.clock, convention.thresholds),
        {"prime": list(primes)},
        whole=("capacity",),
    )
    count = int((frame["kind"] != "capacity").sum())  # these come first
    runs, capacity = frame.iloc[:count], frame.iloc[count:]
    found = {
        prime: PrimeRuns(runs if len(primes) == 1 else runs[runs["prime"] == prime], capacity, rows)
        for prime, rows in primes.items()
    }
    for prime, kept in found.items():
        _prime_runs.put(_place(connection, suite, convention, prime), _moment(suite), kept)
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
