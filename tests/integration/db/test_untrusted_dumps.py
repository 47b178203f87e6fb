"""A dump is somebody else's word: what it claims is checked before anything is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fixtures.curves import record_all
from fixtures.database import Database
from fixtures.dumps import Members, parts, sealed, with_manifest
from sqlalchemy import text

from groktime.db.claims import claim
from groktime.db.export import CURVE, MANIFEST, RUNS, dump_suite
from groktime.db.load import load_dump
from groktime.db.records import get_suite
from groktime.db.suites import freeze_suite, open_runs, register_suite
from groktime.service.errors import DumpError
from groktime.service.suites import Suite, load_suite
from groktime.service.suites.loader import check_stored

SUITE = """
description: two runs
positions: none
primes: [7]
seeds: [1]
stop: {max_epochs: 50}
speed: {widths: [8]}
grok: {widths: [8]}
"""


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    (tmp_path / "small.yaml").write_text(SUITE)
    return load_suite(tmp_path / "small.yaml")


@pytest.fixture
def members(database: Database, suite: Suite, tmp_path: Path) -> Members:
    """The parts of a good dump of a frozen suite."""
    engine = database.engine
    definition = (suite.name, suite.stored(), suite.digest, suite.runs())
    ids = open_runs(engine, register_suite(engine, *definition).suite_id)
    record_all(engine, claim(engine, list(ids.values()), "test", 60), epochs=30)
    freeze_suite(engine, suite.name)
    path = tmp_path / "small.dump"
    with engine.connect() as connection:
        dump_suite(connection, suite.name, path)
    return parts(path)


def tables(database: Database) -> list[Any]:
    with database.engine.connect() as connection:
        return [
            connection.scalars(text(f"SELECT t::text FROM {table} t")).all()
            for table in ("suites", "runs", "suite_runs", "attempts", "curve")
        ]


def refusal(database: Database, members: Members, folder: Path) -> str:
    """What is said of a dump that is refused, after which nothing has changed."""
    before = tables(database)
    with pytest.raises(DumpError) as refused:
        load_dump(database.engine, sealed(members, folder), check_stored)
    assert tables(database) == before
    said = str(refused.value)
    assert len(said.splitlines()) == 1
    assert said.isprintable()
    return said


def suite_of(members: Members) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(members[MANIFEST])["suite"]
    return found


@pytest.mark.parametrize(
    "name", ["../../..", "two\r\nlines", "\u202esdrawkcab", "a" * 100_000, "", ".hidden", None, 7]
)
def test_a_name_that_could_not_be_asked_for_is_refused(
    members: Members, other: Database, tmp_path: Path, name: object
) -> None:
    changed = with_manifest(members, suite=suite_of(members) | {"name": name})
    assert "suite.name" in refusal(other, changed, tmp_path)


@pytest.mark.parametrize(
    "spec",
    [[1, 2], None, {}, {"primes": "many"}, {"speed": {"widths": [8]}, "primes": [7], "x": 1}],
)
def test_a_spec_that_is_no_suite_is_refused(
    members: Members, other: Database, tmp_path: Path, spec: object
) -> None:
    changed = with_manifest(members, suite=suite_of(members) | {"spec": spec})
    assert "spec" in refusal(other, changed, tmp_path) or spec is not None


def test_a_spec_other_than_the_runs_is_refused(
    members: Members, other: Database, tmp_path: Path
) -> None:
    suite = suite_of(members)
    changed = with_manifest(members, suite=suite | {"spec": suite["spec"] | {"seeds": [2]}})
    assert "are not runs of this suite" in refusal(other, changed, tmp_path)


def test_a_hash_that_is_not_the_specs_is_refused(
    members: Members, other: Database, tmp_path: Path
) -> None:
    changed = with_manifest(members, suite=suite_of(members) | {"hash": "0" * 64})
    assert "hash" in refusal(other, changed, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"devices": "cpu"},
        {"devices": ["\u202ecpu"]},
        {"engines": ["x" * 1_000_000]},
        {"trained_until": "yesterday"},
        {"unknown": 1},
        {"git_commit": "a\u0000b"},
    ],
)
def test_how_it_was_made_is_text_that_can_be_shown(
    members: Members, other: Database, tmp_path: Path, change: dict[str, Any]
) -> None:
    recorded = json.loads(members[MANIFEST])["recorded"] | change
    (field,) = change
    assert field in refusal(other, with_manifest(members, recorded=recorded), tmp_path)


@pytest.mark.parametrize("device", ["a\u001b[2Jb", "\u202ecpu", "x" * 30_000])
def test_texts_of_runs_can_be_shown(
    members: Members, other: Database, tmp_path: Path, device: str
) -> None:
    lines = [json.loads(line) for line in members[RUNS].splitlines()]
    lines[0]["run"]["device"] = device
    changed = members | {RUNS: b"".join(json.dumps(line).encode() + b"\n" for line in lines)}
    assert "text" in refusal(other, changed, tmp_path)


IMPOSSIBLE_TIMES = [
    "0001-01-01T00:00:00+14:00",  # a year that Postgres keeps and Python cannot read
    "1969-12-31T23:59:59Z",
    "9999-12-31T00:00:00Z",
    "infinity",
    "4000-01-01 BC",
]


@pytest.mark.parametrize("time", IMPOSSIBLE_TIMES)
def test_a_time_that_no_clock_showed_is_refused(
    members: Members, other: Database, tmp_path: Path, time: str
) -> None:
    recorded = json.loads(members[MANIFEST])["recorded"] | {"trained_from": time}
    forecast = {"created_at": time, "spec": {}, "predictions": {}, "score": None}
    for field, change in {
        "frozen_at": {"frozen_at": time},
        "trained_from": {"recorded": recorded},
        "created_at": {"forecasts": [forecast]},
    }.items():
        assert field in refusal(other, with_manifest(members, **change), tmp_path)
    for part, field in (("run", "closed_at"), ("attempts", "ended_at")):
        lines = [json.loads(line) for line in members[RUNS].splitlines()]
        changed = lines[0][part][0] if part == "attempts" else lines[0][part]
        changed[field] = time
        runs = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        assert field in refusal(other, members | {RUNS: runs}, tmp_path)


def test_a_frozen_time_with_a_right_hash_is_kept_as_a_claim(
    members: Members, other: Database, tmp_path: Path
) -> None:
    load_dump(other.engine, sealed(members, tmp_path), check_stored)
    with other.engine.connect() as connection:
        loaded = get_suite(connection, "small")
    assert loaded.frozen_at is not None
    assert loaded.recorded is not None
    assert loaded.recorded["frozen"] == "claimed by the dump"


def test_a_frozen_time_whose_hash_cannot_be_told_is_not_believed(
    members: Members, other: Database, tmp_path: Path
) -> None:
    suite = suite_of(members)
    inherits = [{"suite": "/etc/passwd.yaml"}]
    changed = with_manifest(members, suite=suite | {"spec": suite["spec"] | {"inherits": inherits}})
    load_dump(other.engine, sealed(changed, tmp_path), check_stored)
    with other.engine.connect() as connection:
        loaded = get_suite(connection, "small")
    assert loaded.frozen_at is None
    assert loaded.recorded is not None
    assert "frozen" not in loaded.recorded


@pytest.mark.parametrize("part", [MANIFEST, RUNS, CURVE])
def test_a_part_that_would_unpack_to_too_much_is_not_unpacked(
    members: Members, other: Database, tmp_path: Path, part: str
) -> None:
    changed = members | {part: members[part] + b" " * (100 << 20)}
    assert f"{part} would unpack to" in refusal(other, changed, tmp_path)


def test_a_part_too_many_is_refused(members: Members, other: Database, tmp_path: Path) -> None:
    assert "exactly" in refusal(other, members | {"more": b""}, tmp_path)


@pytest.mark.parametrize("field", ["runs", "closed", "curve_rows"])
def test_counts_are_those_of_what_it_holds(
    members: Members, other: Database, tmp_path: Path, field: str
) -> None:
    for wrong in (0, -1, 10**12, 1.5, "1", None):
        refusal(other, with_manifest(members, **{field: wrong}), tmp_path)


def test_a_dump_does_not_overwrite_a_file_unless_told_to(
    members: Members, database: Database, tmp_path: Path
) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("precious")
    with database.engine.connect() as connection:
        with pytest.raises(DumpError, match="exists"):
            dump_suite(connection, "small", path)
        assert path.read_text() == "precious"
        dump_suite(connection, "small", path, overwrite=True)
    assert path.read_bytes().startswith(b"groktime-dump 1 ")


def test_a_frozen_time_in_the_future_is_refused(
    members: Members, other: Database, tmp_path: Path
) -> None:
    changed = with_manifest(members, frozen_at="9999-12-31T23:59:59+00:00")
    assert "frozen_at" in refusal(other, changed, tmp_path)


@pytest.mark.parametrize("words", ["\x1b]0;mine\x07", "\u202esdrawkcab"])
def test_a_description_that_a_terminal_would_act_on_is_refused(
    members: Members, other: Database, tmp_path: Path, words: str
) -> None:
    suite = suite_of(members)
    changed = with_manifest(members, suite=suite | {"spec": suite["spec"] | {"description": words}})
    assert "description" in refusal(other, changed, tmp_path)


def test_a_suite_that_locates_nothing_is_not_loaded_as_a_located_one(
    members: Members, other: Database, tmp_path: Path
) -> None:
    changed = with_manifest(members, suite=suite_of(members) | {"design": "locate"})
    assert "design" in refusal(other, changed, tmp_path)
