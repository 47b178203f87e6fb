"""Where memorisation and generalisation cross in one cell, and whether grokking starts there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from service.answers.making import Answer, BitsPerParameter, ByKind, CurvePoint, Units
from service.answers.onset import OnsetEstimate


@dataclass(frozen=True, kw_only=True)
class CrossingEstimate:
    """P_cross with its seed-block bootstrap interval.

    `level` None: no interval (fewer than 3 common seeds, or the paper's method). An end that is
    None beside a level is open: too many resamples cross beyond the measured widths.
    """

    estimate: Annotated[float | None, Field(description="parameters")]
    low: float | None
    high: float | None
    level: float | None
    few_seeds: bool
    resamples: int
    probability: Annotated[
        float | None, Field(description="share of resamples in which the curves cross")
    ]


@dataclass(frozen=True, kw_only=True)
class RootPoint:
    """One sign change of log T_mem − log T_gen; `low` < `high` when it is only bracketed."""

    params: float
    low: float
    high: float
    epochs: Annotated[float | None, Field(description="both speeds there, in the answer's units")]
    direction: Literal["mem_becomes_faster", "mem_becomes_slower"]
    bracketed: bool


@dataclass(frozen=True, kw_only=True)
class SpeedCurves:
    """Both curves whose crossing was sought."""

    t_mem: tuple[CurvePoint, ...]
    t_gen: tuple[CurvePoint, ...]


@dataclass(frozen=True, kw_only=True)
class CrossingAnswer(Answer):
    """P_cross beside P_onset, and everything that they rest on."""

    units: Units
    status: Literal[
        "crossed",
        "bracketed",
        "mem_always_slower",
        "mem_always_faster",
        "unresolved",
        "insufficient_data",
        "closest_approach",
    ]
    p_cross: CrossingEstimate
    epochs: Annotated[float | None, Field(description="both speeds at P_cross, in `units`")]
    roots: tuple[RootPoint, ...]
    at_edge: Annotated[bool, Field(description="paper: closest approach at an end of the range")]
    unresolved_widths: tuple[int, ...]
    p_onset: OnsetEstimate
    residual: Annotated[float | None, Field(description="log10(P_onset / P_cross)")]
    k_mem: Annotated[float, Field(description="dataset complexity, bits")]
    n_train: int
    p_mem: Annotated[float, Field(description="K_mem / C_model, parameters")]
    c_model: BitsPerParameter
    seeds: ByKind
    censored: ByKind
    diverged: ByKind
    missing: ByKind
    curves: SpeedCurves
