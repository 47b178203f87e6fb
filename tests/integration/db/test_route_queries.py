"""What the routes ask of a filled database is found by indexes; the curve is never scanned."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fixtures.database import Database
from sqlalchemy import text

from benchmarks.paper_database import fill
from benchmarks.route_queries import curve_scans, explained, measure_queries
from groktime.db.maintenance import check

ROOT = Path(__file__).parents[3]
EPOCHS = 60_000  # enough for the planner to prefer an index


@pytest.fixture(scope="module")
def filled(shared_database: Database) -> tuple[Database, list[str]]:
    """The mini suite with made-up results, and what was told meanwhile."""
    told: list[str] = []
    fill(shared_database.engine, ("mini",), EPOCHS, told.append)
    return shared_database, told


@pytest.fixture(scope="module")
def measured(filled: tuple[Database, list[str]]) -> dict[str, Any]:
    with filled[0].reader().connect() as connection:
        return measure_queries(connection, "mini", 59)


def test_a_filled_database_is_sound_and_as_large_as_asked(
    filled: tuple[Database, list[str]],
) -> None:
    database, told = filled
    with database.engine.connect() as connection:
        report = check(connection)
    assert report.findings == []
    assert report.curve_rows == pytest.approx(EPOCHS, rel=0.1)
    assert f"{report.curve_rows:,} epochs written (100%), 0 s left" in told


def test_no_question_scans_the_curve(measured: dict[str, Any]) -> None:
    assert measured["curve_scans"] == 0
    scans = [scan for scans in measured["explain"].values() for scan in scans]
    assert not any(scan.startswith("Seq Scan on curve") for scan in scans)


@pytest.mark.parametrize("name", ["curve", "off_ladder"])
def test_epochs_are_found_by_the_curves_primary_key(measured: dict[str, Any], name: str) -> None:
    assert any("pk_curve" in scan for scan in measured["explain"][name])


@pytest.mark.parametrize(
    "name", ["revision", "crossing", "speeds", "delay", "whole_suite", "coverage"]
)
def test_questions_on_the_ladder_do_not_touch_the_curve(
    measured: dict[str, Any], name: str
) -> None:
    assert measured["explain"][name]
    assert not any("curve" in scan for scan in measured["explain"][name])


def test_a_scan_of_the_curve_would_be_noticed(filled: tuple[Database, list[str]]) -> None:
    query = "SELECT max(train_loss) FROM curve"
    with filled[0].engine.connect() as connection:
        connection.execute(text("SET max_parallel_workers_per_gather = 0"))
        assert explained(connection, query) == ["Seq Scan on curve"]
        before = curve_scans(connection)  # of this backend, not yet told to the server
        connection.execute(text(query))
        assert curve_scans(connection) == before + 1


@pytest.mark.long
def test_the_benchmark_prints_all_it_measures_and_tells_how_far_it_is() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "database.py"), "--quick", "--json"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)
    rates = {"ingest_rows_per_s", "executemany_rows_per_s", "writers_rows_per_s"}
    sizes = {"overhead_waiting", "runs", "curve_rows", "bytes_per_epoch"}
    asked = ("crossing", "speeds", "delay", "coverage", "curve", "off_ladder")
    assert rates | sizes | {f"{name}_ms" for name in asked} <= found.keys()
    assert found["ingest_rows_per_s"] > found["executemany_rows_per_s"]
    assert found["curve_scans"] == 0
    assert "s left" in done.stderr
