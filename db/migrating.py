"""Bringing a database to this code's schema, and refusing to work on another."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from db.roles import grant
from service.errors import SchemaError

# Any number nobody else takes an advisory lock with.
MIGRATION_LOCK = 0x67726F6B  # "grok"


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def head() -> str:
    """The newest schema this code knows."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    assert revision is not None
    return revision


def current(connection: Connection) -> str | None:
    """The database's schema; None when it is empty."""
    return MigrationContext.configure(connection).get_current_revision()


def known_revisions() -> set[str]:
    """All schemas this code can upgrade from, and its own."""
    return {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


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
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, to)
        reached = current(connection)
        grant(connection)
    assert reached is not None
    return reached
