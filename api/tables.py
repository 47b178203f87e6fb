"""The CSV twin of every answer: one flat table, each row with the making of its answer."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, get_type_hints

from pydantic.fields import FieldInfo

from groktime.db.suites import ForecastRow
from groktime.service.analysis.capacity import BitsPerParameter, CapacityFit
from groktime.service.analysis.delay import OnsetEstimate, OnsetPoint
from groktime.service.analysis.laws import Collapse, GeneralisationLaw, LawFit, NormCalibration
from groktime.service.analysis.survival import SeedSpeed
from groktime.service.answers.capacity import CapacityAnswer, CapacityPoint, WidthCapacity
from groktime.service.answers.cell_tests import TestsAnswer
from groktime.service.answers.crossing import (
    CrossingAnswer,
    DelayAnswer,
    OnsetAnswer,
    RegimesAnswer,
    SpeedsAnswer,
)
from groktime.service.answers.laws import DelayLawAnswer, LawAnswer
from groktime.service.answers.suites import CoverageAnswer, NextRun, PlacedPoint, PlacementAnswer

Row = dict[str, Any]

FORMULA = "=+-@\t\r"  # what a formula begins with


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
    kind: Any = type(value)
    return ((name, getattr(value, name)) for name in _columns(kind))


@lru_cache
def _columns(kind: type) -> tuple[str, ...]:
    """The fields that JSON has, too."""
    hidden = {
        name
        for name, hint in get_type_hints(kind, include_extras=True).items()
        for note in getattr(hint, "__metadata__", ())
        if isinstance(note, FieldInfo) and note.exclude
    }
    return tuple(field.name for field in fields(kind) if field.name not in hidden)


def as_csv(rows: Sequence[Row], columns: Sequence[str] = ()) -> bytes:
    """RFC 4180 text in UTF-8; an empty field is a value that does not exist.

    `columns` come first and are there even without a row.
    """
    columns = list(dict.fromkeys([*columns, *(name for row in rows for name in row)]))
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, columns, restval="")
    writer.writeheader()
    writer.writerows({name: harmless(value) for name, value in row.items()} for row in rows)
    return buffer.getvalue().encode()


def harmless(value: Any) -> Any:
    """The cell as a spreadsheet may open it: text that it would run as a formula is quoted.

    Numbers, lists of numbers and lone signs (operations) are shown as they are.
    """
    if not isinstance(value, str) or len(value) < 2 or value[0] not in FORMULA:
        return value
    return value if all(_is_number(part) for part in value.split()) else f"'{value}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _head(answer: Any) -> Row:
    """Columns that every row of an answer's table begins with: which runs, which convention."""
    names = ("suite", "revision", "prime", "setting", "method", "clock", "units", "level")
    head = flat({n: getattr(answer, n) for n in names if hasattr(answer, n)})
    for name in ("thresholds", "max_width", "labels", "analysis_version"):
        # Answers about one cell keep them in their provenance.
        holder = answer if hasattr(answer, name) else getattr(answer, "provenance", None)
        if hasattr(holder, name):
            head |= flat({name: getattr(holder, name)})
    return head


def _counts(answer: Any) -> Row:
    """What the whole answer rests on; a point's own counts have the same names without `cell.`."""
    names = ("seeds", "censored", "diverged", "untrained", "undetermined", "missing")
    return flat({n: getattr(answer, n) for n in names if hasattr(answer, n)}, prefix="cell.")


def _part(name: str, value: Any, kind: type) -> Row:
    """One part of an answer as columns `name.field`, which are there without a value, too."""
    if value is None:
        return {f"{name}.{field.name}": None for field in fields(kind)}
    return flat(value, prefix=f"{name}.")


def _empty(kind: type, *, without: Sequence[str] = ()) -> Row:
    """The columns of a record that does not exist."""
    return {field.name: None for field in fields(kind) if field.name not in without}


def crossing_rows(answer: CrossingAnswer) -> list[Row]:
    """One row; roots and curves are lists, which only the JSON form has."""
    return [_head(answer) | flat(answer, without=["roots", "curves", "chosen"])]


def onset_rows(answer: OnsetAnswer) -> list[Row]:
    """One row per width with the onset beside it; without a delay one row, with the onset alone."""
    points = [flat(point) for point in answer.points] or [_empty(OnsetPoint)]
    found = _part("p_onset", answer.p_onset, OnsetEstimate)
    return [_head(answer) | point | found | _counts(answer) for point in points]


def delay_rows(answer: DelayAnswer) -> list[Row]:
    return [_head(answer) | flat(point) | _counts(answer) for point in answer.points]


def regimes_rows(answer: RegimesAnswer) -> list[Row]:
    return [_head(answer) | flat(point) | _counts(answer) for point in answer.points]


def speeds_rows(answer: SpeedsAnswer) -> list[Row]:
    """One row per run with the centres of its width beside it.

    A width without a finished run has one row, whose columns of the run are empty.
    """
    head = _head(answer)
    more = {"k_mem": answer.k_mem, "n_train": answer.n_train, "p_mem": answer.p_mem}
    more |= _part("c_model", answer.c_model, BitsPerParameter) | _counts(answer)
    return [
        head | {"speed": name} | flat(point, without=["values"]) | _run_columns(value) | more
        for name, points in (("t_mem", answer.t_mem), ("t_gen", answer.t_gen))
        for point in points
        for value in point.values or (None,)
    ]


def _run_columns(value: SeedSpeed | None) -> Row:
    """A run's own columns; its `diverged` must not hide how many seeds of the width did."""
    row = _empty(SeedSpeed) if value is None else flat(value)
    row["run_diverged"] = row.pop("diverged")
    return row


def capacity_rows(answer: CapacityAnswer) -> list[Row]:
    """One row per run with the plateau of its width, the fit and C_model beside it."""
    head = _head(answer)
    more = _part("fit", answer.fit, CapacityFit)
    more |= _part("c_model", answer.c_model, BitsPerParameter) | _counts(answer)
    rows = [
        flat(width, without=["points"]) | (_empty(CapacityPoint) if point is None else flat(point))
        for width in answer.widths
        for point in width.points or (None,)
    ]
    none = _empty(WidthCapacity, without=["points"]) | _empty(CapacityPoint)
    return [head | row | more for row in rows or [none]]


def law_rows(answer: LawAnswer) -> list[Row]:
    """One row per width and prime with the fits beside it: its prime's, all primes', the rivals."""
    head = _head(answer)
    low, high = answer.window
    more = {"window.low": low, "window.high": high}
    more |= _part("c_model", answer.c_model, BitsPerParameter)
    more |= _part("pooled", answer.pooled, LawFit)
    for fit in answer.rivals:
        more |= _part(f"rivals.{fit.form}", fit, LawFit)
    more |= _part("collapse", answer.collapse, Collapse)
    more |= _part("generalisation", answer.generalisation, GeneralisationLaw)
    own = {fit.prime: fit for fit in answer.per_prime}
    return [
        head | flat(point) | _part("per_prime", own.get(point.prime), LawFit) | more
        for point in answer.points
    ]


def delay_law_rows(answer: DelayLawAnswer) -> list[Row]:
    """One row per law with its errors, and κ and V* beside the laws of the norm."""
    head = _head(answer) | {name: getattr(answer.laws, name) for name in ("runs", "delayed")}
    head |= {"left_out": answer.left_out}
    own = {fit.law: fit for fit in answer.laws.calibration}
    return [
        head | flat(held) | _part("calibration", own.get(held.law), NormCalibration)
        for held in answer.laws.held_out
    ]


def rows_of_tests(answer: TestsAnswer, table: str) -> list[Row]:
    records: Sequence[Any] = getattr(answer, table)
    return [_head(answer) | flat(record) for record in records]


def coverage_rows(answer: CoverageAnswer) -> list[Row]:
    return [_head(answer) | flat(cell) for cell in answer.cells]


def placement_rows(answer: PlacementAnswer) -> list[Row]:
    """A row for each cell, with the first run that it wants; its steps are in JSON only."""
    whole = _head(answer) | {"precision": answer.precision, "max_runs": answer.max_runs}
    return [
        whole
        | flat(cell, without=["crossing", "onset", "next", "steps"])
        | _part("crossing", cell.crossing, PlacedPoint)
        | _part("onset", cell.onset, PlacedPoint)
        | _part("next", next(iter(cell.next), None), NextRun)
        for cell in answer.cells
    ]


FORECAST_COLUMNS = (
    *("id", "suite", "created_at", "prime", "setting", "convention", "quantity"),
    *("estimate", "low", "high", "level", "why"),
    *("baseline", "observed", "error", "inside", "interval_score", "beats_baseline"),
)


def forecast_rows(forecast: ForecastRow) -> list[Row]:
    """A row for each quantity; what is not predicted or not yet scored is empty."""
    scores = {_predicted(s): s for s in (forecast.score or {"scores": []})["scores"]}
    head = {name: getattr(forecast, name) for name in ("id", "suite", "created_at")}
    rows: list[Row] = []
    for prediction in forecast.predictions["primes"]:
        for quantity in ("p_cross", "p_onset"):
            row = {
                **{"prime": prediction["prime"], "quantity": quantity},
                "baseline": prediction[f"baseline_{quantity[2:]}"],
                **(prediction[quantity] or {}),
            }
            rows.append(row)
    rows += forecast.predictions.get("statements", ())
    found = [head | row | scores.get(_predicted(row), {}) for row in rows]
    return [{name: _named(row.get(name)) for name in FORECAST_COLUMNS} for row in found]


def _predicted(row: Row) -> tuple[Any, ...]:
    """What tells the quantities of one forecast apart."""
    named = (json.dumps(row.get(name) or {}, sort_keys=True) for name in ("setting", "convention"))
    return row["quantity"], row["prime"], *named


def _named(value: Any) -> Any:
    """A mapping as text of its own: `weight_decay=0.1`."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={part}" for name, part in value.items()) or None
    return value
