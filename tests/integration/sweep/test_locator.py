"""A located suite against a real Postgres: chosen, set aside, killed and resumed, without Ray.

A worker of this test claims what the locator wants and records made-up curves that reach their
thresholds when a known law says so.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures.curves import Ended, curve
from fixtures.database import Database
from numpy.typing import NDArray
from sqlalchemy import text

from groktime.db.claims import claim, expire, release
from groktime.db.maintenance import check
from groktime.db.recorder import Recorder, set_aside_runs
from groktime.db.suites import freeze_suite
from groktime.service.answers.crossing import crossing
from groktime.service.answers.question import Question, reading
from groktime.service.errors import InputError, SuiteError
from groktime.service.spec import RunSpec
from groktime.service.suites import Suite, load_suite
from groktime.service.sweep import selection
from groktime.service.sweep.located import located_cells, recorded_runs, spaces
from groktime.service.sweep.locator import SYSTEMIC_CRASHES, TRIES, Locator
from groktime.service.sweep.priors import Run
from groktime.service.sweep.selection import SweepOptions, register

CROSSING, CAP = 50_000.0, 400
SUITE = """\
description: located
positions: none
primes: [{primes}]
seeds: [42, 43, 44, 45]
stop: {{max_epochs: {cap}}}
design: {{widths: {{from: 16, to: 80, step: 4}}, precision: 0.05, max_runs: {runs}{more}}}
"""


def law(spec: RunSpec) -> float:
    """First passage of a run, epochs: T_mem falls steeply through T_gen at the crossing."""
    if spec.kind == "grok":
        return 20 * float(CROSSING / spec.params) ** 0.3
    return 20 * float(CROSSING / spec.params) ** 4


def made_up(spec: RunSpec, first_passage: float) -> NDArray[Any]:
    """Nothing is right until the first passage, then everything; grok is delayed above 30,000."""
    end = min(max(2, round(first_passage)), CAP)
    rows = curve(spec, end)
    for name in ("train_correct", "train_correct_eval", "val_correct"):
        rows[name] = np.where(rows[name] < 0, rows[name], 0)
    if first_passage > CAP:
        return rows
    early = max(1, end // 2) if spec.kind == "grok" and spec.params > 30_000 else end
    rows["train_correct"][early - 1 :] = spec.data.n_train
    rows["train_correct_eval"][early - 1 :] = spec.data.n_train
    if spec.data.n_val:
        rows["val_correct"][end - 1 :] = spec.data.n_val
    return rows


@dataclass
class Worker:
    """Trains what a locator wants, one run at a time, in this process."""

    database: Database
    locator: Locator
    owner: str = "locate-test-0/1@here"

    def train(self, run_id: int, until: int | None = None) -> bool:
        """Whole, or up to an epoch without closing it."""
        (held,) = claim(self.database.engine, [run_id], self.owner, 60)
        rows = made_up(held.spec, law(held.spec))
        with Recorder(self.database.engine, [held], lease_seconds=60) as recorder:
            if until is not None and until < len(rows):
                recorder.record(0, 1, rows[:until])
                return False
            recorder.record(0, 1, rows)
            recorder.finish(0, Ended(len(rows)))
        return True

    def work(self, most: int = 200) -> int:
        for count in range(most):
            wanted = self.locator.next(())
            if wanted is None:
                return count
            self.train(wanted[0][0])
            self.locator.trained(wanted[0])
        raise AssertionError(f"{most} runs are not enough")


@pytest.fixture
def suite(tmp_path: Path) -> Callable[..., Suite]:
    def make(primes: str = "59", more: str = "", name: str = "located", runs: int = 40) -> Suite:
        path = tmp_path / f"{name}.yaml"
        path.write_text(SUITE.format(primes=primes, cap=CAP, more=more, runs=runs))
        return load_suite(path)

    return make


def worker(database: Database, suite: Suite) -> Worker:
    return Worker(database, Locator(suite, database.engine, SweepOptions(), lambda _: None))


def end_leases(database: Database) -> None:
    """As if the workers had been silent for a minute."""
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE runs SET lease_until = now() WHERE state = 'running'"))
    expire(database.engine)


def test_cells_are_placed_and_reported_by_the_analysis(
    database: Database, suite: Callable[..., Suite]
) -> None:
    at_work = worker(database, suite("53, 59"))
    trained = at_work.work()
    assert database.scalar("SELECT count(*) FROM runs WHERE state = 'done'") == trained
    assert database.scalar("SELECT design FROM suites") == "locate"
    for cell in at_work.locator.cells:
        assert cell.ended == "placed", cell
        assert cell.choices == ()
        assert cell.crossing is not None
        with reading(database.engine) as connection:
            answer = crossing(connection, Question(suite="located", prime=cell.prime))
        assert answer.p_cross.interval == "located", "few seeds, chosen as they came"
        assert answer.p_cross.low is not None
        assert answer.p_cross.high is not None
        assert answer.p_cross.low < CROSSING < answer.p_cross.high
        assert cell.crossing.params == pytest.approx(answer.p_cross.estimate, rel=0.02)
        assert cell.crossing.params == pytest.approx(CROSSING, rel=0.1)
    assert sum(cell.runs for cell in at_work.locator.cells) == trained
    assert not at_work.locator.wants


def test_killed_at_any_run_it_goes_on_and_ends(
    database: Database, suite: Callable[..., Suite]
) -> None:
    rng = random.Random(1)
    while True:
        at_work = worker(database, suite())
        wanted = at_work.locator.next(())
        if wanted is None:
            break
        if rng.random() < 0.5:
            at_work.train(wanted[0][0])
            continue
        # Killed in the middle: the lease is left to end by itself, or was given back.
        at_work.train(wanted[0][0], until=rng.randrange(1, 10))
        end_leases(database)
    assert database.scalar("SELECT count(*) FROM runs WHERE state <> 'done'") == 0
    assert [cell.ended for cell in at_work.locator.cells] == ["placed"]
    with database.engine.connect() as connection:
        assert check(connection).findings == []


def chosen(database: Database, suite: Suite, *runs: Run) -> list[int]:
    """Numbers of these runs, registered as if the locator had chosen them."""
    specs: dict[Any, RunSpec] = {(s.kind, s.model.width, s.seed): s for s in suite.runs()}
    register(suite, database.engine, [specs[run] for run in runs])
    number = "SELECT id FROM runs WHERE key = :key"
    return [database.scalar(number, key=specs[run].key) for run in runs]


def state(database: Database, run_id: int) -> tuple[str, int]:
    wanted = "SELECT state || ' ' || last_epoch FROM runs WHERE id = :run"
    word, epoch = database.scalar(wanted, run=run_id).split()
    return word, int(epoch)


def test_a_speed_run_that_is_only_a_sign_is_set_aside(
    database: Database, suite: Callable[..., Suite]
) -> None:
    at_work = worker(database, suite())
    slow, grok, beside, paired = chosen(
        database,
        suite(),
        ("speed", 28, 42),
        ("grok", 28, 42),
        ("speed", 36, 42),
        ("grok", 36, 42),
    )
    at_work.train(slow, until=100)
    for run_id in (grok, beside, paired):
        at_work.locator.set_aside("locate-test")
        assert state(database, slow) == ("running", 100), "not all that it needs is decided"
        at_work.train(run_id)
    at_work.locator.set_aside("another-sweep")
    assert state(database, slow) == ("running", 100), "its sweep is not this one"
    at_work.locator.set_aside("locate-test")
    assert state(database, slow) == ("set_aside", 100)
    (cell,) = (at_work.locator.refresh(), at_work.locator.cells)[1]
    assert (cell.runs, cell.in_flight) == (4, ())
    at_work.work()
    assert state(database, slow) == ("set_aside", 100), "nobody wants it whole"
    assert cell.prime == 59
    assert [cell.ended for cell in at_work.locator.cells] == ["placed"]
    with database.engine.connect() as connection:
        assert check(connection).findings == []


def test_a_run_beside_the_crossing_is_never_set_aside(
    database: Database, suite: Callable[..., Suite]
) -> None:
    at_work = worker(database, suite())
    slow, *others = chosen(
        database, suite(), ("speed", 28, 42), ("grok", 28, 42), ("speed", 44, 42), ("grok", 44, 42)
    )
    for run_id in others:
        at_work.train(run_id)
    at_work.train(slow, until=180)
    at_work.locator.set_aside("locate-test")
    assert state(database, slow) == ("running", 180)


def test_a_run_set_aside_is_trained_whole_once_the_crossing_is_beside_it(
    database: Database, suite: Callable[..., Suite]
) -> None:
    at_work = worker(database, suite())
    slow, *others = chosen(
        database, suite(), ("speed", 36, 42), ("grok", 36, 42), ("speed", 40, 42), ("grok", 40, 42)
    )
    at_work.train(slow, until=15)
    assert set_aside_runs(database.engine, [slow], "locate-test") == {slow: 15}
    for run_id in others:
        at_work.train(run_id)
    at_work.work()
    assert state(database, slow)[0] == "done"


def test_what_crashes_by_itself_fails_and_another_seed_takes_its_place(
    database: Database, suite: Callable[..., Suite]
) -> None:
    at_work = worker(database, suite())
    wanted = at_work.locator.next(())
    assert wanted is not None
    at_work.locator.crashed(wanted[0], "MemoryError: no memory")
    trained = at_work.work()
    assert state(database, wanted[0][0])[0] == "failed"
    assert database.scalar("SELECT count(*) FROM runs WHERE state = 'done'") == trained
    assert [cell.ended for cell in at_work.locator.cells] == ["placed"]


def test_crashes_of_all_runs_end_the_sweep_and_fail_none(
    database: Database, suite: Callable[..., Suite]
) -> None:
    at_work = worker(database, suite())
    for _ in range(SYSTEMIC_CRASHES):
        wanted = at_work.locator.next(())
        assert wanted is not None
        at_work.locator.crashed(wanted[0], "MemoryError: no memory")
    assert at_work.locator.is_systemic
    assert at_work.locator.next(()) is None
    assert database.scalar("SELECT count(*) FROM runs WHERE state = 'failed'") == 0


def test_a_run_that_comes_back_without_having_moved_is_given_up(
    database: Database, suite: Callable[..., Suite]
) -> None:
    at_work = worker(database, suite())
    (first,) = chosen(database, suite(), ("speed", 36, 42))
    for _ in range(TRIES):
        assert at_work.locator.next(()) == [[first]]
    assert at_work.locator.next(()) != [[first]]
    assert at_work.locator.stuck() == [first]
    at_work.train(first, until=5)
    end_leases(database)
    assert at_work.locator.next(()) == [[first]], "it moved: it is tried again"


def test_another_sweep_that_goes_on_is_left_its_runs(
    database: Database, suite: Callable[..., Suite]
) -> None:
    at_work = worker(database, suite())
    (theirs,) = chosen(database, suite(), ("speed", 36, 42))
    (held,) = claim(database.engine, [theirs], "another-sweep", 60)
    assert [run.id for run in at_work.locator.held_by_others()] == [theirs]
    assert at_work.locator.next(()) != [[theirs]]
    release(database.engine, [held], "stopped")
    assert at_work.locator.held_by_others() == []


def test_with_seeds_apart_no_seed_serves_both_points(
    database: Database, suite: Callable[..., Suite]
) -> None:
    at_work = worker(database, suite(more=", seeds_apart: true"))
    at_work.work()
    (cell,) = at_work.locator.cells
    assert cell.ended is not None
    speed = "SELECT array_agg(DISTINCT seed ORDER BY seed) FROM runs WHERE kind = 'speed'"
    assert set(database.scalar(speed)) <= {42, 44}
    onset = "SELECT count(*) FROM runs WHERE kind = 'grok' AND seed IN (43, 45)"
    assert database.scalar(onset) > 0


def test_a_cell_ends_when_its_hours_are_spent(
    database: Database, suite: Callable[..., Suite]
) -> None:
    at_work = worker(database, suite(more=", max_hours: 0.001"))
    at_work.work()
    (cell,) = at_work.locator.cells
    assert cell.ended == "out of hours"
    assert 3.6 <= cell.core_seconds < 3.6 + 2 * 1.5, "a run of a second and a half too many"


def test_runs_of_another_suite_take_nothing_from_the_budget(
    database: Database, suite: Callable[..., Suite]
) -> None:
    at_work = worker(database, suite(runs=4))
    assert at_work.work() == 4
    (cell,) = at_work.locator.cells
    assert (cell.ended, cell.core_seconds > 0) == ("out of runs", True)
    with database.engine.connect() as connection:
        there = recorded_runs(connection, suite(runs=4))
    inherited = [replace(run, inherited=True) for run in there]
    (cell,) = located_cells(suite(runs=4), spaces(suite(runs=4)), inherited)
    assert (cell.runs, cell.ended, cell.core_seconds) == (4, None, 0)
    assert cell.choices


def test_an_earlier_suite_tells_where_to_look_only_where_it_is_allowed(
    database: Database, suite: Callable[..., Suite]
) -> None:
    worker(database, suite("53, 61")).work()
    alone = worker(database, suite(name="alone")).locator.cells[0]
    told = worker(database, suite(name="told", more=", prior: [located]")).locator.cells[0]
    near = [min(abs(c.width - 38) for c in cell.choices) for cell in (told, alone)]
    assert near[0] <= near[1]
    assert told.choices != alone.choices
    worker(database, suite(name="told", more=", prior: [located]")).work()
    with reading(database.engine) as connection:
        answer = crossing(connection, Question(suite="told", prime=59))
    assert (answer.provenance.design, answer.provenance.prior) == ("locate", ("located",))
    with pytest.raises(SuiteError, match="'nowhere' is not in the database"):
        worker(database, suite(name="lost", more=", prior: [nowhere]"))
    assert database.scalar("SELECT count(*) FROM suites WHERE name = 'lost'") == 0


def test_freezing_freezes_the_design_and_its_chooser_not_the_runs(
    database: Database, suite: Callable[..., Suite], monkeypatch: pytest.MonkeyPatch
) -> None:
    register(suite(), database.engine)
    frozen = freeze_suite(database.engine, "located")
    at_work = worker(database, suite())
    assert at_work.work() > 10, "runs are chosen after the freezing"
    assert frozen == suite().digest == database.scalar("SELECT hash FROM suites")
    with pytest.raises(SuiteError, match="was frozen"):
        register(suite(more=", prior: [located]"), database.engine)
    monkeypatch.setattr(selection, "chooser_hash", lambda: "another")
    with pytest.raises(SuiteError, match=r"with chooser [0-9a-f]{16}, and this version"):
        register(suite(), database.engine)


def test_a_suite_that_is_not_frozen_takes_another_chooser(
    database: Database, suite: Callable[..., Suite], monkeypatch: pytest.MonkeyPatch
) -> None:
    worker(database, suite()).work()
    monkeypatch.setattr(selection, "chooser_hash", lambda: "another")
    register(suite(), database.engine)
    assert database.scalar("SELECT spec->'design'->>'chooser' FROM suites") == "another"


def test_cells_of_one_setting_are_located_alone(
    database: Database, suite: Callable[..., Suite]
) -> None:
    swept = suite("53, 59", more="}\naxes: {dropout: [0.1, 0.2], train_fraction: [0.5]", runs=8)
    options = SweepOptions(selection=selection.Selection(settings={"dropout": 0.1}))
    at_work = Worker(database, Locator(swept, database.engine, options, lambda _: None))
    assert [cell.label for cell in at_work.locator.cells] == [
        "p=53, dropout 0.1, train_fraction 0.5",
        "p=59, dropout 0.1, train_fraction 0.5",
    ]
    at_work.work()
    assert database.scalar("SELECT count(*) FROM runs WHERE dropout <> 0.1") == 0


def test_filters_that_a_located_suite_cannot_keep_to_are_refused(
    suite: Callable[..., Suite],
) -> None:
    options = SweepOptions(selection=selection.Selection(widths=[28]))
    with pytest.raises(InputError, match=r"--width: located is located .* accepted: --prime"):
        selection.check_located(suite(), options)
