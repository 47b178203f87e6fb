"""Runs set aside: censored at their last epoch, resumable; suites whose runs are located."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

RUN_STATES = "state IN ('pending', 'running', 'stale', 'done', 'failed', 'set_aside')"
ATTEMPT_STATES = "state IN ('running', 'done', 'failed', 'stale', 'released', 'set_aside')"
CLOSED = "(state IN ('done', 'failed', 'set_aside')) = (closed_at IS NOT NULL)"
SET_ASIDE = (
    "CASE state WHEN 'set_aside' THEN coalesce(set_aside_epoch = last_epoch, false)"
    " WHEN 'done' THEN set_aside_epoch IS NULL WHEN 'failed' THEN set_aside_epoch IS NULL"
    " ELSE true END"
)

COMMENTS = {
    "runs.state": "pending, running, stale, done, failed or set_aside",
    "runs.closed_at": "when the run was done, failed or set aside",
    "runs.stopped_by": "threshold, patience, cap, fixed, diverged or set_aside",
    "attempts.state": "running, done, failed, stale, released or set_aside",
}

# A grid wants them whole, so they are missing there; the text is PostgreSQL's own of the view.
OPEN_BEFORE = "ARRAY['pending'::text, 'running'::text, 'stale'::text]"
OPEN_NOW = "ARRAY['pending'::text, 'running'::text, 'stale'::text, 'set_aside'::text]"


def upgrade() -> None:
    """Add the columns and let the checks know the state."""
    op.add_column(
        "suites",
        sa.Column(
            "design",
            sa.Text(),
            server_default=sa.text("'grid'"),
            nullable=False,
            comment="grid: every run is wanted whole; locate: runs set aside count as closed",
        ),
    )
    op.create_check_constraint(op.f("ck_suites_design"), "suites", "design IN ('grid', 'locate')")
    op.add_column(
        "runs",
        sa.Column(
            "set_aside_epoch",
            sa.Integer(),
            nullable=True,
            comment="the summary is that of this epoch, where the run was set aside; "
            "NULL: it was not",
        ),
    )
    for table, name, condition in (
        ("runs", "state", RUN_STATES),
        ("runs", "closed", CLOSED),
        ("attempts", "state", ATTEMPT_STATES),
    ):
        op.drop_constraint(op.f(f"ck_{table}_{name}"), table, type_="check")
        op.create_check_constraint(op.f(f"ck_{table}_{name}"), table, condition)
    op.create_check_constraint(op.f("ck_runs_set_aside"), "runs", SET_ASIDE)
    for column, comment in COMMENTS.items():
        op.execute(f"COMMENT ON COLUMN {column} IS '{comment}'")
    definition = op.get_bind().scalar(sa.text("SELECT pg_get_viewdef('cell_summary'::regclass)"))
    assert OPEN_BEFORE in definition
    op.execute(
        "CREATE OR REPLACE VIEW cell_summary AS " + definition.replace(OPEN_BEFORE, OPEN_NOW)
    )
    op.execute(
        "COMMENT ON COLUMN cell_summary.missing IS 'runs pending, running, stale or set aside'"
    )
