"""Answers about suites whose speeds cross where their laws say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fixtures.database import Database
from fixtures.seeded import PRIMES, TINY, p_cross, record, register
from sqlalchemy import Connection, text

from groktime.db.claims import claim
from groktime.db.frames import read_table
from groktime.db.suites import open_runs
from groktime.service.answers.choice import choose
from groktime.service.answers.context import cell_context
from groktime.service.answers.crossing import crossing, delay, regimes, speeds
from groktime.service.answers.question import Question, QuestionError, Unknown, reading
from groktime.service.suites import load_suite
from groktime.service.sweep import selection

ASKED = Question(prime=29, suite="tiny")


@pytest.mark.parametrize("prime", PRIMES)
def test_the_crossing_is_where_the_laws_say(connection: Connection, prime: int) -> None:
    answer = crossing(connection, replace(ASKED, prime=prime))
    assert answer.status == "crossed"
    assert answer.p_cross.estimate == pytest.approx(p_cross(answer.k_mem), rel=0.06)
    assert answer.p_cross.low is not None
    assert answer.p_cross.high is not None
    assert answer.p_cross.low <= answer.p_cross.estimate <= answer.p_cross.high
    assert answer.residual == pytest.approx(0, abs=0.15)


def test_all_questions_about_a_cell_share_one_statement(
    seeded: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(connection: Connection, query: str, *rest: Any) -> Any:
        read.append(query)
        return read_table(connection, query, *rest)

    monkeypatch.setattr("groktime.db.frames.read_table", counted)
    engine = seeded.reader()
    asked = Question(prime=29, default_suite="tiny")
    with reading(engine) as connection:
        for ask in (crossing, speeds, delay, regimes):
            assert ask(connection, asked).suite == "tiny"
    engine.dispose()
    assert len(read) == 1


def test_runs_that_did_not_reach_diverged_or_are_missing_are_counted_apart(
    connection: Connection,
) -> None:
    answer = crossing(connection, ASKED)
    assert (answer.censored.speed, answer.diverged.speed, answer.missing.speed) == (5, 1, 0)
    pending = crossing(connection, replace(ASKED, prime=31))
    assert pending.missing.grok == 1
    assert answer.seeds.speed == answer.seeds.grok == 5


def test_the_answer_says_which_runs_and_conventions_it_rests_on(connection: Connection) -> None:
    answer = crossing(connection, ASKED)
    assert (answer.suite, answer.prime, answer.setting) == ("tiny", 29, {})
    assert (answer.method, answer.clock, answer.units) == ("robust", "online", "epochs")
    assert answer.provenance.thresholds.e_val == 0.98
    assert (answer.provenance.runs.speed, answer.provenance.runs.grok) == (30, 30)
    assert answer.provenance.engines == ("torch",)


def test_a_width_whose_median_is_not_reached_has_no_value(connection: Connection) -> None:
    smallest = crossing(connection, ASKED).curves.t_mem[0]
    assert (smallest.value, smallest.reached, smallest.censored) == (None, 0, 5)


def test_the_paper_takes_the_closest_approach_and_gives_no_interval(
    connection: Connection,
) -> None:
    answer = crossing(connection, replace(ASKED, method="paper"))
    assert answer.status == "closest_approach"
    assert answer.p_cross.level is None
    assert answer.p_cross.estimate == pytest.approx(p_cross(answer.k_mem), rel=0.1)


def test_steps_are_epochs_times_the_steps_of_one(connection: Connection) -> None:
    epochs = crossing(connection, ASKED)
    steps = crossing(connection, replace(ASKED, units="steps"))
    assert steps.epochs == pytest.approx(epochs.epochs * -(-epochs.n_train // 512))


def test_the_eval_clock_is_faster_than_the_online_one(connection: Connection) -> None:
    online = speeds(connection, ASKED).t_mem[-1].median
    evaluated = speeds(connection, replace(ASKED, clock="eval")).t_mem[-1].median
    assert online is not None
    assert evaluated is not None
    assert evaluated < online


def test_a_threshold_off_the_ladder_lies_between_its_neighbours(connection: Connection) -> None:
    def value(threshold: float) -> float:
        median = speeds(connection, replace(ASKED, t_mem=threshold)).t_mem[2].median
        assert median is not None
        return median

    assert value(0.9) <= value(0.9051) <= value(0.91)


def test_a_threshold_above_the_one_at_which_runs_stopped_is_refused(
    connection: Connection,
) -> None:
    with pytest.raises(QuestionError, match=r"t_mem: 0.995 is above 0.99") as refused:
        crossing(connection, replace(ASKED, t_mem=0.995))
    assert refused.value.accepted == "at most 0.99"


def test_wider_models_can_be_left_out(connection: Connection) -> None:
    answer = crossing(connection, replace(ASKED, max_width=16))
    assert max(point.width for point in answer.curves.t_gen) == 16
    with pytest.raises(QuestionError, match="the smallest is 8"):
        crossing(connection, replace(ASKED, max_width=4))


def test_a_value_that_no_run_has_is_refused_with_those_there_are(connection: Connection) -> None:
    asked = Question(prime=23, suite="decay", filters={"weight_decay": 0.5})
    with pytest.raises(QuestionError) as refused:
        crossing(connection, asked)
    assert refused.value.accepted == [0.1, 1.0]


def test_bits_per_parameter_are_fitted_here_matched_or_the_papers(connection: Connection) -> None:
    own = crossing(connection, ASKED).c_model
    assert (own.source, own.suite) == ("fitted", "tiny")
    assert own.value == pytest.approx(2.1, rel=0.01)
    decay = Question(prime=23, suite="decay")
    matched = crossing(connection, replace(decay, filters={"weight_decay": 1.0})).c_model
    assert (matched.source, matched.suite, matched.value) == ("matched_suite", "tiny", own.value)
    paper = crossing(connection, replace(decay, filters={"weight_decay": 0.1})).c_model
    assert (paper.source, paper.suite, paper.value) == ("paper", None, 2.16)


HEIR = """
description: Other seeds of one prime; capacity is inherited.
primes: [23]
seeds: {from: 6, to: 8}
stop: {max_epochs: 600}
speed:
  widths: [8, 12, 16, 20, 24, 32]
grok:
  widths: [8, 12, 16, 20, 24, 32]
"""


def test_inherited_capacity_runs_are_said_to_be_another_suites(
    seeded: Database, tmp_path: Path
) -> None:
    engine = seeded.engine
    (tmp_path / "tiny.yaml").write_text(TINY)
    path = tmp_path / "heir.yaml"
    path.write_text(f"{HEIR}inherits:\n  - {{suite: {tmp_path}/tiny.yaml, kinds: [capacity]}}\n")
    ids = open_runs(engine, selection.register(load_suite(path), engine).suite_id)
    record(engine, claim(engine, list(ids.values()), "worker", 60))
    asked = Question(prime=23, suite="heir")
    with reading(engine) as connection:
        theirs = crossing(connection, Question(prime=23, suite="tiny")).c_model
        c_model = crossing(connection, asked).c_model
    assert c_model == replace(theirs, source="matched_suite", suite="tiny", note="tiny")
    with engine.begin() as connection:
        connection.execute(
            text("DELETE FROM suite_runs USING suites s WHERE s.id = suite_id AND s.name = 'tiny'")
        )
    with reading(engine) as connection:  # as from a dump that was loaded alone
        alone = crossing(connection, asked).c_model
    assert alone == replace(theirs, suite="heir")


def test_without_a_suite_the_default_answers_or_the_one_that_can_answer_best(
    connection: Connection,
) -> None:
    by_default = crossing(connection, Question(prime=23, default_suite="decay"))
    assert by_default.suite == "decay"
    only_there = crossing(connection, Question(prime=31, default_suite="absent"))
    assert (only_there.suite, only_there.chosen.suite) == ("tiny", "the only suite with p = 31")
    best = crossing(connection, Question(prime=23, default_suite="absent"))
    assert best.suite == "tiny"  # one setting, five seeds; decay is newer, and swept


def test_a_setting_that_is_named_leads_to_the_suite_that_has_it(connection: Connection) -> None:
    asked = Question(prime=23, default_suite="tiny", filters={"weight_decay": 0.1})
    answer = crossing(connection, asked)
    assert (answer.suite, dict(answer.setting)) == ("decay", {"weight_decay": 0.1})
    assert answer.chosen.setting is None


def test_of_several_settings_the_baseline_answers_and_names_the_others(
    connection: Connection,
) -> None:
    answer = crossing(connection, Question(prime=23, suite="decay"))
    assert dict(answer.setting) == {"weight_decay": 1.0}
    assert list(answer.chosen.other_settings) == [{"weight_decay": 0.1}]
    named = crossing(connection, Question(prime=23, suite="decay", filters={"weight_decay": 1.0}))
    assert named.chosen is None
    assert named.p_cross == answer.p_cross


def test_a_default_suite_that_cannot_answer_at_the_prime_is_passed_over(
    seeded: Database, tmp_path: Path
) -> None:
    path = tmp_path / "waiting.yaml"
    path.write_text(TINY.replace("from: 1, to: 5", "from: 11, to: 15"))
    register(seeded.engine, load_suite(path))
    with reading(seeded.engine) as connection:
        answer = crossing(connection, Question(prime=29, default_suite="waiting"))
    assert answer.suite == "tiny"


def test_an_unknown_prime_or_suite_is_refused_with_what_there_is(connection: Connection) -> None:
    with pytest.raises(Unknown) as nowhere:
        crossing(connection, Question(prime=113))
    assert nowhere.value.accepted == [23, 29, 31]
    with pytest.raises(Unknown) as not_here:
        crossing(connection, Question(prime=31, suite="decay"))
    assert not_here.value.accepted == [23, 29]
    with pytest.raises(Unknown) as no_suite:
        crossing(connection, Question(prime=31, suite="absent"))
    assert no_suite.value.accepted == ["decay", "tiny"]


def test_a_question_without_a_prime_takes_one_with_both_points(connection: Connection) -> None:
    answer = crossing(connection, Question(suite="tiny"))
    assert answer.p_cross.estimate
    assert answer.p_onset.estimate
    assert answer.chosen.prime.startswith(f"p = {answer.prime} has a crossing and an onset")


def test_everything_is_read_from_one_moment(seeded: Database) -> None:
    engine = seeded.reader()
    with reading(engine) as opened:
        before = crossing(opened, ASKED).revision
        with seeded.engine.begin() as other:
            other.execute(text("UPDATE suites SET revision = revision + 1"))
        assert crossing(opened, ASKED).revision == before
    engine.dispose()


def test_the_crossing_that_chose_the_suite_is_the_one_the_answer_shows(seeded: Database) -> None:
    with reading(seeded.engine) as connection:
        question = choose(connection, Question(prime=29, default_suite="tiny"))
        results = cell_context(connection, question).results
        assert question.suite == "tiny"
        assert "crossing" in vars(results), "it was computed to choose"
        assert crossing(connection, question).p_cross == results.crossing.p_cross


def test_questions_about_one_cell_share_what_was_computed_until_a_run_closes(
    seeded: Database,
) -> None:
    named = Question(prime=31, suite="tiny")
    with reading(seeded.engine) as connection:
        first = cell_context(connection, named)
        again = cell_context(connection, Question(prime=31, default_suite="tiny"))
        other = cell_context(connection, replace(named, level=0.9))
    assert first.results is again.results
    assert first.results is not other.results
    with seeded.engine.connect() as connection:
        pending = connection.scalars(text("SELECT id FROM runs WHERE state = 'pending'")).all()
    record(seeded.engine, claim(seeded.engine, list(pending), "worker", 60))
    with reading(seeded.engine) as connection:
        later = cell_context(connection, named)
    assert (first.results.grok.n_missing, later.results.grok.n_missing) == (1, 0)
