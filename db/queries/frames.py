"""Frames for analyses: a suite's runs of one kind with first passages at given thresholds.

Thresholds on the ladder are read from the arrays stored when a run closed. Any other lies between
two of the ladder, so only the few epochs between their passages are looked up in the curve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import pandas as pd
from sqlalchemy import Connection

from db.queries.filters import Filters, column_kind, where
from db.queries.frame import read_frame
from db.schema import SPEC_COLUMNS
from db.thresholds import LADDER, ladder_index
from service.errors import InputError
from service.spec import Kind

Clock = Literal["online", "eval", "val"]

# clock: column of passages, column of counts, column of the set's size, loss that must be finite
CLOCK_COLUMNS: dict[Clock, tuple[str, str, str, str]] = {
    "online": ("first_online", "train_correct", "n_train", "train_loss"),
    "eval": ("first_eval", "train_correct_eval", "n_train", "train_loss"),
    "val": ("first_val", "val_correct", "n_val", "val_loss"),
}

SUMMARY_TYPES = {
    "run_id": "int",
    "inherited": "bool",
    "state": "text",
    "reason": "text",
    "last_epoch": "int",
    "bits": "float",
    "engine": "text",
    "device": "text",
}

FRAME = """
SELECT r.id, sr.inherited, r.state, r.reason, r.last_epoch, r.bits, r.engine, r.device,
    {columns} {passages}
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id {lookups}
WHERE sr.suite_id = %(suite)s AND r.kind = %(kind)s {conditions}
ORDER BY r.prime, r.width, r.seed, r.id
"""

# The first epoch within the bracket; NaN would pass every comparison, hence the finite loss.
LOOKUP = """
LEFT JOIN LATERAL (
    SELECT c.epoch FROM curve c
    WHERE c.run_id = r.id AND c.epoch BETWEEN {lower} AND {upper}
        AND c.{count} >= (%({name}_numerator)s * r.{size}::bigint + %({name}_denominator)s - 1)
            / %({name}_denominator)s
        AND c.{loss} > '-Infinity' AND c.{loss} < 'Infinity'
    ORDER BY c.epoch LIMIT 1
) {name}_lookup ON r.closed_at IS NOT NULL
"""


@dataclass(frozen=True)
class Passage:
    """A first passage asked for: of which clock, at which accuracy."""

    clock: Clock
    threshold: float


def runs_frame(
    connection: Connection,
    suite_id: int,
    kind: Kind,
    passages: Mapping[str, Passage] | None = None,
    filters: Filters | None = None,
) -> pd.DataFrame:
    """The suite's runs of a kind, inherited ones included, in all states.

    Columns: SUMMARY_TYPES, the flattened spec, and one float column for each passage asked for,
    NaN where the run never reached it (then it is censored at last_epoch) or is still open.
    """
    types = SUMMARY_TYPES | {name: column_kind(name) for name in SPEC_COLUMNS}
    conditions, parameters = where(filters)
    parameters |= {"suite": suite_id, "kind": kind}
    selected, lookups = [], []
    for name, passage in (passages or {}).items():
        expression, lookup, bound = _passage(name, passage)
        selected.append(f", {expression}")
        lookups.append(lookup)
        parameters |= bound
        types[name] = "float"
    if any(lookups):
        _refuse_thinned(connection, suite_id)
    query = FRAME.format(
        columns=", ".join(f"r.{name}" for name in SPEC_COLUMNS),
        passages=" ".join(selected),
        lookups=" ".join(lookups),
        conditions=conditions,
    )
    return read_frame(connection, query, parameters, types)


def _passage(name: str, passage: Passage) -> tuple[str, str, dict[str, Any]]:
    """Expression, join and parameters that give the passage the name."""
    if not name.isidentifier():
        raise InputError(f"passage: {name!r} is not a name for a column")
    if not 0 < passage.threshold <= 1:
        raise InputError(f"threshold: {passage.threshold} is not in (0, 1]")
    array, count, size, loss = CLOCK_COLUMNS[passage.clock]
    index = ladder_index(passage.threshold)
    if index is not None:
        return f"r.{array}[{index}]", "", {}
    exact = Fraction(repr(float(passage.threshold)))
    below = sum(k <= exact * 1000 for k in LADDER)  # position of the threshold just below
    lower = f"r.{array}[{below}]" if below else "1"
    upper = f"coalesce(r.{array}[{below + 1}], r.last_epoch)"
    lookup = LOOKUP.format(name=name, lower=lower, upper=upper, count=count, size=size, loss=loss)
    bound = {f"{name}_numerator": exact.numerator, f"{name}_denominator": exact.denominator}
    return f"{name}_lookup.epoch", lookup, bound


def _refuse_thinned(connection: Connection, suite_id: int) -> None:
    """A recording that keeps some epochs only has exact passages on the ladder alone."""
    thinned = connection.exec_driver_sql(
        "SELECT EXISTS (SELECT FROM suite_runs sr JOIN runs r ON r.id = sr.run_id "
        "WHERE sr.suite_id = %(suite)s AND r.thinned)",
        {"suite": suite_id},
    ).scalar()
    if thinned:
        raise InputError(
            "threshold: the suite's recording keeps some epochs of each curve only; accepted: "
            "0.50 to 0.99 in steps of 0.01, 0.990 to 0.999 in steps of 0.001"
        )
