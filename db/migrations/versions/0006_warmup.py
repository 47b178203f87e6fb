"""Steps over which the learning rate warms up; earlier runs have none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

COMMENT = "first steps, over which lr rises from 0, linearly"

# What ends the columns of each view, in PostgreSQL's own text of it.
VIEWS = {"run_summary": "\n   FROM runs r", "cell_summary": "\n   FROM "}


def upgrade() -> None:
    """Add the column, to the table and to the views that tell settings apart."""
    op.add_column(
        "runs",
        sa.Column("warmup", sa.Integer(), server_default="0", nullable=False, comment=COMMENT),
    )
    for view, end in VIEWS.items():
        definition = op.get_bind().scalar(sa.text(f"SELECT pg_get_viewdef('{view}'::regclass)"))
        columns, found, rest = definition.rstrip("; \n").partition(end)
        assert found
        grouped = ", r.warmup" if "GROUP BY" in rest else ""
        op.execute(f"CREATE OR REPLACE VIEW {view} AS {columns}, r.warmup{found}{rest}{grouped}")
        op.execute(f"COMMENT ON COLUMN {view}.warmup IS '{COMMENT}'")
