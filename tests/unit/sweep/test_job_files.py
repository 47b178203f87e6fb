"""A suite file that is submitted takes along the files it inherits from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from groktime.service.errors import SuiteError
from groktime.service.settings import Settings
from groktime.service.suites import load_suite
from groktime.service.sweep import jobs
from groktime.service.sweep.jobs import copy_suite_files, submit_job
from groktime.service.sweep.selection import SweepOptions

PLAIN = "description: x\nprimes: [5]\nseeds: [{}]\nspeed: {{widths: [8]}}\n"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a suite of one run under the folder `here`, inheriting from these."""
    count = 0

    def write_suite(name: str, *donors: str) -> Path:
        nonlocal count
        count += 1
        path = tmp_path / "here" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        inherits = ", ".join(f"{{suite: {donor}}}" for donor in donors)
        path.write_text(PLAIN.format(count) + f"inherits: [{inherits}]\n")
        return path

    return write_suite


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder, as a job's working directory is."""
    path = tmp_path / "job"
    path.mkdir()
    return path


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*.yaml")}


def test_a_suite_by_itself_lies_at_the_top_of_its_job(write: Write, folder: Path) -> None:
    suite = load_suite(write("mine.yaml", "demo"))
    assert copy_suite_files(suite, folder) == Path("mine.yaml")
    assert files(folder) == {"mine.yaml"}


def test_donors_and_their_donors_are_found_from_the_copy(write: Write, folder: Path) -> None:
    write("donors/far/base.yaml", "central")
    write("donors/between.yaml", "far/../far/base.yaml")
    mine = write("suites/mine.yaml", "../donors/between.yaml", "central")
    suite = load_suite(mine)
    taken = copy_suite_files(suite, folder)
    assert taken == Path("suites/mine.yaml")
    assert files(folder) == {"suites/mine.yaml", "donors/between.yaml", "donors/far/base.yaml"}
    mine.parent.parent.rename(folder.parent / "gone")  # the other machine has the copy alone
    assert load_suite(folder / taken).digest == suite.digest


def test_a_donor_elsewhere_on_the_other_machine_is_refused(write: Write, folder: Path) -> None:
    base = write("base.yaml")
    mine = write("mine.yaml", str(base))
    with pytest.raises(SuiteError, match=r"mine\.yaml, line 5: inherits\[0\]\.suite: .*accepted"):
        copy_suite_files(load_suite(mine), folder)
    link = mine.parent / "link"
    link.symlink_to(mine.parent / "deep" / "er")
    write("deep/er/beside.yaml", "../base.yaml")
    write("deep/base.yaml")
    linked = write("linked.yaml", "link/beside.yaml")
    with pytest.raises(SuiteError, match="goes through no link"):
        copy_suite_files(load_suite(linked), folder)


def test_a_path_that_climbs_above_all_its_files_is_refused(write: Write, folder: Path) -> None:
    base = write("base.yaml")
    above = "../" * 30 + str(base).lstrip("/")
    with pytest.raises(SuiteError, match="would lead elsewhere"):
        copy_suite_files(load_suite(write("mine.yaml", above)), folder)


class Taking:
    """A cluster that takes jobs and looks at what comes along."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []

    def submit_job(self, **job: Any) -> str:
        folder = job["runtime_env"].get("working_dir")
        self.jobs.append({**job, "files": files(Path(folder)) if folder else set()})
        return "job"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Taking:
    taking = Taking()

    @contextmanager
    def asking(address: str) -> Iterator[Taking]:
        yield taking

    monkeypatch.setattr(jobs, "jobs_client", asking)
    return taking


def test_a_submitted_file_comes_with_its_donors(write: Write, cluster: Taking) -> None:
    write("given/base.yaml")
    mine = write("work/mine.yaml", "../given/base.yaml")
    submit_job(str(mine), SweepOptions(), Settings(), "http://head:8265")
    submit_job("demo", SweepOptions(), Settings(), "http://head:8265")
    own, shipped = cluster.jobs
    assert own["entrypoint"] == "groktime sweep ./work/mine.yaml"
    assert own["files"] == {"given/base.yaml", "work/mine.yaml"}
    assert shipped["entrypoint"] == "groktime sweep demo"
    assert "working_dir" not in shipped["runtime_env"]


def test_nothing_is_submitted_when_a_donor_is_missing(write: Write, cluster: Taking) -> None:
    mine = write("mine.yaml", "gone.yaml")
    with pytest.raises(SuiteError, match=r"line 5: inherits\[0\]\.suite: .*gone\.yaml: No such"):
        submit_job(str(mine), SweepOptions(), Settings(), "http://head:8265")
    assert cluster.jobs == []
