"""Every epoch is recorded exactly once, whatever happens to the connection."""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psycopg2
import pytest
from fixtures.curves import Ended, curve, record_all
from fixtures.database import Database, Server
from fixtures.runs import capacity_spec, claim_all, grok_spec, register, speed_spec
from sqlalchemy import text

import groktime.db.recorder
from groktime.db.claims import claim, expire, release
from groktime.db.curve import COLUMNS, Part, outcome
from groktime.db.recorder import Recorder
from groktime.service.errors import DatabaseError
from groktime.service.spec import COUNTS, LADDER, needed


def run_row(database: Database, run_id: int) -> dict[str, Any]:
    with database.engine.connect() as connection:
        query = text("SELECT * FROM runs WHERE id = :id")
        return dict(connection.execute(query, {"id": run_id}).one()._mapping)


def stored(database: Database, run_id: int) -> list[tuple[Any, ...]]:
    query = text(f"SELECT epoch, {', '.join(COLUMNS)} FROM curve WHERE run_id = :id ORDER BY epoch")
    with database.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(query, {"id": run_id})]


def epochs(database: Database, run_id: int) -> list[int]:
    return [row[0] for row in stored(database, run_id)]


def eventually(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for the condition."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come about"
        time.sleep(0.01)


@contextlib.contextmanager
def locked(database: Database, run_id: int) -> Iterator[None]:
    """Hold the run's row, so that nothing can be written to it."""
    with database.engine.begin() as connection:
        connection.execute(text("SELECT FROM runs WHERE id = :id FOR UPDATE"), {"id": run_id})
        yield


@pytest.mark.parametrize("make_spec", [grok_spec, speed_spec, capacity_spec])
def test_the_curve_holds_every_epoch_as_measured(
    database: Database, make_spec: Callable[[], Any]
) -> None:
    (mine,) = claim_all(database.engine, [make_spec()])
    rows = curve(mine.spec, 50)
    with Recorder(database.engine, [mine], lease_seconds=60) as recorder:
        for first in range(0, 50, 7):
            assert recorder.record(0, first + 1, rows[first : first + 7])
    found = stored(database, mine.run_id)
    assert [row[0] for row in found] == list(range(1, 51))
    for name, column in zip(COLUMNS, list(zip(*found, strict=True))[1:], strict=True):
        found_exactly = [None if v is None else rows[name].dtype.type(v) for v in column]
        given = [None if v == -1 or np.isnan(v) else v for v in rows[name]]
        assert found_exactly == given, name


def test_non_finite_losses_are_stored_as_such(database: Database) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    rows = curve(mine.spec, 4)
    rows["train_loss"] = [1, np.nan, np.inf, 2]
    rows["train_correct"] = mine.spec.data.n_train
    with Recorder(database.engine, [mine], lease_seconds=60) as recorder:
        recorder.record(0, 1, rows)
        recorder.finish(0, Ended(4, state="failed", reason="diverged", stopped_by="diverged"))
    assert [str(row[1]) for row in stored(database, mine.run_id)] == ["1.0", "nan", "inf", "2.0"]


def test_a_perfect_count_in_a_non_finite_epoch_is_no_passage(database: Database) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    rows = curve(mine.spec, 3)
    rows["train_loss"] = [np.nan, np.nan, 1]
    rows["train_correct"] = mine.spec.data.n_train
    with Recorder(database.engine, [mine], lease_seconds=60) as recorder:
        recorder.record(0, 1, rows)
        recorder.finish(0, Ended(3))
    assert run_row(database, mine.run_id)["first_online"] == [3] * len(LADDER)


def test_closing_writes_the_summary_of_the_curve(database: Database) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    rows = curve(mine.spec, 60)
    record_all(database.engine, [mine], epochs=60)
    row = run_row(database, mine.run_id)
    rows = curve(mine.spec, 60, seed=mine.spec.seed)
    assert (row["state"], row["last_epoch"], row["owner"]) == ("done", 60, None)
    assert row["final_val_correct"] == rows["val_correct"][-1]
    assert row["best_train_loss"] == pytest.approx(float(rows["train_loss"].min()))
    assert (row["device"], row["engine"], row["seconds"]) == ("cpu", "torch", 1.5)
    assert row["bits"] is None
    clocks = {"first_online": COUNTS[0], "first_eval": COUNTS[1], "first_val": COUNTS[2]}
    for column, counts in clocks.items():
        n = mine.spec.data.n_val if counts == "val_correct" else mine.spec.data.n_train
        for k, epoch in zip(LADDER, row[column], strict=True):
            reached = np.flatnonzero(rows[counts] >= needed(k / 1000, n))
            assert epoch == (reached[0] + 1 if len(reached) else None)


def test_a_capacity_run_keeps_the_bits_of_its_last_epoch(database: Database) -> None:
    (mine,) = claim_all(database.engine, [capacity_spec()])
    record_all(database.engine, [mine], epochs=10)
    assert run_row(database, mine.run_id)["bits"] == pytest.approx(mine.spec.k_mem)


def test_closing_raises_the_revision_and_notifies(database: Database) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    before = register(database.engine, [grok_spec()]).revision
    listener = database.engine.raw_connection()
    try:
        driver: Any = listener.driver_connection
        driver.autocommit = True
        driver.cursor().execute("LISTEN groktime")
        record_all(database.engine, [mine])
        assert select.select([driver], [], [], 30)[0]
        driver.poll()
        notices = [notice.payload for notice in driver.notifies]
    finally:
        listener.invalidate()
    assert register(database.engine, [grok_spec()]).revision == before + 1
    assert any('"state" : "done"' in notice for notice in notices)


def test_a_resumed_run_has_the_passages_of_its_whole_curve(database: Database) -> None:
    first, second = claim_all(database.engine, [grok_spec(seed=5), grok_spec(seed=6)])
    rows = curve(first.spec, 40, seed=5)
    with Recorder(database.engine, [first], lease_seconds=60) as recorder:
        recorder.record(0, 1, rows[:30])
    release(database.engine, [first], "crashed")
    (again,) = claim(database.engine, [first.run_id], "other", 60, {first.run_id: [25]})
    assert again.resume_epoch == 25
    record_all(database.engine, [again, second], epochs=40)
    resumed = run_row(database, first.run_id)
    assert epochs(database, first.run_id) == list(range(1, 41))
    reached = np.flatnonzero(rows["train_correct"] >= needed(0.5, first.spec.data.n_train))
    assert resumed["first_online"][0] == reached[0] + 1 <= 25


def test_a_writer_without_memory_crashes_the_worker_and_blames_no_database(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starved(*_: object, **__: object) -> None:
        raise MemoryError

    (claimed,) = claim_all(database.engine, [grok_spec()])
    monkeypatch.setattr("groktime.db.recorder.write", starved)
    with Recorder(database.engine, [claimed], lease_seconds=60) as recorder:
        recorder.record(0, 1, curve(claimed.spec, 5))
        with pytest.raises(MemoryError, match="no memory to write results"):
            recorder.flush()
    assert epochs(database, claimed.run_id) == []


def test_a_fenced_run_is_told_so_and_writes_nothing_more(database: Database) -> None:
    lost, kept = claim_all(database.engine, [grok_spec(seed=1), grok_spec(seed=2)])
    rows = curve(lost.spec, 20)
    with Recorder(database.engine, [lost, kept], lease_seconds=60) as recorder:
        recorder.record(0, 1, rows[:5])
        recorder.record(1, 1, rows[:5])
        recorder.flush()
        with database.engine.begin() as connection:
            connection.execute(
                text("UPDATE runs SET lease_until = now() - interval '1 s' WHERE id = :id"),
                {"id": lost.run_id},
            )
        claim(database.engine, [lost.run_id], "other", 60)
        recorder.record(0, 6, rows[5:10])
        recorder.record(1, 6, rows[5:10])
        recorder.flush()
        assert not recorder.owns(0)
        assert recorder.owns(1)
        assert not recorder.record(0, 11, rows[10:])
        assert recorder.record(1, 11, rows[10:])
        recorder.finish(0, Ended(10))
    assert epochs(database, lost.run_id) == []
    assert epochs(database, kept.run_id) == list(range(1, 21))
    assert run_row(database, lost.run_id)["attempt"] == 2


def test_epochs_must_follow_each_other(database: Database) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    with (
        Recorder(database.engine, [mine], lease_seconds=60) as recorder,
        pytest.raises(ValueError, match="epoch 3 follows 0"),
    ):
        recorder.record(0, 3, curve(mine.spec, 2))


def test_leases_are_renewed_while_no_rows_come(database: Database) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()], lease=0.5)
    before = run_row(database, mine.run_id)["lease_until"]
    with Recorder(database.engine, [mine], lease_seconds=0.5):
        eventually(lambda: run_row(database, mine.run_id)["lease_until"] > before)
        assert expire(database.engine) == []


def test_a_run_that_is_closed_when_leases_are_due_is_not_taken_for_lost(database: Database) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()], lease=0.9)
    rows = curve(mine.spec, 5)
    done = threading.Event()
    with Recorder(database.engine, [mine], lease_seconds=0.9) as recorder:
        recorder.record(0, 1, rows)

        def finish() -> None:
            recorder.finish(0, Ended(5))
            done.set()

        thread = threading.Thread(target=finish)
        with locked(database, mine.run_id):
            thread.start()
            assert not done.wait(0.5)  # more than a third of the lease: it is due after the write
        assert done.wait(30)
        thread.join()
        assert recorder.owns(0)
    assert run_row(database, mine.run_id)["state"] == "done"


def test_training_waits_when_the_buffer_is_full(database: Database) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    rows = curve(mine.spec, 30)
    done = threading.Event()
    with Recorder(
        database.engine, [mine], lease_seconds=60, flush_rows=5, buffer_rows=10
    ) as recorder:
        with locked(database, mine.run_id):
            recorder.record(0, 1, rows[:10])

            def more() -> None:
                recorder.record(0, 11, rows[10:])
                done.set()

            thread = threading.Thread(target=more)
            thread.start()
            assert not done.wait(0.3)
        assert done.wait(30)
        thread.join()
    assert epochs(database, mine.run_id) == list(range(1, 31))


def test_dropped_connections_lose_and_repeat_nothing(database: Database) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    rows = curve(mine.spec, 200)
    with Recorder(database.engine, [mine], lease_seconds=60, flush_rows=5) as recorder:
        for first in range(0, 200, 10):
            recorder.record(0, first + 1, rows[first : first + 10])
            with database.engine.begin() as connection:
                connection.execute(
                    text(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                    )
                )
        recorder.finish(0, Ended(200))
    assert epochs(database, mine.run_id) == list(range(1, 201))


@pytest.mark.parametrize("committed", [True, False])
def test_an_unknown_commit_is_resolved_by_reading_last_epoch(
    database: Database, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    rows = curve(mine.spec, 20)
    write = groktime.db.recorder.write
    failures = iter([True, True])

    def lose_connection(connection: Any, parts: Any, lease: float, *, progress: bool) -> None:
        failing = next(failures, False)
        if committed or not failing:
            write(connection, parts, lease, progress=progress)
        if failing:
            raise psycopg2.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(groktime.db.recorder, "write", lose_connection)
    with Recorder(database.engine, [mine], lease_seconds=60) as recorder:
        recorder.record(0, 1, rows)
        recorder.flush()
        recorder.finish(0, Ended(20))
    assert epochs(database, mine.run_id) == list(range(1, 21))
    assert run_row(database, mine.run_id)["state"] == "done"


def test_a_commit_that_is_still_under_way_is_waited_for(database: Database) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    part = Part(mine.run_id, mine.attempt, expected=0, reached=10)
    found = []

    def resolve() -> None:
        again = database.engine.raw_connection()
        found.append(outcome(again.driver_connection, [part]))
        again.close()

    def waits() -> bool:
        query = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"
        with database.engine.connect() as connection:
            return bool(connection.scalar(text(query)))

    thread = threading.Thread(target=resolve)
    with database.engine.begin() as lost:  # the server has the flush, but not yet its end
        lost.execute(text("UPDATE runs SET last_epoch = 10 WHERE id = :id"), {"id": mine.run_id})
        thread.start()
        eventually(lambda: waits() or not thread.is_alive())
    thread.join()
    assert found == [(True, set())]


def test_what_cannot_be_written_in_the_end_fails_loudly(
    database: Database, database_server: Server
) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    recorder = Recorder(database.engine, [mine], lease_seconds=60, give_up_seconds=0.2)
    database_server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS false")
    database_server.execute(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database.name}'"
    )
    recorder.record(0, 1, curve(mine.spec, 5))
    with pytest.raises(DatabaseError, match="results cannot be written"):
        recorder.flush()
    with pytest.raises(DatabaseError, match="results cannot be written"):
        recorder.record(0, 6, curve(mine.spec, 5))
    recorder.stop()


def test_a_server_that_refuses_writes_for_a_while_is_waited_for(
    database: Database, database_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    database.engine.dispose()  # only new connections are read-only
    setting = "default_transaction_read_only"
    with Recorder(database.engine, [mine], lease_seconds=60, flush_rows=5) as recorder:
        database_server.execute(f"ALTER DATABASE {database.name} SET {setting} = on")
        recorder.record(0, 1, curve(mine.spec, 10))
        eventually(lambda: "read-only transaction; trying again" in caplog.text)
        database_server.execute(f"ALTER DATABASE {database.name} RESET {setting}")
        recorder.flush()
    assert epochs(database, mine.run_id) == list(range(1, 11))


def test_runs_that_are_added_are_recorded_like_the_first(database: Database) -> None:
    specs = [grok_spec(seed=seed) for seed in (1, 2, 3)]
    first, begun, fresh = claim_all(database.engine, specs)
    with Recorder(database.engine, [begun], lease_seconds=60) as recorder:
        assert recorder.record(0, 1, curve(begun.spec, 20))
    release(database.engine, [begun], "its worker went away")
    with Recorder(database.engine, [first], lease_seconds=60) as recorder:
        assert recorder.record(0, 1, curve(first.spec, 10))
        known = {begun.run_id: [12]}
        (again,) = claim(database.engine, [begun.run_id], "me", 60, known)
        assert again.resume_epoch == 12
        recorder.add([again, fresh])
        assert recorder.record(1, 13, curve(begun.spec, 20)[12:])
        assert recorder.record(2, 1, curve(fresh.spec, 5))
        assert recorder.owns(1)
        recorder.finish(1, Ended(epochs=20))
    assert [len(epochs(database, c.run_id)) for c in (first, again, fresh)] == [10, 20, 5]
    assert epochs(database, begun.run_id) == list(range(1, 21))
    assert run_row(database, begun.run_id)["state"] == "done"
