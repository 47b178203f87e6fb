"""A database of the first schema, with data in it, becomes one of today's."""

from __future__ import annotations

from fixtures.curves import record_all
from fixtures.database import Database
from fixtures.runs import claim_all, grok_spec, speed_spec
from sqlalchemy import text

from db.check import check
from db.engine import connect
from db.migrating import head, known_revisions, migrate
from db.queries.frames import Passage, runs_frame
from db.queries.suites import get_suite


def test_data_recorded_under_the_first_schema_survive_every_migration(
    empty_database: Database,
) -> None:
    engine = empty_database.engine
    migrate(engine, "0001")
    specs = [grok_spec(), speed_spec()]
    record_all(engine, claim_all(engine, specs))
    with engine.connect() as connection:
        before = connection.scalars(text("SELECT c::text FROM curve c ORDER BY 1")).all()
    for revision in sorted(known_revisions()):
        assert migrate(engine, revision) == revision
    upgraded = connect(empty_database.url)
    with upgraded.connect() as connection:
        assert connection.scalars(text("SELECT c::text FROM curve c ORDER BY 1")).all() == before
        suite = get_suite(connection, "little")
        frame = runs_frame(connection, suite.id, "grok", {"t_gen": Passage("val", 0.99)})
        assert frame["t_gen"].notna().all()
        assert check(connection).findings == []
        assert connection.scalar(text("SELECT count(*) FROM run_summary")) == 2
    upgraded.dispose()


def test_the_newest_schema_is_the_head() -> None:
    assert head() == max(known_revisions())
