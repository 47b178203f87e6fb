"""The arrays an analysis starts from: one cell's runs as parallel columns.

A first passage is an epoch counted from 1, or NaN when the run stopped without reaching the
threshold; then `last_epoch` is where it was right-censored. Whoever assembles these arrays
has already chosen the clock and the thresholds; they ride along.

Processors and libraries add in different orders, so that two sums of the same terms may differ
in their last digits. Wherever an answer hangs on which of two numbers is larger, numbers that
close are taken as equal (`merged`, `constant`): otherwise it would change with the machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from groktime.service.analysis import ANY_DELAY, MinimumDelay, Units
from groktime.service.errors import AnalysisError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def finite(value: float | None) -> float | None:
    """The number where there is one: infinities and NaN have no JSON."""
    return None if value is None or not math.isfinite(value) else float(value)


def _columns(owner: object, floats: tuple[str, ...], ints: tuple[str, ...]) -> None:
    """Coerce the named columns of a frozen dataclass to arrays of one common length."""
    for name in floats:
        object.__setattr__(owner, name, np.asarray(getattr(owner, name), dtype=np.float64))
    for name in ints:
        object.__setattr__(owner, name, np.asarray(getattr(owner, name), dtype=np.int64))
    lengths = {name: len(getattr(owner, name)) for name in (*floats, *ints)}
    if len(set(lengths.values())) > 1:
        raise AnalysisError(f"columns of {type(owner).__name__} differ in length: {lengths}")


def _no_flags() -> BoolArray:
    return np.empty(0, dtype=np.bool_)


def _diverged(given: BoolArray, size: int) -> BoolArray:
    """One flag per run; none given means that no run diverged."""
    if len(given) not in (0, size):
        raise AnalysisError(f"diverged: {len(given)} flags for {size} runs")
    return np.asarray(given, dtype=np.bool_) if len(given) else np.zeros(size, dtype=np.bool_)


def _no_ids() -> IntArray:
    return np.empty(0, dtype=np.int64)


def _ids(given: IntArray, size: int) -> IntArray:
    return given if len(given) else np.arange(size)


def _one_run_per_width_and_seed(width: IntArray, seed: IntArray) -> None:
    pairs = np.stack([width, seed], axis=1)
    unique, counts = np.unique(pairs, axis=0, return_counts=True)
    if np.any(counts > 1):
        w, s = unique[np.argmax(counts > 1)]
        raise AnalysisError(f"width {w}, seed {s}: more than one run; one is accepted")


def _check_passages(name: str, epoch: FloatArray, last_epoch: FloatArray) -> None:
    reached = ~np.isnan(epoch)
    if np.any(epoch[reached] < 1):
        raise AnalysisError(f"{name}: {np.nanmin(epoch):g} is before epoch 1")
    if np.any(np.isnan(last_epoch)):
        raise AnalysisError("last_epoch: NaN; every run has a last epoch")
    late = reached & (epoch > last_epoch)
    if np.any(late):
        at = int(np.argmax(late))
        raise AnalysisError(f"{name}: {epoch[at]:g} is after the last epoch {last_epoch[at]:g}")


@dataclass(frozen=True, kw_only=True)
class ByKind:
    """One count for the random-label runs and one for the runs on the structured task."""

    speed: int
    grok: int


@dataclass(frozen=True, eq=False)
class FirstPassages:
    """One threshold's first passages over the widths and seeds of one cell (one kind of run).

    All arrays have one entry per finished run. `missing` maps a width to the number of runs
    that should be there and are not (failed for other reasons than divergence, or pending).
    """

    width: IntArray
    params: FloatArray  # trainable parameters P
    seed: IntArray
    epoch: FloatArray  # first passage, NaN = not reached
    last_epoch: FloatArray  # where a run that did not reach was censored
    diverged: BoolArray = field(default_factory=_no_flags)  # none given = none diverged
    missing: Mapping[int, int] = field(default_factory=dict)
    clock: str = "online"
    threshold: float = 0.99
    steps_per_epoch: int = 1
    units: Units = "epochs"
    located: bool = False  # runs were chosen as they came: few seeds, where they matter
    run: IntArray = field(default_factory=_no_ids)  # ids; none given = positions

    def __post_init__(self) -> None:
        object.__setattr__(self, "run", _ids(self.run, len(self.width)))
        _columns(self, ("params", "epoch", "last_epoch"), ("width", "seed", "run"))
        object.__setattr__(self, "diverged", _diverged(self.diverged, len(self.width)))
        _one_run_per_width_and_seed(self.width, self.seed)
        _check_passages("epoch", self.epoch, self.last_epoch)

    def __len__(self) -> int:
        return len(self.width)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seed ids present at any width, sorted."""
        return tuple(int(s) for s in np.unique(self.seed))

    @property
    def n_censored(self) -> int:
        """Runs that stopped short of the threshold without diverging."""
        return int(np.sum(np.isnan(self.epoch) & ~self.diverged))

    @property
    def n_diverged(self) -> int:
        """Diverged runs that had not reached the threshold before."""
        return int(np.sum(np.isnan(self.epoch) & self.diverged))

    @property
    def n_missing(self) -> int:
        return int(sum(self.missing.values()))

    def where(self, keep: BoolArray) -> FirstPassages:
        """The runs selected by a mask, with the same conventions."""
        return replace(self, **_masked(self, keep, _PASSAGE_COLUMNS))

    def in_steps(self) -> FirstPassages:
        """The same passages counted in optimiser steps."""
        if self.units == "steps":
            return self
        factor = float(self.steps_per_epoch)
        return replace(
            self, epoch=self.epoch * factor, last_epoch=self.last_epoch * factor, units="steps"
        )


_PASSAGE_COLUMNS = ("width", "params", "seed", "epoch", "last_epoch", "diverged", "run")


@dataclass(frozen=True, eq=False)
class GrokRuns:
    """Runs of one cell on the structured task: the clocks of training and of validation."""

    width: IntArray
    params: FloatArray  # trainable parameters P
    seed: IntArray
    e_train: FloatArray  # first epoch with training accuracy ≥ train_threshold, NaN = never
    e_val: FloatArray  # first epoch with validation accuracy ≥ val_threshold, NaN = never
    t_gen: FloatArray  # first epoch with validation accuracy ≥ gen_threshold, NaN = never
    last_epoch: FloatArray
    diverged: BoolArray = field(default_factory=_no_flags)  # none given = none diverged
    missing: Mapping[int, int] = field(default_factory=dict)
    clock: str = "online"
    train_threshold: float = 0.99
    val_threshold: float = 0.98
    gen_threshold: float = 0.99
    steps_per_epoch: int = 1
    min_delay: MinimumDelay = ANY_DELAY
    located: bool = False  # runs were chosen as they came
    crossing_seeds: frozenset[int] | None = None  # apart from the onset's; None: all serve both
    run: IntArray = field(default_factory=_no_ids)  # ids; none given = positions

    def __post_init__(self) -> None:
        object.__setattr__(self, "run", _ids(self.run, len(self.width)))
        numbers = ("params", "e_train", "e_val", "t_gen", "last_epoch")
        _columns(self, numbers, ("width", "seed", "run"))
        object.__setattr__(self, "diverged", _diverged(self.diverged, len(self.width)))
        _one_run_per_width_and_seed(self.width, self.seed)
        for name in ("e_train", "e_val", "t_gen"):
            _check_passages(name, getattr(self, name), self.last_epoch)

    def __len__(self) -> int:
        return len(self.width)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seed ids present at any width, sorted."""
        return tuple(int(s) for s in np.unique(self.seed))

    @property
    def n_missing(self) -> int:
        return int(sum(self.missing.values()))

    def where(self, keep: BoolArray) -> GrokRuns:
        """The runs selected by a mask, with the same conventions."""
        return replace(self, **_masked(self, keep, _GROK_COLUMNS))

    def first_seeds(self, count: int) -> GrokRuns:
        """Only the `count` smallest seeds, to compare unequal cells; a width has those it has."""
        return self.where(np.isin(self.seed, self.seeds[:count]))

    def for_onset(self) -> GrokRuns:
        """The runs that the onset may use: where seeds are kept apart, none of the crossing's."""
        if self.crossing_seeds is None:
            return self
        return self.where(~np.isin(self.seed, list(self.crossing_seeds)))

    def generalisation(self) -> FirstPassages:
        """The first passages whose centre over seeds is T_gen."""
        if self.crossing_seeds is not None:
            own = replace(self, crossing_seeds=None)
            return own.where(np.isin(self.seed, list(self.crossing_seeds))).generalisation()
        return FirstPassages(
            self.width,
            self.params,
            self.seed,
            self.t_gen,
            self.last_epoch,
            self.diverged,
            self.missing,
            clock="eval",  # validation accuracy is always measured after the epoch
            threshold=self.gen_threshold,
            steps_per_epoch=self.steps_per_epoch,
            run=self.run,
        )


_GROK_COLUMNS = (
    *("width", "params", "seed", "e_train", "e_val", "t_gen", "last_epoch", "diverged", "run"),
)


@dataclass(frozen=True, eq=False)
class CapacityRuns:
    """Random-label runs of one setting: bits memorised M_T at each width and dataset size."""

    width: IntArray
    params: FloatArray  # trainable parameters P
    n: FloatArray  # examples in the random-label set
    bits: FloatArray  # M_T of the last epoch
    vocabulary: int  # V; a label carries log2 V bits
    missing: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _columns(self, ("params", "n", "bits"), ("width",))
        if self.vocabulary < 2:
            raise AnalysisError(f"vocabulary: {self.vocabulary} is below 2")

    def __len__(self) -> int:
        return len(self.width)


def _masked(owner: object, keep: BoolArray, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(owner, name)[keep] for name in names}


ROUNDING = 1e-10  # of the numbers' size: far above rounding, far below any real difference


def constant(values: FloatArray) -> bool:
    """All values equal but for rounding; true of none or one."""
    return len(values) < 2 or float(np.ptp(values)) <= ROUNDING * float(np.abs(values).max())


def merged(values: FloatArray, scale: float | None = None) -> FloatArray:
    """The values with those of one tie made exactly equal, so that ranks are shared.

    Neighbours in order that differ by less than rounding of `scale` (by default the largest
    value's size) are one tie, and get its smallest value.
    """
    values = np.asarray(values, dtype=np.float64)
    if len(values) < 2:
        return values
    reach = ROUNDING * (float(np.abs(values).max()) if scale is None else scale)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.concatenate([[True], np.diff(ordered) > reach])
    result = np.empty_like(values)
    result[order] = ordered[starts][np.cumsum(starts) - 1]
    return result


def share_below(values: FloatArray, reference: float) -> float:
    """The share of values below a reference, a tie counting one half."""
    reach = ROUNDING * max(abs(reference), float(np.abs(values).max(initial=0.0)))
    below = np.sum(values < reference - reach)
    tied = np.sum(np.abs(values - reference) <= reach)
    return float((below + 0.5 * tied) / len(values))


def first_smallest(values: FloatArray, scale: float | None = None) -> int:
    """The index of the first value that is the smallest but for rounding of `scale`."""
    least = float(np.min(values))
    reach = ROUNDING * (abs(least) if scale is None else scale)
    return int(np.argmax(values <= least + reach))
