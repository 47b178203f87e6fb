"""What the roles groktime_reader and groktime_writer may do in this database."""

from __future__ import annotations

import logging

from sqlalchemy import Connection, text

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
