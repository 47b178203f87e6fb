"""A sweep on a real Ray and a real Postgres: everything is trained once, whatever breaks."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fixtures.commands import wait_until
from fixtures.database import Database
from rich.console import Console
from sqlalchemy import text

from db.claims import claim, release
from service.errors import InputError, SuiteError, SweepError
from service.settings import Settings
from service.suites import Suite, load_suite
from service.sweep.job import Job, SweepOptions, SweepReport, prepare
from service.sweep.running import run_sweep
from service.sweep.selection import Selection
from workers.training import Outcome, train

# Ray and Tune warn about themselves in ways that are none of a test's business.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

TINY = """\
description: tiny
positions: none
primes: [5, 7]
seeds: [1, 2]
settings: {batch_size: 16}
stop: {max_epochs: 12}
speed:
  widths: [4, 8]
grok:
  widths: [4, 8]
"""

LONG = """\
description: one stack that trains for some seconds
positions: none
primes: [47]
seeds: [1, 2]
settings: {batch_size: 128}
stop: {max_epochs: 3000}
speed:
  widths: [8]  # cannot memorise that much, so it trains to the cap
"""


@pytest.fixture
def suite_of(tmp_path: Path) -> Callable[..., Suite]:
    def write(content: str, name: str = "tiny") -> Suite:
        path = tmp_path / f"{name}.yaml"
        path.write_text(content)
        return load_suite(path)

    return write


@pytest.fixture
def sweep(
    ray_cluster: None, database: Database, tmp_path: Path
) -> Callable[..., tuple[Job, SweepReport, str]]:
    def run(
        suite: Suite, options: SweepOptions | None = None, **settings: Any
    ) -> tuple[Job, SweepReport, str]:
        told = io.StringIO()
        chosen = Settings(
            checkpoints=tmp_path / "checkpoints", **{"checkpoint_seconds": 0.2, **settings}
        )
        job, report = run_sweep(
            suite,
            database.url,
            database.engine,
            chosen,
            options or SweepOptions(),
            Console(file=told, width=200),
        )
        return job, report, told.getvalue()

    return run


def states(database: Database) -> dict[int, str]:
    with database.engine.connect() as connection:
        rows = connection.execute(text("SELECT id, state FROM runs ORDER BY id"))
        return {row.id: row.state for row in rows}


def scalar(database: Database, query: str, **values: Any) -> Any:
    with database.engine.connect() as connection:
        return connection.scalar(text(query), values)


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


def test_a_sweep_trains_every_run_and_the_next_one_trains_nothing(
    suite_of: Callable[..., Suite],
    sweep: Callable[..., tuple[Job, SweepReport, str]],
    database: Database,
) -> None:
    suite = suite_of(TINY)
    _, report, told = sweep(suite)
    assert report.trained == 16
    assert (report.failed, report.retried) == ({}, 0)
    assert "16/16 runs" in told
    assert set(states(database).values()) == {"done"}
    assert scalar(database, "SELECT count(*) FROM curve") == scalar(
        database, "SELECT sum(last_epoch) FROM runs"
    )
    assert scalar(database, "SELECT count(*) FROM runs WHERE device IS NULL") == 0

    _, again, told = sweep(suite)
    assert (again.trained, again.bundles) == (0, 0)
    assert scalar(database, "SELECT max(attempt) FROM runs") == 1


def test_a_swept_run_has_the_curve_it_has_alone(
    suite_of: Callable[..., Suite],
    sweep: Callable[..., tuple[Job, SweepReport, str]],
    database: Database,
) -> None:
    suite = suite_of(TINY)
    sweep(suite)
    spec = next(run for run in suite.runs() if run.kind == "grok" and run.model.width == 8)
    sink = ListSink()
    train([spec], sink, device="cpu")
    alone = np.concatenate(sink.rows)
    query = (
        "SELECT c.train_correct, c.val_correct, c.train_loss FROM curve c "
        f"JOIN runs r ON r.id = c.run_id WHERE r.key = '{spec.key}' ORDER BY c.epoch"
    )
    with database.engine.connect() as connection:
        rows = connection.execute(text(query)).all()
    assert [row[0] for row in rows] == alone["train_correct"].tolist()
    assert [row[1] for row in rows] == alone["val_correct"].tolist()
    assert np.array([row[2] for row in rows], np.float32).tolist() == alone["train_loss"].tolist()


def test_a_diverging_run_fails_by_itself_and_its_stack_mates_go_on(
    suite_of: Callable[..., Suite],
    sweep: Callable[..., tuple[Job, SweepReport, str]],
    database: Database,
) -> None:
    text_ = TINY.replace("stop:", "axes:\n  lr: [1e-3, 1e30]\nstop:")
    job, report, _ = sweep(suite_of(text_))
    lrs = {job.runs[run].spec.optimiser.lr for run in report.failed}
    assert lrs == {1e30}
    assert set(report.failed.values()) == {"diverged"}
    calm = [run for run in job.runs.values() if run.spec.optimiser.lr == 1e-3]
    final = states(database)
    assert all(final[run.id] == "done" for run in calm)


def test_a_run_that_crashes_its_worker_is_found_and_sinks_no_other(
    suite_of: Callable[..., Suite],
    sweep: Callable[..., tuple[Job, SweepReport, str]],
    database: Database,
) -> None:
    suite = suite_of(TINY.replace("[5, 7]", "[5]").replace("widths: [4, 8]", "widths: [4]"))
    prepare(suite, database.engine, SweepOptions())
    # A spec that no worker can read makes whoever touches it crash.
    execute(database, """UPDATE runs SET spec = jsonb_set(spec, '{version}', '99') WHERE id = 2""")
    _, report, told = sweep(suite)
    assert list(report.failed) == [2]
    assert "crashed" in report.failed[2]
    assert "version" in report.failed[2]
    assert "is split" in told
    assert states(database) == {1: "done", 2: "failed", 3: "done", 4: "done"}


def test_a_killed_worker_is_replaced_and_its_runs_go_on_from_their_checkpoints(
    suite_of: Callable[..., Suite],
    sweep: Callable[..., tuple[Job, SweepReport, str]],
    database: Database,
    tmp_path: Path,
) -> None:
    suite = suite_of(LONG, "long")
    killed: list[int] = []

    def owner_of_a_checkpoint() -> str | None:
        """The worker of a run that has recorded what its checkpoint holds."""
        saved = [(p.parent.name, int(p.stem)) for p in tmp_path.rglob("*.checkpoint")]
        query = "SELECT owner FROM runs WHERE state = 'running' AND key = :k AND last_epoch >= :e"
        owners = (scalar(database, query, k=key, e=epoch) for key, epoch in saved)
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
    assert scalar(database, "SELECT max(resume_epoch) FROM attempts") > 0
    assert scalar(database, "SELECT max(attempt) FROM runs") == 2
    gaps = (
        "SELECT count(*) FROM curve c JOIN runs r ON r.id = c.run_id WHERE c.epoch > r.last_epoch"
    )
    assert scalar(database, gaps) == 0
    assert scalar(database, "SELECT count(*) FROM curve") == scalar(
        database, "SELECT sum(last_epoch) FROM runs"
    )


def test_runs_of_a_dead_sweep_are_taken_over_when_their_lease_ends(
    suite_of: Callable[..., Suite],
    sweep: Callable[..., tuple[Job, SweepReport, str]],
    database: Database,
) -> None:
    suite = suite_of(TINY)
    job = prepare(suite, database.engine, SweepOptions())
    ids = list(job.runs)[:3]
    assert len(claim(database.engine, ids, "a sweep that was killed", 2.0)) == 3
    _, report, _ = sweep(suite)
    assert report.trained == 16
    assert set(states(database).values()) == {"done"}
    assert scalar(database, "SELECT max(attempt) FROM runs") == 2


def test_runs_of_a_living_sweep_are_left_to_it(
    suite_of: Callable[..., Suite],
    sweep: Callable[..., tuple[Job, SweepReport, str]],
    database: Database,
) -> None:
    from db.claims import renew

    suite = suite_of(TINY)
    job = prepare(suite, database.engine, SweepOptions())
    held = claim(database.engine, list(job.runs)[:2], "a living sweep", 30.0)
    ended = threading.Event()

    def live() -> None:
        while not ended.wait(0.2):
            renew(database.engine, held, 30.0)

    living = threading.Thread(target=live)
    living.start()
    try:
        _, report, _ = sweep(suite)
    finally:
        ended.set()
        living.join()
    assert (report.trained, report.left_to_others) == (14, 2)
    release(database.engine, held)


def test_only_what_is_selected_is_trained(
    suite_of: Callable[..., Suite],
    sweep: Callable[..., tuple[Job, SweepReport, str]],
    database: Database,
) -> None:
    suite = suite_of(TINY)
    selection = Selection(primes=(7,), kinds=("speed",), widths=(8,), seeds=(1,))
    _, report, _ = sweep(suite, SweepOptions(selection))
    assert report.trained == 1
    _, report, _ = sweep(suite, SweepOptions(limit=3))
    assert report.trained == 3
    final = list(states(database).values())
    assert (final.count("done"), final.count("pending")) == (4, 12)


def test_a_filter_that_no_run_passes_is_refused_with_what_there_is(
    suite_of: Callable[..., Suite], database: Database
) -> None:
    with pytest.raises(InputError, match=r"--prime = 9: the suite has 5, 7"):
        prepare(suite_of(TINY), database.engine, SweepOptions(Selection(primes=(9,))))
    assert states(database) == {}


def test_gpus_that_the_cluster_lacks_are_refused_naming_what_it_has(
    suite_of: Callable[..., Suite], sweep: Callable[..., tuple[Job, SweepReport, str]]
) -> None:
    with pytest.raises(SweepError, match="the cluster has 0 GPUs and 2 CPUs"):
        sweep(suite_of(TINY), SweepOptions(gpus_per_bundle=0.25))


def test_a_database_that_refuses_ends_the_sweep_without_blaming_runs(
    suite_of: Callable[..., Suite],
    sweep: Callable[..., tuple[Job, SweepReport, str]],
    database: Database,
) -> None:
    with pytest.raises(SweepError, match="nowhere"):
        sweep(suite_of(TINY), writer_url="postgresql://nobody@127.0.0.1:9/nowhere")
    assert set(states(database).values()) == {"pending"}


def test_a_frozen_suite_that_changed_is_refused(
    suite_of: Callable[..., Suite], database: Database
) -> None:
    from db.registering import freeze_suite

    suite = suite_of(TINY)
    prepare(suite, database.engine, SweepOptions())
    assert freeze_suite(database.engine, "tiny") == suite.digest
    prepare(suite, database.engine, SweepOptions())
    with pytest.raises(SuiteError, match="was frozen"):
        prepare(suite_of(TINY.replace("[1, 2]", "[1, 2, 3]")), database.engine, SweepOptions())
    assert len(states(database)) == 16
