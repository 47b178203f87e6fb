"""The runs themselves: pages of them, one with its attempts, its curve, and means over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field
from scipy import stats
from sqlalchemy import Connection, text

from groktime.db.frames import accuracies, curves_frame
from groktime.db.runs import count_runs, get_run
from groktime.db.runs import list_runs as page_of_runs
from groktime.service.analysis.inputs import finite
from groktime.service.answers.cell import closed, setting_value
from groktime.service.answers.context import cell_context
from groktime.service.answers.question import NotEnough, Question, Setting, Unknown
from groktime.service.spec import LADDER, SETTING_COLUMNS, ladder_index


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One run: what it is, how it stands and what came out."""

    id: int
    key: str
    state: str
    kind: str
    task: str
    prime: int
    operation: str | None
    train_fraction: float | None
    split: str | None
    n_train: int
    n_val: int
    vocabulary: int
    k_mem: float
    architecture: str
    width: int
    depth: int
    heads: int
    positions: str
    norm: str
    ffn: str
    released_head_projection: bool
    dropout: float
    init_scale: float
    params: int
    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    batch_size: int
    warmup: int
    stop_rule: str
    stop_train: float | None
    stop_val: float | None
    max_epochs: int
    eval_train: bool
    seed: int
    attempt: int
    last_epoch: int
    e_train: Annotated[int | None, Field(description="first epoch at 99 %, online clock")]
    e_train_eval: Annotated[int | None, Field(description="first epoch at 99 %, eval clock")]
    e_val: Annotated[int | None, Field(description="first epoch at 98 % of validation")]
    t_gen: Annotated[int | None, Field(description="first epoch at 99 % of validation")]
    final_train_loss: float | None
    final_val_loss: float | None
    bits: Annotated[float | None, Field(description="M_T of the last epoch (capacity runs)")]
    stopped_by: str | None
    reason: Annotated[str | None, Field(description="why the run failed")]
    seconds: float | None
    engine: str | None
    device: str | None
    closed_at: datetime | None


COLUMNS: tuple[str, ...] = tuple(f.name for f in fields(RunRow))


@dataclass(frozen=True, kw_only=True)
class RunList:
    """A page of runs."""

    items: tuple[RunRow, ...]
    next: Annotated[str | None, Field(description="cursor of the next page; null: the end")]
    total: Annotated[int, Field(description="runs on all pages")]


def list_runs(
    connection: Connection,
    *,
    suite_id: int | None,
    filters: Mapping[str, Sequence[Any]],
    sort: str,
    descending: bool,
    limit: int,
    cursor: str | None,
) -> RunList:
    """One page of the runs that pass the filters."""
    page = page_of_runs(
        connection,
        suite_id=suite_id,
        filters=filters,
        sort=sort,
        descending=descending,
        limit=limit,
        cursor=cursor,
    )
    total = count_runs(connection, suite_id=suite_id, filters=filters)
    return RunList(items=tuple(_row(run) for run in page.runs), next=page.next_cursor, total=total)


def _row(run: Mapping[str, Any]) -> RunRow:
    values: dict[str, Any] = {name: run[name] for name in COLUMNS}
    for name, value in values.items():
        if isinstance(value, float):
            values[name] = finite(value)
    return RunRow(**values)


@dataclass(frozen=True, kw_only=True)
class AttemptRow:
    """One time a worker took the run."""

    attempt: int
    owner: str
    host: str
    started_at: datetime
    ended_at: datetime | None
    resume_epoch: int
    state: str
    reason: str | None
    engine: str | None
    device: str | None
    fingerprint: str | None
    git_commit: str | None
    git_dirty: bool | None
    versions: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class PassageLadder:
    """First epochs at which each clock reached each threshold; None: not reached."""

    thresholds: tuple[float, ...]
    online: tuple[int | None, ...]
    eval: tuple[int | None, ...]
    val: tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True)
class RunDetail:
    """Everything about one run but its curve."""

    run: RunRow
    spec: Annotated[Mapping[str, Any], Field(description="everything that can change the result")]
    suites: tuple[str, ...]
    passages: PassageLadder | None
    attempts: tuple[AttemptRow, ...]


def run_detail(connection: Connection, run_id: int) -> RunDetail:
    """One run; refuses an id that is not there."""
    found = get_run(connection, run_id)
    if found is None:
        raise Unknown("id", run_id, "an id that /runs lists", f"there is no run {run_id}")
    shown = {
        "e_train": _passage(found["first_online"], 0.99),
        "e_train_eval": _passage(found["first_eval"], 0.99),
        "e_val": _passage(found["first_val"], 0.98),
        "t_gen": _passage(found["first_val"], 0.99),
    }
    names = [f.name for f in fields(AttemptRow)]
    return RunDetail(
        run=_row(found | shown),
        spec=found["spec"],
        suites=tuple(suite["name"] for suite in found["suites"]),
        passages=_ladder(found),
        attempts=tuple(
            AttemptRow(**{name: attempt[name] for name in names}) for attempt in found["attempts"]
        ),
    )


def _passage(ladder: Sequence[int | None] | None, threshold: float) -> int | None:
    index = ladder_index(threshold)
    assert index is not None
    return None if ladder is None else ladder[index - 1]


def _ladder(row: Mapping[Any, Any]) -> PassageLadder | None:
    if row["first_online"] is None:
        return None
    return PassageLadder(
        thresholds=tuple(k / 1000 for k in LADDER),
        online=tuple(row["first_online"]),
        eval=tuple(row["first_eval"] or [None] * len(LADDER)),
        val=tuple(row["first_val"] or [None] * len(LADDER)),
    )


Reals = tuple[float | None, ...]

CURVE_COLUMNS = (
    "train_loss",
    "train_accuracy",
    "train_accuracy_eval",
    "val_loss",
    "val_accuracy",
    "bits",
    "weight_norm",
)


@dataclass(frozen=True, kw_only=True)
class RunCurve:
    """Parallel columns, one entry an epoch; None where a run does not record a column.

    `sampled`: these are not all recorded epochs, but `shown` of `recorded`.
    """

    run: RunRow
    recorded: Annotated[int, Field(description="epochs in the database")]
    shown: int
    sampled: bool
    epoch: tuple[int, ...]
    train_loss: Reals
    train_accuracy: Annotated[Reals, Field(description="online clock")]
    train_accuracy_eval: Reals
    val_loss: Reals
    val_accuracy: Reals
    bits: Reals
    weight_norm: Reals


def run_curve(
    connection: Connection,
    run_id: int,
    *,
    epochs: Sequence[int] | None = None,
    points: int | None = None,
) -> RunCurve:
    """The curve of one run: at `epochs`, or thinned to about `points`, or all of it."""
    run = run_detail(connection, run_id).run
    frame = curves_frame(
        connection,
        [run_id],
        first=min(epochs) if epochs else 1,
        last=max(epochs) if epochs else None,
        max_points=points,
    )
    if epochs:
        frame = frame[frame["epoch"].isin(list(epochs))]
    shares = accuracies(frame, run.n_train, run.n_val)
    columns = {name: tuple(finite(v) for v in shares[name].tolist()) for name in CURVE_COLUMNS}
    return RunCurve(
        run=run,
        recorded=run.last_epoch,
        shown=len(shares),
        sampled=len(shares) < run.last_epoch,
        epoch=tuple(int(epoch) for epoch in shares["epoch"]),
        **columns,
    )


def telling_runs(connection: Connection, question: Question) -> list[int]:
    """Runs that show the cell's story where none is named: one seed at the smallest width, on
    both sides of the crossing, and at the largest."""
    context = cell_context(connection, question)
    done, _ = closed(context.cell.grok)
    done = done[done["state"] == "done"]
    if not len(done):
        where = f"{context.suite.name} at p = {context.cell.prime}"
        raise NotEnough("run", None, "ids that /runs lists", f"{where} has no finished run")
    found = context.results.crossing.p_cross
    params = sorted({int(p) for p in done["params"]})
    split = found.estimate or params[len(params) // 2]
    sides = {max((p for p in params if p <= split), default=params[0])}
    sides |= {min((p for p in params if p > split), default=params[-1])}
    first = done.sort_values(["params", "seed"]).drop_duplicates("params")
    shown = first[first["params"].isin([params[0], *sides, params[-1]])]
    return [int(run) for run in shown["run_id"]]


@dataclass(frozen=True, kw_only=True)
class MeanOverSeeds:
    """Mean over the seeds that have a value, with a t interval; of times on the log scale."""

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
            setting={name: setting_value(row[name]) for name in axes},
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
    if name != "bits":  # epochs are positive, and so are the limits
        factor = math.exp(half / centre)
        low, high = finite(centre / factor), finite(centre * factor)
        return MeanOverSeeds(mean=finite(centre), low=low, high=high, reached=n)
    return MeanOverSeeds(
        mean=finite(centre), low=finite(centre - half), high=finite(centre + half), reached=n
    )
