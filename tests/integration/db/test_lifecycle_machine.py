"""The life of runs against a model: whatever order things happen in, one attempt owns a run.

Every claim ever given is kept and used again at any later time, as a frozen worker would. The
model says what each use must do; after each step the tables must be what the model says.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from fixtures.curves import Ended, curve
from fixtures.database import Database
from fixtures.runs import grok_spec, register, renew_all
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import text

from groktime.db.claims import Claim, claim, expire, fail_runs, release, reopen, revoke_leases
from groktime.db.curve import Fenced, Part, RunProgress, absent_columns, encode, summarise, write
from groktime.db.suites import open_runs

LASTING, OVER = 600.0, -1.0  # seconds of a lease
LAST_EPOCH = 40
DIVERGED = Ended(0, state="failed", reason="diverged", stopped_by="diverged")
SET_ASIDE = Ended(0, state="set_aside", stopped_by="set_aside")
RUNS = [grok_spec(seed=seed) for seed in (1, 2)]

EMPTY = "TRUNCATE runs, suites, suite_runs, attempts, curve RESTART IDENTITY CASCADE"
READ_RUNS = """
SELECT id, state, attempt, last_epoch, reason, set_aside_epoch, first_online FROM runs ORDER BY id
"""
READ_ATTEMPTS = "SELECT run_id, attempt, state FROM attempts ORDER BY run_id, attempt"
READ_EPOCHS = "SELECT epoch FROM curve WHERE run_id = :run ORDER BY epoch"


@dataclass
class ModelRun:
    """What a run must look like."""

    state: str = "pending"
    attempt: int = 0
    last_epoch: int = 0
    aside: int = 0  # the epoch where it was set aside, until it has come further
    has_summary: bool = False
    lasting: bool = False  # whether its lease, if it has one, is not over
    owner: str = ""
    reason: str | None = None
    attempts: dict[int, str] = field(default_factory=dict)

    def owned_by(self, held: Claim) -> bool:
        return self.state == "running" and self.attempt == held.attempt

    def leave(self, state: str, attempt_state: str, reason: str | None = None) -> None:
        if self.state == "running":
            self.attempts[self.attempt] = attempt_state
        self.state, self.reason = state, reason


def machine_on(database: Database) -> type[RuleBasedStateMachine]:
    """The machine's class for one database."""
    engine = database.engine

    class Lifecycle(RuleBasedStateMachine):
        @initialize()
        def register_suite(self) -> None:
            with engine.begin() as connection:
                connection.execute(text(EMPTY))
            suite = register(engine, RUNS)
            self.ids = list(open_runs(engine, suite.suite_id).values())
            self.model = {run_id: ModelRun() for run_id in self.ids}
            self.claims: list[Claim] = []

        def chosen(self, data: st.DataObject) -> Claim:
            return data.draw(st.sampled_from(self.claims), label="claim")

        @rule(
            lasting=st.booleans(),
            owner=st.sampled_from(["a", "b"]),
            checkpoints=st.lists(st.integers(1, LAST_EPOCH), max_size=3),
            first=st.integers(0, 1),
            count=st.integers(1, 2),
        )
        def claims_runs(
            self, lasting: bool, owner: str, checkpoints: list[int], first: int, count: int
        ) -> None:
            asked = self.ids[first : first + count]
            lease = LASTING if lasting else OVER
            given = claim(engine, asked, owner, lease, {run: checkpoints for run in asked})
            expected = []
            for run_id in asked:
                run = self.model[run_id]
                over = run.state == "running" and not run.lasting
                if run.state not in ("pending", "stale", "set_aside") and not over:
                    continue
                run.leave("running", "stale")
                run.attempt += 1
                run.attempts[run.attempt] = "running"
                usable = [epoch for epoch in checkpoints if epoch <= run.last_epoch]
                run.last_epoch = max(usable, default=0)
                run.lasting, run.owner = lasting, owner
                expected.append((run_id, run.attempt, run.last_epoch))
            assert [(c.run_id, c.attempt, c.resume_epoch) for c in given] == expected
            self.claims += given

        @precondition(lambda self: self.claims)
        @rule(data=st.data(), lasting=st.booleans())
        def renews(self, data: st.DataObject, lasting: bool) -> None:
            held = self.chosen(data)
            run = self.model[held.run_id]
            kept = renew_all(engine, [held], LASTING if lasting else OVER)
            assert kept == ({held.run_id} if run.owned_by(held) else set())
            if kept:
                run.lasting = lasting

        @precondition(lambda self: self.claims)
        @rule(
            data=st.data(),
            rows=st.integers(0, 5),
            ended=st.sampled_from([None, Ended(0), DIVERGED, SET_ASIDE]),
            late=st.booleans(),
        )
        def writes(self, data: st.DataObject, rows: int, ended: Ended | None, late: bool) -> None:
            """A flush of the attempt, from where the run is or from where the claim began."""
            held = self.chosen(data)
            run = self.model[held.run_id]
            expected = held.resume_epoch if late else run.last_epoch
            reached = min(LAST_EPOCH, expected + rows)
            owned = run.owned_by(held) and run.last_epoch == expected
            if not owned:
                with pytest.raises(Fenced):
                    self.flush(held, expected, reached, ended)
                return
            self.flush(held, expected, reached, ended)
            run.last_epoch, run.lasting = reached, True
            if ended is not None:
                run.leave(ended.state, ended.state, ended.reason)
            if ended is not None or reached > run.aside:
                run.has_summary = ended is not None
            if ended is SET_ASIDE:
                # Whatever was known when it was first set aside is known still.
                run.aside = run.last_epoch = max(reached, run.aside)
            elif ended is not None or reached > run.aside:
                run.aside = 0

        def flush(self, held: Claim, expected: int, reached: int, ended: Ended | None) -> None:
            rows = curve(held.spec, LAST_EPOCH)[:reached]
            absent = absent_columns(held.spec)
            part = Part(held.run_id, held.attempt, expected, reached)
            if reached > expected:
                part.rows = [encode(held.run_id, expected + 1, rows[expected:], absent)]
            if ended is not None:
                progress = RunProgress(held.spec)
                progress.add(1, rows)
                part.closing = summarise(held, progress, replace(ended, epochs=reached))
            connection: Any = engine.raw_connection()
            try:
                write(connection.driver_connection, [part], LASTING)
            finally:
                connection.close()

        @precondition(lambda self: self.claims)
        @rule(data=st.data())
        def releases(self, data: st.DataObject) -> None:
            held = self.chosen(data)
            run = self.model[held.run_id]
            expected = {held.run_id} if run.owned_by(held) else set()
            assert release(engine, [held], "crashed") == expected
            if expected:
                run.leave("pending", "released")

        @rule()
        def expires(self) -> None:
            over = [
                run_id
                for run_id, run in self.model.items()
                if run.state == "running" and not run.lasting
            ]
            assert expire(engine) == over
            for run_id in over:
                self.model[run_id].leave("stale", "stale")

        @rule(owner=st.sampled_from(["a", "b"]))
        def abandons(self, owner: str) -> None:
            gone = [
                run_id
                for run_id, run in self.model.items()
                if run.state == "running" and run.owner == owner
            ]
            assert revoke_leases(engine, owner) == gone
            for run_id in gone:
                self.model[run_id].leave("stale", "stale")

        @rule()
        def gives_up(self) -> None:
            free = [i for i, run in self.model.items() if run.state in ("pending", "stale")]
            assert fail_runs(engine, self.ids, "crashed") == free
            for run_id in free:
                self.model[run_id].leave("failed", "failed", "crashed")
                self.model[run_id].aside = 0
                self.model[run_id].has_summary = False

        @rule()
        def reopens(self) -> None:
            failed = [i for i, run in self.model.items() if run.state == "failed"]
            assert sorted(reopen(engine, self.ids)) == failed
            for run_id in failed:
                self.model[run_id].leave("pending", "")
                self.model[run_id].has_summary = False

        @invariant()
        def tables_are_as_the_model_says(self) -> None:
            if not hasattr(self, "model"):
                return
            with engine.connect() as connection:
                found = {row.id: row for row in connection.execute(text(READ_RUNS))}
                attempts = [tuple(row) for row in connection.execute(text(READ_ATTEMPTS))]
                epochs = {
                    run_id: list(connection.scalars(text(READ_EPOCHS), {"run": run_id}))
                    for run_id in self.ids
                }
            for run_id, run in self.model.items():
                row = found[run_id]
                assert (row.state, row.attempt, row.last_epoch, row.reason) == (
                    *(run.state, run.attempt, run.last_epoch),
                    run.reason,
                )
                assert (row.set_aside_epoch or 0) == run.aside
                assert epochs[run_id] == list(range(1, max(run.last_epoch, run.aside) + 1))
                assert (row.first_online is not None) == run.has_summary
            assert attempts == [
                (run_id, number, state)
                for run_id, run in self.model.items()
                for number, state in run.attempts.items()
            ]

    return Lifecycle


def test_a_run_has_one_owner_and_one_end_in_any_order_of_events(database: Database) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine_on(database),
        settings=settings(
            max_examples=25,
            stateful_step_count=40,
            suppress_health_check=list(HealthCheck),
        ),
    )
