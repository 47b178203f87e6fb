"""A dump carries a suite into another database whole, once, or not at all."""

from __future__ import annotations

import json
import random
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from fixtures.curves import record_all, record_diverged
from fixtures.database import Database
from fixtures.runs import capacity_spec, check_listed, claim_all, grok_spec, register, speed_spec
from sqlalchemy import text

from groktime.db.claims import claim, release
from groktime.db.export import MANIFEST, Dumped, dump_suite, opened, seal
from groktime.db.load import lacking, load_dump
from groktime.db.maintenance import check
from groktime.db.records import get_suite
from groktime.db.suites import insert_forecast, list_forecasts, open_runs, score_forecast
from groktime.service.errors import DumpError, SuiteError

SPECS = [grok_spec(seed=1), grok_spec(seed=2), speed_spec(), capacity_spec()]
RESULTS = "key, state, reason, last_epoch, thinned, first_online, first_eval, first_val, bits"
RESULTS += ", final_val_loss, best_train_loss, device, closed_at"


@pytest.fixture
def recorded(database: Database) -> Database:
    record_all(database.engine, claim_all(database.engine, SPECS), epochs=200)
    register(database.engine, [*SPECS, grok_spec(seed=9)])
    return database


def write_dump(
    database: Database, path: Path, *, dense: int | None = None, zone: str = "UTC"
) -> Dumped:
    engine = database.engine.execution_options(isolation_level="REPEATABLE READ")
    with engine.connect() as connection:
        connection.execute(text(f"SET LOCAL TIME ZONE '{zone}'"))
        return dump_suite(connection, "little", path, dense=dense)


def made(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        found: dict[str, Any] = json.loads(archive.read(MANIFEST))["recorded"]
    return found


def results(database: Database) -> list[Any]:
    with database.engine.connect() as connection:
        return connection.execute(text(f"SELECT {RESULTS} FROM runs ORDER BY key")).all()


def curves(database: Database) -> list[Any]:
    query = "SELECT r.key, c.* FROM curve c JOIN runs r ON r.id = c.run_id ORDER BY r.key, c.epoch"
    with database.engine.connect() as connection:
        rows = connection.execute(text(query)).all()
    return [(row.key, *row[2:]) for row in rows]


def everything(database: Database) -> list[Any]:
    """All tables as text, to find any change at all."""
    found = []
    with database.engine.connect() as connection:
        for table in ("suites", "runs", "suite_runs", "attempts", "curve", "forecasts"):
            rows = connection.scalars(text(f"SELECT t::text FROM {table} t ORDER BY t::text"))
            found.append(rows.all())
    return found


def is_sound(database: Database) -> bool:
    with database.engine.connect() as connection:
        return check(connection).findings == []


def test_a_loaded_suite_equals_the_dumped_one(
    recorded: Database, other: Database, tmp_path: Path
) -> None:
    dumped = write_dump(recorded, tmp_path / "little.dump")
    assert (dumped.runs, dumped.closed, dumped.curve_rows) == (5, 4, 800)
    loaded = load_dump(other.engine, tmp_path / "little.dump", check_listed)
    assert (loaded.created, loaded.taken, loaded.curve_rows) == (5, 4, 800)
    assert results(other) == results(recorded)
    assert curves(other) == curves(recorded)
    assert is_sound(other)
    with other.engine.connect() as connection:
        suite = get_suite(connection, "little")
    assert suite.recorded is not None
    assert suite.recorded["devices"] == ["cpu"]


def test_forecasts_travel_with_their_time_and_are_said_to_be_the_dumps(
    recorded: Database, other: Database, tmp_path: Path
) -> None:
    file = tmp_path / "little.dump"
    with recorded.engine.begin() as connection:
        suite_id = get_suite(connection, "little").id
        insert_forecast(connection, suite_id, {"why": "first"}, {"p_cross": 1e5})
        number = insert_forecast(connection, suite_id, {"why": "second"}, {"p_cross": 2e5})
        score_forecast(connection, number, {"error": 0.1})
        here = list_forecasts(connection, suite_id)
    write_dump(recorded, file)
    for _ in range(2):
        load_dump(other.engine, file, check_listed)
    with other.engine.connect() as connection:
        there = list_forecasts(connection, get_suite(connection, "little").id)
    said = [(f.created_at, f.predictions, f.score) for f in there]
    assert said == [(f.created_at, f.predictions, f.score) for f in here]
    assert [f.spec for f in there] == [{**f.spec, "claimed": "by the dump"} for f in here]


def test_reals_and_attempts_travel_unchanged(
    database: Database, other: Database, tmp_path: Path
) -> None:
    record_diverged(database.engine, claim_all(database.engine, [grok_spec(), speed_spec()]))
    write_dump(database, tmp_path / "little.dump")
    load_dump(other.engine, tmp_path / "little.dump", check_listed)
    queries = (
        "SELECT key, state, reason, float4send(final_train_loss), float4send(best_train_loss) "
        "FROM runs ORDER BY key",
        "SELECT r.key, epoch, float4send(train_loss), float4send(val_loss), "
        "float4send(c.weight_norm) FROM curve c JOIN runs r ON r.id = c.run_id ORDER BY 1, 2",
        "SELECT r.key, to_jsonb(a) - 'run_id' FROM attempts a JOIN runs r ON r.id = a.run_id "
        "ORDER BY 1",
    )
    for query in queries:
        there, here = (_rows(found, query) for found in (database, other))
        assert here == there != []


def _rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    with database.engine.connect() as connection:
        rows = connection.execute(text(query)).all()
    return [tuple(bytes(v) if isinstance(v, memoryview) else v for v in row) for row in rows]


def test_loading_again_changes_nothing(recorded: Database, other: Database, tmp_path: Path) -> None:
    write_dump(recorded, tmp_path / "little.dump")
    load_dump(other.engine, tmp_path / "little.dump", check_listed)
    before = everything(other)
    again = load_dump(other.engine, tmp_path / "little.dump", check_listed)
    assert (again.created, again.taken) == (0, 0)
    assert everything(other) == before


def test_loading_into_the_database_it_came_from_changes_nothing(
    recorded: Database, tmp_path: Path
) -> None:
    write_dump(recorded, tmp_path / "little.dump")
    before = everything(recorded)
    load_dump(recorded.engine, tmp_path / "little.dump", check_listed)
    assert everything(recorded) == before


def test_runs_merge_by_key_and_what_is_done_here_stays(
    recorded: Database, other: Database, tmp_path: Path
) -> None:
    write_dump(recorded, tmp_path / "little.dump")
    claimed = claim_all(other.engine, [SPECS[0], SPECS[1], SPECS[2]], name="mine")
    record_all(other.engine, claimed[:1], epochs=10)  # done here
    release(other.engine, claimed[1:2], "crashed")  # waiting here, tried once
    # The third is being trained here.
    loaded = load_dump(other.engine, tmp_path / "little.dump", check_listed)
    assert loaded.taken == 2
    found = {row.key: row for row in results(other)}
    assert found[SPECS[0].key].last_epoch == 10
    assert found[SPECS[1].key].last_epoch == 200
    assert found[SPECS[2].key].state == "running"
    assert is_sound(other)


def test_an_open_run_of_a_dump_can_be_trained_where_it_was_loaded(
    recorded: Database, other: Database, tmp_path: Path
) -> None:
    write_dump(recorded, tmp_path / "little.dump")
    load_dump(other.engine, tmp_path / "little.dump", check_listed)
    with other.engine.connect() as connection:
        suite = get_suite(connection, "little").id
    ((key, run_id),) = open_runs(other.engine, suite).items()
    assert key == grok_spec(seed=9).key
    assert claim(other.engine, [run_id], "here", 60)[0].attempt == 1


def test_a_suite_trained_further_is_dated_anew(
    recorded: Database, other: Database, tmp_path: Path
) -> None:
    write_dump(recorded, tmp_path / "little.dump", dense=5)
    load_dump(other.engine, tmp_path / "little.dump", check_listed)
    write_dump(other, tmp_path / "same.dump")
    assert made(tmp_path / "same.dump") == made(tmp_path / "little.dump")
    record_all(other.engine, claim_all(other.engine, [grok_spec(seed=9)]), epochs=10)
    write_dump(other, tmp_path / "more.dump")
    first, second = made(tmp_path / "little.dump"), made(tmp_path / "more.dump")
    until = datetime.fromisoformat(second["trained_until"])
    assert until > datetime.fromisoformat(first["trained_until"])
    # The dump is dated to the second.
    assert datetime.fromisoformat(second["dumped_at"]) >= until.replace(microsecond=0)
    assert second["thinning"] == first["thinning"]  # the curves that were thinned still are


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_the_zone_of_a_session_neither_dates_a_suite_nor_makes_it_new(
    recorded: Database, other: Database, tmp_path: Path, zone: str
) -> None:
    write_dump(recorded, tmp_path / "little.dump", zone=zone)
    first = made(tmp_path / "little.dump")
    assert first["trained_from"].endswith("+00:00")
    assert first["trained_until"].endswith("+00:00")
    load_dump(other.engine, tmp_path / "little.dump", check_listed)
    write_dump(other, tmp_path / "same.dump", zone=zone)
    assert made(tmp_path / "same.dump") == first


def test_a_date_written_in_another_zone_is_the_same(
    recorded: Database, other: Database, tmp_path: Path
) -> None:
    write_dump(recorded, tmp_path / "little.dump")
    load_dump(other.engine, tmp_path / "little.dump", check_listed)
    until = datetime.fromisoformat(made(tmp_path / "little.dump")["trained_until"])
    elsewhere = until.astimezone(ZoneInfo("Asia/Tokyo")).isoformat()
    change = "UPDATE suites SET recorded = recorded || jsonb_build_object('trained_until', :until)"
    with other.engine.begin() as connection:
        connection.execute(text(change), {"until": elsewhere})
    write_dump(other, tmp_path / "same.dump")
    assert made(tmp_path / "same.dump")["trained_until"] == elsewhere  # what was recorded is kept


def test_a_thinned_dump_is_smaller_and_has_exact_passages(
    recorded: Database, other: Database, tmp_path: Path
) -> None:
    whole = write_dump(recorded, tmp_path / "whole.dump")
    thin = write_dump(recorded, tmp_path / "thin.dump", dense=5)
    assert thin.curve_rows < whole.curve_rows / 2
    load_dump(other.engine, tmp_path / "thin.dump", check_listed)
    passages = "SELECT key, first_online, first_eval, first_val FROM runs ORDER BY key"
    with recorded.engine.connect() as one, other.engine.connect() as two:
        assert one.execute(text(passages)).all() == two.execute(text(passages)).all()
        recorded_as = get_suite(two, "little").recorded
    assert recorded_as is not None
    assert "First passages are exact" in recorded_as["thinning"]
    assert set(curves(other)) < set(curves(recorded))
    assert is_sound(other)


def test_a_loaded_suite_that_is_dumped_thinner_says_so(
    recorded: Database, other: Database, tmp_path: Path
) -> None:
    write_dump(recorded, tmp_path / "whole.dump")
    load_dump(other.engine, tmp_path / "whole.dump", check_listed)
    write_dump(other, tmp_path / "thin.dump", dense=5)
    with opened(tmp_path / "thin.dump") as archive:
        made = json.loads(archive.read(MANIFEST))["recorded"]
    assert "First passages are exact" in made["thinning"]
    assert made["devices"] == ["cpu"]


def test_a_dump_of_own_runs_leaves_the_others_to_their_suites_dump(
    database: Database, other: Database, tmp_path: Path
) -> None:
    record_all(database.engine, claim_all(database.engine, SPECS[:2], name="donor"), epochs=20)
    record_all(database.engine, claim_all(database.engine, SPECS[2:], name="heir"), epochs=20)
    register(database.engine, SPECS[2:], name="heir", inherited=SPECS[:2])
    engine = database.engine.execution_options(isolation_level="REPEATABLE READ")
    with engine.connect() as connection:
        dump_suite(connection, "donor", tmp_path / "donor.dump")
        own = dump_suite(connection, "heir", tmp_path / "heir.dump", own=True)
        whole = dump_suite(connection, "heir", tmp_path / "whole.dump")
    assert (own.runs, own.closed, own.curve_rows) == (4, 2, 40)
    assert (whole.runs, whole.closed, whole.curve_rows) == (4, 4, 80)
    load_dump(other.engine, tmp_path / "heir.dump", check_listed)
    with other.engine.connect() as connection:
        assert lacking(connection, ["heir", "donor"]) == [("heir", 2)]
    load_dump(other.engine, tmp_path / "donor.dump", check_listed)
    with other.engine.connect() as connection:
        assert lacking(connection, ["heir", "donor"]) == []
    assert results(other) == results(database)
    assert curves(other) == curves(database)
    assert is_sound(other)


def test_another_suite_of_the_same_name_is_refused(
    recorded: Database, other: Database, tmp_path: Path
) -> None:
    write_dump(recorded, tmp_path / "little.dump")
    register(other.engine, [capacity_spec(n=50)])
    before = everything(other)
    with pytest.raises(SuiteError, match="different suites of one name"):
        load_dump(other.engine, tmp_path / "little.dump", check_listed)
    assert everything(other) == before


def test_a_newer_format_is_refused(other: Database, tmp_path: Path) -> None:
    path = tmp_path / "future.dump"
    path.write_bytes(b"groktime-dump 99 sha256=" + b"0" * 64 + b"\n")
    with pytest.raises(DumpError, match="format 99, newer than 1"):
        load_dump(other.engine, path, check_listed)


def test_a_dump_from_a_newer_schema_is_refused_and_changes_nothing(
    recorded: Database, other: Database, tmp_path: Path
) -> None:
    path, newer = tmp_path / "little.dump", tmp_path / "newer.dump"
    write_dump(recorded, path)
    with opened(path) as archive, zipfile.ZipFile(tmp_path / "archive", "w") as changed:
        for name in archive.namelist():
            content = archive.read(name)
            if name == MANIFEST:
                content = json.dumps(json.loads(content) | {"schema": "9999"}).encode()
            changed.writestr(name, content)
    seal(tmp_path / "archive", newer)
    before = everything(other)
    with pytest.raises(DumpError, match=r"schema '9999', which this groktime does not know"):
        load_dump(other.engine, newer, check_listed)
    assert everything(other) == before


@pytest.mark.parametrize("content", [b"", b"hello\n", b"groktime-dump 1 sha256=zz\n"])
def test_what_is_no_dump_is_refused(other: Database, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "no.dump"
    path.write_bytes(content)
    with pytest.raises(DumpError, match="not a dump of groktime"):
        load_dump(other.engine, path, check_listed)
    with pytest.raises(DumpError, match="does not exist"):
        load_dump(other.engine, tmp_path / "nowhere", check_listed)


def test_a_damaged_file_is_refused_and_changes_nothing(
    recorded: Database, other: Database, tmp_path: Path
) -> None:
    path = tmp_path / "little.dump"
    write_dump(recorded, path)
    whole = path.read_bytes()
    before = everything(other)
    rng = random.Random(1)
    for number in range(40):
        damaged = bytearray(whole)
        if number % 4 == 0:
            del damaged[rng.randrange(len(damaged)) :]
        else:
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(damaged))
        with pytest.raises(DumpError):
            load_dump(other.engine, path, check_listed)
    assert everything(other) == before
