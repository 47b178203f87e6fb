"""The batch script on a real Slurm of one node."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures.commands import wait_until
from fixtures.database import Database
from fixtures.slurm import NoSlurm, Slurm, running

SUITE = Path(__file__).with_name("topology_mini.yaml")
RUNS = 4

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    try:
        with running() as started:
            yield started
    except NoSlurm as missing:
        pytest.skip(str(missing))


@pytest.fixture
def settings(shared_database: Database, tmp_path: Path) -> dict[str, str]:
    return {
        "GROKTIME_DATABASE_URL": shared_database.url,
        "GROKTIME_CHECKPOINTS": str(tmp_path / "checkpoints"),
        "GROKTIME_HOME": str(tmp_path / "home"),
        "GROKTIME_VENV": str(Path(sys.executable).parent.parent),
    }


def submitted(slurm: Slurm, root: Path, *words: str, **settings: str) -> tuple[str, str]:
    """State and log of the batch job once it has ended."""
    cpus = min(2, os.cpu_count() or 1)
    given = ("--parsable", "--nodes=1", f"--cpus-per-task={cpus}", "--mem=2G")
    script = str(root / "deploy/slurm/sweep.sbatch")
    job = slurm.run("sbatch", *given, script, *words, **settings).strip()
    state = wait_until(lambda: _ended(slurm, job), seconds=900)
    return state, (slurm.folder / f"groktime-{job}.log").read_text()


def _ended(slurm: Slurm, job: str) -> str | None:
    state = slurm.state(job)
    return None if state in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING") else state


def test_a_batch_job_trains_the_suite(
    slurm: Slurm, root: Path, settings: dict[str, str], shared_database: Database
) -> None:
    state, log = submitted(slurm, root, str(SUITE), **settings)
    assert state == "COMPLETED", log
    assert f"{RUNS} runs trained" in log
    bundles = re.search(r"cpu: (\d+) bundles? at once", log)
    # A step that was not given its processors would offer one.
    assert bundles is not None, log
    assert int(bundles[1]) == min(2, os.cpu_count() or 1)
    done = "SELECT count(*) FROM runs WHERE state = 'done'"
    assert shared_database.scalar(done) == RUNS
    assert not list(Path("/tmp").glob("groktime-[0-9]*/session_latest"))


def test_a_batch_job_without_a_database_is_refused(
    slurm: Slurm, root: Path, settings: dict[str, str]
) -> None:
    without = settings | {"GROKTIME_DATABASE_URL": ""}
    state, log = submitted(slurm, root, str(SUITE), **without)
    assert state == "FAILED"
    assert "set GROKTIME_DATABASE_URL to a Postgres that every node reaches" in log
