"""Answers as flat tables."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

from api.tables import as_csv, flat


@dataclass(frozen=True)
class Inner:
    low: float | None


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner
    tags: tuple[str, ...]
    rows: tuple[Inner, ...]


def test_nested_fields_are_joined_by_dots_and_lists_of_records_left_out() -> None:
    outer = Outer("a", Inner(None), ("x", "y"), (Inner(1.0),))
    assert flat(outer) == {"name": "a", "inner.low": None, "tags": "x y"}


def test_text_with_commas_quotes_and_breaks_reads_back() -> None:
    rows = [{"a": 'x,"y"\nz', "b": 0.1}, {"a": "", "c": None}]
    read = list(csv.DictReader(io.StringIO(as_csv(rows).decode(), newline="")))
    assert read == [{"a": 'x,"y"\nz', "b": "0.1", "c": ""}, {"a": "", "b": "", "c": ""}]


def test_named_columns_are_there_without_a_row() -> None:
    assert as_csv([], ["a", "b"]) == b"a,b\r\n"
