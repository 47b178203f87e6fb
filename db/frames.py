"""Pandas frames for analyses: a suite's runs with first passages, and curves of single runs.

Answers come through COPY, several times faster than fetching rows. Thresholds on the ladder are
read from the arrays stored when a run closed. Any other lies between two of the ladder, so only
the few epochs between their passages are looked up in the curve.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from sqlalchemy import Connection, text

from groktime.db.curve import COLUMNS
from groktime.db.runs import Filters, column_kind, where
from groktime.db.schema import SPEC_COLUMNS
from groktime.service.errors import InputError
from groktime.service.spec import COUNTS, KINDS, LADDER, Kind, ladder_index

ARROW_TYPES = {
    "int": pa.int64(),
    "float": pa.float64(),  # also integers that may be NULL: NULL becomes NaN
    "bool": pa.bool_(),
    "text": pa.string(),
    "time": pa.timestamp("us", tz="UTC"),
}


def read_frame(
    connection: Connection, query: str, parameters: Mapping[str, Any], types: Mapping[str, str]
) -> pd.DataFrame:
    """Run the query (with %(name)s parameters); `types` names its columns, in order."""
    frame = _as_pandas(read_table(connection, query, parameters, types))
    for name, kind in types.items():
        if kind == "time":
            frame[name] = pd.to_datetime(frame[name], utc=True, format="ISO8601")
    return frame


def read_table(
    connection: Connection, query: str, parameters: Mapping[str, Any], types: Mapping[str, str]
) -> pa.Table:
    """The same as a table of Arrow; times are still text."""
    columns = {
        name: pa.string() if kind == "time" else ARROW_TYPES[kind] for name, kind in types.items()
    }
    driver: Any = connection.connection.driver_connection
    buffer = io.BytesIO()
    with driver.cursor() as cursor:
        bound = cursor.mogrify(query, dict(parameters)).decode()
        cursor.copy_expert(f"COPY ({bound}) TO STDOUT WITH (FORMAT csv)", buffer)
    if not buffer.tell():
        return pa.table({name: pa.array([], kind) for name, kind in columns.items()})
    buffer.seek(0)
    return pyarrow.csv.read_csv(
        buffer,
        read_options=pyarrow.csv.ReadOptions(column_names=list(types), use_threads=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=columns,
            true_values=["t"],
            false_values=["f"],
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _as_pandas(table: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas()
    return frame


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
    "located": "bool",
    "seeds_apart": "bool",
}

# What the suite's spec says is looked up once, not for every run.
FRAME = """
WITH s AS MATERIALIZED (
    SELECT id, design, spec @> '{{"design": {{"seeds_apart": true}}}}' AS seeds_apart
    FROM suites WHERE id = %(suite)s
)
SELECT r.id, sr.inherited, {state}, r.reason, coalesce(r.set_aside_epoch, r.last_epoch), r.bits,
    r.engine, r.device, s.design = 'locate', s.seeds_apart,
    {columns} {passages}
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id JOIN s ON s.id = sr.suite_id {lookups}
WHERE sr.suite_id = %(suite)s AND (r.kind = ANY(%(kinds)s) {conditions} {whole})
"""
ORDER = ("prime", "width", "seed", "run_id")  # within each kind, in the order they are named

# Where runs are located one set aside is a result, censored there, also while it is trained on;
# a grid wants it whole.
STATE = """CASE WHEN r.set_aside_epoch IS NULL THEN r.state
    WHEN s.design = 'locate' THEN 'set_aside'
    WHEN r.state = 'set_aside' THEN 'pending' ELSE r.state END"""

# The first epoch within the bracket; NaN would pass every comparison, hence the finite loss.
LOOKUP = """
LEFT JOIN LATERAL (
    SELECT c.epoch FROM curve c
    WHERE c.run_id = r.id AND c.epoch BETWEEN {lower} AND {upper}
        AND c.{count} >= (%({name}_numerator)s * r.{size}::bigint + %({name}_denominator)s - 1)
            / %({name}_denominator)s
        AND c.{loss} > '-Infinity' AND c.{loss} < 'Infinity'
    ORDER BY c.epoch LIMIT 1
) {name}_lookup ON {of_kind} AND (r.closed_at IS NOT NULL OR r.set_aside_epoch IS NOT NULL)
"""


@dataclass(frozen=True)
class Passage:
    """A first passage asked for: of which clock, at which accuracy, of runs of which kind."""

    clock: Clock
    threshold: float
    kind: Kind | None = None  # None: of all


def runs_frame(
    connection: Connection,
    suite_id: int,
    kinds: Kind | Sequence[Kind],
    passages: Mapping[str, Passage] | None = None,
    filters: Filters | None = None,
    *,
    whole: Sequence[Kind] = (),
) -> pd.DataFrame:
    """The suite's runs of these kinds, inherited ones included, in all states.

    `whole` names kinds of which all runs are read, too, whatever the filters. Columns:
    SUMMARY_TYPES, the flattened spec, and one float column for each passage asked for, NaN where
    the run never reached it (then it is censored at last_epoch), is still open or of a kind that
    was not asked. One statement reads all of them.
    """
    asked: list[Kind] = [kinds] if isinstance(kinds, str) else list(kinds)
    types = SUMMARY_TYPES | {name: column_kind(name) for name in SPEC_COLUMNS}
    conditions, parameters = where(filters)
    parameters |= {"suite": suite_id, "kinds": asked, "whole": list(whole)}
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
        state=STATE,
        columns=", ".join(f"r.{name}" for name in SPEC_COLUMNS),
        passages=" ".join(selected),
        lookups=" ".join(lookups),
        conditions=conditions,
        whole="OR r.kind = ANY(%(whole)s)" if whole else "",
    )
    # Sorted here: the server would sort whole rows of text, which takes as long as reading them.
    table = read_table(connection, query, parameters, types)
    rank = pc.index_in(table["kind"], pa.array([*asked, *whole]))
    order = [("rank", "ascending"), *((name, "ascending") for name in ORDER)]
    keys = table.select(ORDER).append_column("rank", rank)
    return _as_pandas(table.take(pc.sort_indices(keys, sort_keys=order)))


def _passage(name: str, passage: Passage) -> tuple[str, str, dict[str, Any]]:
    """Expression, join and parameters that give the passage the name."""
    if not name.isidentifier():
        raise InputError(f"passage: {name!r} is not a name for a column")
    if passage.kind not in (None, *KINDS):
        raise InputError(f"passage: {passage.kind!r} is not one of {', '.join(KINDS)}")
    if not 0 < passage.threshold <= 1:
        raise InputError(f"threshold: {passage.threshold} is not in (0, 1]")
    array, count, size, loss = CLOCK_COLUMNS[passage.clock]
    index = ladder_index(passage.threshold)
    of_kind = "true" if passage.kind is None else f"r.kind = '{passage.kind}'"
    if index is not None:
        return f"CASE WHEN {of_kind} THEN r.{array}[{index}] END", "", {}
    exact = Fraction(repr(float(passage.threshold)))
    below = sum(k <= exact * 1000 for k in LADDER)  # position of the threshold just below
    lower = f"r.{array}[{below}]" if below else "1"
    upper = f"coalesce(r.{array}[{below + 1}], r.set_aside_epoch, r.last_epoch)"
    lookup = LOOKUP.format(
        name=name,
        lower=lower,
        upper=upper,
        count=count,
        size=size,
        loss=loss,
        of_kind=of_kind,
    )
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


TYPES = {"run_id": "int", "epoch": "int"} | {name: "float" for name in COLUMNS}

# A thinner curve keeps its first and last epoch, every stride-th one, and each first passage at
# 50, 90, 98 and 99 % (elements 1, 41, 49, 50), so that a drawn line crosses where the run did.
CURVES = f"""
SELECT c.run_id, c.epoch, {", ".join(f"c.{name}" for name in COLUMNS)}
FROM runs r JOIN curve c ON c.run_id = r.id
WHERE r.id = ANY(%(runs)s) AND c.epoch BETWEEN %(first)s AND %(last)s
    AND (%(stride)s = 1 OR c.epoch %% %(stride)s = 0 OR c.epoch IN (1, r.last_epoch)
        OR c.epoch = ANY(ARRAY[
            r.first_online[1], r.first_online[41], r.first_online[49], r.first_online[50],
            r.first_eval[1], r.first_eval[41], r.first_eval[49], r.first_eval[50],
            r.first_val[1], r.first_val[41], r.first_val[49], r.first_val[50]]))
ORDER BY c.run_id, c.epoch
"""

LONGEST = 2**31 - 1


def curves_frame(
    connection: Connection,
    run_ids: Sequence[int],
    *,
    first: int = 1,
    last: int | None = None,
    max_points: int | None = None,
) -> pd.DataFrame:
    """Metrics by run and epoch; counts that a run does not record are NaN.

    With `max_points` the longest run of those asked gives about as many epochs, others as dense.
    """
    if max_points is not None and max_points < 2:
        raise InputError(f"max_points: {max_points} is not accepted; 2 or more")
    end = LONGEST if last is None else last
    stride = 1
    if max_points is not None:
        longest = connection.scalar(
            text("SELECT max(last_epoch) FROM runs WHERE id = ANY(:ids)"), {"ids": list(run_ids)}
        )
        epochs = max(0, min(longest or 0, end) - first + 1)
        stride = max(1, -(-epochs // max_points))
    parameters = {"runs": list(run_ids), "first": first, "last": end, "stride": stride}
    return read_frame(connection, CURVES, parameters, TYPES)


def accuracies(frame: pd.DataFrame, n_train: int, n_val: int) -> pd.DataFrame:
    """The frame of one run with shares in place of counts."""
    shares = frame.drop(columns=list(COUNTS))
    for name in COUNTS:
        n = n_val if name == "val_correct" else n_train
        column = name.replace("correct", "accuracy")
        shares[column] = frame[name] / n if n else float("nan")
    return shares
