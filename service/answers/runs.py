"""The runs themselves: pages of them, and one of them with its attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Connection

from db.queries.runs import count_runs, get_run
from db.queries.runs import list_runs as page_of_runs
from db.thresholds import LADDER, ladder_index
from service.answers.making import finite
from service.answers.refusals import Unknown


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One run: what it is, how it stands and what came out."""

    id: int
    key: str
    state: str
    kind: str
    task: str
    prime: int
    operation: str | None
    train_fraction: float | None
    split: str | None
    n_train: int
    n_val: int
    vocabulary: int
    k_mem: float
    architecture: str
    width: int
    depth: int
    heads: int
    positions: str
    norm: str
    ffn: str
    released_head_projection: bool
    dropout: float
    init_scale: float
    params: int
    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    batch_size: int
    stop_rule: str
    stop_train: float | None
    stop_val: float | None
    max_epochs: int
    eval_train: bool
    seed: int
    attempt: int
    last_epoch: int
    e_train: Annotated[int | None, Field(description="first epoch at 99 %, online clock")]
    e_train_eval: Annotated[int | None, Field(description="first epoch at 99 %, eval clock")]
    e_val: Annotated[int | None, Field(description="first epoch at 98 % of validation")]
    t_gen: Annotated[int | None, Field(description="first epoch at 99 % of validation")]
    final_train_loss: float | None
    final_val_loss: float | None
    bits: Annotated[float | None, Field(description="M_T of the last epoch (capacity runs)")]
    stopped_by: str | None
    reason: Annotated[str | None, Field(description="why the run failed")]
    seconds: float | None
    engine: str | None
    device: str | None
    closed_at: datetime | None


COLUMNS: tuple[str, ...] = tuple(f.name for f in fields(RunRow))


@dataclass(frozen=True, kw_only=True)
class RunList:
    """A page of runs."""

    items: tuple[RunRow, ...]
    next: Annotated[str | None, Field(description="cursor of the next page; null: the end")]
    total: Annotated[int, Field(description="runs on all pages")]


def list_runs(
    connection: Connection,
    *,
    suite_id: int | None,
    filters: Mapping[str, Sequence[Any]],
    sort: str,
    descending: bool,
    limit: int,
    cursor: str | None,
) -> RunList:
    """One page of the runs that pass the filters."""
    page = page_of_runs(
        connection,
        suite_id=suite_id,
        filters=filters,
        sort=sort,
        descending=descending,
        limit=limit,
        cursor=cursor,
    )
    total = count_runs(connection, suite_id=suite_id, filters=filters)
    return RunList(items=tuple(_row(run) for run in page.runs), next=page.next_cursor, total=total)


def _row(run: Mapping[str, Any]) -> RunRow:
    values: dict[str, Any] = {name: run[name] for name in COLUMNS}
    for name, value in values.items():
        if isinstance(value, float):
            values[name] = finite(value)
    return RunRow(**values)


@dataclass(frozen=True, kw_only=True)
class AttemptRow:
    """One time a worker took the run."""

    attempt: int
    owner: str
    host: str
    started_at: datetime
    ended_at: datetime | None
    resume_epoch: int
    state: str
    reason: str | None
    engine: str | None
    device: str | None
    fingerprint: str | None
    git_commit: str | None
    git_dirty: bool | None
    versions: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class PassageLadder:
    """First epochs at which each clock reached each threshold; None: not reached."""

    thresholds: tuple[float, ...]
    online: tuple[int | None, ...]
    eval: tuple[int | None, ...]
    val: tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True)
class RunDetail:
    """Everything about one run but its curve."""

    run: RunRow
    spec: Annotated[Mapping[str, Any], Field(description="everything that can change the result")]
    suites: tuple[str, ...]
    passages: PassageLadder | None
    attempts: tuple[AttemptRow, ...]


def run_detail(connection: Connection, run_id: int) -> RunDetail:
    """One run; refuses an id that is not there."""
    found = get_run(connection, run_id)
    if found is None:
        raise Unknown("id", run_id, "an id that /runs lists", f"there is no run {run_id}")
    shown = {
        "e_train": _passage(found["first_online"], 0.99),
        "e_train_eval": _passage(found["first_eval"], 0.99),
        "e_val": _passage(found["first_val"], 0.98),
        "t_gen": _passage(found["first_val"], 0.99),
    }
    names = [f.name for f in fields(AttemptRow)]
    return RunDetail(
        run=_row(found | shown),
        spec=found["spec"],
        suites=tuple(suite["name"] for suite in found["suites"]),
        passages=_ladder(found),
        attempts=tuple(
            AttemptRow(**{name: attempt[name] for name in names}) for attempt in found["attempts"]
        ),
    )


def _passage(ladder: Sequence[int | None] | None, threshold: float) -> int | None:
    index = ladder_index(threshold)
    assert index is not None
    return None if ladder is None else ladder[index - 1]


def _ladder(row: Mapping[Any, Any]) -> PassageLadder | None:
    if row["first_online"] is None:
        return None
    return PassageLadder(
        thresholds=tuple(k / 1000 for k in LADDER),
        online=tuple(row["first_online"]),
        eval=tuple(row["first_eval"] or [None] * len(LADDER)),
        val=tuple(row["first_val"] or [None] * len(LADDER)),
    )
