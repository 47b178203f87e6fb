"""The shipped recordings load, give the numbers of docs/results.md, and can be trained again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from fixtures.database import Database
from numpy.typing import NDArray
from sqlalchemy import text

from groktime.db.curve import COLUMNS
from groktime.db.suites import spec_from_json
from groktime.service.answers.capacity import capacity
from groktime.service.answers.crossing import crossing
from groktime.service.answers.question import Question, reading
from groktime.service.answers.suites import undisturbed_hours
from groktime.service.commands.serve import RECORDINGS
from groktime.service.report.assembly import numbers
from groktime.service.report.comparison import pairs
from groktime.service.report.content import SuiteContent, gather
from groktime.service.report.document import markdown
from groktime.service.report.paper import overall, strata
from groktime.service.report.results import CHAPTERS, MOST_ROWS, findings_markdown, findings_table
from groktime.service.spec import Outcome, RunSpec
from groktime.workers.engines import engine_fingerprint
from groktime.workers.training import train

RESULTS = json.loads((RECORDINGS.parent / "docs" / "results.json").read_text())
FILES = sorted(RECORDINGS.glob("*.groktime"))
EPOCHS_ALIKE = 20  # compared where another engine trained: rounding has not grown yet


@pytest.fixture(scope="module")
def recorded(demo_state: Database) -> Database:
    """A database that holds the recordings, shared with the tests of the demo's state."""
    return demo_state


def deviations(ours: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """Places where two answers differ by more than rounding, whatever version gave them."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in (ours.keys() | theirs.keys()) - {"analysis_version"}:
            yield from deviations(ours.get(key), theirs.get(key), f"{where}/{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for i, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from deviations(*pair, f"{where}/{i}")
    elif isinstance(ours, float) and isinstance(theirs, float | int):
        if not math.isclose(ours, theirs, rel_tol=1e-6, abs_tol=1e-9):
            yield f"{where}: {ours} against {theirs}"
    elif ours != theirs:
        yield f"{where}: {ours!r} against {theirs!r}"


def test_there_are_recordings() -> None:
    assert FILES


@pytest.fixture(scope="module")
def gathered(recorded: Database) -> Callable[[str], SuiteContent]:
    """What a report says of a suite, gathered once."""

    @cache
    def of(suite: str) -> SuiteContent:
        with reading(recorded.engine) as connection:
            return gather(connection, suite)

    return of


@pytest.mark.parametrize("suite", RESULTS)
def test_a_recording_gives_the_numbers_of_the_report(
    gathered: Callable[[str], SuiteContent], suite: str
) -> None:
    now = json.loads(json.dumps(numbers(gathered(suite))))
    printed = RESULTS[suite]
    for part in ("tests", "settings", "verdict", "published"):
        assert list(deviations(now[part], printed[part], part)) == []


def test_the_table_of_findings_is_the_one_of_the_recordings(
    gathered: Callable[[str], SuiteContent],
) -> None:
    """A table that is stale: run scripts/results."""
    everyone = [gathered(suite) for suite in RESULTS]
    chapters = [gathered(suite) for suite in CHAPTERS if suite in RESULTS]
    rows = findings_table(chapters, pairs(everyone), everyone)
    assert len(rows) <= MOST_ROWS
    for page, folder in (("README.md", "docs/results"), ("docs/results.md", "results")):
        assert findings_markdown(rows, folder) in (RECORDINGS.parent / page).read_text("utf-8")


def test_the_page_of_all_suites_has_the_tables_of_the_recordings(
    recorded: Database, gathered: Callable[[str], SuiteContent]
) -> None:
    """A page that is stale: run scripts/results."""
    contents = [gathered(suite) for suite in RESULTS]
    with reading(recorded.engine) as connection:
        page, figures = overall(
            contents, strata(connection, contents), undisturbed_hours(connection)
        )
    printed = (RECORDINGS.parent / "docs" / "results" / "whole-paper.md").read_text("utf-8")
    rows = [line for line in markdown(page, "figures").splitlines() if line.startswith("|")]
    assert len(rows) > len(RESULTS)
    for row in rows:
        assert row in printed
    for figure in figures:
        assert f"figures/{figure.stem}.svg" in printed


def test_a_suite_without_capacity_runs_takes_those_with_the_nearest_batches(
    recorded: Database,
) -> None:
    with reading(recorded.engine) as connection:
        for suite, prime in (("last_batch-released", 67), ("mini-released", 67)):
            bits = crossing(connection, Question(suite=suite, prime=prime)).c_model
            assert bits.suite == "mini-released"


def test_capacity_points_of_one_size_stand_in_the_order_of_their_runs(recorded: Database) -> None:
    """Sorting by size alone leaves equal sizes as the processor's own sort puts them."""
    with reading(recorded.engine) as connection:
        found = capacity(connection, Question(suite="capacity-protocols-released"))
    assert any(
        len({point.n for point in width.points}) < len(width.points) for width in found.widths
    )
    for width in found.widths:
        order = [(point.n, point.run) for point in width.points]
        assert order == sorted(order)


class Kept:
    """A sink that keeps the curve."""

    def __init__(self) -> None:
        self.blocks: list[NDArray[Any]] = []
        self.outcome: Outcome | None = None

    def record(self, run: int, first_epoch: int, metrics: NDArray[Any]) -> bool:
        self.blocks.append(metrics.copy())
        return True

    def flush(self) -> None: ...

    def owns(self, run: int) -> bool:
        return True

    def finish(self, run: int, outcome: Outcome) -> None:
        self.outcome = outcome


BY_COST = """
SELECT r.id, r.spec, r.last_epoch, a.fingerprint
FROM suites s JOIN suite_runs sr ON sr.suite_id = s.id JOIN runs r ON r.id = sr.run_id
JOIN attempts a ON a.run_id = r.id AND a.attempt = r.attempt
WHERE s.name = :suite AND r.kind = :kind AND r.state = 'done' ORDER BY r.seconds
"""

SPREAD = """
SELECT min(other.last_epoch) AS fastest, max(other.last_epoch) AS slowest
FROM runs r JOIN runs other
    ON (other.kind, other.prime, other.width, other.weight_decay, other.batch_size)
        = (r.kind, r.prime, r.width, r.weight_decay, r.batch_size)
WHERE r.id = :run AND other.state = 'done'
"""


def recorded_runs(
    database: Database, suite: str, kind: str
) -> Iterator[tuple[RunSpec, Any, NDArray[Any], bool]]:
    """The run quickest to train of those this build trained, and of those others did; with its
    curve by epoch, and whether it was this build."""
    query = f"SELECT epoch, {', '.join(COLUMNS)} FROM curve WHERE run_id = :run ORDER BY epoch"
    seen = set()
    with database.engine.connect() as connection:
        for run in connection.execute(text(BY_COST), {"suite": suite, "kind": kind}).all():
            spec = spec_from_json(run.spec)
            here = run.fingerprint == engine_fingerprint(spec)
            if here in seen:
                continue
            seen.add(here)
            rows = connection.execute(text(query), {"run": run.id}).all()
            yield spec, run, np.array([tuple(row) for row in rows], dtype=float), here


def kinds(database: Database, suite: str) -> list[str]:
    """The kinds of runs that a recording holds: one of capacity alone has no other."""
    query = """
        SELECT DISTINCT r.kind FROM suites s JOIN suite_runs sr ON sr.suite_id = s.id
        JOIN runs r ON r.id = sr.run_id WHERE s.name = :suite AND r.state = 'done'
    """
    with database.engine.connect() as connection:
        return list(connection.scalars(text(query), {"suite": suite}))


def assert_trains_again(recorded: Database, suite: str, kind: str) -> None:
    """To the last bit on the machine and build that recorded it, elsewhere as close as rounding."""
    runs = list(recorded_runs(recorded, suite, kind))
    assert runs
    for spec, run, curve, here in runs:
        sink = Kept()
        train([spec], sink)
        assert sink.outcome is not None
        again = np.concatenate(sink.blocks)
        if here:
            assert sink.outcome.epochs == run.last_epoch
            assert_same(again, curve)
        else:
            with recorded.engine.connect() as connection:
                seeds = connection.execute(text(SPREAD), {"run": run.id}).one()
            assert seeds.fastest / 2 <= sink.outcome.epochs <= 2 * seeds.slowest
            assert_alike(again, curve[curve[:, 0] <= EPOCHS_ALIKE])


@pytest.mark.parametrize("kind", ["speed", "grok"])
def test_a_recorded_run_trains_again_to_the_same_curve(recorded: Database, kind: str) -> None:
    assert_trains_again(recorded, "mini-released", kind)


@pytest.mark.long
@pytest.mark.parametrize("suite", RESULTS)
def test_a_run_of_every_recording_and_kind_trains_again_to_the_same_curve(
    recorded: Database, suite: str
) -> None:
    there = kinds(recorded, suite)
    assert there
    for kind in there:
        assert_trains_again(recorded, suite, kind)


def assert_same(again: NDArray[Any], curve: NDArray[Any]) -> None:
    """Every number that was measured, to the last bit."""
    for epoch, *values in curve:
        for name, expected in zip(COLUMNS, values, strict=True):
            if not math.isnan(expected):
                assert again[int(epoch) - 1][name] == np.float32(expected), (epoch, name)


def assert_alike(again: NDArray[Any], curve: NDArray[Any]) -> None:
    """The losses, as close as rounding in another order leaves them."""
    for epoch, *values in curve:
        for name, expected in zip(COLUMNS, values, strict=True):
            if name.endswith("_loss") and not math.isnan(expected):
                found = again[int(epoch) - 1][name]
                assert found == pytest.approx(expected, rel=1e-4), (epoch, name)
