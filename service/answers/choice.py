"""Which suite, prime and setting answer a question that does not name them.

One rule for the API, the page, the client and the commands. A question about a cell is answered by

1. the configured default suite, if it can answer there;
2. else a suite whose cell has a crossing and an onset, else one with a crossing;
3. among these suites of one setting before swept ones, then the most finished runs of both
   kinds, and of what is still equal the suite that was registered first.

Where not even the prime is named, the suite with most primes that have both points comes first,
and of its primes one that has both inside the measured widths: the paper's example or, where
that is not among them, the nearest to the middle. Of several settings the baseline
answers: the central value on every swept axis.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import Connection, Row, text

from groktime.db.records import SuiteRecord
from groktime.service.analysis.crossing import crossing
from groktime.service.analysis.delay import onset
from groktime.service.answers.cell import (
    Cell,
    cells,
    closed,
    first_passages,
    grok_runs,
    prime_cells,
    sortable,
)
from groktime.service.answers.question import (
    NOTHING,
    Ambiguous,
    Choice,
    Convention,
    Kept,
    Question,
    QuestionError,
    SettingValue,
    Unknown,
    analysis_damage,
    asked_runs,
    convention,
    primes_of,
    read_suite,
)
from groktime.service.errors import AnalysisError
from groktime.service.spec import SETTING_COLUMNS, ModelSpec, ModularData, OptimiserSpec
from groktime.service.words import count

# What a question needs: one cell, all cells of a suite, or capacity runs.
About = Literal["cell", "suite", "capacity"]

# The value that every axis has unless a suite says otherwise: that of the paper's central sweep.
CENTRAL: Mapping[str, SettingValue] = {
    name: field.default
    for part in (ModularData, ModelSpec, OptimiserSpec)
    for name, field in part.model_fields.items()
    if name in SETTING_COLUMNS
}

PAPER_PRIME = 113  # of its first figure
BY_DEFAULT = "the default suite (GROKTIME_DEFAULT_SUITE)"
MOST_KEPT = 4096

# A damaged suite answers nothing.
SUITES = """
SELECT id, name, hash, revision, spec -> 'analysis' AS analysis FROM suites
WHERE jsonb_typeof(spec) = 'object'
  AND coalesce(jsonb_typeof(recorded), 'null') IN ('null', 'object')
  AND coalesce(jsonb_typeof(recorded -> 'versions'), 'null') IN ('null', 'object')
ORDER BY id
"""

# How many runs of each kind have closed at every prime of the suites, and when the last did.
CLOSED = """
SELECT sr.suite_id, r.prime, r.kind,
       count(*) FILTER (WHERE r.state IN ('done', 'failed', 'set_aside')) AS closed,
       count(*) FILTER (WHERE r.state = 'done') AS done,
       max(r.closed_at) AS latest
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = ANY(:suites)
GROUP BY sr.suite_id, r.prime, r.kind ORDER BY sr.suite_id, r.prime, r.kind
"""

OTHERS = """
SELECT EXISTS (SELECT FROM runs r JOIN suite_runs sr ON sr.run_id = r.id
    WHERE r.kind IN ('speed', 'grok') AND r.prime = :prime AND sr.suite_id <> :suite)
"""


def baseline(found: Sequence[Cell]) -> list[Cell]:
    """The cells with the central value on every axis that has it."""
    kept = list(found)
    for axis in kept[0].setting if kept else ():
        central = [cell for cell in kept if cell.values[axis] == CENTRAL[axis]]
        kept = central or kept
    return kept


def baseline_cells(
    found: Sequence[Cell], *, one_per_prime: bool = False
) -> tuple[list[Cell], Choice]:
    """The cells of one setting, and what was chosen; refuses what has no baseline.

    The refusal lists the values of each axis there are to choose from.
    """
    settings = _settings(found)
    if len(settings) <= 1 and (one_per_prime or len(found) == 1):
        return list(found), NOTHING
    kept = baseline(found)
    if len(_settings(kept)) != 1 or (len(kept) > 1 and not one_per_prime):
        raise _several(kept)
    taken = kept[0].setting
    others = tuple(dict(items) for items in settings if dict(items) != dict(taken))
    named = ", ".join(f"{axis} {_shown(value)}" for axis, value in taken.items())
    are = "is" if len(others) == 1 else "are"
    more = count(len(others), "other setting")
    why = f"{named}, the baseline; no setting was named, and there {are} {more}"
    return kept, Choice(setting=why, other_settings=others)


def _settings(found: Iterable[Cell]) -> list[tuple[tuple[str, SettingValue], ...]]:
    return list(dict.fromkeys(tuple(cell.setting.items()) for cell in found))


def _shown(value: SettingValue) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _several(found: Sequence[Cell]) -> Ambiguous:
    choices: dict[str, list[SettingValue]] = {
        axis: sorted({cell.setting[axis] for cell in found}, key=sortable)
        for axis in found[0].setting
    }
    choices = {axis: values for axis, values in choices.items() if len(values) > 1}
    why = f"{len(_settings(found))} settings match; choose by {', '.join(choices)}"
    return Ambiguous(next(iter(choices), "setting"), None, choices, why)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What a suite can say at one prime, at its baseline or at the setting asked for."""

    prime: int
    finished: int = 0  # speed and grok runs that count
    swept: bool = False  # the suite has several settings
    answers: bool = False  # the runs suffice to say whether the speeds cross
    crossing: bool = False
    onset: bool = False
    inside: bool = False  # the onset is at neither end of the measured widths

    @property
    def rank(self) -> int:
        """2: crossing and onset; 1: crossing; 0: neither."""
        return 2 if self.crossing and self.onset else int(self.crossing)


@dataclass(frozen=True, kw_only=True)
class _Counts:
    """One suite's closed runs: by prime those that define cells, and its capacity runs."""

    id: int
    name: str
    hash: str
    primes: Mapping[int, tuple[Hashable, ...]]
    closed: Mapping[int, int]
    capacity: int


_kept = Kept(MOST_KEPT)


def choose(connection: Connection, question: Question, about: About = "cell") -> Question:
    """The question with its suite and, about a cell, its prime named; says what was chosen."""
    if question.suite is None:
        question = _with_suite(connection, question, about)
    if about == "cell" and question.prime is None:
        question = _with_prime(connection, question)
    return question


def is_open(question: Question, about: About) -> bool:
    """Whether the question leaves a suite or a prime to be chosen."""
    return question.suite is None or (about == "cell" and question.prime is None)


def default_suite(connection: Connection, configured: str) -> str | None:
    """The suite that answers where nothing is named; None: there is no suite."""
    try:
        return _with_suite(connection, Question(default_suite=configured), "cell").suite
    except Unknown:
        return None


def _with_suite(connection: Connection, question: Question, about: About) -> Question:
    if (
        about != "capacity"
        and question.prime is not None
        and _default_answers(connection, question)
    ):
        return _named(question, question.default_suite, BY_DEFAULT)
    there = _catalogue(connection)
    if not there:
        raise Unknown("suite", None, [], "the database has no suite yet; train one first")
    prime = question.prime
    having = [one for one in there if prime is None or prime in one.primes]
    if not having:
        raise Unknown("prime", prime, primes_of(connection), f"{prime} is in no suite")
    if about == "capacity":
        measured = [one for one in having if one.capacity]
        having = measured or [one for one in there if one.capacity] or having
        prime = prime if measured else None
    name, why = _best(connection, having, prime, question, about)
    return _named(question, name, why)


def _named(question: Question, suite: str, why: str) -> Question:
    return replace(question, suite=suite, choice=replace(question.choice, suite=why))


def _default_answers(connection: Connection, question: Question) -> bool:
    """Whether the default suite is one of several with the prime and can answer there.

    It reads no more than the answer itself will: most questions are settled by this.
    """
    assert question.prime is not None
    suites = _sound_suites(connection)
    one = next((row for row in suites if row.name == question.default_suite), None)
    if one is None:
        return False
    where = ("default", str(connection.engine.url), one.id, question.prime, _key(question.filters))
    stamp = tuple((row.id, row.hash, row.revision) for row in suites)
    kept = _kept.get(where, stamp)
    if not isinstance(kept, bool):
        suite = read_suite(connection, one.name)
        others = {"prime": question.prime, "suite": one.id}
        kept = _answers(connection, suite, question.prime, question.filters) and bool(
            connection.scalar(text(OTHERS), others)
        )
        _kept.put(where, stamp, kept)
    return kept


def _key(filters: Mapping[str, SettingValue]) -> Hashable:
    return tuple(sorted((name, repr(value)) for name, value in filters.items()))


def _answers(
    connection: Connection, suite: SuiteRecord, prime: int, filters: Mapping[str, SettingValue]
) -> bool:
    """Whether the suite's runs at the prime suffice to say whether the speeds cross."""
    used = convention(suite.analysis, Question())
    try:
        found = prime_cells(connection, suite, used, prime, filters)
        kept = baseline([one.cell for one in found])
        if len(kept) != 1:
            return False
        asked = next(one for one in found if one.cell is kept[0])
        if not len(asked.mem) or not len(asked.grok.width):
            return False
        return asked.crossing.status != "insufficient_data"  # the answer itself shows this crossing
    except AnalysisError:
        return False


def _best(
    connection: Connection,
    having: list[_Counts],
    prime: int | None,
    question: Question,
    about: About,
) -> tuple[str, str]:
    """The suite that answers best of those that have the prime, and why."""
    at = "" if prime is None else f" with p = {prime}"
    if len(having) == 1:
        return having[0].name, f"the only suite{at}"
    filters = question.filters if about != "capacity" else {}
    for one in having:  # what the others can say need not be known where the default answers
        if one.name == question.default_suite:
            standings = _standings(connection, one, prime, filters)
            if any(standing.answers for standing in standings):
                return one.name, BY_DEFAULT
    found = [(one, _standings(connection, one, prime, filters)) for one in having]
    matching = [(one, standings) for one, standings in found if standings]
    found = matching or found
    if about == "capacity" and any(one.name == question.default_suite for one, _ in found):
        return question.default_suite, BY_DEFAULT
    one, standings = max(found, key=lambda pair: _order(*pair))
    both = sum(standing.rank == 2 for standing in standings)
    finished = sum(standing.finished for standing in standings)
    if prime is None:
        why = f"a crossing and an onset at {both} of its {count(len(one.primes), 'prime')}"
        return one.name, f"{why}: the best of {count(len(having), 'suite')}"
    points = ("no crossing yet", "a crossing", "a crossing and an onset")
    point = points[standings[0].rank] if standings else points[0]
    why = f"{point} from {count(finished, 'run')}"
    return one.name, f"{why}: the best of {count(len(having), 'suite')}{at}"


def _order(one: _Counts, standings: Sequence[Standing]) -> tuple[int, ...]:
    """What comes first is largest."""
    return (
        sum(standing.rank == 2 for standing in standings),
        sum(standing.rank == 1 for standing in standings),
        -int(any(standing.swept for standing in standings)),
        sum(standing.finished for standing in standings),
        -one.id,
    )


def _with_prime(connection: Connection, question: Question) -> Question:
    assert question.suite is not None
    suite = read_suite(connection, question.suite)
    one = next((one for one in _catalogue(connection) if one.id == suite.id), None)
    primes = [] if one is None else list(one.primes)
    if one is None or not primes:
        raise QuestionError("prime", None, primes, f"is missing; {suite.name} has 0 primes")
    if len(primes) == 1:
        return replace(question, prime=primes[0])
    standings = _standings(connection, one, None, question.filters)
    if not standings:  # the filters match nowhere: the cell's own refusal says what there is
        return replace(question, prime=primes[0])
    usual = PAPER_PRIME if PAPER_PRIME in primes else primes[(len(primes) - 1) // 2]

    def order(standing: Standing) -> tuple[int, ...]:
        away = abs(standing.prime - usual)
        return standing.rank, standing.inside, standing.answers, standing.finished > 0, -away

    best = max(standings, key=order)
    points = ("has no crossing yet", "has a crossing", "has a crossing and an onset")[best.rank]
    why = f"p = {best.prime} {points}; none of {len(primes)} primes was named"
    return replace(question, prime=best.prime, choice=replace(question.choice, prime=why))


def _sound_suites(connection: Connection) -> list[Row[Any]]:
    rows = connection.execute(text(SUITES))
    return [row for row in rows if analysis_damage({"analysis": row.analysis}) is None]


def _catalogue(connection: Connection) -> tuple[_Counts, ...]:
    """All suites with what has closed at their primes; those that changed are read again."""
    suites = _sound_suites(connection)
    place = str(connection.engine.url)
    found: dict[int, _Counts] = {}
    for row in suites:
        kept = _kept.get(("counts", place, row.id), (row.hash, row.revision))
        if isinstance(kept, _Counts):
            found[row.id] = kept
    changed = [row for row in suites if row.id not in found]
    if changed:
        counted = connection.execute(text(CLOSED), {"suites": [row.id for row in changed]}).all()
        for row in changed:
            one = _counts(row, [count for count in counted if count.suite_id == row.id])
            _kept.put(("counts", place, row.id), (row.hash, row.revision), one)
            found[row.id] = one
    return tuple(found[row.id] for row in suites)


def _counts(suite: Row[Any], counted: Iterable[Row[Any]]) -> _Counts:
    primes: dict[int, tuple[Hashable, ...]] = {}
    closed_runs: dict[int, int] = {}
    capacity = 0
    for row in counted:
        if row.kind == "capacity":
            capacity += row.done
        else:
            primes[row.prime] = (*primes.get(row.prime, ()), row.closed, row.latest)
            closed_runs[row.prime] = closed_runs.get(row.prime, 0) + row.closed
    return _Counts(
        id=suite.id,
        name=suite.name,
        hash=suite.hash,
        primes=primes,
        closed=closed_runs,
        capacity=capacity,
    )


def _standings(
    connection: Connection, one: _Counts, prime: int | None, filters: Mapping[str, SettingValue]
) -> list[Standing]:
    """Where the suite stands at its primes, or at the one asked; none where the filters fail."""
    wanted = list(one.primes) if prime is None else [prime]
    where = (str(connection.engine.url), one.id, _key(filters))
    found: dict[int, Standing | None] = {}
    stale: list[int] = []
    for p in wanted:
        kept = _kept.get((*where, p), (one.hash, one.primes[p]))
        if isinstance(kept, tuple):
            found[p] = kept[0]
        elif one.closed[p] or filters:
            stale.append(p)
        else:
            found[p] = Standing(prime=p)
    if stale:
        suite = read_suite(connection, one.name)
        by_prime = _analysed(connection, suite, stale, filters)
        for p in stale:
            found[p] = by_prime.get(p)
            _kept.put((*where, p), (one.hash, one.primes[p]), (found[p],))
    return [standing for p in wanted if (standing := found[p]) is not None]


def _analysed(
    connection: Connection,
    suite: SuiteRecord,
    primes: Sequence[int],
    filters: Mapping[str, SettingValue],
) -> dict[int, Standing]:
    """Standings from the runs themselves, by the suite's own conventions."""
    used = convention(suite.analysis, Question())
    try:
        runs = asked_runs(connection, suite, used, primes[0] if len(primes) == 1 else None)
        by_prime: dict[int, list[Cell]] = {}
        for cell in cells(runs[runs["prime"].isin(list(primes))], filters, used.labels):
            by_prime.setdefault(cell.prime, []).append(cell)
    except AnalysisError:
        return {}
    return {prime: _standing(found, used) for prime, found in by_prime.items()}


def _standing(found: Sequence[Cell], used: Convention) -> Standing:
    """Whether crossing and onset exist; their intervals are not needed here."""
    kept = baseline(found)
    finished = sum(len(closed(runs)[0]) for cell in kept for runs in (cell.speed, cell.grok))
    standing = Standing(prime=found[0].prime, finished=finished, swept=bool(found[0].setting))
    if len(kept) != 1:
        return standing
    try:
        mem, grok = first_passages(kept[0], used), grok_runs(kept[0], used)
    except AnalysisError:
        return standing
    if not len(mem) or not len(grok.width):
        return standing
    crossed = crossing(mem, grok.generalisation(), method=used.method, n_resamples=0)
    started = onset(grok, method=used.method).p_onset
    return replace(
        standing,
        answers=crossed.status != "insufficient_data",
        crossing=crossed.p_cross.estimate is not None,
        onset=started.estimate is not None,
        inside=not (started.at_floor or started.at_cap),
    )
