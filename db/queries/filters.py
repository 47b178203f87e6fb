"""Choosing runs by their columns: names are checked, values are bound, never pasted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.types import BigInteger, Boolean, DateTime, Double, Integer

from db.schema import SPEC_COLUMNS, Run
from service.errors import InputError

Filters = Mapping[str, Any]  # column: a value, several values, or None for NULL

FILTERABLE = (*SPEC_COLUMNS, "id", "key", "state", "reason", "stopped_by", "device", "engine")

SQL_TYPES = {"int": "bigint", "float": "float8", "bool": "boolean", "text": "text"}


def column_kind(name: str) -> str:
    """int, float, bool, time or text, as db.queries.frame names them; nullable ints are float."""
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
