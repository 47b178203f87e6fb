"""Roles groktime_reader and groktime_writer: group roles that logins are granted."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# The roles belong to the server, not to the database: another database's migration may have made
# them, at this very moment even, and the right to make them may be missing. What they may do here
# is granted after every migration (db/engine.py), so that it covers tables made later.
CREATE_ROLE = """
DO $$
BEGIN
    CREATE ROLE {role} NOLOGIN;
EXCEPTION
    WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL;
END $$
"""


def upgrade() -> None:
    """Create what may be created."""
    for role in ("groktime_reader", "groktime_writer"):
        op.execute(CREATE_ROLE.format(role=role))
