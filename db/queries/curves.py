"""Curves of single runs: all epochs, a range of them, or as many as a figure can show."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from sqlalchemy import Connection, text

from db.curve_rows import COLUMNS, COUNTS
from db.queries.frame import read_frame
from service.errors import InputError

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
