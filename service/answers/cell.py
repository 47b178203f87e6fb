"""One cell's runs, found among a suite's by prime and setting, as the analysis wants them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sqlalchemy import Connection

from groktime.db.records import SuiteRecord
from groktime.service.analysis import Method as Method
from groktime.service.analysis import Units as Units
from groktime.service.analysis.crossing import Crossing, crossing
from groktime.service.analysis.delay import Onset, onset
from groktime.service.analysis.inputs import FirstPassages, GrokRuns
from groktime.service.answers.question import (
    Convention,
    Kept,
    Labels,
    QuestionError,
    Setting,
    SettingValue,
    asked_runs,
    prime_runs,
)
from groktime.service.spec import DATA_COLUMNS, MODEL_COLUMNS, OPTIMISER_COLUMNS, SETTING_COLUMNS

SHARED_COLUMNS = MODEL_COLUMNS + OPTIMISER_COLUMNS


@dataclass(frozen=True, eq=False)
class Cell:
    """One prime at one setting: its random-label runs and its runs on the structured task."""

    prime: int
    setting: Setting  # values of the swept axes only
    values: Setting  # value of every setting column
    n_train: int
    k_mem: float
    vocabulary: int
    labels: Labels
    speed: pd.DataFrame
    grok: pd.DataFrame

    @property
    def batch_size(self) -> int:
        batch = self.values["batch_size"]
        assert isinstance(batch, int)
        return min(batch, self.n_train)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.n_train // self.batch_size)

    @property
    def last_batch(self) -> int:
        """Examples that are left for the last step of an epoch."""
        return self.n_train - (self.steps_per_epoch - 1) * self.batch_size


def swept_axes(runs: pd.DataFrame) -> tuple[str, ...]:
    """Setting columns with several values at one prime, among the runs that define cells."""
    defining = _defining(runs)
    varying = _varying(defining)
    if not varying:
        return ()
    by_prime = defining.groupby("prime")[varying].nunique(dropna=False)
    return tuple(name for name in varying if (by_prime[name] > 1).any())


def _varying(runs: pd.DataFrame) -> list[str]:
    """Setting columns with more than one value: most have one, and need no look at each run."""
    return [name for name in SETTING_COLUMNS if not _constant(runs[name])]


def _constant(column: pd.Series[Any]) -> bool:
    values = column.to_numpy()
    if not len(values):
        return True
    if pd.isna(values[0]):
        return bool(pd.isna(values).all())
    return bool((values == values[0]).all())


def cells(
    runs: pd.DataFrame, filters: Mapping[str, SettingValue], labels: Labels | None
) -> Iterator[Cell]:
    """Every cell of the runs that passes the filters, by prime and then by setting."""
    axes = swept_axes(runs)
    chosen = _filtered(_defining(runs), filters)
    speed = _SpeedRuns(runs[runs["kind"] == "speed"])
    used = labels or speed.usual_labels
    for _, group in chosen.groupby(["prime", "n_train", *_varying(chosen)], dropna=False):
        yield _cell(group, speed, axes, used)


def _defining(runs: pd.DataFrame) -> pd.DataFrame:
    """Runs whose settings name the cells: on the structured task, or speed runs without any."""
    grok = runs[runs["kind"] == "grok"]
    return grok if len(grok) else runs[runs["kind"] == "speed"]


def _filtered(runs: pd.DataFrame, filters: Mapping[str, SettingValue]) -> pd.DataFrame:
    for name, value in filters.items():
        there = runs[name]
        if name == "batch_size" and value == "full":
            keep = there >= runs["n_train"]
        elif isinstance(value, float):
            keep = pd.Series(np.isclose(there.astype(float), value), index=there.index)
        else:
            keep = there == value
        kept = runs[keep]
        if not len(kept):
            values = sorted({setting_value(v) for v in there}, key=sortable)
            raise QuestionError(name, value, values, f"{value} is not among the suite's values")
        runs = kept
    return runs


def _cell(group: pd.DataFrame, speed: _SpeedRuns, axes: tuple[str, ...], labels: Labels) -> Cell:
    first = group.iloc[0]
    values = {name: setting_value(first[name]) for name in SETTING_COLUMNS}
    n_train = int(first["n_train"])
    matched = speed.matching(values, int(first["prime"]), n_train, labels)
    return Cell(
        prime=int(first["prime"]),
        setting={name: _shown(name, values[name], n_train) for name in axes},
        values=values,
        n_train=n_train,
        k_mem=float(first["k_mem"]),
        vocabulary=int(first["vocabulary"]),
        labels=labels,
        speed=matched,
        grok=group if first["kind"] == "grok" else group.iloc[:0],
    )


class _SpeedRuns:
    """Speed runs, from which each cell takes those of equal complexity."""

    def __init__(self, runs: pd.DataFrame) -> None:
        self._runs = runs
        self._varying = set(_varying(runs))
        columns = SETTING_COLUMNS if len(runs) else ()
        self._first = {name: setting_value(runs[name].iloc[0]) for name in columns}

    @property
    def usual_labels(self) -> Labels:
        """Random labels, unless the suite has shuffled ones only."""
        tasks = set(self._runs["task"].unique())
        return "shuffled" if tasks == {"shuffled"} else "random"

    def matching(self, values: Setting, prime: int, n_train: int, labels: Labels) -> pd.DataFrame:
        """Runs of equal complexity with the same network and optimiser.

        A random-label run knows no operation: it serves every operation of equal size. Shuffled
        labels sit on the task's own inputs, so there the operation must agree as well.
        """
        runs = self._runs
        if not len(runs):
            return runs
        columns = SHARED_COLUMNS if labels == "random" else (*DATA_COLUMNS[1:], *SHARED_COLUMNS)
        wanted: dict[str, SettingValue] = {"prime": prime, "n_train": n_train, "task": labels}
        wanted.update((name, values[name]) for name in columns)
        keep = np.full(len(runs), True)
        for name, value in wanted.items():
            if name in ("prime", "n_train", "task") or name in self._varying:
                keep &= runs[name].to_numpy() == value
            elif self._first[name] != value:
                return runs.iloc[:0]
        return runs[keep]


def _shown(name: str, value: SettingValue, n_train: int) -> SettingValue:
    """A batch of the whole training set is one setting, whatever its size at each prime."""
    if name == "batch_size" and isinstance(value, int) and value >= n_train:
        return "full"
    return value


def setting_value(value: object) -> SettingValue:
    """A column's value without numpy: None for NULL."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    assert isinstance(value, bool | int | float | str)
    return value


def sortable(value: object) -> tuple[int, float, str]:
    """Sort key of mixed axis values: numbers by size, then words."""
    if isinstance(value, int | float):
        return 0, float(value), ""
    return 1, 0.0, str(value)


def diverged(runs: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Failed by a non-finite loss: counts as never reached, and is shown apart."""
    failed = runs["state"].to_numpy() == "failed"
    return np.asarray(failed & (runs["reason"].to_numpy() == "diverged"), dtype=bool)


def closed(runs: pd.DataFrame) -> tuple[pd.DataFrame, dict[int, int]]:
    """Runs that count (done, set aside, or diverged) and by width how many are not there yet."""
    state = runs["state"].to_numpy()
    counts = (state == "done") | (state == "set_aside") | diverged(runs)
    missing = Counter(runs["width"].to_numpy()[~counts].tolist())
    return runs[counts], dict(missing)


def first_passages(cell: Cell, convention: Convention) -> FirstPassages:
    """The cell's memorisation: first passages of its speed runs."""
    _check_threshold("t_mem", convention.thresholds.t_mem, cell.speed, "stop_train")
    _check_clock(convention, cell.speed)
    runs, missing = closed(cell.speed)
    return FirstPassages(
        width=runs["width"].to_numpy(),
        params=runs["params"].to_numpy(),
        seed=runs["seed"].to_numpy(),
        epoch=runs["t_mem"].to_numpy(dtype=float),
        last_epoch=runs["last_epoch"].to_numpy(dtype=float),
        diverged=diverged(runs),
        missing=missing,
        clock=convention.clock,
        threshold=convention.thresholds.t_mem,
        steps_per_epoch=cell.steps_per_epoch,
        located=bool(runs["located"].any()),
        run=runs["run_id"].to_numpy(),
    )


def grok_runs(cell: Cell, convention: Convention) -> GrokRuns:
    """The cell's runs on the structured task with their training and validation passages."""
    thresholds = convention.thresholds
    _check_threshold("e_train", thresholds.e_train, cell.grok, "stop_train")
    _check_threshold("e_val", thresholds.e_val, cell.grok, "stop_val")
    _check_threshold("t_gen", thresholds.t_gen, cell.grok, "stop_val")
    _check_clock(convention, cell.grok)
    runs, missing = closed(cell.grok)
    return GrokRuns(
        width=runs["width"].to_numpy(),
        params=runs["params"].to_numpy(),
        seed=runs["seed"].to_numpy(),
        e_train=runs["e_train"].to_numpy(dtype=float),
        e_val=runs["e_val"].to_numpy(dtype=float),
        t_gen=runs["t_gen"].to_numpy(dtype=float),
        last_epoch=runs["last_epoch"].to_numpy(dtype=float),
        diverged=diverged(runs),
        missing=missing,
        clock=convention.clock,
        train_threshold=thresholds.e_train,
        val_threshold=thresholds.e_val,
        gen_threshold=thresholds.t_gen,
        steps_per_epoch=cell.steps_per_epoch,
        min_delay=convention.min_delay,
        located=bool(runs["located"].any()),
        crossing_seeds=frozenset(int(seed) for seed in cell.speed["seed"].unique())
        if runs["seeds_apart"].any()
        else None,
        run=runs["run_id"].to_numpy(),
    )


def _check_threshold(name: str, value: float, runs: pd.DataFrame, column: str) -> None:
    """Runs that stopped at an accuracy (others have none) know nothing of what comes after it."""
    limit = runs[column].min()  # NaN where no run did
    if value > limit:
        raise QuestionError(
            name, value, f"at most {limit:g}", f"{value:g} is above {limit:g}, where runs stopped"
        )


def _check_clock(convention: Convention, runs: pd.DataFrame) -> None:
    if convention.clock == "eval" and not runs["eval_train"].all():
        raise QuestionError("clock", "eval", ["online"], "these runs did not record the eval clock")


@dataclass(frozen=True, eq=False)
class CellResults:
    """A cell by one convention, with what its answers have in common: each computed once."""

    cell: Cell
    convention: Convention

    @cached_property
    def mem(self) -> FirstPassages:
        """First passages of the random-label runs."""
        return first_passages(self.cell, self.convention)

    @cached_property
    def grok(self) -> GrokRuns:
        """Passages of the runs on the structured task."""
        return grok_runs(self.cell, self.convention)

    @cached_property
    def crossing(self) -> Crossing:
        """P_cross with its bootstrap, which takes longest of all."""
        asked = self.convention
        return crossing(
            self.mem,
            self.grok.generalisation(),
            method=asked.method,
            units=asked.units,
            level=asked.level,
            width_step=2 * int(self.cell.grok["heads"].max() if len(self.cell.grok) else 1),
        )

    @cached_property
    def onset(self) -> Onset:
        """P_onset with its interval."""
        return onset(self.grok, method=self.convention.method, level=self.convention.level)


MOST_KEPT = 64  # primes, each of some hundred runs
_kept = Kept(MOST_KEPT)


def prime_cells(
    connection: Connection,
    suite: SuiteRecord,
    convention: Convention,
    prime: int,
    filters: Mapping[str, SettingValue],
) -> tuple[CellResults, ...]:
    """The cells of one prime that pass the filters.

    They are kept with the runs that were read: whoever chooses a suite and whoever answers from it
    share what was read and computed.
    """
    asked = tuple(sorted((name, repr(value)) for name, value in filters.items()))
    where = (str(connection.engine.url), suite.id, prime, asked, convention)
    stamp = prime_runs(connection, suite, convention, prime)
    kept = _kept.get(where, stamp)
    if isinstance(kept, tuple):
        return kept
    runs = asked_runs(connection, suite, convention, prime)
    found = tuple(CellResults(cell, convention) for cell in cells(runs, filters, convention.labels))
    _kept.put(where, stamp, found)
    return found
