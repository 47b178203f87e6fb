"""A database of any earlier schema, with data in it, becomes one of today's; old dumps load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from fixtures.database import Database
from sqlalchemy import Engine, text

from groktime.db.claims import claim
from groktime.db.engine import MIGRATIONS, connect, head, known_revisions, migrate
from groktime.db.frames import Passage, runs_frame
from groktime.db.load import load_dump
from groktime.db.maintenance import check
from groktime.db.records import get_suite
from groktime.db.suites import open_runs
from groktime.service.suites.loader import check_stored

# Written by the code of schema 0004: two runs done, one diverged, one given back.
FROZEN = Path(__file__).parents[2] / "fixtures" / "frozen"
TABLES = ("suites", "runs", "suite_runs", "attempts", "curve")


def fill(engine: Engine) -> None:
    """Put the frozen rows into a database of an earlier schema."""
    frozen = json.loads((FROZEN / "schema_0004.json").read_text())
    with engine.begin() as connection:
        for table in TABLES:
            connection.execute(
                text(
                    f"INSERT INTO {table} OVERRIDING SYSTEM VALUE SELECT * FROM "
                    f"jsonb_populate_recordset(NULL::{table}, CAST(:rows AS jsonb))"
                ),
                {"rows": json.dumps(frozen["tables"][table])},
            )


def states(engine: Engine) -> list[tuple[str, int]]:
    query = text("SELECT state, last_epoch FROM runs ORDER BY id")
    with engine.connect() as connection:
        return [(row.state, row.last_epoch) for row in connection.execute(query)]


@pytest.mark.parametrize("earlier", ["0001", "0004"])
def test_data_recorded_under_an_earlier_schema_survive_every_migration(
    empty_database: Database, earlier: str
) -> None:
    engine = empty_database.engine
    migrate(engine, earlier)
    fill(engine)
    with engine.connect() as connection:
        before = connection.scalars(text("SELECT c::text FROM curve c ORDER BY 1")).all()
    for revision in sorted(r for r in known_revisions() if r > earlier):
        assert migrate(engine, revision) == revision
    upgraded = connect(empty_database.url)
    assert states(upgraded) == [("done", 25), ("done", 25), ("failed", 20), ("pending", 0)]
    with upgraded.connect() as connection:
        assert connection.scalars(text("SELECT c::text FROM curve c ORDER BY 1")).all() == before
        suite = get_suite(connection, "frozen")
        assert suite.design == "grid"
        frame = runs_frame(connection, suite.id, "speed", {"t_mem": Passage("online", 0.9)})
        assert frame["t_mem"].notna().all()
        assert check(connection).findings == []
        assert connection.scalar(text("SELECT count(*) FROM run_summary")) == 4
        assert connection.scalar(text("SELECT sum(missing) FROM cell_summary")) == 1
    (open_id,) = open_runs(upgraded, suite.id).values()
    assert claim(upgraded, [open_id], "test", 60)[0].attempt == 2
    upgraded.dispose()


def test_a_dump_of_an_earlier_schema_loads(database: Database) -> None:
    loaded = load_dump(database.engine, FROZEN / "schema_0004.groktime", check_stored)
    assert (loaded.created, loaded.taken) == (4, 3)
    assert sorted(states(database.engine)) == [
        *(("done", 25), ("done", 25)),
        *(("failed", 20), ("pending", 0)),
    ]
    with database.engine.connect() as connection:
        assert check(connection).findings == []


def test_the_newest_schema_is_the_head() -> None:
    assert head() == max(known_revisions())


def test_the_files_are_numbered_as_their_migrations_are() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    assert head() == scripts.get_current_head()
    assert known_revisions() == {script.revision for script in scripts.walk_revisions()}
