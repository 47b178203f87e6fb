"""The schema explains itself, its migrations lead to it, and another one is refused."""

from __future__ import annotations

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from fixtures.database import Database
from fixtures.runs import grok_spec, register
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from groktime.db.engine import connect, current, head, migrate, require_current
from groktime.db.schema import SPEC_COLUMNS, Table
from groktime.service.errors import SchemaError
from groktime.service.spec import ModelSpec, ModularData, RunSpec, ThresholdStop

COLUMNS = ", ".join(SPEC_COLUMNS)

UNCOMMENTED = """
SELECT c.relname || coalesce('.' || a.attname, '')
FROM pg_class c
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v')
    AND c.relname <> 'alembic_version'
    AND (obj_description(c.oid, 'pg_class') IS NULL OR col_description(c.oid, a.attnum) IS NULL)
"""


@pytest.fixture(scope="module")
def suite_database(shared_database: Database) -> Database:
    """A suite of one pending run, which no test changes."""
    register(shared_database.engine, [grok_spec()])
    return shared_database


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


@pytest.mark.parametrize(
    ("statement", "refusal"),
    [
        ("UPDATE runs SET state = 'lost'", "ck_runs_state"),
        ("UPDATE runs SET state = 'running'", "ck_runs_lease"),
        ("UPDATE runs SET owner = 'me'", "ck_runs_lease"),
        ("UPDATE runs SET state = 'done'", "ck_runs_closed"),
        ("UPDATE runs SET state = 'failed', closed_at = now()", "ck_runs_reason"),
        ("UPDATE runs SET state = 'set_aside'", "ck_runs_closed"),
        ("UPDATE runs SET state = 'set_aside', closed_at = now()", "ck_runs_set_aside"),
        (
            "UPDATE runs SET state = 'done', closed_at = now(), set_aside_epoch = 0",
            "ck_runs_set_aside",
        ),
        ("UPDATE suites SET design = 'other'", "ck_suites_design"),
        ("UPDATE runs SET last_epoch = max_epochs + 1", "ck_runs_last_epoch"),
        ("UPDATE runs SET first_online = ARRAY[1]", "ck_runs_ladder"),
        ("UPDATE runs SET key = 'short'", "ck_runs_key"),
        ("UPDATE runs SET kind = 'other'", "ck_runs_kind"),
        ("UPDATE runs SET n_train = 0", "ck_runs_examples"),
        ("UPDATE runs SET params = 0", "ck_runs_size"),
        ("UPDATE runs SET attempt = -1", "ck_runs_attempt"),
        (
            f"INSERT INTO runs (key, spec, {COLUMNS}) SELECT key, spec, {COLUMNS} FROM runs",
            "uq_runs_key",
        ),
        (
            "INSERT INTO suites (name, spec, hash) SELECT name, spec, hash FROM suites",
            "uq_suites_name",
        ),
        ("UPDATE suites SET name = ''", "ck_suites_name"),
        ("UPDATE suites SET revision = -1", "ck_suites_revision"),
        ("UPDATE suite_runs SET run_id = 99", "fk_suite_runs_run_id"),
        ("UPDATE suite_runs SET suite_id = 99", "fk_suite_runs_suite_id"),
        (
            "INSERT INTO attempts (run_id, attempt, owner, host) VALUES (99, 1, 'me', 'here')",
            "fk_attempts_run_id",
        ),
        (
            "INSERT INTO attempts (run_id, attempt, owner, host, state) "
            "SELECT id, 1, 'me', 'here', 'done' FROM runs",
            "ck_attempts_ended",
        ),
        ("INSERT INTO curve (run_id, epoch) VALUES (1, 1), (1, 1)", "pk_curve"),
    ],
)
def test_the_database_itself_refuses_what_cannot_be(
    suite_database: Database, statement: str, refusal: str
) -> None:
    with suite_database.engine.connect() as connection, pytest.raises(DBAPIError, match=refusal):
        connection.execute(text(statement))


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
