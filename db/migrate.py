"""Bringing a database to this code's schema, granting the roles, refusing other schemas."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, text

from groktime.service.errors import SchemaError

if TYPE_CHECKING:
    from alembic.config import Config

log = logging.getLogger(__name__)

READER = "groktime_reader"
WRITER = "groktime_writer"

GRANTS = {
    READER: (
        "GRANT USAGE ON SCHEMA {schema} TO {role}",
        "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
    ),
    WRITER: (
        "GRANT USAGE ON SCHEMA {schema} TO {role}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
        # The schema is the owner's to change.
        "REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM {role}",
    ),
}


def grant(connection: Connection) -> list[str]:
    """Grant each existing role its rights; returns the roles that do not exist, and says so."""
    existing = set(connection.scalars(text("SELECT rolname FROM pg_roles")))
    schema = connection.scalar(text("SELECT quote_ident(current_schema())"))
    missing = []
    for role, statements in GRANTS.items():
        if role not in existing:
            missing.append(role)
            continue
        for statement in statements:
            connection.execute(text(statement.format(schema=schema, role=role)))
    if missing:
        log.warning(
            "this login may not create roles and %s does not exist: ask an administrator for "
            "CREATE ROLE, then run `groktime db migrate` again",
            ", ".join(missing),
        )
    return missing


# Any number nobody else takes an advisory lock with.
MIGRATION_LOCK = 0x67726F6B  # "grok"


MIGRATIONS = Path(__file__).parent / "migrations"


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return config


def head() -> str:
    """The newest schema this code knows."""
    return max(known_revisions())


def current(connection: Connection) -> str | None:
    """The database's schema; None when it is empty."""
    there = text("SELECT to_regclass('alembic_version') IS NOT NULL")
    if not connection.scalar(there):
        return None
    revision: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return revision


def known_revisions() -> set[str]:
    """All schemas this code can upgrade from, and its own: the numbers the files begin with.

    Alembic, which takes a quarter of a second to import, is needed only to change a schema.
    """
    return {path.name[:4] for path in (MIGRATIONS / "versions").glob("[0-9]*.py")}


def require_current(engine: Engine) -> None:
    """Refuse a schema older or newer than this code's, saying what to do."""
    with engine.connect() as connection:
        revision = current(connection)
    if revision == head():
        return
    if revision is None:
        raise SchemaError("the database has no groktime tables yet: run `groktime db migrate`")
    if revision in known_revisions():
        raise SchemaError(
            f"the database's schema {revision} is older than this groktime's {head()}: "
            "run `groktime db migrate`"
        )
    raise SchemaError(_newer(revision))


def _newer(revision: str) -> str:
    return (
        f"the database's schema {revision} is newer than this groktime's {head()}: "
        "install the groktime that made it, or a later one"
    )


def migrate(engine: Engine, to: str = "head") -> str:
    """Upgrade in one transaction; processes that migrate at once wait for each other."""
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
        revision = current(connection)
        if revision is not None and revision not in known_revisions():
            raise SchemaError(_newer(revision))
        from alembic import command

        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, to)
        reached = current(connection)
        grant(connection)
    assert reached is not None
    return reached
