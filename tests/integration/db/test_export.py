"""An export holds everything, exactly, and explains itself."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import psycopg2
import psycopg2.errors
import pyarrow.parquet as pq
import pytest
from fixtures.curves import extreme_curve, record_all, record_diverged
from fixtures.database import Database
from fixtures.runs import capacity_spec, claim_all, grok_spec, register, speed_spec
from sqlalchemy import text

from groktime.db.export import Format, export_suite
from groktime.service.errors import InputError, SuiteError

SPECS = [grok_spec(), speed_spec(), capacity_spec()]


@pytest.fixture
def recorded(database: Database) -> Database:
    record_all(database.engine, claim_all(database.engine, SPECS))
    register(database.engine, [*SPECS, grok_spec(seed=9)])
    return database


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_parquet_holds_runs_and_curves_exactly(recorded: Database, tmp_path: Path) -> None:
    with recorded.engine.connect() as connection:
        files = export_suite(connection, "little", tmp_path, curves=True)
        runs = connection.execute(text("SELECT * FROM runs ORDER BY id")).mappings().all()
        rows = connection.execute(text("SELECT * FROM curve ORDER BY run_id, epoch")).all()
    assert [file.name for file in files] == ["runs.parquet", "curves.parquet", "dictionary.json"]
    exported = pq.read_table(tmp_path / "runs.parquet").to_pylist()
    assert [run["key"] for run in exported] == [run["key"] for run in runs]
    for mine, theirs in zip(exported, runs, strict=True):
        assert json.loads(mine.pop("spec")) == theirs["spec"]
        assert not mine.pop("inherited")
        for name, value in mine.items():
            assert value == (
                pytest.approx(theirs[name], rel=1e-6) if isinstance(value, float) else theirs[name]
            ), name
    curves = pq.read_table(tmp_path / "curves.parquet")
    assert curves.column("epoch").to_pylist() == [row.epoch for row in rows]
    assert curves.column("val_correct").to_pylist() == [row.val_correct for row in rows]


def test_csv_holds_the_same_rows(recorded: Database, tmp_path: Path) -> None:
    with recorded.engine.connect() as connection:
        export_suite(connection, "little", tmp_path, file_format="csv", curves=True)
        count = connection.scalar(text("SELECT count(*) FROM curve"))
    with open(tmp_path / "curves.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == count
    assert rows[0]["epoch"] == "1"
    with open(tmp_path / "runs.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 4


def test_no_cell_is_run_by_a_spreadsheet(recorded: Database, tmp_path: Path) -> None:
    with recorded.engine.begin() as connection:
        connection.execute(text("UPDATE runs SET device = '=1+1', fingerprint = '-'"))
    with recorded.engine.connect() as connection:
        export_suite(connection, "little", tmp_path / "csv", file_format="csv")
        export_suite(connection, "little", tmp_path / "parquet")
    with open(tmp_path / "csv" / "runs.csv", newline="") as file:
        written = [(row["device"], row["fingerprint"]) for row in csv.DictReader(file)]
    assert set(written) == {("'=1+1", "-")}
    exact = pq.read_table(tmp_path / "parquet" / "runs.parquet").column("device").to_pylist()
    assert set(exact) == {"=1+1"}  # no spreadsheet opens it by itself


@pytest.mark.parametrize("file_format", ["parquet", "csv"])
def test_every_real_is_exported_bit_for_bit(
    database: Database, tmp_path: Path, file_format: Format
) -> None:
    (mine,) = claim_all(database.engine, [grok_spec()])
    record_diverged(database.engine, [mine])
    with database.engine.connect() as connection:
        export_suite(connection, "little", tmp_path, file_format=file_format, curves=True)
    if file_format == "csv":
        with open(tmp_path / "curves.csv", newline="") as file:
            table = list(csv.DictReader(file))
    else:
        table = pq.read_table(tmp_path / "curves.parquet").to_pylist()
    rows = extreme_curve(mine.spec)
    for name in ("train_loss", "val_loss", "weight_norm"):
        exported = np.array([float(row[name]) for row in table], np.float32)
        assert exported.view(np.int32).tolist() == rows[name].view(np.int32).tolist(), name


def test_the_dictionary_explains_every_column(recorded: Database, tmp_path: Path) -> None:
    with recorded.engine.connect() as connection:
        export_suite(connection, "little", tmp_path, curves=True)
    about = json.loads((tmp_path / "dictionary.json").read_text())
    for name in ("runs", "curves"):
        columns = pq.read_schema(tmp_path / f"{name}.parquet").names
        assert [entry["column"] for entry in about["tables"][name]] == columns
        assert all(entry["meaning"] for entry in about["tables"][name])


def test_an_empty_suite_exports_empty_tables(database: Database, tmp_path: Path) -> None:
    register(database.engine, [])
    with database.engine.connect() as connection:
        export_suite(connection, "little", tmp_path, curves=True)
    assert pq.read_table(tmp_path / "curves.parquet").num_rows == 0


def test_the_same_export_again_takes_the_place_of_the_first(
    recorded: Database, tmp_path: Path
) -> None:
    with recorded.engine.connect() as connection:
        export_suite(connection, "little", tmp_path)
    with recorded.engine.begin() as connection:
        connection.execute(text("UPDATE suites SET revision = revision + 1"))
        files = export_suite(connection, "little", tmp_path, curves=True)
        revision = connection.scalar(text("SELECT revision FROM suites"))
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert json.loads((tmp_path / "dictionary.json").read_text())["revision"] == revision


@pytest.mark.parametrize(
    ("suite", "options", "named"),
    [
        ("other", {"curves": True}, "curves.parquet, dictionary.json, runs.parquet"),
        ("little", {"curves": True, "file_format": "csv"}, "curves.parquet, runs.parquet"),
        ("little", {}, "curves.parquet"),
    ],
)
def test_a_folder_with_another_export_is_refused_and_left_as_it_is(
    recorded: Database, tmp_path: Path, suite: str, options: dict[str, Any], named: str
) -> None:
    register(recorded.engine, SPECS[:1], name="other")
    with recorded.engine.connect() as connection:
        export_suite(connection, "little", tmp_path, curves=True)
        before = contents(tmp_path)
        with pytest.raises(InputError, match=rf"another export \({named}\); accepted: an empty"):
            export_suite(connection, suite, tmp_path, **options)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["runs.parquet", "dictionary.json"])
@pytest.mark.parametrize("content", [b"mine", b"[1]", b'{"suite": 1}', b"\xff"])
def test_a_file_that_no_export_wrote_is_not_overwritten(
    recorded: Database, tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "notes.txt").write_text("what else is there does not matter")
    with recorded.engine.connect() as connection, pytest.raises(InputError, match=name):
        export_suite(connection, "little", tmp_path)
    assert (tmp_path / name).read_bytes() == content


def test_an_export_that_fails_leaves_the_earlier_one_whole(
    recorded: Database, tmp_path: Path
) -> None:
    with recorded.engine.connect() as connection:
        export_suite(connection, "little", tmp_path, curves=True)
    before = contents(tmp_path)
    with recorded.engine.begin() as connection:
        connection.execute(text("UPDATE suites SET revision = revision + 1"))
        connection.execute(text("UPDATE runs SET seconds = 7"))
        connection.execute(text("ALTER TABLE curve RENAME COLUMN bits TO gone"))
    with (
        recorded.engine.connect() as connection,
        pytest.raises(psycopg2.errors.UndefinedColumn),
    ):
        export_suite(connection, "little", tmp_path, curves=True)
    assert contents(tmp_path) == before


def test_an_export_to_what_is_no_folder_is_refused(recorded: Database, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with recorded.engine.connect() as connection:
        for target in (tmp_path / "file", tmp_path / "file" / "below"):
            with pytest.raises(InputError, match=r"--to .*file.*accepted: a folder"):
                export_suite(connection, "little", target)


def test_an_export_of_what_does_not_exist_is_refused(database: Database, tmp_path: Path) -> None:
    with database.engine.connect() as connection:
        with pytest.raises(SuiteError, match="'nowhere'"):
            export_suite(connection, "nowhere", tmp_path)
        register(database.engine, [])
        with pytest.raises(InputError, match="format: 'xls' is not accepted; parquet or csv"):
            export_suite(connection, "little", tmp_path, file_format="xls")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "escaped/../.."])
def test_a_suites_name_is_no_part_of_a_path(recorded: Database, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "export"
    with recorded.engine.begin() as connection:
        connection.execute(text("UPDATE suites SET name = :name"), {"name": name})
        files = export_suite(connection, name, folder)
    assert sorted(folder.iterdir()) == sorted(files)
    assert list(tmp_path.iterdir()) == [folder]
