"""The runs themselves: pages of them, and one of them with its attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Connection, Select, Text, and_, func, or_, select, text
from sqlalchemy import cast as sql_cast
from sqlalchemy.sql import ColumnElement

from db.schema import Run, SuiteRun
from db.thresholds import LADDER, ladder_index
from service.answers.making import finite
from service.answers.refusals import Unknown

# First passages shown in every row, epochs.
SHOWN = {
    "e_train_99": ("first_online", 0.99),
    "e_train_eval_99": ("first_eval", 0.99),
    "e_val_98": ("first_val", 0.98),
    "e_val_99": ("first_val", 0.99),
}


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
    e_train_99: Annotated[int | None, Field(description="epoch; null: not reached")]
    e_train_eval_99: int | None
    e_val_98: int | None
    e_val_99: int | None
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
class Page:
    """Which runs, in which order, and from where on."""

    suite_id: int | None = None
    filters: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    least: Mapping[str, float] = field(default_factory=dict)
    most: Mapping[str, float] = field(default_factory=dict)
    sort: str = "id"
    descending: bool = False
    after: tuple[str | None, int] | None = None  # last row's sort value as text, and its id
    limit: int = 100


@dataclass(frozen=True, kw_only=True)
class RunList:
    """A page of runs; `last` is where the next one begins, None at the end."""

    items: tuple[RunRow, ...]
    last: tuple[str | None, int] | None
    total: int


def column(name: str) -> ColumnElement[Any]:
    """The database's expression for a column of a row."""
    if name in SHOWN:
        ladder, threshold = SHOWN[name]
        index = ladder_index(threshold)
        expression: ColumnElement[Any] = getattr(Run, ladder)[index]
        return expression
    expression = getattr(Run, name)
    return expression


def list_runs(connection: Connection, page: Page) -> RunList:
    """One page of the runs that pass the filters."""
    matching = _matching(page)
    total = connection.scalar(select(func.count()).select_from(matching.subquery())) or 0
    key = column(page.sort)
    order = key.desc().nulls_last() if page.descending else key.asc().nulls_last()
    by_id = Run.id.desc() if page.descending else Run.id.asc()
    query = matching.with_only_columns(
        *(column(name).label(name) for name in COLUMNS),
        sql_cast(key, Text).label("sort_value"),
    )
    if page.after is not None:
        query = query.where(_beyond(page, key))
    rows = connection.execute(query.order_by(order, by_id).limit(page.limit + 1)).mappings().all()
    shown = rows[: page.limit]
    last = (shown[-1]["sort_value"], shown[-1]["id"]) if len(rows) > page.limit else None
    return RunList(items=tuple(_row(row) for row in shown), last=last, total=total)


def _matching(page: Page) -> Select[Any]:
    query = select(Run.id)
    if page.suite_id is not None:
        query = query.join(SuiteRun, SuiteRun.run_id == Run.id)
        query = query.where(SuiteRun.suite_id == page.suite_id)
    for name, values in page.filters.items():
        query = query.where(column(name).in_(list(values)))
    for name, bound in page.least.items():
        query = query.where(column(name) >= bound)
    for name, bound in page.most.items():
        query = query.where(column(name) <= bound)
    return query


def _beyond(page: Page, key: ColumnElement[Any]) -> ColumnElement[bool]:
    """Rows after the last one seen; rows without a value come last either way."""
    assert page.after is not None
    value, last_id = page.after
    later = Run.id < last_id if page.descending else Run.id > last_id
    if value is None:
        return and_(key.is_(None), later)
    typed = sql_cast(value, key.type)
    further = key < typed if page.descending else key > typed
    return or_(further, and_(key == typed, later), key.is_(None))


def _row(row: Mapping[Any, Any]) -> RunRow:
    values = {name: row[name] for name in COLUMNS}
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
    query = select(
        *(column(name).label(name) for name in COLUMNS),
        Run.spec,
        Run.first_online,
        Run.first_eval,
        Run.first_val,
    ).where(Run.id == run_id)
    row = connection.execute(query).mappings().one_or_none()
    if row is None:
        raise Unknown("id", run_id, "an id that /runs lists", f"there is no run {run_id}")
    suites = connection.scalars(
        text(
            "SELECT s.name FROM suites s JOIN suite_runs sr ON sr.suite_id = s.id "
            "WHERE sr.run_id = :id ORDER BY s.name"
        ),
        {"id": run_id},
    )
    names = [f.name for f in fields(AttemptRow)]
    attempts = connection.execute(
        text(f"SELECT {', '.join(names)} FROM attempts WHERE run_id = :id ORDER BY attempt"),
        {"id": run_id},
    ).mappings()
    return RunDetail(
        run=_row(row),
        spec=row["spec"],
        suites=tuple(suites),
        passages=_ladder(row),
        attempts=tuple(AttemptRow(**attempt) for attempt in attempts),
    )


def _ladder(row: Mapping[Any, Any]) -> PassageLadder | None:
    if row["first_online"] is None:
        return None
    return PassageLadder(
        thresholds=tuple(k / 1000 for k in LADDER),
        online=tuple(row["first_online"]),
        eval=tuple(row["first_eval"] or [None] * len(LADDER)),
        val=tuple(row["first_val"] or [None] * len(LADDER)),
    )
