"""Runs grouped by cell and width: how many seeds there are and the mean over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy import stats
from sqlalchemy import Connection, text

from db.thresholds import ladder_index
from service.answers.cell import SETTING_COLUMNS, plain
from service.answers.making import Setting, finite


@dataclass(frozen=True, kw_only=True)
class MeanOverSeeds:
    """Mean first passage over the seeds that reached, with a t interval."""

    mean: float | None
    low: float | None
    high: float | None
    reached: int


@dataclass(frozen=True, kw_only=True)
class CellMeans:
    """The runs of one kind, prime, setting and width, over their seeds."""

    kind: str
    prime: int
    setting: Setting
    n_train: int
    width: int
    params: int
    runs: int
    done: int
    failed: int
    e_train_99: MeanOverSeeds
    e_val_99: MeanOverSeeds
    bits: MeanOverSeeds


@dataclass(frozen=True, kw_only=True)
class CellList:
    """All cells of a suite, width by width."""

    suite: str
    revision: int
    level: float
    items: tuple[CellMeans, ...]


_SETTINGS = ", ".join(f"r.{name}" for name in SETTING_COLUMNS)
_TRAIN = f"r.first_online[{ladder_index(0.99)}]"
_VAL = f"r.first_val[{ladder_index(0.99)}]"

CELLS = f"""
SELECT r.kind, r.prime, {_SETTINGS}, r.n_train, r.width, r.params, count(*) AS runs,
       count(*) FILTER (WHERE r.state = 'done') AS done,
       count(*) FILTER (WHERE r.state = 'failed') AS failed,
       count({_TRAIN}) AS train_n, avg({_TRAIN}) AS train_mean, stddev_samp({_TRAIN}) AS train_std,
       count({_VAL}) AS val_n, avg({_VAL}) AS val_mean, stddev_samp({_VAL}) AS val_std,
       count(r.bits) AS bits_n, avg(r.bits) AS bits_mean, stddev_samp(r.bits) AS bits_std
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = :suite_id
  AND (CAST(:kind AS text) IS NULL OR r.kind = :kind)
  AND (CAST(:prime AS integer) IS NULL OR r.prime = :prime)
GROUP BY r.kind, r.prime, {_SETTINGS}, r.n_train, r.width, r.params
ORDER BY r.kind, r.prime, {_SETTINGS}, r.n_train, r.params
"""


def list_cells(
    connection: Connection,
    suite_id: int,
    axes: Sequence[str],
    *,
    kind: str | None,
    prime: int | None,
    level: float,
) -> tuple[CellMeans, ...]:
    """Runs grouped over seeds; `axes` are the swept ones, shown as the setting."""
    asked = {"suite_id": suite_id, "kind": kind, "prime": prime}
    rows = connection.execute(text(CELLS), asked).mappings()
    return tuple(
        CellMeans(
            kind=row["kind"],
            prime=row["prime"],
            setting={name: plain(row[name]) for name in axes},
            n_train=row["n_train"],
            width=row["width"],
            params=row["params"],
            runs=row["runs"],
            done=row["done"],
            failed=row["failed"],
            e_train_99=_mean(row, "train", level),
            e_val_99=_mean(row, "val", level),
            bits=_mean(row, "bits", level),
        )
        for row in rows
    )


def _mean(row: Mapping[Any, Any], name: str, level: float) -> MeanOverSeeds:
    n, mean, std = row[f"{name}_n"], row[f"{name}_mean"], row[f"{name}_std"]
    if not n:
        return MeanOverSeeds(mean=None, low=None, high=None, reached=0)
    centre = float(mean)
    if n < 2 or std is None:
        return MeanOverSeeds(mean=finite(centre), low=None, high=None, reached=n)
    half = float(stats.t.ppf(0.5 + level / 2, n - 1)) * float(std) / n**0.5
    return MeanOverSeeds(
        mean=finite(centre), low=finite(centre - half), high=finite(centre + half), reached=n
    )
