"""The CSV twin of every answer: one flat table, each row with the making of its answer."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from db.forecasts import ForecastRow
from service.answers.capacity import CapacityAnswer
from service.answers.cell_tests import TestsAnswer
from service.answers.coverage import CoverageAnswer
from service.answers.crossing import CrossingAnswer
from service.answers.delay import DelayAnswer
from service.answers.law import LawAnswer
from service.answers.onset import OnsetAnswer
from service.answers.regimes import RegimesAnswer
from service.answers.speeds import SpeedsAnswer

Row = dict[str, Any]


def flat(value: Any, *, without: Sequence[str] = (), prefix: str = "") -> Row:
    """Nested fields as columns joined by dots; lists of records have no place in one row."""
    row: Row = {}
    for name, item in _items(value):
        if name in without:
            continue
        if is_dataclass(item) or isinstance(item, Mapping):
            row.update(flat(item, prefix=f"{prefix}{name}."))
        elif isinstance(item, tuple | list):
            if not any(is_dataclass(entry) for entry in item):
                row[prefix + name] = " ".join(str(entry) for entry in item)
        else:
            row[prefix + name] = item
    return row


def _items(value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    return ((field.name, getattr(value, field.name)) for field in fields(value))


def as_csv(rows: Sequence[Row], columns: Sequence[str] = ()) -> bytes:
    """RFC 4180 text in UTF-8; an empty field is a value that does not exist.

    `columns` come first and are there even without a row.
    """
    columns = list(dict.fromkeys([*columns, *(name for row in rows for name in row)]))
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, columns, restval="")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().encode()


def _head(answer: Any) -> Row:
    """Columns that every row of a cell's table begins with."""
    names = ("suite", "revision", "prime", "setting", "method", "clock", "units")
    return flat({n: getattr(answer, n) for n in names if hasattr(answer, n)})


def crossing_rows(answer: CrossingAnswer) -> list[Row]:
    return [flat(answer)]


def onset_rows(answer: OnsetAnswer) -> list[Row]:
    return [_head(answer) | flat(point) for point in answer.points]


def delay_rows(answer: DelayAnswer) -> list[Row]:
    return [_head(answer) | flat(point) for point in answer.points]


def regimes_rows(answer: RegimesAnswer) -> list[Row]:
    return [_head(answer) | flat(point) for point in answer.points]


def speeds_rows(answer: SpeedsAnswer) -> list[Row]:
    """One row per run, with the centres of its width beside it."""
    head = _head(answer)
    return [
        head | {"speed": name} | flat(point) | flat(value)
        for name, points in (("t_mem", answer.t_mem), ("t_gen", answer.t_gen))
        for point in points
        for value in point.values
    ]


def capacity_rows(answer: CapacityAnswer) -> list[Row]:
    head = _head(answer)
    return [
        head | flat(width, without=["points"]) | flat(point)
        for width in answer.widths
        for point in width.points
    ]


def law_rows(answer: LawAnswer) -> list[Row]:
    return [_head(answer) | flat(point) for point in answer.points]


def rows_of_tests(answer: TestsAnswer, table: str) -> list[Row]:
    records: Sequence[Any] = getattr(answer, table)
    return [_head(answer) | flat(record) for record in records]


def coverage_rows(answer: CoverageAnswer) -> list[Row]:
    return [_head(answer) | flat(cell) for cell in answer.cells]


Rows = Callable[[Any], list[Row]]


FORECAST_COLUMNS = (
    *("id", "suite", "created_at", "prime", "quantity", "estimate", "low", "high", "level"),
    *("baseline", "observed", "error", "inside", "interval_score", "beats_baseline"),
)


def forecast_rows(forecast: ForecastRow) -> list[Row]:
    """A row for each prime and quantity; what is not predicted or not yet scored is empty."""
    scores = {(s["prime"], s["quantity"]): s for s in (forecast.score or {"scores": []})["scores"]}
    rows = []
    for prediction in forecast.predictions["primes"]:
        for quantity in ("p_cross", "p_onset"):
            row = {
                **{name: getattr(forecast, name) for name in ("id", "suite", "created_at")},
                **{"prime": prediction["prime"], "quantity": quantity},
                "baseline": prediction[f"baseline_{quantity[2:]}"],
                **(prediction[quantity] or {}),
                **scores.get((prediction["prime"], quantity), {}),
            }
            rows.append({name: row.get(name) for name in FORECAST_COLUMNS})
    return rows
