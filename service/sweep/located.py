"""A located suite's cells: what may be trained in them, what is known, and what they want next.

Everything is made from the suite and the rows that Postgres has, so a driver, the API and the
command line see the same; nothing here needs Ray.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from sqlalchemy import Connection, text

from groktime.db.records import get_suite
from groktime.service.analysis import MinimumDelay
from groktime.service.spec import LADDER, RunSpec
from groktime.service.suites import Suite
from groktime.service.suites.loader import read_stored
from groktime.service.suites.schema import Analysis, Design
from groktime.service.sweep.cost import flops_per_epoch
from groktime.service.sweep.locate import (
    Choice,
    Grid,
    Point,
    Progress,
    Wanted,
    locate,
    sign_epochs,
)
from groktime.service.sweep.priors import (
    DEX,
    Finding,
    Learnt,
    LocatedKind,
    Prior,
    Run,
    prior_of,
)

T_GEN_EPOCHS = 300.0  # of a grok run, for the price of one that nobody has seen

KNOWN = """
SELECT r.id, r.key, sr.inherited, r.state, r.reason, r.owner,
    r.seconds * coalesce(CAST(substring(r.fingerprint FROM 'threads ([0-9]+)') AS integer), 1)
        AS core_seconds,
    coalesce(r.set_aside_epoch, r.last_epoch) AS last_epoch, r.set_aside_epoch,
    r.{clock}[:e_train] AS e_train, r.{clock}[:t_mem] AS t_mem,
    r.first_val[:e_val] AS e_val, r.first_val[:t_gen] AS t_gen
FROM suites s JOIN suite_runs sr ON sr.suite_id = s.id JOIN runs r ON r.id = sr.run_id
WHERE s.name = :suite AND r.kind <> 'capacity' ORDER BY r.id
"""

Ended = Literal["placed", "nothing left to learn", "out of runs", "out of hours"]


@dataclass(frozen=True, eq=False)
class Space:
    """One prime at one setting: every run that may be trained there, and its prices."""

    label: str  # `p=59, weight_decay 0.3`
    prime: int
    setting: Mapping[str, Any]
    specs: Mapping[Run, RunSpec]
    grid: Grid
    resolved: tuple[tuple[str, str], ...]  # every setting, swept or not


@dataclass(frozen=True)
class RecordedRun:
    """A run of the suite as the database has it; passages are None where not reached."""

    id: int
    key: str
    inherited: bool  # another suite's: no cost of this one
    state: str
    reason: str | None
    owner: str | None
    core_seconds: float | None
    last_epoch: int
    set_aside_epoch: int | None
    e_train: int | None
    t_mem: int | None
    e_val: int | None
    t_gen: int | None

    @property
    def counts(self) -> bool:
        """Whether analyses count it: done, diverged or set aside, also while it is trained on."""
        if self.state == "failed":
            return self.reason == "diverged"
        return self.state == "done" or self.set_aside_epoch is not None


@dataclass(frozen=True)
class LocatedCell:
    """How far one cell is located, what it has cost, and what it wants next and why.

    `crossing` and `onset` are the estimate, the half-width of its 95 % interval in dex, the
    bracket and the status; None where the design does not ask for it. `choices` are the runs
    wanted next, best first, each with its reason; none are left once the cell has `ended`.
    """

    label: str
    prime: int
    setting: Mapping[str, Any]
    crossing: Point | None
    onset: Point | None
    choices: tuple[Choice, ...]
    ended: Ended | None
    runs: int  # that count in analyses
    in_flight: tuple[Run, ...]
    failed: int
    core_seconds: float  # of those that are no other suite's
    max_runs: int

    def __str__(self) -> str:
        """`crossing 41,200 (± 0.02 dex, 36,832–46,044), onset searching; 14 runs, 61 s`."""
        points = [
            f"{name} {point}"
            for name, point in (("crossing", self.crossing), ("onset", self.onset))
            if point is not None
        ]
        spent = f"{self.runs} runs, {self.core_seconds:,.0f} core-seconds"
        return "; ".join([*points, spent, *([self.ended] if self.ended else [])])


def spaces(suite: Suite, primes: Collection[int] = ()) -> list[Space]:
    """The suite's cells, of all primes or of some, with everything its design may choose from."""
    grouped: dict[tuple[int, str], list[Any]] = {}
    for member in suite.members():
        if member.spec.kind != "capacity" and (not primes or member.prime in primes):
            setting = ", ".join(f"{name} {value}" for name, value in member.setting.items())
            grouped.setdefault((member.prime, setting), []).append(member)
    found = []
    for (prime, setting), members in grouped.items():
        specs: dict[Run, RunSpec] = {
            (m.spec.kind, m.spec.model.width, m.spec.seed): m.spec for m in members
        }
        label = f"p={prime}" + (f", {setting}" if setting else "")
        resolved = tuple(sorted((k, str(v)) for k, v in members[0].resolved.items()))
        found.append(Space(label, prime, members[0].setting, specs, _grid(specs), resolved))
    return found


def _grid(specs: Mapping[Run, RunSpec]) -> Grid:
    params = {width: spec.params for (_, width, _), spec in specs.items()}
    seeds = sorted({seed for _, _, seed in specs})
    some = next(iter(specs.values()))
    centre = math.log(some.k_mem) + Prior().crossing

    def seconds(kind: LocatedKind, width: int) -> float:
        """Relative price: work of an epoch times the epochs that are likely there."""
        spec = specs[kind, width, seeds[0]]
        epochs = T_GEN_EPOCHS
        if kind == "speed":
            below = 4.0 * (centre - math.log(params[width]))
            epochs = min(T_GEN_EPOCHS * math.exp(min(max(below, -3.0), 5.0)), spec.stop.max_epochs)
        return flops_per_epoch(spec) * epochs

    return Grid(dict(sorted(params.items())), seeds, seconds, some.k_mem)


def recorded_runs(connection: Connection, suite: Suite) -> list[RecordedRun]:
    """The suite's runs with their first passages by the suite's own clock and thresholds.

    A threshold that no first passage is kept for counts as the next higher one that is: it
    decides what is trained next, never what is reported.
    """
    analysis = suite.analysis
    places = {
        name: _ladder_place(getattr(analysis.thresholds, name))
        for name in ("e_train", "t_mem", "e_val", "t_gen")
    }
    query = KNOWN.format(clock=f"first_{analysis.clock}")
    rows = connection.execute(text(query), {"suite": suite.name, **places})
    return [RecordedRun(**row._mapping) for row in rows]


def _ladder_place(threshold: float) -> int:
    """Position, counted from 1, of the lowest kept threshold that is at least this one."""
    at = sum(kept < round(1000 * threshold, 6) for kept in LADDER)
    return min(at, len(LADDER) - 1) + 1


def learnt_cells(
    suite: Suite, spaces: Sequence[Space], runs: Sequence[RecordedRun]
) -> list[Learnt]:
    """What the cells of a suite, located or not, teach others: each by its own runs alone."""
    by_key = {run.key: run for run in runs}
    found = []
    for space in spaces:
        known = _known(space, by_key, suite.analysis)
        progress = _searched(space, known, Prior(), Design())
        found.append(
            Learnt(
                math.log(space.grid.k_mem),
                space.resolved,
                _estimate(progress.crossing),
                _estimate(progress.onset) if known.findings else None,
                known.findings,
            )
        )
    return found


def earlier_cells(connection: Connection, names: Sequence[str]) -> tuple[Learnt, ...]:
    """What the cells of these suites teach; a name that is not in the database is refused."""
    found: list[Learnt] = []
    for name in names:
        suite = read_stored(name, get_suite(connection, name).spec)
        found += learnt_cells(suite, spaces(suite), recorded_runs(connection, suite))
    return tuple(found)


def located_cells(
    suite: Suite,
    spaces: Sequence[Space],
    runs: Sequence[RecordedRun],
    earlier: Sequence[Learnt] = (),
) -> list[LocatedCell]:
    """How far every cell is located by these runs.

    Cells of a suite learn from each other where to look, and from those of `earlier` suites.
    """
    design = suite.file.design
    assert design is not None, "only a located suite has located cells"
    by_key = {run.key: run for run in runs}
    learnt = learnt_cells(suite, spaces, runs)
    cells = []
    for index, space in enumerate(spaces):
        known = _known(space, by_key, suite.analysis)
        prior = prior_of(learnt[index], [*learnt[:index], *learnt[index + 1 :], *earlier])
        cells.append(_cell(space, known, _searched(space, known, prior, design), design))
    return cells


@dataclass(frozen=True)
class _Known:
    """The runs of a cell by what they are to the chooser."""

    findings: tuple[Finding, ...]
    in_flight: frozenset[Run]
    lost: frozenset[Run]
    spent: int  # runs of this suite's own, those in flight too
    seconds: float  # of its own

    @property
    def trained(self) -> set[Run]:
        return {(f.kind, f.width, f.seed) for f in self.findings}


def _known(space: Space, by_key: Mapping[str, RecordedRun], analysis: Analysis) -> _Known:
    findings, flying, lost, spent, seconds = [], set(), set(), 0, 0.0
    least = MinimumDelay(analysis.min_delay or 1.0, analysis.min_delay_share or 0.0)
    for at, spec in space.specs.items():
        run = by_key.get(spec.key)
        if run is None:
            continue
        own = not run.inherited and (run.counts or run.state != "failed")
        spent += own
        if run.counts:
            findings.append(_finding(at, run, least))
            seconds += float(run.core_seconds or 0.0) if own else 0.0
            if run.state == "running":  # set aside before, and trained on
                flying.add(at)
        elif run.state == "failed":
            lost.add(at)
        else:
            flying.add(at)
    return _Known(tuple(findings), frozenset(flying), frozenset(lost), spent, seconds)


def _finding(at: Run, run: RecordedRun, least: MinimumDelay) -> Finding:
    kind, width, seed = at
    if kind == "speed":
        aside = run.set_aside_epoch is not None
        return Finding(kind, width, seed, run.t_mem, run.last_epoch, set_aside=aside)
    delayed = None
    if run.e_train is not None:
        enough = float(least.after(np.array([float(run.e_train)]))[0])
        if run.e_val is not None:
            delayed = run.e_val - run.e_train >= enough
        elif run.last_epoch + 1 - run.e_train >= max(enough, 1.5):
            delayed = True
    return Finding(kind, width, seed, run.t_gen, run.last_epoch, delayed)


@lru_cache(maxsize=4096)
def _searched(space: Space, known: _Known, prior: Prior, design: Design) -> Progress:
    """Asked again about the same runs the answer is the same: most cells have not changed."""
    if not design.seeds_apart:
        return _progress(space.grid, known, prior, design.precision, design.place)
    parts = []
    for place, first in (("crossing", 0), ("onset", 1)):
        seeds = space.grid.seeds[first::2]
        own = replace(
            known,
            findings=tuple(f for f in known.findings if f.seed in seeds),
            in_flight=frozenset(run for run in known.in_flight if run[2] in seeds),
        )
        wanted: tuple[Wanted, ...] = tuple(p for p in design.place if p == place)
        grid = replace(space.grid, seeds=seeds)
        parts.append(_progress(grid, own, prior, design.precision, wanted))
    crossing, onset = parts
    return Progress(
        crossing.crossing,
        onset.onset,
        (*crossing.choices, *onset.choices),
        crossing.waits or onset.waits,
    )


def _progress(
    grid: Grid, known: _Known, prior: Prior, precision: float, place: tuple[Wanted, ...]
) -> Progress:
    return locate(
        grid,
        known.findings,
        precision=precision,
        wanted=place,
        prior=prior,
        in_flight=known.in_flight,
        lost=known.lost,
    )


def _estimate(point: Point | None) -> tuple[float, float] | None:
    """ln P and its standard deviation, where the point is known from runs."""
    if point is None or point.params is None or point.half_width is None:
        return None
    return math.log(point.params), point.half_width * DEX / 2


def _cell(space: Space, known: _Known, progress: Progress, design: Design) -> LocatedCell:
    late = design.max_hours is not None and known.seconds >= 3600 * design.max_hours
    out = bool(progress.choices) and (known.spent >= design.max_runs or late)
    points = [point for point in (progress.crossing, progress.onset) if point is not None]
    ended: Ended | None = None
    if out and not known.in_flight:
        ended = "out of hours" if late else "out of runs"
    elif progress.is_done:
        placed = all(point.status == "placed" for point in points)
        ended = "placed" if placed else "nothing left to learn"
    return LocatedCell(
        label=space.label,
        prime=space.prime,
        setting=space.setting,
        crossing=progress.crossing,
        onset=progress.onset,
        choices=() if out else progress.choices,
        ended=ended,
        runs=len(known.findings),
        in_flight=tuple(sorted(known.in_flight)),
        failed=len(known.lost),
        core_seconds=known.seconds,
        max_runs=design.max_runs,
    )


def only_signs(
    suite: Suite,
    spaces: Sequence[Space],
    runs: Sequence[RecordedRun],
    earlier: Sequence[Learnt] = (),
) -> list[RecordedRun]:
    """Unfinished speed runs that may be set aside where they are: only their sign is wanted."""
    by_key = {run.key: run for run in runs}
    found = []
    for space, cell in zip(spaces, located_cells(suite, spaces, runs, earlier), strict=True):
        sides = cell.crossing.bracket or () if cell.crossing else ()
        bracket = [width for width, params in space.grid.params.items() if float(params) in sides]
        epochs = sign_epochs(_known(space, by_key, suite.analysis).findings, bracket)
        for kind, width, seed in cell.in_flight:
            run = by_key[space.specs[kind, width, seed].key]
            reached = kind == "speed" and width in epochs and run.last_epoch > epochs[width]
            if reached and run.t_mem is None and run.set_aside_epoch is None:
                found.append(run)
    return found
