"""Runs the migrations on the connection that db.engine passes; there is no alembic.ini."""

from __future__ import annotations

from alembic import context

from groktime.db.schema import Table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    compare_server_default=True,
)
with context.begin_transaction():
    context.run_migrations()
