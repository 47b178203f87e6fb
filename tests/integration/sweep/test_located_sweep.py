"""A located suite chooses its runs as it goes, on a real Ray, from what a real Postgres holds."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from fixtures.database import Database
from rich.console import Console

from groktime.service.answers.crossing import crossing
from groktime.service.answers.question import Question, reading
from groktime.service.settings import Settings
from groktime.service.suites import Suite, load_suite
from groktime.service.sweep.driver import run_sweep
from groktime.service.sweep.selection import SweepOptions, register

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

LOCATED = """\
description: located
positions: none
primes: [53]
seeds: [42, 43]
settings: {batch_size: {steps: 12.36}}
stop: {max_epochs: 1000}
design: {place: [crossing], widths: [28, 32, 36, 40], precision: 0.1, max_runs: 16}
"""
CHOSEN = "SELECT count(*) FROM runs WHERE kind = 'speed' AND width = {}"


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    path = tmp_path / "located.yaml"
    path.write_text(LOCATED)
    return load_suite(path)


def sweep(suite: Suite, database: Database, folder: Path) -> tuple[int, str]:
    told = io.StringIO()
    _, report = run_sweep(
        suite,
        database.url,
        database.engine,
        Settings(checkpoints=folder / "checkpoints"),
        SweepOptions(workers=2),
        Console(file=told, width=300),
    )
    assert report.failed == {}
    return report.trained, told.getvalue()


def test_a_cell_is_located_and_what_was_chosen_is_not_trained_again(
    ray_cluster: None, database: Database, suite: Suite, tmp_path: Path
) -> None:
    register(suite, database.engine)
    assert database.scalar("SELECT count(*) FROM runs") == 0, "a design has no runs of its own"
    before = database.scalar("SELECT hash FROM suites")

    trained, told = sweep(suite, database, tmp_path)
    assert 4 <= trained <= 16, told
    assert database.scalar("SELECT count(*) FROM runs WHERE state = 'done'") == trained
    assert "1 cell to locate on cpu: 2 bundles at once" in told
    assert "first look around the prior" in told
    assert database.scalar("SELECT hash FROM suites") == before, "choices do not change a suite"
    with reading(database.engine) as connection:
        answer = crossing(connection, Question(suite="located", prime=53))
    assert answer.status == "crossed", told
    assert answer.p_cross is not None
    assert answer.p_cross.estimate is not None
    assert 28_308 < answer.p_cross.estimate < 55_800  # the widths at both ends

    again, _ = sweep(suite, database, tmp_path)
    assert again == 0


def test_a_run_that_was_chosen_before_a_kill_is_trained_first(
    ray_cluster: None, database: Database, suite: Suite, tmp_path: Path
) -> None:
    left = next(run for run in suite.runs() if run.kind == "speed" and run.model.width == 40)
    register(suite, database.engine, [left])
    assert database.scalar(CHOSEN.format(40)) == 1
    sweep(suite, database, tmp_path)
    done = "SELECT count(*) FROM runs WHERE state = 'done' AND kind = 'speed' AND width = 40"
    assert database.scalar(done) >= 1
    assert database.scalar("SELECT count(*) FROM runs WHERE state <> 'done'") == 0
