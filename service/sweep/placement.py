"""How far a located suite is, for the server, the page and `groktime status`."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from sqlalchemy import Connection

from groktime.db.queries.suites import SuiteRecord, read_suites
from groktime.service.answers.question import QuestionError
from groktime.service.answers.suites import (
    NextRun,
    PlacedCell,
    PlacedPoint,
    PlacementAnswer,
    Step,
)
from groktime.service.suites import Suite
from groktime.service.suites.loader import read_stored
from groktime.service.sweep.locate import Point
from groktime.service.sweep.located import (
    LocatedCell,
    RecordedRun,
    Space,
    earlier_cells,
    located_cells,
    recorded_runs,
    spaces,
)

MAX_NEXT = 5  # wanted runs told of each cell


def placement(connection: Connection, record: SuiteRecord) -> PlacementAnswer:
    """Every cell of the suite: what is known, what it took, what is wanted next and why."""
    if not record.is_located:
        located = [one.name for one in read_suites(connection) if one.is_located]
        raise QuestionError(
            "suite",
            record.name,
            located or "a suite with design: locate",
            f"{record.name} trains a grid of widths and locates nothing",
        )
    suite, histories = _opened(record.name, json.dumps(record.spec, sort_keys=True))
    design = suite.file.design
    assert design is not None, "the suite is located"
    runs = recorded_runs(connection, suite)
    earlier = earlier_cells(connection, design.prior)
    found = located_cells(suite, [history.space for history in histories], runs, earlier)
    cells = tuple(
        _placed(cell, history.steps(suite, runs))
        for cell, history in zip(found, histories, strict=True)
    )
    return PlacementAnswer(
        suite=record.name,
        revision=record.revision,
        place=design.place,
        precision=design.precision,
        max_runs=design.max_runs,
        running=record.running,
        runs=sum(cell.runs for cell in cells),
        core_seconds=sum(cell.core_seconds for cell in cells),
        cells=cells,
    )


@dataclass
class _History:
    """The steps of one cell, each computed once: a run that is closed does not change."""

    space: Space
    _steps: list[Step] = field(default_factory=list)
    _runs: list[RecordedRun] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._keys = {spec.key for spec in self.space.specs.values()}

    def steps(self, suite: Suite, runs: Sequence[RecordedRun]) -> tuple[Step, ...]:
        """What one run after the other, in the order chosen, has told of the cell."""
        closed = [run for run in runs if run.key in self._keys and run.counts]
        with self._lock:
            same = 0
            for kept, run in zip(self._runs, closed, strict=False):
                if kept != run:
                    break
                same += 1
            del self._steps[same:], self._runs[same:]
            for run in closed[same:]:
                self._runs.append(run)
                (cell,) = located_cells(suite, [self.space], self._runs)
                self._steps.append(
                    Step(
                        runs=cell.runs,
                        core_seconds=cell.core_seconds,
                        crossing=_point(cell.crossing),
                        onset=_point(cell.onset),
                    )
                )
            return tuple(self._steps)


@lru_cache(maxsize=16)
def _opened(name: str, spec: str) -> tuple[Suite, list[_History]]:
    """The suite of a stored spec, and what was computed about its cells before."""
    suite = read_stored(name, json.loads(spec))
    return suite, [_History(space) for space in spaces(suite)]


def _placed(cell: LocatedCell, steps: tuple[Step, ...]) -> PlacedCell:
    return PlacedCell(
        prime=cell.prime,
        setting=dict(cell.setting),
        crossing=_point(cell.crossing),
        onset=_point(cell.onset),
        runs=cell.runs,
        open=len(cell.in_flight),
        core_seconds=cell.core_seconds,
        ended=cell.ended,
        next=tuple(
            NextRun(kind=choice.kind, width=choice.width, seed=choice.seed, why=choice.why)
            for choice in cell.choices[:MAX_NEXT]
        ),
        steps=steps,
    )


def _point(point: Point | None) -> PlacedPoint | None:
    if point is None:
        return None
    low = high = None
    if point.params is not None and point.half_width is not None:
        low, high = (point.params * 10 ** (sign * point.half_width) for sign in (-1, 1))
    return PlacedPoint(
        status=point.status,
        estimate=point.params,
        half_width=point.half_width,
        low=low,
        high=high,
        bracket=point.bracket,
    )
