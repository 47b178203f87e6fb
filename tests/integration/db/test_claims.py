"""A run belongs to one worker at a time, by the database's clock."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection as Pipe
from typing import Any

from fixtures.commands import wait_until
from fixtures.curves import Ended, curve
from fixtures.database import Database
from fixtures.runs import (
    capacity_spec,
    claim_all,
    grok_spec,
    register,
    renew_all,
    speed_spec,
)
from sqlalchemy import text

from groktime.db.claims import Trainer, claim, expire, fail_runs, provenance, release, reopen
from groktime.db.engine import WRITER_IDLE_SECONDS, RetryingConnection, connect
from groktime.db.recorder import Recorder
from groktime.db.suites import open_runs

OVER = -1.0  # seconds: a lease that has ended when it is given


def states(database: Database, column: str = "state") -> list[str | None]:
    with database.engine.connect() as connection:
        return list(connection.scalars(text(f"SELECT {column} FROM runs ORDER BY id")))


def attempts(database: Database) -> list[tuple[int, str]]:
    query = text("SELECT attempt, state FROM attempts ORDER BY run_id, attempt")
    with database.engine.connect() as connection:
        return [(row.attempt, row.state) for row in connection.execute(query)]


def test_a_claimed_run_is_running_and_cannot_be_claimed_again(database: Database) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    assert mine.attempt == 1
    assert mine.spec == grok_spec()
    assert claim(database.engine, [mine.run_id], "other", 60) == []
    assert states(database) == ["running"]


def test_claims_come_in_the_order_asked(database: Database) -> None:
    specs = [speed_spec(seed=seed) for seed in (3, 1, 2)]
    suite = register(database.engine, specs)
    ids = list(open_runs(database.engine, suite.suite_id).values())
    assert [c.run_id for c in claim(database.engine, ids[::-1], "test", 60)] == ids[::-1]


def test_a_run_whose_lease_is_over_becomes_stale_then_the_next_workers(database: Database) -> None:
    (lost,) = claim_all(database.engine, [grok_spec()], lease=OVER)
    assert expire(database.engine) == [lost.run_id]
    assert states(database) == ["stale"]
    (taken,) = claim(database.engine, [lost.run_id], "other", 60)
    assert taken.attempt == 2
    assert attempts(database) == [(1, "stale"), (2, "running")]
    assert renew_all(database.engine, [lost], 60) == set()
    assert release(database.engine, [lost], "late") == set()
    assert states(database) == ["running"]


def test_an_expired_run_can_be_claimed_before_anybody_marks_it(database: Database) -> None:
    (lost,) = claim_all(database.engine, [grok_spec()], lease=OVER)
    (taken,) = claim(database.engine, [lost.run_id], "other", 60)
    assert taken.attempt == 2
    assert attempts(database) == [(1, "stale"), (2, "running")]


IDLE = "idle_in_transaction_session_timeout"


def test_a_worker_frozen_within_a_transaction_loses_its_run_and_goes_on_when_it_wakes(
    database: Database,
) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()], lease=OVER)
    engine = database.writer()
    tries: list[int] = []

    def lock_and_freeze(connection: Any) -> None:
        tries.append(len(tries))
        with connection.cursor() as cursor:
            cursor.execute("SELECT FROM runs FOR UPDATE")
            if len(tries) == 1:
                assert expire(database.engine) == [], "it is locked"
                cursor.execute(f"SHOW {IDLE}")
                assert cursor.fetchone() == (f"{WRITER_IDLE_SECONDS}s",)
                cursor.execute(f"SET LOCAL {IDLE} = '10ms'")  # the limit is near
                assert wait_until(lambda: expire(database.engine)) == [mine.run_id]
            cursor.execute("SELECT 1")
        connection.commit()

    RetryingConnection(engine, 60, time.sleep).persist(lock_and_freeze)
    assert len(tries) == 2
    engine.dispose()


def test_renewing_keeps_a_run_from_expiring(database: Database) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()], lease=OVER)
    assert renew_all(database.engine, [mine], 60) == {mine.run_id}
    assert expire(database.engine) == []


def test_a_released_run_is_pending_again_and_its_attempt_says_why(database: Database) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    assert release(database.engine, [mine], "no memory") == {mine.run_id}
    assert states(database) == ["pending"]
    assert states(database, "reason") == [None]
    assert attempts(database) == [(1, "released")]
    with database.engine.connect() as connection:
        assert connection.scalar(text("SELECT reason FROM attempts")) == "no memory"


def test_an_attempt_says_what_it_trains_with_before_it_has_ended(database: Database) -> None:
    (lost,) = claim_all(database.engine, [grok_spec()], lease=OVER)
    trainer = Trainer("native", "cpu", "native; some processor")
    claim(database.engine, [lost.run_id], "other", OVER, trainer=trainer)
    expire(database.engine)
    with database.engine.connect() as connection:
        query = text("SELECT * FROM attempts ORDER BY attempt DESC LIMIT 1")
        row = connection.execute(query).one()
    assert row.state == "stale"
    assert Trainer(row.engine, row.device, row.fingerprint) == trainer
    maker = provenance()
    assert (row.host, row.git_commit, row.git_dirty) == (
        *(maker.host, maker.git_commit),
        maker.git_dirty,
    )
    assert row.versions == maker.versions


def test_a_failed_run_says_why_and_can_be_reopened(database: Database) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    release(database.engine, [mine], "crashed")
    assert fail_runs(database.engine, [mine.run_id], "out of memory") == [mine.run_id]
    assert states(database, "reason") == ["out of memory"]
    assert claim(database.engine, [mine.run_id], "other", 60) == []
    assert reopen(database.engine, [mine.run_id]) == [mine.run_id]
    assert states(database) == ["pending"]


def test_a_reopened_run_has_no_summary_left_of_its_failure(database: Database) -> None:
    fresh, failed = claim_all(database.engine, [capacity_spec(seed=1), capacity_spec(seed=2)])
    release(database.engine, [fresh], "crashed")
    with Recorder(database.engine, [failed], lease_seconds=60) as recorder:
        recorder.record(0, 1, curve(failed.spec, 5))
        recorder.finish(0, Ended(5, state="failed", reason="diverged", stopped_by="diverged"))
    reopen(database.engine, [failed.run_id])
    with database.engine.connect() as connection:
        rows = connection.execute(text("SELECT * FROM runs ORDER BY id")).mappings().all()
    own = ("id", "key", "spec", "seed", "last_epoch", "created_at")
    one, other = ({k: v for k, v in row.items() if k not in own} for row in rows)
    assert one == other


def record_epochs(database: Database, run_id: int, epochs: int) -> None:
    with database.engine.begin() as connection:
        connection.execute(
            text("INSERT INTO curve SELECT :run, e, 1, 1 FROM generate_series(1, :epochs) e"),
            {"run": run_id, "epochs": epochs},
        )
        connection.execute(
            text("UPDATE runs SET last_epoch = :epochs WHERE id = :run"),
            {"run": run_id, "epochs": epochs},
        )


def last_of_curve(database: Database, run_id: int) -> int | None:
    with database.engine.connect() as connection:
        return connection.scalar(
            text("SELECT max(epoch) FROM curve WHERE run_id = :run"), {"run": run_id}
        )


def test_a_claim_resumes_from_the_latest_checkpoint_whose_epochs_are_recorded(
    database: Database,
) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    record_epochs(database, mine.run_id, 50)
    release(database.engine, [mine], "crashed")
    (again,) = claim(database.engine, [mine.run_id], "other", 60, {mine.run_id: [60, 40, 20]})
    assert again.resume_epoch == 40
    assert last_of_curve(database, mine.run_id) == 40


def test_a_claim_without_a_checkpoint_starts_over(database: Database) -> None:
    (mine,) = claim_all(database.engine, [capacity_spec()])
    record_epochs(database, mine.run_id, 50)
    release(database.engine, [mine], "crashed")
    (again,) = claim(database.engine, [mine.run_id], "other", 60)
    assert again.resume_epoch == 0
    assert last_of_curve(database, mine.run_id) is None


def _compete(url: str, ids: Sequence[int], worker: int, rounds: int, result: Pipe) -> None:
    """Claim, expire and give back at random; what is owned is put into a table of owned runs."""
    engine = connect(url)
    rng = random.Random(worker)
    claimed = 0
    for _ in range(rounds):
        lease = rng.choice([60.0, OVER])
        mine = claim(engine, rng.sample(ids, 5), f"worker {worker}", lease)
        claimed += len(mine)
        if lease > 0:
            with engine.begin() as connection:
                for run in mine:
                    connection.execute(
                        text("INSERT INTO owned VALUES (:run, :attempt)"),
                        {"run": run.run_id, "attempt": run.attempt},
                    )
            with engine.begin() as connection:
                for run in mine:
                    connection.execute(
                        text("DELETE FROM owned WHERE run = :run AND attempt = :attempt"),
                        {"run": run.run_id, "attempt": run.attempt},
                    )
            release(engine, mine, "crashed")
        expire(engine)
    result.send(claimed)
    engine.dispose()


def test_eight_processes_never_own_one_run_together(database: Database) -> None:
    specs = [speed_spec(seed=seed) for seed in range(12)]
    suite = register(database.engine, specs)
    ids = list(open_runs(database.engine, suite.suite_id).values())
    with database.engine.begin() as connection:
        # Two owners at once would both be in this table: its key refuses the second.
        connection.execute(text("CREATE TABLE owned (run int PRIMARY KEY, attempt int)"))
    context = multiprocessing.get_context("spawn")
    workers = []
    for number in range(8):
        here, there = context.Pipe()
        process = context.Process(target=_compete, args=(database.url, ids, number, 25, there))
        process.start()
        workers.append((process, here))
    claimed = 0
    for process, here in workers:
        process.join(120)
        assert process.exitcode == 0
        claimed += here.recv()
    with database.engine.connect() as connection:
        recorded = connection.scalar(text("SELECT sum(attempt) FROM runs"))
        rows = connection.scalar(text("SELECT count(*) FROM attempts"))
    assert claimed == recorded == rows > 0
