"""The results: suites, runs, attempts and curves."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

LADDER = (
    "first epoch at which {} reached each threshold of the ladder (50-99 % in steps of 1 %, "
    "then to 99.9 % in steps of 0.1 %; 59 elements, [50] is 99 %); NULL element: never reached"
)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "suites",
        sa.Column(
            "id", sa.Integer(), sa.Identity(always=True), nullable=False, comment="suite number"
        ),
        sa.Column("name", sa.Text(), nullable=False, comment="name the suite is asked by"),
        sa.Column(
            "spec",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=False,
            comment="the suite file, validated, as JSON",
        ),
        sa.Column(
            "hash", sa.Text(), nullable=False, comment="sha256 of the canonical JSON of spec"
        ),
        sa.Column(
            "revision",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="raised whenever a run of the suite closes or its runs change; "
            "caches key on it",
        ),
        sa.Column(
            "frozen_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="when the spec was frozen (pre-registered): it cannot change since; "
            "NULL: it can",
        ),
        sa.Column(
            "recorded",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=True,
            comment="when, where and with what a loaded recording was made; NULL: trained here",
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="when the suite was first registered",
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="when the spec or the revision last changed",
        ),
        sa.CheckConstraint("name <> ''", name=op.f("ck_suites_name")),
        sa.CheckConstraint("revision >= 0", name=op.f("ck_suites_revision")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_suites")),
        sa.UniqueConstraint("name", name=op.f("uq_suites_name")),
        comment="Suites of runs, as written by a researcher",
    )
    op.create_table(
        "runs",
        sa.Column(
            "id", sa.Integer(), sa.Identity(always=True), nullable=False, comment="run number"
        ),
        sa.Column("key", sa.Text(), nullable=False, comment="sha256 of the canonical JSON of spec"),
        sa.Column(
            "spec",
            postgresql.JSONB(astext_type=sa.Text()),
            nullable=False,
            comment="everything that can change the result",
        ),
        sa.Column("kind", sa.Text(), nullable=False, comment="capacity, speed or grok"),
        sa.Column(
            "task",
            sa.Text(),
            nullable=False,
            comment="data: random, modular, shuffled or permutation",
        ),
        sa.Column(
            "prime", sa.Integer(), nullable=False, comment="p; 120 for the symmetric group S5"
        ),
        sa.Column("operation", sa.Text(), nullable=True, comment="+ - * / of modular data"),
        sa.Column(
            "train_fraction", sa.Double(), nullable=True, comment="share of the table trained on"
        ),
        sa.Column("split", sa.Text(), nullable=True, comment="random, sequential or alternating"),
        sa.Column("n_train", sa.Integer(), nullable=False, comment="training examples"),
        sa.Column("n_val", sa.Integer(), nullable=False, comment="validation examples; 0: none"),
        sa.Column("vocabulary", sa.Integer(), nullable=False, comment="V, tokens: p + 2"),
        sa.Column(
            "k_mem",
            sa.Double(),
            nullable=False,
            comment="dataset complexity in bits, n_train log2 V",
        ),
        sa.Column("architecture", sa.Text(), nullable=False, comment="transformer or mlp"),
        sa.Column("width", sa.Integer(), nullable=False, comment="d, units of the residual stream"),
        sa.Column("depth", sa.Integer(), nullable=False, comment="L, blocks"),
        sa.Column("heads", sa.Integer(), nullable=False, comment="H, attention heads"),
        sa.Column("positions", sa.Text(), nullable=False, comment="rope, none or learned"),
        sa.Column("norm", sa.Text(), nullable=False, comment="rms or layer"),
        sa.Column("ffn", sa.Text(), nullable=False, comment="gated or plain"),
        sa.Column(
            "released_head_projection",
            sa.Boolean(),
            nullable=False,
            comment="second, biased projection after the heads, as in the released code",
        ),
        sa.Column(
            "dropout", sa.Double(), nullable=False, comment="probability on the FFN's hidden units"
        ),
        sa.Column(
            "init_scale", sa.Double(), nullable=False, comment="factor on every initial parameter"
        ),
        sa.Column("params", sa.BigInteger(), nullable=False, comment="P, trainable parameters"),
        sa.Column("lr", sa.Double(), nullable=False, comment="learning rate of AdamW"),
        sa.Column("beta1", sa.Double(), nullable=False, comment="AdamW beta 1"),
        sa.Column("beta2", sa.Double(), nullable=False, comment="AdamW beta 2"),
        sa.Column("eps", sa.Double(), nullable=False, comment="AdamW epsilon"),
        sa.Column("weight_decay", sa.Double(), nullable=False, comment="decoupled weight decay"),
        sa.Column("batch_size", sa.Integer(), nullable=False, comment="examples a step"),
        sa.Column("stop_rule", sa.Text(), nullable=False, comment="threshold, patience or fixed"),
        sa.Column(
            "stop_train", sa.Double(), nullable=True, comment="training accuracy that stops a run"
        ),
        sa.Column(
            "stop_val", sa.Double(), nullable=True, comment="validation accuracy that stops a run"
        ),
        sa.Column("max_epochs", sa.Integer(), nullable=False, comment="cap on epochs"),
        sa.Column(
            "eval_train",
            sa.Boolean(),
            nullable=False,
            comment="the eval clock of training is recorded, too",
        ),
        sa.Column("seed", sa.BigInteger(), nullable=False, comment="seed of all random streams"),
        sa.Column(
            "state",
            sa.Text(),
            server_default=sa.text("'pending'"),
            nullable=False,
            comment="pending, running, stale, done or failed",
        ),
        sa.Column(
            "attempt",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="times claimed; the fence of all writes",
        ),
        sa.Column("owner", sa.Text(), nullable=True, comment="worker that holds the lease"),
        sa.Column(
            "lease_until",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="when the lease ends, by this database's clock",
        ),
        sa.Column(
            "last_epoch",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="epochs recorded; where a closed run is censored",
        ),
        sa.Column(
            "thinned",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="true: a recording that keeps some epochs of the curve only; "
            "passages are exact",
        ),
        sa.Column(
            "first_online",
            postgresql.ARRAY(sa.Integer()),
            nullable=True,
            comment=LADDER.format("online training accuracy"),
        ),
        sa.Column(
            "first_eval",
            postgresql.ARRAY(sa.Integer()),
            nullable=True,
            comment=LADDER.format("eval-clock training accuracy"),
        ),
        sa.Column(
            "first_val",
            postgresql.ARRAY(sa.Integer()),
            nullable=True,
            comment=LADDER.format("validation accuracy"),
        ),
        sa.Column("final_train_loss", sa.REAL(), nullable=True, comment="train_loss of last epoch"),
        sa.Column(
            "final_train_correct",
            sa.Integer(),
            nullable=True,
            comment="train_correct of last epoch",
        ),
        sa.Column(
            "final_train_correct_eval",
            sa.Integer(),
            nullable=True,
            comment="train_correct_eval of last epoch",
        ),
        sa.Column("final_val_loss", sa.REAL(), nullable=True, comment="val_loss of last epoch"),
        sa.Column(
            "final_val_correct", sa.Integer(), nullable=True, comment="val_correct of last epoch"
        ),
        sa.Column(
            "final_weight_norm",
            sa.REAL(),
            nullable=True,
            comment="L2 norm of all parameters after the last epoch",
        ),
        sa.Column(
            "best_train_loss",
            sa.REAL(),
            nullable=True,
            comment="least finite train_loss of all epochs",
        ),
        sa.Column(
            "bits",
            sa.REAL(),
            nullable=True,
            comment="M_T of the last epoch in bits (capacity runs)",
        ),
        sa.Column(
            "stopped_by",
            sa.Text(),
            nullable=True,
            comment="threshold, patience, cap, fixed or diverged",
        ),
        sa.Column(
            "reason", sa.Text(), nullable=True, comment="why the run failed, such as diverged"
        ),
        sa.Column(
            "seconds", sa.Double(), nullable=True, comment="training time of the closing attempt"
        ),
        sa.Column("device", sa.Text(), nullable=True, comment="device of the closing attempt"),
        sa.Column("engine", sa.Text(), nullable=True, comment="engine of the closing attempt"),
        sa.Column(
            "fingerprint",
            sa.Text(),
            nullable=True,
            comment="engine, source, libraries and hardware; equal ones give bitwise equal curves",
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="when the run was first asked for",
        ),
        sa.Column(
            "closed_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="when the run was done or failed",
        ),
        sa.CheckConstraint(
            "(state = 'failed') = (reason IS NOT NULL)", name=op.f("ck_runs_reason")
        ),
        sa.CheckConstraint(
            "(state = 'running') = (lease_until IS NOT NULL)"
            " AND (state = 'running') = (owner IS NOT NULL)",
            name=op.f("ck_runs_lease"),
        ),
        sa.CheckConstraint(
            "(state IN ('done', 'failed')) = (closed_at IS NOT NULL)", name=op.f("ck_runs_closed")
        ),
        sa.CheckConstraint("key ~ '^[0-9a-f]{64}$'", name=op.f("ck_runs_key")),
        sa.CheckConstraint("kind IN ('capacity', 'speed', 'grok')", name=op.f("ck_runs_kind")),
        sa.CheckConstraint(
            "state IN ('pending', 'running', 'stale', 'done', 'failed')", name=op.f("ck_runs_state")
        ),
        sa.CheckConstraint("attempt >= 0", name=op.f("ck_runs_attempt")),
        sa.CheckConstraint(
            "cardinality(first_online) = 59 AND cardinality(first_eval) = 59"
            " AND cardinality(first_val) = 59",
            name=op.f("ck_runs_ladder"),
        ),
        sa.CheckConstraint("last_epoch BETWEEN 0 AND max_epochs", name=op.f("ck_runs_last_epoch")),
        sa.CheckConstraint("n_train > 0 AND n_val >= 0", name=op.f("ck_runs_examples")),
        sa.CheckConstraint("width > 0 AND params > 0", name=op.f("ck_runs_size")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("key", name=op.f("uq_runs_key")),
        comment="Runs: one experiment each, shared by all suites that ask for it",
        postgresql_with={"fillfactor": "80"},
    )
    op.create_index(
        op.f("ix_runs_kind_prime_width_seed"),
        "runs",
        ["kind", "prime", "width", "seed"],
        unique=False,
    )
    op.create_index(
        "ix_runs_open",
        "runs",
        ["state"],
        unique=False,
        postgresql_where=sa.text("state IN ('pending', 'running', 'stale')"),
    )
    op.create_table(
        "suite_runs",
        sa.Column("suite_id", sa.Integer(), nullable=False, comment="the suite"),
        sa.Column("run_id", sa.Integer(), nullable=False, comment="the run"),
        sa.Column(
            "inherited",
            sa.Boolean(),
            server_default=sa.text("false"),
            nullable=False,
            comment="true: seen by the suite's analyses, trained by the suite it is inherited from",
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_suite_runs_run_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["suite_id"], ["suites.id"], name=op.f("fk_suite_runs_suite_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("suite_id", "run_id", name=op.f("pk_suite_runs")),
        comment="Which suites a run belongs to",
    )
    op.create_index(op.f("ix_suite_runs_run_id"), "suite_runs", ["run_id"], unique=False)
    op.create_table(
        "attempts",
        sa.Column("run_id", sa.Integer(), nullable=False, comment="the run"),
        sa.Column("attempt", sa.Integer(), nullable=False, comment="1 for the run's first"),
        sa.Column(
            "owner", sa.Text(), nullable=False, comment="name of the worker that claimed the run"
        ),
        sa.Column("host", sa.Text(), nullable=False, comment="machine of the worker"),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
            comment="when the run was claimed",
        ),
        sa.Column(
            "ended_at", sa.DateTime(timezone=True), nullable=True, comment="when the attempt ended"
        ),
        sa.Column(
            "resume_epoch",
            sa.Integer(),
            server_default=sa.text("0"),
            nullable=False,
            comment="epoch of the checkpoint it went on from; 0: the start",
        ),
        sa.Column(
            "state",
            sa.Text(),
            server_default=sa.text("'running'"),
            nullable=False,
            comment="running, done, failed, stale or released",
        ),
        sa.Column("reason", sa.Text(), nullable=True, comment="why it failed"),
        sa.Column("device", sa.Text(), nullable=True, comment="device it trained on"),
        sa.Column("engine", sa.Text(), nullable=True, comment="engine it trained with"),
        sa.Column("fingerprint", sa.Text(), nullable=True, comment="the engine's fingerprint"),
        sa.Column(
            "git_commit", sa.Text(), nullable=True, comment="commit of the code; NULL: no checkout"
        ),
        sa.Column(
            "git_dirty", sa.Boolean(), nullable=True, comment="the checkout had uncommitted changes"
        ),
        sa.Column(
            "versions",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'"),
            nullable=False,
            comment="versions of python and the packages that matter",
        ),
        sa.CheckConstraint(
            "(state = 'running') = (ended_at IS NULL)", name=op.f("ck_attempts_ended")
        ),
        sa.CheckConstraint(
            "state IN ('running', 'done', 'failed', 'stale', 'released')",
            name=op.f("ck_attempts_state"),
        ),
        sa.CheckConstraint("resume_epoch >= 0", name=op.f("ck_attempts_resume_epoch")),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_attempts_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "attempt", name=op.f("pk_attempts")),
        comment="Every time a worker took a run: who, where, when, how it ended",
    )
    op.create_table(
        "curve",
        sa.Column(
            "run_id", sa.Integer(), autoincrement=False, nullable=False, comment="the run (runs.id)"
        ),
        sa.Column("epoch", sa.Integer(), autoincrement=False, nullable=False, comment="from 1"),
        sa.Column(
            "train_loss",
            sa.REAL(),
            nullable=True,
            comment="mean over the epoch's examples, dropout on",
        ),
        sa.Column(
            "train_correct",
            sa.Integer(),
            nullable=True,
            comment="correct of n_train, online clock: dropout on, weights moving",
        ),
        sa.Column(
            "train_correct_eval",
            sa.Integer(),
            nullable=True,
            comment="correct of n_train, eval clock: after the epoch, dropout off",
        ),
        sa.Column(
            "val_loss",
            sa.REAL(),
            nullable=True,
            comment="mean over the validation set, after the epoch, dropout off",
        ),
        sa.Column(
            "val_correct", sa.Integer(), nullable=True, comment="correct of n_val, after the epoch"
        ),
        sa.Column("bits", sa.REAL(), nullable=True, comment="M_T, bits memorised"),
        sa.Column("weight_norm", sa.REAL(), nullable=True, comment="L2 norm of all parameters"),
        sa.PrimaryKeyConstraint("run_id", "epoch", name=op.f("pk_curve")),
        comment="One row per run and epoch; counts are integers, NULL means not recorded",
    )
