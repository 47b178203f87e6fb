"""Reads give what was recorded, for one suite and what it inherits, exactly and in order."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from fixtures.curves import Ended, curve, record_all
from fixtures.database import Database
from fixtures.runs import capacity_spec, claim_all, grok_spec, register, speed_spec
from sqlalchemy import Engine, text

from groktime.db.claims import claim
from groktime.db.frames import Passage, accuracies, curves_frame, runs_frame
from groktime.db.recorder import Recorder
from groktime.db.records import (
    COUNTED_BY,
    coverage_frame,
    coverage_rows,
    failures,
    get_suite,
    progress,
)
from groktime.db.runs import get_run, list_runs
from groktime.db.suites import open_runs
from groktime.service.errors import InputError, SuiteError
from groktime.service.spec import needed

EPOCHS = 40


@dataclass(frozen=True)
class Recorded:
    """A database that holds the suite `little`."""

    engine: Engine
    suite: int


@pytest.fixture(scope="module")
def recorded(shared_database: Database) -> Recorded:
    return Recorded(shared_database.engine, recorded_suite(shared_database))


def recorded_suite(database: Database) -> int:
    """A suite with two grok runs, one speed and one capacity run done and one run open."""
    specs = [grok_spec(seed=1), grok_spec(seed=2, width=16), speed_spec(), capacity_spec()]
    record_all(database.engine, claim_all(database.engine, specs), epochs=EPOCHS)
    return register(database.engine, [*specs, grok_spec(seed=3)]).suite_id


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.905, 0.98, 0.9905, 0.9995, 1.0])
@pytest.mark.parametrize("clock", ["online", "eval", "val"])
def test_passages_equal_a_search_of_the_curve_on_and_off_the_ladder(
    recorded: Recorded, clock: Any, threshold: float
) -> None:
    with recorded.engine.connect() as connection:
        frame = runs_frame(connection, recorded.suite, "grok", {"e": Passage(clock, threshold)})
    assert len(frame) == 3
    counts = {"online": "train_correct", "eval": "train_correct_eval", "val": "val_correct"}[clock]
    for row in frame.itertuples():
        if row.state != "done":
            assert math.isnan(row.e)
            continue
        spec = grok_spec(seed=row.seed, width=row.width)
        n = spec.data.n_val if clock == "val" else spec.data.n_train
        rows = curve(spec, EPOCHS, seed=row.seed)
        reached = np.flatnonzero(rows[counts] >= needed(threshold, n))
        assert row.e == reached[0] + 1 if len(reached) else math.isnan(row.e)


def test_off_the_ladder_a_non_finite_epoch_is_no_passage(database: Database) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    rows = curve(mine.spec, 3)
    rows["train_loss"] = [np.nan, np.inf, 1]
    rows["train_correct"] = mine.spec.data.n_train
    with Recorder(database.engine, [mine], lease_seconds=60) as recorder:
        recorder.record(0, 1, rows)
        recorder.finish(0, Ended(3))
    suite = register(database.engine, [mine.spec]).suite_id
    with database.engine.connect() as connection:
        frame = runs_frame(connection, suite, "grok", {"e": Passage("online", 0.9995)})
    assert frame["e"].tolist() == [3]


def test_a_frame_has_the_flattened_spec_with_its_types(recorded: Recorded) -> None:
    with recorded.engine.connect() as connection:
        frame = runs_frame(connection, recorded.suite, "grok", filters={"width": 16})
    (row,) = frame.to_dict("records")
    columns = grok_spec(seed=2, width=16).columns()
    assert {name: row[name] for name in columns} == columns


def test_a_frame_without_runs_is_empty_with_its_columns(database: Database) -> None:
    suite = register(database.engine, []).suite_id
    with database.engine.connect() as connection:
        frame = runs_frame(connection, suite, "speed", {"t_mem": Passage("online", 0.99)})
    assert frame.empty
    assert {"width", "t_mem", "last_epoch"} <= set(frame)


def test_frames_hold_inherited_runs_and_no_others(database: Database) -> None:
    register(database.engine, [grok_spec(seed=1), grok_spec(seed=2)], name="donor")
    heir = register(database.engine, [speed_spec()], name="heir", inherited=[grok_spec(seed=2)])
    with database.engine.connect() as connection:
        frame = runs_frame(connection, heir.suite_id, "grok")
    assert frame["seed"].tolist() == [2]
    assert frame["inherited"].tolist() == [True]


@pytest.mark.parametrize(
    ("filters", "named"),
    [({"widht": 8}, "widht"), ({"width": "8"}, "width"), ({"kind": 1}, "kind")],
)
def test_a_wrong_filter_is_refused_by_name(
    recorded: Recorded, filters: dict[str, Any], named: str
) -> None:
    with recorded.engine.connect() as connection, pytest.raises(InputError, match=named):
        runs_frame(connection, recorded.suite, "grok", filters=filters)


def test_capacity_runs_come_with_their_bits(recorded: Recorded) -> None:
    with recorded.engine.connect() as connection:
        frame = runs_frame(connection, recorded.suite, "capacity")
    assert frame["bits"].tolist() == pytest.approx([capacity_spec().k_mem])
    assert frame["n_train"].tolist() == [100]


@pytest.mark.parametrize("threshold", [0.9, 0.905])
def test_runs_of_several_kinds_come_by_one_statement_each_with_its_passages(
    recorded: Recorded, threshold: float
) -> None:
    passages = {
        "t_mem": Passage("online", threshold, "speed"),
        "e_val": Passage("val", threshold, "grok"),
    }
    with recorded.engine.connect() as connection:
        both = runs_frame(
            connection,
            recorded.suite,
            ("speed", "grok"),
            passages,
            {"width": 16},
            whole=("capacity",),
        )
        alone = {
            kind: runs_frame(
                connection, recorded.suite, kind, {name: Passage(clock, threshold)}, filters
            )
            for kind, name, clock, filters in [
                ("speed", "t_mem", "online", {"width": 16}),
                ("grok", "e_val", "val", {"width": 16}),
                ("capacity", "e_val", "online", None),
            ]
        }
    assert both["kind"].tolist() == [kind for kind, part in alone.items() for _ in range(len(part))]
    assert both["run_id"].tolist() == [run for part in alone.values() for run in part["run_id"]]
    of = both["kind"]
    assert both.loc[of == "grok", "e_val"].tolist() == alone["grok"]["e_val"].tolist()
    assert both.loc[of == "grok", "e_val"].notna().all()
    assert both.loc[of != "grok", "e_val"].isna().all()
    assert both.loc[of != "speed", "t_mem"].isna().all()


def test_coverage_counts_every_run_once(recorded: Recorded) -> None:
    with recorded.engine.connect() as connection:
        frame = coverage_frame(connection, recorded.suite)
    assert frame["runs"].sum() == 5
    assert frame["done"].sum() == 4
    assert frame["pending"].sum() == 1
    assert frame["epochs"].sum() == 4 * EPOCHS


def test_coverage_is_the_same_with_and_without_pandas(recorded: Recorded) -> None:
    with recorded.engine.connect() as connection:
        frame = coverage_frame(connection, recorded.suite, COUNTED_BY)
        rows = coverage_rows(connection, recorded.suite, COUNTED_BY)
    missing_as_none = frame.astype(object).where(frame.notna(), None)
    assert missing_as_none.to_dict("records") == rows


def test_progress_knows_the_rate_and_the_time_left(recorded: Recorded) -> None:
    with recorded.engine.connect() as connection:
        found = progress(connection, recorded.suite)
    assert found.epochs == 4 * EPOCHS
    assert found.runs_per_minute is not None
    assert found.seconds_left == pytest.approx(60 / found.runs_per_minute)


def test_failures_are_counted_by_reason(database: Database) -> None:
    mine = claim_all(database.engine, [grok_spec(seed=seed) for seed in range(3)])
    with Recorder(database.engine, mine[:2], lease_seconds=60) as recorder:
        for run in (0, 1):
            ended = Ended(0, state="failed", reason="diverged", stopped_by="diverged")
            recorder.finish(run, ended)
    suite = register(database.engine, [c.spec for c in mine]).suite_id
    with database.engine.connect() as connection:
        (found,) = failures(connection, suite)
    assert (found.reason, found.runs, found.example) == ("diverged", 2, mine[0].run_id)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", ["id", "width", "final_val_loss", "closed_at", "operation"])
def test_pages_hold_every_run_once_in_order(
    recorded: Recorded, sort: str, descending: bool
) -> None:
    found: list[Any] = []
    cursor = None
    with recorded.engine.connect() as connection:
        while True:
            page = list_runs(
                connection,
                suite_id=recorded.suite,
                sort=sort,
                descending=descending,
                limit=2,
                cursor=cursor,
            )
            found += page.runs
            cursor = page.next_cursor
            if cursor is None:
                break
        whole = list_runs(connection, suite_id=recorded.suite, sort=sort, descending=descending)
    assert [run["id"] for run in found] == [run["id"] for run in whole.runs]
    assert len({run["id"] for run in found}) == 5
    values = [run[sort] for run in found if run[sort] is not None]
    assert values == sorted(values, reverse=descending)
    assert all(run[sort] is None for run in found[len(values) :])


@pytest.mark.parametrize("content", ["rubbish", "[1]", "null", '["id", false, "a", 1]'])
def test_a_made_up_cursor_is_refused(recorded: Recorded, content: str) -> None:
    cursor = base64.urlsafe_b64encode(content.encode()).decode()
    with recorded.engine.connect() as connection, pytest.raises(InputError, match="cursor"):
        list_runs(connection, cursor=cursor)


def test_a_cursor_of_another_order_is_refused(recorded: Recorded) -> None:
    with recorded.engine.connect() as connection:
        cursor = list_runs(connection, limit=1).next_cursor
        with pytest.raises(InputError, match="another order"):
            list_runs(connection, sort="width", cursor=cursor)


def test_sorting_by_what_is_no_column_is_refused(recorded: Recorded) -> None:
    with recorded.engine.connect() as connection, pytest.raises(InputError, match="sort"):
        list_runs(connection, sort="id; DROP TABLE runs")


def test_one_run_comes_with_its_suites_and_attempts(database: Database) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()], lease=-1)
    claim(database.engine, [mine.run_id], "other", 60)
    with database.engine.connect() as connection:
        run = get_run(connection, mine.run_id)
        assert get_run(connection, mine.run_id + 1) is None
    assert run is not None
    assert run["suites"] == [{"name": "little", "inherited": False}]
    assert [attempt["owner"] for attempt in run["attempts"]] == ["test", "other"]


def test_a_curve_can_be_had_whole_in_part_or_thinner(database: Database) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    record_all(database.engine, [mine], epochs=500)
    with database.engine.connect() as connection:
        whole = curves_frame(connection, [mine.run_id])
        part = curves_frame(connection, [mine.run_id], first=10, last=19)
        thin = curves_frame(connection, [mine.run_id], max_points=50)
    assert whole["epoch"].tolist() == list(range(1, 501))
    assert part["epoch"].tolist() == list(range(10, 20))
    assert len(thin) <= 50 + 2 + 12
    assert {1, 500} <= set(thin["epoch"])
    shares = accuracies(whole, mine.spec.data.n_train, mine.spec.data.n_val)
    assert shares["val_accuracy"].max() <= 1


def test_suites_are_found_by_name(recorded: Recorded) -> None:
    with recorded.engine.connect() as connection:
        assert get_suite(connection, "little").id == recorded.suite
        with pytest.raises(SuiteError, match="'big' is not in the database; there: little"):
            get_suite(connection, "big")


def test_the_views_answer_in_sql(recorded: Recorded) -> None:
    with recorded.engine.connect() as connection:
        runs = connection.execute(text("SELECT * FROM run_summary ORDER BY id")).mappings().all()
        cells = connection.execute(text("SELECT * FROM cell_summary")).mappings().all()
        accuracy = connection.scalar(text("SELECT max(train_accuracy) FROM curve_accuracy"))
    assert len(runs) == 5
    assert runs[0]["delay"] == max(0, runs[0]["e_val_98"] - runs[0]["e_train_99"])
    assert sum(cell["runs"] for cell in cells) == 5
    assert accuracy == 1.0


def test_a_censored_delay_is_null_in_the_views_and_not_zero(database: Database) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    rows = curve(mine.spec, 40)
    rows["val_correct"] = 0  # training is fitted, validation never arrives
    with Recorder(database.engine, [mine], lease_seconds=60) as recorder:
        recorder.record(0, 1, rows)
        recorder.finish(0, Ended(40, stopped_by="cap"))
    with database.engine.connect() as connection:
        run = connection.execute(text("SELECT e_train_99, delay FROM run_summary")).one()
        cell = connection.execute(text("SELECT reached_train_99, delay_min FROM cell_summary"))
        assert run.e_train_99 is not None
        assert run.delay is None
        assert cell.one() == (1, None)


def test_no_query_of_a_whole_suite_scans_the_curve(recorded: Recorded) -> None:
    scans = text("SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'curve'")
    with recorded.engine.connect() as connection:
        connection.execute(text("SET enable_seqscan = off"))  # so few rows would be scanned
        before = connection.scalar(scans)
        passages = {"a": Passage("val", 0.98), "b": Passage("val", 0.9995)}
        runs_frame(connection, recorded.suite, "grok", passages)
        coverage_frame(connection, recorded.suite)
        progress(connection, recorded.suite)
        assert connection.scalar(scans) == before
        connection.execute(text("SELECT max(train_loss) FROM curve"))
        assert connection.scalar(scans) == before + 1


def test_open_runs_leave_out_what_is_done(recorded: Recorded) -> None:
    assert list(open_runs(recorded.engine, recorded.suite)) == [grok_spec(seed=3).key]
