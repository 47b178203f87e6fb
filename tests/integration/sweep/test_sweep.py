"""A sweep on a real Ray and a real Postgres: everything is trained once, whatever breaks."""

from __future__ import annotations

import io
import os
import signal
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures.commands import Commands, settings_environment, wait_until
from fixtures.database import Database
from fixtures.runs import grok_spec, renew_all
from rich.console import Console
from sqlalchemy import create_engine, text

from groktime.db.claims import Claim, claim, release
from groktime.service.errors import InputError, SuiteError, SweepError
from groktime.service.settings import Settings
from groktime.service.spec import Outcome
from groktime.service.suites import Suite, load_suite
from groktime.service.sweep.driver import run_sweep
from groktime.service.sweep.interruption import interruptible
from groktime.service.sweep.selection import (
    PreparedSweep,
    Selection,
    SweepOptions,
    SweepReport,
    prepare,
)
from groktime.workers.trainable import give_back
from groktime.workers.training import train

# Ray and Tune warn about themselves in ways that are none of a test's business.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

TINY = """\
description: tiny
positions: none
primes: [5]
seeds: [1, 2]
settings: {batch_size: 16}
stop: {max_epochs: 12}
speed:
  widths: [4]
grok:
  widths: [4]
"""

# Every stack of it has runs whose first step is their last.
HOT = TINY.replace("widths: [4]", "widths: [4, 8]").replace(
    "stop:", "axes:\n  lr: [1e-3, 1e30]\nstop:"
)

LONG = """\
description: one stack that trains for six seconds on a fast machine
positions: none
primes: [47]
seeds: [1]
settings: {batch_size: 128}
stop: {max_epochs: 10000}
speed:
  widths: [8]  # cannot memorise that much, so it trains to the cap
"""

Sweeper = Callable[..., tuple[PreparedSweep, SweepReport, str]]


@pytest.fixture
def suite_of(tmp_path: Path) -> Callable[..., Suite]:
    def write(content: str, name: str = "tiny") -> Suite:
        path = tmp_path / f"{name}.yaml"
        path.write_text(content)
        return load_suite(path)

    return write


def sweeper(database: Database, checkpoints: Path) -> Sweeper:
    """Sweeps into this database; returns job, report and what was told."""

    def run(
        suite: Suite, options: SweepOptions | None = None, **settings: Any
    ) -> tuple[PreparedSweep, SweepReport, str]:
        told = io.StringIO()
        job, report = run_sweep(
            suite,
            database.url,
            database.engine,
            Settings(checkpoints=checkpoints, **{"checkpoint_seconds": 0.2, **settings}),
            options or SweepOptions(),
            Console(file=told, width=200),
        )
        return job, report, told.getvalue()

    return run


@pytest.fixture
def sweep(ray_cluster: None, database: Database, tmp_path: Path) -> Sweeper:
    return sweeper(database, tmp_path / "checkpoints")


class Losing(io.StringIO):
    """Where a first line interrupts the process inside a callback, which loses the exception."""

    lost = False

    def write(self, text: str) -> int:
        if not self.lost:
            self.lost = True
            thing = io.BytesIO()
            watched = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
            del thing
            assert watched() is None
        return super().write(text)


def test_an_interrupt_that_python_loses_ends_the_sweep_all_the_same(
    ray_cluster: None, database: Database, suite_of: Callable[..., Suite], tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        run_sweep(
            suite_of(LONG, "long"),
            database.url,
            database.engine,
            Settings(checkpoints=tmp_path / "checkpoints"),
            SweepOptions(),
            Console(file=Losing(), width=200),
        )
    assert set(states(database).values()) <= {"pending", "stale"}


@dataclass(frozen=True)
class Swept:
    """A suite that was swept once, half of its runs too hot to train."""

    file: Path
    database: Database
    job: PreparedSweep
    report: SweepReport
    told: str

    @property
    def suite(self) -> Suite:
        return self.job.suite


@pytest.fixture(scope="module")
def swept(
    ray_cluster: None, shared_database: Database, tmp_path_factory: pytest.TempPathFactory
) -> Swept:
    folder = tmp_path_factory.mktemp("swept")
    file = folder / "hot.yaml"
    file.write_text(HOT)
    run = sweeper(shared_database, folder / "checkpoints")
    return Swept(file, shared_database, *run(load_suite(file)))


def states(database: Database) -> dict[int, str]:
    with database.engine.connect() as connection:
        rows = connection.execute(text("SELECT id, state FROM runs ORDER BY id"))
        return {row.id: row.state for row in rows}


def execute(database: Database, statement: str) -> None:
    with database.engine.begin() as connection:
        connection.execute(text(statement))


class ListSink:
    """Keeps the metrics of one run."""

    def __init__(self) -> None:
        self.rows: list[np.ndarray] = []

    def record(self, run: int, first_epoch: int, metrics: np.ndarray) -> bool:
        self.rows.append(metrics.copy())
        return True

    def flush(self) -> None: ...

    def finish(self, run: int, outcome: Outcome) -> None: ...

    def owns(self, run: int) -> bool:
        return True


def test_a_sweep_trains_every_run_and_tells_how_it_goes(swept: Swept) -> None:
    assert (swept.report.trained, swept.report.retried) == (16, 0)
    lines = swept.told.splitlines()
    assert lines[0] == "hot: 0/16 runs, starting Ray"
    assert lines[-1].startswith("hot: 8/16 runs, 8 failed, ")
    assert swept.database.scalar("SELECT count(*) FROM curve") == swept.database.scalar(
        "SELECT sum(last_epoch) FROM runs"
    )
    assert swept.database.scalar("SELECT count(*) FROM runs WHERE device IS NULL") == 0


def test_a_diverging_run_fails_by_itself_and_its_stack_mates_go_on(swept: Swept) -> None:
    assert set(swept.report.failed.values()) == {"diverged"}
    final = states(swept.database)
    for run in swept.job.runs.values():
        assert final[run.id] == ("failed" if run.spec.optimiser.lr == 1e30 else "done")


def test_a_swept_run_has_the_curve_it_has_alone(swept: Swept) -> None:
    (spec,) = (
        run.spec
        for run in swept.job.runs.values()
        if run.spec.kind == "grok"
        and (run.spec.model.width, run.spec.optimiser.lr, run.spec.seed) == (8, 1e-3, 2)
    )
    sink = ListSink()
    train([spec], sink, device="cpu")
    alone = np.concatenate(sink.rows)
    query = (
        "SELECT c.train_correct, c.val_correct, c.train_loss FROM curve c "
        f"JOIN runs r ON r.id = c.run_id WHERE r.key = '{spec.key}' ORDER BY c.epoch"
    )
    with swept.database.engine.connect() as connection:
        rows = connection.execute(text(query)).all()
    assert [row[0] for row in rows] == alone["train_correct"].tolist()
    assert [row[1] for row in rows] == alone["val_correct"].tolist()
    assert np.array([row[2] for row in rows], np.float32).tolist() == alone["train_loss"].tolist()


def test_the_next_sweep_trains_nothing_and_its_exit_code_tells_of_failed_runs(
    swept: Swept, commands: Commands
) -> None:
    settings = settings_environment(database_url=swept.database.url)
    code, output = commands.run("sweep", str(swept.file), **settings)
    assert code == 1, output
    assert "nothing left to train; 8 of 16 runs failed, and --retry-failed" in output
    assert "failed runs" in output
    assert output.count("diverged") == 8
    assert swept.database.scalar("SELECT max(attempt) FROM runs") == 1


def test_a_run_that_crashes_its_worker_is_found_and_sinks_no_other(
    suite_of: Callable[..., Suite], sweep: Sweeper, database: Database
) -> None:
    suite = suite_of(TINY)
    chosen = SweepOptions(Selection(kinds=("speed",)), workers=1)
    bad, good = prepare(suite, database.engine, chosen).runs
    # A spec that no worker can read makes whoever touches it crash.
    execute(
        database, f"UPDATE runs SET spec = jsonb_set(spec, '{{version}}', '99') WHERE id = {bad}"
    )
    _, report, told = sweep(suite, chosen)
    assert list(report.failed) == [bad]
    assert "crashed" in report.failed[bad]
    assert "version" in report.failed[bad]
    assert "a bundle of 2 runs crashed and is split" in told
    final = states(database)
    assert (final[bad], final[good]) == ("failed", "done")


def test_a_killed_worker_is_replaced_and_its_runs_go_on_from_their_checkpoints(
    suite_of: Callable[..., Suite], sweep: Sweeper, database: Database, tmp_path: Path
) -> None:
    suite = suite_of(LONG, "long")
    killed: list[int] = []

    def owner_of_a_checkpoint() -> str | None:
        """The worker of a run that has recorded what its checkpoint holds."""
        saved = [(p.parent.name, int(p.stem)) for p in tmp_path.rglob("*.checkpoint")]
        query = "SELECT owner FROM runs WHERE state = 'running' AND key = :k AND last_epoch >= :e"
        owners = (database.scalar(query, k=key, e=epoch) for key, epoch in saved)
        return next(filter(None, owners), None)

    def kill_worker() -> None:
        owner = wait_until(owner_of_a_checkpoint)
        killed.append(int(owner.rpartition(":")[2]))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill_worker)
    killer.start()
    _, report, _ = sweep(suite, lease_seconds=600.0)
    killer.join()
    assert killed
    assert report.failed == {}
    assert set(states(database).values()) == {"done"}
    assert database.scalar("SELECT max(resume_epoch) FROM attempts") > 0
    assert database.scalar("SELECT max(attempt) FROM runs") == 2
    told = "SELECT count(*) FROM attempts WHERE engine || device || fingerprint IS NOT NULL"
    assert database.scalar(told) == database.scalar("SELECT count(*) FROM attempts") >= 2
    gaps = (
        "SELECT count(*) FROM curve c JOIN runs r ON r.id = c.run_id WHERE c.epoch > r.last_epoch"
    )
    assert database.scalar(gaps) == 0
    assert database.scalar("SELECT count(*) FROM curve") == database.scalar(
        "SELECT sum(last_epoch) FROM runs"
    )


def test_runs_of_a_dead_sweep_are_taken_over_and_those_of_a_living_one_left_to_it(
    suite_of: Callable[..., Suite], sweep: Sweeper, database: Database
) -> None:
    suite = suite_of(TINY)
    one, other, *free = prepare(suite, database.engine, SweepOptions()).runs
    (dead,) = claim(database.engine, [one], "a sweep that was killed", 2.0)
    held = claim(database.engine, [other], "a living sweep", 30.0)
    ended = threading.Event()

    def live() -> None:
        while not ended.wait(0.2):
            renew_all(database.engine, held, 30.0)

    living = threading.Thread(target=live)
    living.start()
    try:
        _, report, _ = sweep(suite, SweepOptions(workers=1))
    finally:
        ended.set()
        living.join()
    assert (report.trained, report.left_to_others) == (3, 1)
    final = states(database)
    assert {final[run] for run in (dead.run_id, *free)} == {"done"}
    assert final[other] == "running"
    assert database.scalar(f"SELECT attempt FROM runs WHERE id = {dead.run_id}") == 2
    release(database.engine, held, "it has seen enough")


def test_only_what_is_selected_is_trained(
    suite_of: Callable[..., Suite], sweep: Sweeper, database: Database
) -> None:
    suite = suite_of(TINY.replace("[5]", "[5, 7]"))
    selection = Selection(primes=(7,), kinds=("speed",), widths=(4,))
    job, report, _ = sweep(suite, SweepOptions(selection, limit=1))
    assert report.trained == 1
    (run,) = job.runs.values()
    assert (run.spec.data.prime, run.spec.kind) == (7, "speed")
    final = list(states(database).values())
    assert (final.count("done"), final.count("pending")) == (1, 7)
    assert len(prepare(suite, database.engine, SweepOptions(limit=3)).open) == 3
    last = prepare(suite, database.engine, SweepOptions(Selection(seeds=(2,)))).runs.values()
    assert {run.spec.seed for run in last} == {2}


def test_a_filter_that_no_run_passes_is_refused_with_what_there_is(
    suite_of: Callable[..., Suite], database: Database
) -> None:
    with pytest.raises(InputError, match=r"--prime = 9: the suite has 5$"):
        prepare(suite_of(TINY), database.engine, SweepOptions(Selection(primes=(9,))))
    assert states(database) == {}


def test_gpus_that_the_cluster_lacks_are_refused_naming_what_it_has(
    suite_of: Callable[..., Suite], sweep: Sweeper
) -> None:
    with pytest.raises(SweepError, match="the cluster has 0 GPUs and 2 CPUs"):
        sweep(suite_of(TINY), SweepOptions(gpus_per_bundle=0.25))


def test_a_database_that_refuses_ends_the_sweep_without_blaming_runs(
    suite_of: Callable[..., Suite],
    sweep: Sweeper,
    database: Database,
    empty_database: Database,
) -> None:
    with pytest.raises(SweepError, match="has no groktime tables"):
        sweep(suite_of(TINY), SweepOptions(workers=1), writer_url=empty_database.url)
    assert set(states(database).values()) == {"pending"}


def test_attempts_that_crash_say_why_and_with_what_and_leave_no_lease(
    suite_of: Callable[..., Suite], sweep: Sweeper, database: Database
) -> None:
    execute(database, "ALTER TABLE curve ADD CONSTRAINT full_disk CHECK (epoch < 0)")
    with pytest.raises(SweepError, match="results cannot be written"):
        sweep(suite_of(TINY), SweepOptions(workers=1))
    assert set(states(database).values()) == {"pending"}
    query = (
        "SELECT state, reason, engine, device, fingerprint, git_commit, versions, ended_at "
        "FROM attempts"
    )
    with database.engine.connect() as connection:
        attempts = connection.execute(text(query)).all()
    assert attempts
    for attempt in attempts:
        assert attempt.state == "released"
        assert attempt.reason.startswith("DatabaseError: results cannot be written")
        assert attempt.device == "cpu"
        assert attempt.fingerprint.startswith(attempt.engine)
        assert attempt.versions["python"]
        assert attempt.ended_at is not None


def test_runs_that_cannot_be_given_back_hide_no_error(caplog: pytest.LogCaptureFixture) -> None:
    away = create_engine("postgresql+psycopg2://nobody@127.0.0.1:1/nowhere")
    give_back(away, [Claim(1, 1, grok_spec(), 0)], "DatabaseError: results cannot be written")
    assert "runs are not given back" in caplog.text


def test_a_frozen_suite_that_changed_is_refused(
    suite_of: Callable[..., Suite], database: Database
) -> None:
    from groktime.db.suites import freeze_suite

    suite = suite_of(TINY)
    prepare(suite, database.engine, SweepOptions())
    assert freeze_suite(database.engine, "tiny") == suite.digest
    prepare(suite, database.engine, SweepOptions())
    with pytest.raises(SuiteError, match="was frozen"):
        prepare(suite_of(TINY.replace("[1, 2]", "[1, 2, 3]")), database.engine, SweepOptions())
    assert len(states(database)) == 4
