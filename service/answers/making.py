"""What every answer says of itself: which runs, which convention, which thresholds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from service.analysis.inputs import Method as Method
from service.analysis.inputs import Units as Units

Clock = Literal["online", "eval"]
Labels = Literal["random", "shuffled"]
SettingValue = bool | int | float | str | None
Setting = Mapping[str, SettingValue]


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Accuracies whose first epochs are the clocks: T_mem, T_gen, E_train and E_val."""

    t_mem: float = 0.99
    t_gen: float = 0.99
    e_train: float = 0.99
    e_val: float = 0.98


@dataclass(frozen=True, kw_only=True)
class ByKind:
    """One count for the random-label runs and one for the runs on the structured task."""

    speed: int
    grok: int


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """How the answer came about; with the runs of this revision it gives the same answer."""

    analysis_version: int
    suite_hash: Annotated[str, Field(description="sha256 of the suite's canonical JSON")]
    frozen: Annotated[bool, Field(description="the suite can no longer change")]
    thresholds: Thresholds
    max_width: Annotated[int | None, Field(description="widths above it are left out")]
    labels: Annotated[Labels, Field(description="labels of the speed runs")]
    runs: ByKind
    inherited: Annotated[ByKind, Field(description="runs among these of a donor suite")]
    engines: Annotated[tuple[str, ...], Field(description="engines that trained the runs")]
    devices: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The head of every answer about one cell."""

    suite: str
    revision: Annotated[int, Field(description="raised whenever a run of the suite closes")]
    prime: int
    setting: Annotated[Setting, Field(description="the cell's values of the suite's swept axes")]
    method: Method
    clock: Annotated[Clock, Field(description="training clock; validation is always eval")]
    provenance: Provenance


@dataclass(frozen=True, kw_only=True)
class BitsPerParameter:
    """C_model and where it came from.

    fitted: from the suite's capacity runs at the cell's setting; matched_suite: from runs there
    that another suite of this database has trained, inherited or not; paper: the published
    constant, for want of a fit.
    """

    value: float
    low: float | None
    high: float | None
    level: float | None
    interval: Annotated[
        Literal["bootstrap", "t"] | None,
        Field(description="over resampled widths, or least squares' with three; null: none"),
    ]
    source: Literal["fitted", "matched_suite", "paper"]
    suite: Annotated[str | None, Field(description="whose capacity runs; null: the paper's")]
    note: str


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """A speed at one width; `value` is None where the median (or every seed) is unreached."""

    width: int
    params: int
    value: Annotated[float | None, Field(description="centre over seeds; null: not reached")]
    seeds: int
    reached: int
    censored: int
    diverged: int
    missing: int


def finite(value: float | None) -> float | None:
    """The number where there is one: infinities and NaN have no JSON."""
    return None if value is None or not math.isfinite(value) else float(value)
