"""A query's answer as a pandas frame, through COPY: several times faster than fetching rows."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
from sqlalchemy import Connection

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
    driver: Any = connection.connection.driver_connection
    buffer = io.BytesIO()
    with driver.cursor() as cursor:
        bound = cursor.mogrify(query, dict(parameters)).decode()
        cursor.copy_expert(f"COPY ({bound}) TO STDOUT WITH (FORMAT csv)", buffer)
    if not buffer.tell():
        empty = pa.table({name: pa.array([], ARROW_TYPES[kind]) for name, kind in types.items()})
        return _as_pandas(empty)
    buffer.seek(0)
    table = pyarrow.csv.read_csv(
        buffer,
        read_options=pyarrow.csv.ReadOptions(column_names=list(types), use_threads=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={
                name: pa.string() if kind == "time" else ARROW_TYPES[kind]
                for name, kind in types.items()
            },
            true_values=["t"],
            false_values=["f"],
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    frame = _as_pandas(table)
    for name, kind in types.items():
        if kind == "time":
            frame[name] = pd.to_datetime(frame[name], utc=True, format="ISO8601")
    return frame


def _as_pandas(table: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas()
    return frame
