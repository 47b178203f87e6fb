"""The schema explains itself, its migrations lead to it, and another one is refused."""

from __future__ import annotations

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from fixtures.database import Database
from sqlalchemy import text

from db.engine import connect
from db.migrating import current, head, migrate, require_current
from db.schema import SPEC_COLUMNS, Table
from service.errors import SchemaError
from service.spec import ModelSpec, ModularData, RunSpec, ThresholdStop

UNCOMMENTED = """
SELECT c.relname || coalesce('.' || a.attname, '')
FROM pg_class c
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v')
    AND c.relname <> 'alembic_version'
    AND (obj_description(c.oid, 'pg_class') IS NULL OR col_description(c.oid, a.attnum) IS NULL)
"""


def test_every_table_view_and_column_has_a_comment(database: Database) -> None:
    with database.engine.connect() as connection:
        assert connection.scalars(text(UNCOMMENTED)).all() == []


def test_migrations_lead_to_the_models(database: Database) -> None:
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, Table.metadata) == []


def test_runs_have_a_column_for_everything_a_spec_flattens_into() -> None:
    spec = RunSpec(
        kind="grok",
        data=ModularData(prime=7),
        model=ModelSpec(width=8),
        stop=ThresholdStop(val=0.99),
        seed=1,
    )
    assert set(SPEC_COLUMNS) == set(spec.columns())


def test_a_database_without_tables_is_refused_with_the_command_to_run(
    empty_database: Database,
) -> None:
    with pytest.raises(SchemaError, match="groktime db migrate"):
        connect(empty_database.url)


def test_an_older_schema_is_refused_with_the_command_to_run(empty_database: Database) -> None:
    migrate(empty_database.engine, "0001")
    with pytest.raises(SchemaError, match=r"0001 is older .*groktime db migrate"):
        connect(empty_database.url)


def test_a_newer_schema_is_refused_and_left_alone(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(SchemaError, match=r"9999 is newer .* install"):
        require_current(database.engine)
    with pytest.raises(SchemaError, match="9999 is newer"):
        migrate(database.engine)
    with database.engine.connect() as connection:
        assert current(connection) == "9999"


def test_migrating_twice_changes_nothing(database: Database) -> None:
    assert migrate(database.engine) == head()
    require_current(database.engine)
