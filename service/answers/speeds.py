"""How fast models of every size memorise and generalise in one cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from service.answers.making import Answer, BitsPerParameter, ByKind, Units


@dataclass(frozen=True, kw_only=True)
class SeedSpeed:
    """One run's first passage; `value` None: it stopped at `last` without reaching."""

    run: int
    seed: int
    value: float | None
    last: float
    diverged: bool


@dataclass(frozen=True, kw_only=True)
class SpeedPoint:
    """One width: the seeds' first passages and their centres, in the answer's units."""

    width: int
    params: int
    fraction: Annotated[float, Field(description="f = K_mem / (C_model P)")]
    median: Annotated[float | None, Field(description="Kaplan–Meier; null: not reached")]
    low: Annotated[float | None, Field(description="Brookmeyer–Crowley; null: not reached")]
    high: float | None
    mean_reached: Annotated[
        float | None, Field(description="the paper's centre: seeds that reached it only")
    ]
    restricted_mean: Annotated[
        float | None, Field(description="for information; depends on `horizon`")
    ]
    horizon: float
    seeds: int
    reached: int
    censored: int
    diverged: int
    missing: int
    values: tuple[SeedSpeed, ...]


@dataclass(frozen=True, kw_only=True)
class SpeedsAnswer(Answer):
    """T_mem(P) and T_gen(P) of one cell, per seed and centred."""

    units: Units
    level: float
    k_mem: float
    n_train: int
    c_model: BitsPerParameter
    p_mem: float
    t_mem: tuple[SpeedPoint, ...]
    t_gen: tuple[SpeedPoint, ...]
    seeds: ByKind
    censored: ByKind
    diverged: ByKind
    missing: ByKind
