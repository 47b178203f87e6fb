"""A job of a noted sweep notes itself how it ends, whoever may still ask Ray about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures.database import Database

from groktime.db.sweeps import get_sweep, insert_sweep
from groktime.service.errors import SuiteError, SweepError
from groktime.service.settings import Settings
from groktime.service.suites import load_suite
from groktime.service.sweep.jobs import SWEEP_VARIABLE, submit_sweep, sweep_label, tracked
from groktime.service.sweep.selection import (
    LocatedSuite,
    PreparedSweep,
    Selection,
    SweepOptions,
    SweepReport,
    prepare,
)

NOBODY = "http://127.0.0.1:9"
PLAIN = "description: x\nprimes: [5]\nseeds: [1]\nspeed: {widths: [8]}\n"


@pytest.fixture
def number(database: Database, monkeypatch: pytest.MonkeyPatch) -> int:
    """A noted sweep whose job this process is."""
    with database.engine.begin() as connection:
        found = insert_sweep(connection, "demo", submitted_by="me")
        row = get_sweep(connection, found)
    assert row is not None
    monkeypatch.setenv(SWEEP_VARIABLE, sweep_label(row))
    return found


@pytest.fixture
def ending(
    database: Database,
) -> Callable[[SweepReport], Callable[[], tuple[PreparedSweep, SweepReport]]]:
    """Sweeps that end with the report given."""
    job = prepare(load_suite("demo"), database.engine, SweepOptions())
    return lambda report: lambda: (job, report)


def noted(database: Database, number: int) -> tuple[str, str | None]:
    with database.engine.connect() as connection:
        row = get_sweep(connection, number)
    assert row is not None
    return row.state, row.message


def test_a_sweep_that_ends_well_is_done(
    database: Database,
    number: int,
    ending: Callable[..., Callable[[], tuple[PreparedSweep, SweepReport]]],
) -> None:
    def sweep() -> tuple[PreparedSweep, SweepReport]:
        assert noted(database, number) == ("running", None)
        return ending(SweepReport(trained=2))()

    assert tracked(database.engine, sweep)[1].trained == 2
    assert noted(database, number) == ("done", None)


def test_a_sweep_with_failed_runs_has_failed(
    database: Database,
    number: int,
    ending: Callable[..., Callable[[], tuple[PreparedSweep, SweepReport]]],
) -> None:
    tracked(database.engine, ending(SweepReport(failed={1: "diverged", 2: "diverged"})))
    assert noted(database, number) == ("failed", "2 runs failed")


def test_a_sweep_that_cannot_go_on_says_why(database: Database, number: int) -> None:
    def sweep() -> tuple[PreparedSweep, SweepReport]:
        raise SweepError("no GPUs")

    with pytest.raises(SweepError):
        tracked(database.engine, sweep)
    assert noted(database, number) == ("failed", "no GPUs")


def test_a_sweep_that_is_interrupted_is_stopped(database: Database, number: int) -> None:
    def sweep() -> tuple[PreparedSweep, SweepReport]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tracked(database.engine, sweep)
    assert noted(database, number) == ("stopped", None)


def test_a_row_of_another_database_with_the_same_number_is_left_alone(
    database: Database,
    number: int,
    ending: Callable[..., Callable[[], tuple[PreparedSweep, SweepReport]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SWEEP_VARIABLE, f"{number}-{'0' * 16}")
    tracked(database.engine, ending(SweepReport(trained=2)))
    assert noted(database, number) == ("submitted", None)


def test_filters_that_a_located_suite_cannot_keep_to_are_not_noted(database: Database) -> None:
    options = SweepOptions(Selection(kinds=("grok",)))
    with pytest.raises(LocatedSuite):
        submit_sweep(database.engine, "dropout-two-cores", options, Settings(), NOBODY, by="me")
    assert database.scalar("SELECT count(*) FROM sweeps") == 0


def test_a_sweep_whose_files_cannot_travel_is_noted_as_failed(
    database: Database, tmp_path: Path
) -> None:
    donor, suite = tmp_path / "donor.yaml", tmp_path / "mine.yaml"
    donor.write_text(PLAIN)
    suite.write_text(PLAIN.replace("[1]", "[2]") + f"inherits: [{{suite: {donor}}}]\n")
    with pytest.raises(SuiteError, match="would lead elsewhere on the cluster"):
        submit_sweep(database.engine, str(suite), SweepOptions(), Settings(), NOBODY, by="me")
    assert database.scalar("SELECT state FROM sweeps") == "failed"
    assert "would lead elsewhere" in database.scalar("SELECT message FROM sweeps")
