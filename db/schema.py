"""The tables. Every column says in the database what it means; checks hold there, too."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    MetaData,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, REAL
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import BigInteger, Double, Integer

RUN_STATES = ("pending", "running", "stale", "done", "failed", "set_aside")
ATTEMPT_STATES = ("running", "done", "failed", "stale", "released", "set_aside")
DESIGNS = ("grid", "locate")
SWEEP_STATES = ("submitted", "running", "done", "failed", "stopped")

LADDER_COMMENT = (
    "first epoch at which {what} reached each threshold of the ladder (50-99 % in steps of 1 %, "
    "then to 99.9 % in steps of 0.1 %; 59 elements, [50] is 99 %); NULL element: never reached"
)


def one_of(column: str, values: tuple[str, ...]) -> str:
    """The SQL of a check that a text column holds one of the values."""
    return f"{column} IN ({', '.join(repr(value) for value in values)})"


class Table(DeclarativeBase):
    """Base of all tables; constraints get predictable names so that migrations can name them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012
        str: Text,
        int: Integer,
        float: Double,
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB,
        list[int | None]: ARRAY(Integer),
    }


class Suite(Table):
    __tablename__ = "suites"
    __table_args__ = (
        CheckConstraint("revision >= 0", name="revision"),
        CheckConstraint("name <> ''", name="name"),
        CheckConstraint(one_of("design", DESIGNS), name="design"),
        {"comment": "Suites of runs, as written by a researcher"},
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True, comment="suite number")
    name: Mapped[str] = mapped_column(unique=True, comment="name the suite is asked by")
    spec: Mapped[dict[str, Any]] = mapped_column(comment="the suite file, validated, as JSON")
    hash: Mapped[str] = mapped_column(comment="sha256 of the canonical JSON of spec")
    design: Mapped[str] = mapped_column(
        server_default=text("'grid'"),
        comment="grid: every run is wanted whole; locate: runs set aside count as closed",
    )
    revision: Mapped[int] = mapped_column(
        server_default=text("0"),
        comment="raised whenever a run of the suite closes or its runs change; caches key on it",
    )
    frozen_at: Mapped[datetime | None] = mapped_column(
        comment="when the spec was frozen (pre-registered): it cannot change since; NULL: it can"
    )
    recorded: Mapped[dict[str, Any] | None] = mapped_column(
        comment="when, where and with what a loaded recording was made; NULL: trained here"
    )
    created_at: Mapped[datetime] = mapped_column(
        server_default=func.now(), comment="when the suite was first registered"
    )
    updated_at: Mapped[datetime] = mapped_column(
        server_default=func.now(), comment="when the spec or the revision last changed"
    )


class Run(Table):
    __tablename__ = "runs"
    __table_args__ = (
        CheckConstraint("key ~ '^[0-9a-f]{64}$'", name="key"),
        CheckConstraint(one_of("kind", ("capacity", "speed", "grok")), name="kind"),
        CheckConstraint(one_of("state", RUN_STATES), name="state"),
        CheckConstraint("attempt >= 0", name="attempt"),
        CheckConstraint("last_epoch BETWEEN 0 AND max_epochs", name="last_epoch"),
        CheckConstraint("n_train > 0 AND n_val >= 0", name="examples"),
        CheckConstraint("width > 0 AND params > 0", name="size"),
        # Exactly a running run has an owner and a lease.
        CheckConstraint(
            "(state = 'running') = (lease_until IS NOT NULL)"
            " AND (state = 'running') = (owner IS NOT NULL)",
            name="lease",
        ),
        CheckConstraint(
            "(state IN ('done', 'failed', 'set_aside')) = (closed_at IS NOT NULL)", name="closed"
        ),
        # A run set aside is censored there; reopened it keeps that until it has come further.
        CheckConstraint(
            "CASE state WHEN 'set_aside' THEN coalesce(set_aside_epoch = last_epoch, false)"
            " WHEN 'done' THEN set_aside_epoch IS NULL WHEN 'failed' THEN set_aside_epoch IS NULL"
            " ELSE true END",
            name="set_aside",
        ),
        CheckConstraint("(state = 'failed') = (reason IS NOT NULL)", name="reason"),
        # A closed run has a passage (or NULL) for each of the ladder's 59 thresholds.
        CheckConstraint(
            "cardinality(first_online) = 59 AND cardinality(first_eval) = 59"
            " AND cardinality(first_val) = 59",
            name="ladder",
        ),
        Index(None, "kind", "prime", "width", "seed"),
        Index(
            "ix_runs_open",
            "state",
            postgresql_where=text("state IN ('pending', 'running', 'stale')"),
        ),
        {
            "comment": "Runs: one experiment each, shared by all suites that ask for it",
            # Flushes update last_epoch and lease: free space keeps the new version on its page.
            "postgresql_with": {"fillfactor": "80"},
        },
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True, comment="run number")
    key: Mapped[str] = mapped_column(unique=True, comment="sha256 of the canonical JSON of spec")
    spec: Mapped[dict[str, Any]] = mapped_column(comment="everything that can change the result")
    # The spec flattened, as RunSpec.columns() names it.
    kind: Mapped[str] = mapped_column(comment="capacity, speed or grok")
    task: Mapped[str] = mapped_column(comment="data: random, modular, shuffled or permutation")
    prime: Mapped[int] = mapped_column(comment="p; 120 for the symmetric group S5")
    operation: Mapped[str | None] = mapped_column(comment="+ - * / of modular data")
    train_fraction: Mapped[float | None] = mapped_column(comment="share of the table trained on")
    split: Mapped[str | None] = mapped_column(comment="random, sequential or alternating")
    n_train: Mapped[int] = mapped_column(comment="training examples")
    n_val: Mapped[int] = mapped_column(comment="validation examples; 0: none")
    vocabulary: Mapped[int] = mapped_column(comment="V, tokens: p + 2")
    k_mem: Mapped[float] = mapped_column(comment="dataset complexity in bits, n_train log2 V")
    architecture: Mapped[str] = mapped_column(comment="transformer or mlp")
    width: Mapped[int] = mapped_column(comment="d, units of the residual stream")
    depth: Mapped[int] = mapped_column(comment="L, blocks")
    heads: Mapped[int] = mapped_column(comment="H, attention heads")
    positions: Mapped[str] = mapped_column(comment="rope, none or learned")
    norm: Mapped[str] = mapped_column(comment="rms or layer")
    ffn: Mapped[str] = mapped_column(comment="gated or plain")
    released_head_projection: Mapped[bool] = mapped_column(
        comment="second, biased projection after the heads, as in the released code"
    )
    dropout: Mapped[float] = mapped_column(comment="probability on the FFN's hidden units")
    init_scale: Mapped[float] = mapped_column(comment="factor on every initial parameter")
    params: Mapped[int] = mapped_column(BigInteger, comment="P, trainable parameters")
    lr: Mapped[float] = mapped_column(comment="learning rate of AdamW")
    beta1: Mapped[float] = mapped_column(comment="AdamW beta 1")
    beta2: Mapped[float] = mapped_column(comment="AdamW beta 2")
    eps: Mapped[float] = mapped_column(comment="AdamW epsilon")
    weight_decay: Mapped[float] = mapped_column(comment="decoupled weight decay")
    batch_size: Mapped[int] = mapped_column(comment="examples a step")
    warmup: Mapped[int] = mapped_column(
        server_default=text("0"), comment="first steps, over which lr rises from 0, linearly"
    )
    stop_rule: Mapped[str] = mapped_column(comment="threshold, patience or fixed")
    stop_train: Mapped[float | None] = mapped_column(comment="training accuracy that stops a run")
    stop_val: Mapped[float | None] = mapped_column(comment="validation accuracy that stops a run")
    max_epochs: Mapped[int] = mapped_column(comment="cap on epochs")
    eval_train: Mapped[bool] = mapped_column(comment="the eval clock of training is recorded, too")
    seed: Mapped[int] = mapped_column(BigInteger, comment="seed of all random streams")
    # Who works on it.
    state: Mapped[str] = mapped_column(
        server_default=text("'pending'"),
        comment="pending, running, stale, done, failed or set_aside",
    )
    attempt: Mapped[int] = mapped_column(
        server_default=text("0"), comment="times claimed; the fence of all writes"
    )
    owner: Mapped[str | None] = mapped_column(comment="worker that holds the lease")
    lease_until: Mapped[datetime | None] = mapped_column(
        comment="when the lease ends, by this database's clock"
    )
    last_epoch: Mapped[int] = mapped_column(
        server_default=text("0"), comment="epochs recorded; where a closed run is censored"
    )
    set_aside_epoch: Mapped[int | None] = mapped_column(
        comment="the summary is that of this epoch, where the run was set aside; NULL: it was not"
    )
    thinned: Mapped[bool] = mapped_column(
        server_default=text("false"),
        comment="true: a recording that keeps some epochs of the curve only; passages are exact",
    )
    # Summary, written when the run closes.
    first_online: Mapped[list[int | None] | None] = mapped_column(
        comment=LADDER_COMMENT.format(what="online training accuracy")
    )
    first_eval: Mapped[list[int | None] | None] = mapped_column(
        comment=LADDER_COMMENT.format(what="eval-clock training accuracy")
    )
    first_val: Mapped[list[int | None] | None] = mapped_column(
        comment=LADDER_COMMENT.format(what="validation accuracy")
    )
    final_train_loss: Mapped[float | None] = mapped_column(REAL, comment="train_loss of last epoch")
    final_train_correct: Mapped[int | None] = mapped_column(comment="train_correct of last epoch")
    final_train_correct_eval: Mapped[int | None] = mapped_column(
        comment="train_correct_eval of last epoch"
    )
    final_val_loss: Mapped[float | None] = mapped_column(REAL, comment="val_loss of last epoch")
    final_val_correct: Mapped[int | None] = mapped_column(comment="val_correct of last epoch")
    final_weight_norm: Mapped[float | None] = mapped_column(
        REAL, comment="L2 norm of all parameters after the last epoch"
    )
    best_train_loss: Mapped[float | None] = mapped_column(
        REAL, comment="least finite train_loss of all epochs"
    )
    bits: Mapped[float | None] = mapped_column(
        REAL, comment="M_T of the last epoch in bits (capacity runs)"
    )
    stopped_by: Mapped[str | None] = mapped_column(
        comment="threshold, patience, cap, fixed, diverged or set_aside"
    )
    reason: Mapped[str | None] = mapped_column(comment="why the run failed, such as diverged")
    seconds: Mapped[float | None] = mapped_column(comment="training time of the closing attempt")
    device: Mapped[str | None] = mapped_column(comment="device of the closing attempt")
    engine: Mapped[str | None] = mapped_column(comment="engine of the closing attempt")
    fingerprint: Mapped[str | None] = mapped_column(
        comment="engine, source, libraries and hardware; equal ones give bitwise equal curves"
    )
    created_at: Mapped[datetime] = mapped_column(
        server_default=func.now(), comment="when the run was first asked for"
    )
    closed_at: Mapped[datetime | None] = mapped_column(
        comment="when the run was done, failed or set aside"
    )


class SuiteRun(Table):
    __tablename__ = "suite_runs"
    __table_args__ = ({"comment": "Which suites a run belongs to"},)

    suite_id: Mapped[int] = mapped_column(
        ForeignKey("suites.id", ondelete="CASCADE"), primary_key=True, comment="the suite"
    )
    run_id: Mapped[int] = mapped_column(
        ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, index=True, comment="the run"
    )
    inherited: Mapped[bool] = mapped_column(
        server_default=text("false"),
        comment="true: seen by the suite's analyses, trained by the suite it is inherited from",
    )


class Attempt(Table):
    __tablename__ = "attempts"
    __table_args__ = (
        CheckConstraint(one_of("state", ATTEMPT_STATES), name="state"),
        CheckConstraint("(state = 'running') = (ended_at IS NULL)", name="ended"),
        CheckConstraint("resume_epoch >= 0", name="resume_epoch"),
        {"comment": "Every time a worker took a run: who, where, when, how it ended"},
    )

    run_id: Mapped[int] = mapped_column(
        ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True, comment="the run"
    )
    attempt: Mapped[int] = mapped_column(primary_key=True, comment="1 for the run's first")
    owner: Mapped[str] = mapped_column(comment="name of the worker that claimed the run")
    host: Mapped[str] = mapped_column(comment="machine of the worker")
    started_at: Mapped[datetime] = mapped_column(
        server_default=func.now(), comment="when the run was claimed"
    )
    ended_at: Mapped[datetime | None] = mapped_column(comment="when the attempt ended")
    resume_epoch: Mapped[int] = mapped_column(
        server_default=text("0"), comment="epoch of the checkpoint it went on from; 0: the start"
    )
    state: Mapped[str] = mapped_column(
        server_default=text("'running'"),
        comment="running, done, failed, stale, released or set_aside",
    )
    reason: Mapped[str | None] = mapped_column(comment="why it failed")
    device: Mapped[str | None] = mapped_column(comment="device it trained on")
    engine: Mapped[str | None] = mapped_column(comment="engine it trained with")
    fingerprint: Mapped[str | None] = mapped_column(comment="the engine's fingerprint")
    git_commit: Mapped[str | None] = mapped_column(comment="commit of the code; NULL: no checkout")
    git_dirty: Mapped[bool | None] = mapped_column(comment="the checkout had uncommitted changes")
    versions: Mapped[dict[str, Any]] = mapped_column(
        server_default=text("'{}'"), comment="versions of python and the packages that matter"
    )


class Curve(Table):
    """No foreign key: COPY runs several times faster, and `groktime db check` finds orphans."""

    __tablename__ = "curve"
    __table_args__ = (
        {"comment": "One row per run and epoch; counts are integers, NULL means not recorded"},
    )

    run_id: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, comment="the run (runs.id)"
    )
    epoch: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, comment="from 1")
    train_loss: Mapped[float | None] = mapped_column(
        REAL, comment="mean over the epoch's examples, dropout on"
    )
    train_correct: Mapped[int | None] = mapped_column(
        comment="correct of n_train, online clock: dropout on, weights moving"
    )
    train_correct_eval: Mapped[int | None] = mapped_column(
        comment="correct of n_train, eval clock: after the epoch, dropout off"
    )
    val_loss: Mapped[float | None] = mapped_column(
        REAL, comment="mean over the validation set, after the epoch, dropout off"
    )
    val_correct: Mapped[int | None] = mapped_column(comment="correct of n_val, after the epoch")
    bits: Mapped[float | None] = mapped_column(REAL, comment="M_T, bits memorised")
    weight_norm: Mapped[float | None] = mapped_column(REAL, comment="L2 norm of all parameters")


class Forecast(Table):
    __tablename__ = "forecasts"
    __table_args__ = (
        {"comment": "Predictions made before their runs were trained, and how they fared"},
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True, comment="number")
    suite_id: Mapped[int] = mapped_column(
        ForeignKey("suites.id", ondelete="CASCADE"), index=True, comment="suite forecast"
    )
    created_at: Mapped[datetime] = mapped_column(
        server_default=func.now(), comment="when it was made"
    )
    spec: Mapped[dict[str, Any]] = mapped_column(comment="what was fitted, to which revision")
    predictions: Mapped[dict[str, Any]] = mapped_column(comment="what was predicted")
    score: Mapped[dict[str, Any] | None] = mapped_column(
        comment="how the predictions compare with what was measured; NULL: not yet"
    )


class Sweep(Table):
    __tablename__ = "sweeps"
    __table_args__ = (
        CheckConstraint(one_of("state", SWEEP_STATES), name="state"),
        {"comment": "Sweeps submitted as Ray jobs"},
    )

    id: Mapped[int] = mapped_column(Identity(always=True), primary_key=True, comment="number")
    suite_id: Mapped[int | None] = mapped_column(
        ForeignKey("suites.id", ondelete="SET NULL"), index=True, comment="suite; NULL: deleted"
    )
    suite: Mapped[str] = mapped_column(comment="name of the suite as submitted")
    job_id: Mapped[str | None] = mapped_column(unique=True, comment="Ray's submission id")
    submitted_by: Mapped[str] = mapped_column(comment="who asked for it")
    filters: Mapped[dict[str, Any]] = mapped_column(
        server_default=text("'{}'"), comment="which part of the suite is swept"
    )
    state: Mapped[str] = mapped_column(
        server_default=text("'submitted'"), comment="submitted, running, done, failed or stopped"
    )
    message: Mapped[str | None] = mapped_column(comment="the last thing Ray said about it")
    created_at: Mapped[datetime] = mapped_column(
        server_default=func.now(), comment="when it was submitted"
    )
    updated_at: Mapped[datetime] = mapped_column(
        server_default=func.now(), comment="when its state last changed"
    )


_RUN_COLUMNS = [column.name for column in Run.__table__.columns]

# The columns of runs that RunSpec.columns() fills, in table order.
SPEC_COLUMNS: tuple[str, ...] = tuple(
    _RUN_COLUMNS[_RUN_COLUMNS.index("kind") : _RUN_COLUMNS.index("seed") + 1]
)
