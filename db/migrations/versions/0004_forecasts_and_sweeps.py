"""Forecasts, and sweeps submitted as Ray jobs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "forecasts",
        sa.Column("id", sa.Integer(), sa.Identity(always=True), nullable=False, comment="number"),
        sa.Column("suite_id", sa.Integer(), nullable=False, comment="suite forecast"),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="when it was made",
        ),
        sa.Column(
            "spec",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=False,
            comment="what was fitted, to which revision",
        ),
        sa.Column(
            "predictions",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=False,
            comment="what was predicted",
        ),
        sa.Column(
            "score",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=True,
            comment="how the predictions compare with what was measured; NULL: not yet",
        ),
        sa.ForeignKeyConstraint(
            ["suite_id"], ["suites.id"], name=op.f("fk_forecasts_suite_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_forecasts")),
        comment="Predictions made before their runs were trained, and how they fared",
    )
    op.create_index(op.f("ix_forecasts_suite_id"), "forecasts", ["suite_id"], unique=False)
    op.create_table(
        "sweeps",
        sa.Column("id", sa.Integer(), sa.Identity(always=True), nullable=False, comment="number"),
        sa.Column("suite_id", sa.Integer(), nullable=True, comment="suite; NULL: deleted"),
        sa.Column("suite", sa.Text(), nullable=False, comment="name of the suite as submitted"),
        sa.Column("job_id", sa.Text(), nullable=True, comment="Ray's submission id"),
        sa.Column("submitted_by", sa.Text(), nullable=False, comment="who asked for it"),
        sa.Column(
            "filters",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="which part of the suite is swept",
        ),
        sa.Column(
            "state",
            sa.Text(),
            server_default=sa.text("'submitted'"),
            nullable=False,
            comment="submitted, running, done, failed or stopped",
        ),
        sa.Column("message", sa.Text(), nullable=True, comment="the last thing Ray said about it"),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="when it was submitted",
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="when its state last changed",
        ),
        sa.CheckConstraint(
            "state IN ('submitted', 'running', 'done', 'failed', 'stopped')",
            name=op.f("ck_sweeps_state"),
        ),
        sa.ForeignKeyConstraint(
            ["suite_id"], ["suites.id"], name=op.f("fk_sweeps_suite_id"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sweeps")),
        sa.UniqueConstraint("job_id", name=op.f("uq_sweeps_job_id")),
        comment="Sweeps submitted as Ray jobs",
    )
    op.create_index(op.f("ix_sweeps_suite_id"), "sweeps", ["suite_id"], unique=False)
