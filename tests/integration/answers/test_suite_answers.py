"""Answers about whole suites: capacity, laws, tests, coverage, runs."""

from __future__ import annotations

import pytest
from fixtures.database import Database
from fixtures.seeded import BITS
from sqlalchemy import Connection, text

from groktime.db.schema import RUN_STATES
from groktime.service.answers.capacity import capacity
from groktime.service.answers.cell_tests import cell_tests, flat_answer
from groktime.service.answers.crossing import delay, onset, regimes
from groktime.service.answers.laws import law
from groktime.service.answers.question import (
    NotEnough,
    Question,
    Unknown,
    read_runs,
    read_suite,
    reading,
)
from groktime.service.answers.runs import list_runs, run_curve, run_detail
from groktime.service.answers.suites import STATES, coverage, suite_summary
from groktime.service.answers.verdicts import find_reference, suite_reference

TINY = Question(suite="tiny")


@pytest.mark.parametrize(("name", "table"), [("tiny", "central"), ("decay", "weight_decay")])
def test_the_papers_table_is_found_by_what_a_suite_sweeps(
    connection: Connection, name: str, table: str
) -> None:
    suite = read_suite(connection, name)
    found = suite_reference(connection, suite)
    assert found is not None
    assert found.suite == table
    axes = tuple(suite_summary(connection, suite, "").axes)
    assert found == find_reference(read_runs(connection, suite), axes)


def test_another_suite_under_the_same_numbers_has_axes_of_its_own(seeded: Database) -> None:
    def decays() -> object:
        with reading(seeded.engine) as connection:
            suite = read_suite(connection, "decay")
            return suite_summary(connection, suite, "").axes["weight_decay"]

    assert decays() == (0.1, 1.0)
    with seeded.engine.begin() as connection:
        connection.execute(text("UPDATE runs SET weight_decay = 0.3 WHERE weight_decay = 0.1"))
        connection.execute(text("UPDATE suites SET hash = 'another' WHERE name = 'decay'"))
    assert decays() == (0.3, 1.0)


def test_capacity_grows_with_the_parameters_as_it_was_made_to(connection: Connection) -> None:
    answer = capacity(connection, TINY)
    assert [width.width for width in answer.widths] == [4, 6, 8, 10]
    assert answer.fit is not None
    assert sum(width.fitted for width in answer.widths) == answer.fit.widths
    assert answer.fit.slope == pytest.approx(BITS, rel=0.01)
    assert answer.prime == 23
    thresholds = {(row.prime, row.k_mem): row.p_mem for row in answer.p_mem}
    assert {prime for prime, _ in thresholds} == {23, 29, 31}
    assert all(p == pytest.approx(k / answer.c_model.value) for (_, k), p in thresholds.items())


def test_a_suite_without_capacity_runs_says_so(connection: Connection) -> None:
    with pytest.raises(NotEnough, match="decay has no capacity runs"):
        capacity(connection, Question(suite="decay"))


def test_the_law_covers_all_primes_of_one_setting(connection: Connection) -> None:
    answer = law(connection, TINY)
    assert answer.primes == (23, 29, 31)
    assert answer.pooled is not None
    assert answer.pooled.a > 0
    assert {fit.form for fit in answer.rivals} == {"exponential", "power", "stretched", "critical"}
    assert answer.collapse.primes == 3
    swept = law(connection, Question(suite="decay"))
    assert dict(swept.setting) == {"weight_decay": 1.0}
    assert swept.chosen is not None


def test_a_window_of_the_law_leaves_points_out_of_the_fit(connection: Connection) -> None:
    answer = law(connection, TINY, (0.0, 0.1))
    assert {point.fitted for point in answer.points} == {True, False}
    assert answer.pooled is not None
    assert answer.pooled.n == sum(point.fitted for point in answer.points)


def test_the_tests_have_a_row_per_cell_and_say_what_they_cannot_test(
    connection: Connection,
) -> None:
    answer = flat_answer(cell_tests(connection, TINY))
    assert [row.prime for row in answer.cells] == [23, 29, 31]
    assert answer.n == answer.n_total == 3
    assert any(not statistic.testable for statistic in answer.pooled)
    (row,) = answer.within
    assert row.n == 3
    assert row.verdict in ("strong", "moderate", "weak")


def test_swept_axes_become_settings_of_the_tests(connection: Connection) -> None:
    answer = flat_answer(cell_tests(connection, Question(suite="decay")))
    assert answer.axes == ("weight_decay",)
    assert [row.setting for row in answer.within] == [{"weight_decay": 0.1}, {"weight_decay": 1.0}]
    assert len(answer.cells) == 4


def test_delays_begin_where_the_crossing_is(connection: Connection) -> None:
    answer = delay(connection, Question(suite="tiny", prime=29))
    positive = [point.width for point in answer.points if point.delay > 0]
    assert min(positive) > 16
    found = onset(connection, Question(suite="tiny", prime=29)).p_onset
    assert found.status == "separated"
    assert found.low is not None
    assert found.low < found.estimate


def test_small_models_generalise_at_once_and_large_ones_grok(connection: Connection) -> None:
    points = regimes(connection, Question(suite="tiny", prime=29)).points
    assert (points[0].regime, points[-1].regime) == ("immediate", "grokking")


def test_coverage_adds_up_and_tells_failures(connection: Connection) -> None:
    answer = coverage(connection, read_suite(connection, "tiny"))
    states = answer.states
    assert (states.pending, states.failed, states.done) == (1, 1, 202)
    assert sum(cell.states.done for cell in answer.cells) == states.done
    assert [(f.reason, f.runs) for f in answer.failures] == [("diverged", 1)]


def test_a_suite_tells_its_primes_axes_and_counts(connection: Connection) -> None:
    summary = suite_summary(connection, read_suite(connection, "decay"), "tiny")
    assert summary.primes == (23, 29)
    assert summary.axes == {"weight_decay": (0.1, 1.0)}
    assert summary.complete
    assert not summary.default


def test_pages_of_runs_join_without_gap_or_repeat(connection: Connection) -> None:
    suite = read_suite(connection, "tiny")
    seen: list[int] = []
    cursor = None
    while True:
        page = list_runs(
            connection,
            suite_id=suite.id,
            filters={"kind": ["grok"]},
            sort="t_gen",
            descending=True,
            limit=17,
            cursor=cursor,
        )
        seen += [run.id for run in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == page.total == 90


def test_a_curve_is_whole_or_says_that_it_is_not(connection: Connection) -> None:
    whole = run_curve(connection, 1)
    assert whole.shown == whole.recorded == len(whole.epoch)
    assert not whole.sampled
    thinned = run_curve(connection, 1, points=20)
    assert thinned.sampled
    assert thinned.shown < whole.shown
    chosen = run_curve(connection, 1, epochs=[2, 5, 10**6])
    assert chosen.epoch == (2, 5)
    assert chosen.sampled


def test_a_run_shows_its_ladder_and_attempts(connection: Connection) -> None:
    detail = run_detail(connection, 1)
    assert detail.passages is not None
    assert len(detail.passages.thresholds) == len(detail.passages.online)
    assert [attempt.state for attempt in detail.attempts] == ["done"]
    assert "tiny" in detail.suites
    with pytest.raises(Unknown):
        run_detail(connection, 10**6)


def test_every_state_of_a_run_is_counted() -> None:
    assert STATES == RUN_STATES
