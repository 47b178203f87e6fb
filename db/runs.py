"""Runs chosen by their columns: lists in any order with cursors, and one run with its attempts."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.types import BigInteger, Boolean, DateTime, Double, Integer

from groktime.db.schema import SPEC_COLUMNS, Run
from groktime.service.errors import InputError

Filters = Mapping[str, Any]  # column: a value, several values, or None for NULL

FILTERABLE = (*SPEC_COLUMNS, "id", "key", "state", "reason", "stopped_by", "device", "engine")

SQL_TYPES = {"int": "bigint", "float": "float8", "bool": "boolean", "text": "text"}


def column_kind(name: str) -> str:
    """int, float, bool, time or text, as read_frame names them; nullable ints are float."""
    column = Run.__table__.columns[name]
    if isinstance(column.type, Boolean):
        return "bool"
    if isinstance(column.type, Integer | BigInteger):
        return "float" if column.nullable else "int"
    if isinstance(column.type, DateTime):
        return "time"
    return "float" if isinstance(column.type, Double) or "REAL" in str(column.type) else "text"


def where(filters: Filters | None, alias: str = "r") -> tuple[str, dict[str, Any]]:
    """SQL conditions (each begins with AND) and their %(name)s parameters."""
    conditions = []
    parameters: dict[str, Any] = {}
    for name, wanted in (filters or {}).items():
        if name not in FILTERABLE:
            raise InputError(f"{name}: not a column to filter by; accepted: {_names(FILTERABLE)}")
        if wanted is None:
            conditions.append(f"AND {alias}.{name} IS NULL")
            continue
        several = isinstance(wanted, Sequence | set) and not isinstance(wanted, str)
        values = list(wanted) if several else [wanted]
        parameters[f"filter_{name}"] = [_typed(name, value) for value in values]
        array = SQL_TYPES[column_kind(name)]
        conditions.append(f"AND {alias}.{name} = ANY(%(filter_{name})s::{array}[])")
    return " ".join(conditions), parameters


def _typed(name: str, value: Any) -> Any:
    kind = column_kind(name)
    fits = {
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "bool": isinstance(value, bool),
        "text": isinstance(value, str),
    }[kind]
    if not fits:
        raise InputError(f"{name}: {value!r} is not accepted; the column holds {kind} values")
    return value


def _names(names: Sequence[str]) -> str:
    return ", ".join(names)


# What a list shows: everything but the spec's JSON and the arrays.
LISTED = (
    "id",
    "key",
    *SPEC_COLUMNS,
    "state",
    "attempt",
    "owner",
    "last_epoch",
    "final_train_loss",
    "final_train_correct",
    "final_train_correct_eval",
    "final_val_loss",
    "final_val_correct",
    "final_weight_norm",
    "best_train_loss",
    "bits",
    "stopped_by",
    "reason",
    "seconds",
    "device",
    "engine",
    "thinned",
    "created_at",
    "closed_at",
)
PASSAGES = {"e_train": "first_online[50]", "e_train_eval": "first_eval[50]"} | {
    "e_val": "first_val[49]",
    "t_gen": "first_val[50]",
}
SORTABLE = (*LISTED, *PASSAGES)
MAX_PAGE = 1_000

PAGE = """
SELECT {columns} FROM runs r
WHERE {membership} {conditions} {after}
ORDER BY r.{sort} {direction} NULLS LAST, r.id {direction}
LIMIT %(limit)s
"""

MEMBER = "EXISTS (SELECT FROM suite_runs sr WHERE sr.run_id = r.id AND sr.suite_id = %(suite)s)"


@dataclass(frozen=True)
class Page:
    """Some runs in order, and the cursor of those after them."""

    runs: list[dict[str, Any]]
    next_cursor: str | None


def list_runs(
    connection: Connection,
    *,
    suite_id: int | None = None,
    filters: Filters | None = None,
    sort: str = "id",
    descending: bool = False,
    limit: int = 100,
    cursor: str | None = None,
) -> Page:
    """One page of runs; a cursor continues exactly after the last run, whatever was inserted."""
    if sort not in SORTABLE:
        raise InputError(f"sort: {sort!r} is not a column; accepted: {', '.join(SORTABLE)}")
    if not 1 <= limit <= MAX_PAGE:
        raise InputError(f"limit: {limit} is not accepted; 1 to {MAX_PAGE}")
    conditions, parameters = where(filters)
    parameters |= {"suite": suite_id, "limit": limit + 1}
    after = ""
    if cursor is not None:
        after, bound = _after(connection, cursor, sort, descending)
        parameters |= bound
    passages = [f"r.{expression} AS {name}" for name, expression in PASSAGES.items()]
    query = PAGE.format(
        columns=", ".join([*(f"r.{name}" for name in LISTED), *passages]),
        membership="true" if suite_id is None else MEMBER,
        conditions=conditions,
        after=after,
        sort=PASSAGES.get(sort, sort),
        direction="DESC" if descending else "ASC",
    )
    rows = connection.exec_driver_sql(query, parameters).mappings().all()
    runs = [dict(row) for row in rows[:limit]]
    more = len(rows) > limit
    return Page(runs, _cursor(runs[-1], sort, descending) if more else None)


def count_runs(connection: Connection, *, suite_id: int | None, filters: Filters | None) -> int:
    """How many runs a list with these filters has in all."""
    conditions, parameters = where(filters)
    membership = "true" if suite_id is None else MEMBER
    query = f"SELECT count(*) FROM runs r WHERE {membership} {conditions}"
    parameters |= {"suite": suite_id}
    return int(connection.exec_driver_sql(query, parameters).scalar_one())


class BadCursor(InputError):
    """A cursor that no page gave, or one of a list in another order."""


def _cursor(run: Mapping[str, Any], sort: str, descending: bool) -> str:
    value = run[sort]
    if isinstance(value, datetime):
        value = value.isoformat()
    document = json.dumps([sort, descending, value, run["id"]])
    return base64.urlsafe_b64encode(document.encode()).decode().rstrip("=")


def _after(
    connection: Connection, cursor: str, sort: str, descending: bool
) -> tuple[str, dict[str, Any]]:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        was_sort, was_descending, value, run_id = json.loads(base64.urlsafe_b64decode(padded))
    except (binascii.Error, ValueError, TypeError):
        raise BadCursor(f"cursor: {cursor!r} is not one that a page gave") from None
    if (was_sort, was_descending) != (sort, descending) or not isinstance(run_id, int):
        raise BadCursor("cursor: it belongs to a list in another order; start without one")
    if not _is_of(sort, value):
        raise BadCursor(f"cursor: {cursor!r} is not one that a page gave")
    beyond = "<" if descending else ">"
    column = PASSAGES.get(sort, sort)
    if value is None:
        return f"AND r.{column} IS NULL AND r.id {beyond} %(after_id)s", {"after_id": run_id}
    # The column's own type decides, so that a real equals itself.
    kind = "integer"
    if sort not in PASSAGES:
        kind = Run.__table__.columns[sort].type.compile(dialect=connection.dialect)
    place = f"CAST(%(after)s AS {kind})"
    condition = (
        f"AND (r.{column} {beyond} {place} OR r.{column} IS NULL"
        f" OR r.{column} = {place} AND r.id {beyond} %(after_id)s)"
    )
    return condition, {"after": str(value), "after_id": run_id}


def _is_of(column: str, value: Any) -> bool:
    """Whether a cursor's value can be one of the column's."""
    kind = "int" if column in PASSAGES else column_kind(column)
    if value is None:
        return True
    if kind == "time":
        try:
            return isinstance(value, str) and bool(datetime.fromisoformat(value))
        except ValueError:
            return False
    accepted: dict[str, tuple[type, ...]] = {
        "int": (int,),
        "float": (int, float),
        "bool": (bool,),
        "text": (str,),
    }
    return isinstance(value, accepted[kind])


def get_run(connection: Connection, run_id: int) -> dict[str, Any] | None:
    """Everything about one run, its suites and attempts; None when there is no such run."""
    row = connection.execute(text("SELECT * FROM runs WHERE id = :id"), {"id": run_id})
    run = row.mappings().one_or_none()
    if run is None:
        return None
    suites = connection.execute(
        text(
            "SELECT s.name, sr.inherited FROM suite_runs sr JOIN suites s ON s.id = sr.suite_id "
            "WHERE sr.run_id = :id ORDER BY s.name"
        ),
        {"id": run_id},
    )
    attempts = connection.execute(
        text("SELECT * FROM attempts WHERE run_id = :id ORDER BY attempt"), {"id": run_id}
    )
    return {
        **run,
        "suites": [dict(suite) for suite in suites.mappings()],
        "attempts": [dict(attempt) for attempt in attempts.mappings()],
    }
