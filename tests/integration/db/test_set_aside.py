"""A run set aside is censored where it stands, and whoever wants it whole goes on from there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fixtures.curves import Ended, curve, record_all
from fixtures.database import Database
from fixtures.runs import check_listed, claim_all, listed_hash, register, speed_spec
from sqlalchemy import Engine, text

from groktime.db.claims import Claim, claim, expire, fail_runs, release
from groktime.db.export import dump_suite, runs_table
from groktime.db.frames import Passage, runs_frame
from groktime.db.load import load_dump
from groktime.db.maintenance import check, plan_prune
from groktime.db.recorder import Recorder, set_aside_runs
from groktime.db.records import Design, coverage_frame, progress
from groktime.db.suites import open_runs, register_suite

SPEC = speed_spec()
EPOCHS, ASIDE = 60, 30
ENDED = Ended(ASIDE, state="set_aside", stopped_by="set_aside")


def design(engine: Engine, name: str, of: Design) -> int:
    """A suite of the one run, as a grid or located."""
    spec = {"runs": [SPEC.key], "inherits": [], "design": of}
    return register_suite(
        engine, name, spec, listed_hash(spec), [SPEC], replace=True, design=of
    ).suite_id


def train(engine: Engine, held: Claim, until: int, ended: Ended | None = None) -> None:
    """Record the epochs from where the claim begins, and close the run if told how."""
    with Recorder(engine, [held], lease_seconds=60) as recorder:
        first = held.resume_epoch + 1
        rows = curve(SPEC, EPOCHS)[first - 1 : until]
        assert recorder.record(0, first, rows)
        if ended is not None:
            recorder.finish(0, ended)


@pytest.fixture
def aside(database: Database) -> int:
    """Id of a run that was set aside."""
    (held,) = claim_all(database.engine, [SPEC])
    train(database.engine, held, ASIDE, ENDED)
    return held.run_id


def row(engine: Engine, run_id: int) -> tuple[str, int, int | None, bool]:
    """State, last epoch, where it was set aside, and whether it has a summary."""
    query = text(
        "SELECT state, last_epoch, set_aside_epoch, first_online IS NOT NULL FROM runs "
        "WHERE id = :id"
    )
    with engine.connect() as connection:
        return tuple(connection.execute(query, {"id": run_id}).one())  # type: ignore[return-value]


def epochs(engine: Engine, run_id: int) -> int:
    query = text("SELECT count(*) FROM curve WHERE run_id = :id")
    with engine.connect() as connection:
        found: int = connection.scalar(query, {"id": run_id})
    return found


def is_sound(engine: Engine) -> bool:
    with engine.connect() as connection:
        return check(connection).findings == []


def test_it_gives_its_lease_back_and_keeps_its_summary(database: Database, aside: int) -> None:
    assert row(database.engine, aside) == ("set_aside", ASIDE, ASIDE, True)
    assert database.scalar("SELECT lease_until IS NULL AND owner IS NULL FROM runs")
    assert database.scalar("SELECT state FROM attempts") == "set_aside"
    assert is_sound(database.engine)


def test_a_grid_counts_it_as_open_and_a_located_suite_as_closed(
    database: Database, aside: int
) -> None:
    engine = database.engine
    passages = {"t_mem": Passage("online", 0.99), "between": Passage("online", 0.123)}
    for of, state, is_open in (("grid", "pending", True), ("locate", "set_aside", False)):
        suite = design(engine, f"a-{of}", of)  # type: ignore[arg-type]
        assert list(open_runs(engine, suite).values()) == ([aside] if is_open else [])
        with engine.connect() as connection:
            frame = runs_frame(connection, suite, "speed", passages)
            left = progress(connection, suite).seconds_left
            counted = coverage_frame(connection, suite)
        assert frame["state"].tolist() == [state]
        assert frame["last_epoch"].tolist() == [ASIDE]
        assert np.isnan(frame["t_mem"]).all()
        assert frame["between"].notna().all()
        assert (left == 0.0) is not is_open
        assert counted["set_aside"].tolist() == [1]


def test_whoever_wants_it_whole_goes_on_from_its_checkpoint(database: Database, aside: int) -> None:
    engine = database.engine
    (held,) = claim(engine, [aside], "other", 60, {aside: [ASIDE]})
    assert held.resume_epoch == ASIDE
    train(engine, held, EPOCHS, Ended(EPOCHS))
    assert row(engine, aside) == ("done", EPOCHS, None, True)
    assert epochs(engine, aside) == EPOCHS
    assert is_sound(engine)


def test_without_a_checkpoint_what_was_known_stays_until_the_new_attempt_has_come_further(
    database: Database, aside: int
) -> None:
    engine = database.engine
    located = design(engine, "located", "locate")
    (held,) = claim(engine, [aside], "other", 60)
    assert held.resume_epoch == 0
    for until in (0, 10, ASIDE):
        if until:
            with Recorder(engine, [held], lease_seconds=60) as recorder:
                recorder.record(0, 1, curve(SPEC, EPOCHS)[:until])
            assert row(engine, aside) == ("running", until, ASIDE, True)
            release(engine, [held], "stopped")
        assert epochs(engine, aside) == ASIDE
        with engine.connect() as connection:
            frame = runs_frame(connection, located, "speed", {"t_mem": Passage("online", 0.5)})
        assert frame["state"].tolist() == ["set_aside"]
        assert frame["last_epoch"].tolist() == [ASIDE]
        assert is_sound(engine)
        if until:
            (held,) = claim(engine, [aside], "other", 60)
    train(engine, held, ASIDE + 1)
    assert row(engine, aside) == ("running", ASIDE + 1, None, False)
    assert epochs(engine, aside) == ASIDE + 1


def test_a_run_that_ends_sooner_the_second_time_is_closed_where_it_ended(
    database: Database, aside: int
) -> None:
    (held,) = claim(database.engine, [aside], "other", 60)
    train(database.engine, held, 20, Ended(20))
    assert row(database.engine, aside) == ("done", 20, None, True)
    assert epochs(database.engine, aside) == 20
    assert is_sound(database.engine)


def test_set_aside_again_before_it_came_as_far_it_is_as_it_was(
    database: Database, aside: int
) -> None:
    (held,) = claim(database.engine, [aside], "other", 60)
    train(database.engine, held, 10, Ended(10, state="set_aside", stopped_by="set_aside"))
    assert row(database.engine, aside) == ("set_aside", ASIDE, ASIDE, True)
    assert epochs(database.engine, aside) == ASIDE
    assert is_sound(database.engine)


def test_a_run_that_nobody_holds_can_be_set_aside(database: Database) -> None:
    engine = database.engine
    held, never = claim_all(engine, [SPEC, speed_spec(seed=2)])
    train(engine, held, 25)
    release(engine, [held, never], "stopped")
    assert set_aside_runs(engine, [held.run_id, never.run_id]) == {held.run_id: 25}
    assert row(engine, held.run_id) == ("set_aside", 25, 25, True)
    assert is_sound(engine)
    (again,) = claim(engine, [held.run_id], "other", -1)
    assert again.resume_epoch == 0
    expire(engine)
    assert set_aside_runs(engine, [held.run_id]) == {held.run_id: 25}
    assert row(engine, held.run_id) == ("set_aside", 25, 25, True)


def test_a_run_that_is_trained_is_set_aside_by_its_own_sweep_alone(database: Database) -> None:
    engine = database.engine
    (held,) = claim_all(engine, [SPEC])
    owner = database.scalar("SELECT owner FROM runs")
    with Recorder(engine, [held], lease_seconds=60) as recorder:
        metrics = curve(SPEC, EPOCHS)
        recorder.record(0, 1, metrics[:25])
        recorder.flush()
        assert set_aside_runs(engine, [held.run_id]) == {}
        assert set_aside_runs(engine, [held.run_id], f"another-{owner}") == {}
        assert set_aside_runs(engine, [held.run_id], owner) == {held.run_id: 25}
        assert row(engine, held.run_id) == ("set_aside", 25, 25, True)
        recorder.record(0, 26, metrics[25:30])
        recorder.flush()
        assert not recorder.owns(0), "what its worker still writes is fenced"
    assert row(engine, held.run_id) == ("set_aside", 25, 25, True)
    assert epochs(engine, held.run_id) == 25
    assert database.scalar("SELECT state FROM attempts") == "set_aside"
    assert database.scalar("SELECT owner IS NULL AND lease_until IS NULL FROM runs")
    assert database.scalar("SELECT seconds > 0 FROM runs")
    assert is_sound(engine)


def test_a_run_that_cannot_be_finished_fails(database: Database, aside: int) -> None:
    engine = database.engine
    (held,) = claim(engine, [aside], "other", 60)
    train(engine, held, 10)
    release(engine, [held], "stopped")
    assert fail_runs(engine, [aside], "crashed") == [aside]
    assert row(engine, aside) == ("failed", 10, None, False)
    assert epochs(engine, aside) == 10
    assert is_sound(engine)


@pytest.mark.parametrize("reopened", [False, True])
def test_a_dump_carries_it_also_while_it_is_trained_on(
    database: Database, other: Database, aside: int, tmp_path: Path, reopened: bool
) -> None:
    if reopened:
        (held,) = claim(database.engine, [aside], "other", 60)
        train(database.engine, held, 10)
    path = tmp_path / "little.dump"
    with database.engine.connect() as connection:
        dumped = dump_suite(connection, "little", path)
    assert (dumped.closed, dumped.curve_rows) == (1, ASIDE)
    loaded = load_dump(other.engine, path, check_listed)
    assert loaded.taken == 1
    run_id = other.scalar("SELECT id FROM runs")
    assert row(other.engine, run_id) == ("set_aside", ASIDE, ASIDE, True)
    assert is_sound(other.engine)
    assert load_dump(other.engine, path, check_listed).taken == 0
    (held,) = claim(other.engine, [run_id], "here", 60)
    train(other.engine, held, EPOCHS, Ended(EPOCHS))
    assert load_dump(other.engine, path, check_listed).taken == 0
    assert row(other.engine, run_id) == ("done", EPOCHS, None, True)


def test_a_dump_that_has_it_whole_is_taken(
    database: Database, other: Database, aside: int, tmp_path: Path
) -> None:
    path = tmp_path / "whole.dump"
    record_all(other.engine, claim_all(other.engine, [SPEC]), epochs=EPOCHS)
    with other.engine.connect() as connection:
        dump_suite(connection, "little", path)
    assert load_dump(database.engine, path, check_listed).taken == 1
    assert row(database.engine, aside) == ("done", EPOCHS, None, True)
    assert epochs(database.engine, aside) == EPOCHS
    assert is_sound(database.engine)


def test_exports_and_pruning_know_it(database: Database, aside: int) -> None:
    assert "set_aside_epoch" in runs_table(1).types
    with database.engine.connect() as connection:
        assert plan_prune(connection, "little").done == 1


def test_a_suite_can_become_located(database: Database, aside: int) -> None:
    register(database.engine, [SPEC])
    assert database.scalar("SELECT design FROM suites WHERE name = 'little'") == "grid"
    design(database.engine, "little", "locate")
    assert database.scalar("SELECT design FROM suites WHERE name = 'little'") == "locate"
