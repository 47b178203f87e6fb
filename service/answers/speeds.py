"""How fast models of every size memorise and generalise in one cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pandas as pd
from pydantic import Field
from sqlalchemy import Connection

from service.analysis.inputs import FirstPassages
from service.analysis.speeds import Speeds, WidthSpeed
from service.analysis.speeds import speeds as find_speeds
from service.answers.asking import Asked, ask
from service.answers.bits import cell_bits
from service.answers.inputs import first_passages, grok_runs
from service.answers.making import Answer, BitsPerParameter, ByKind, Units, finite
from service.answers.question import Question


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


def speeds(connection: Connection, question: Question) -> SpeedsAnswer:
    """Both speeds of the cell asked about."""
    asked = ask(connection, question)
    return speeds_of(asked, cell_bits(connection, asked))


def speeds_of(asked: Asked, c_model: BitsPerParameter) -> SpeedsAnswer:
    """The answer for a cell whose runs have been read."""
    cell, convention = asked.cell, asked.convention
    mem = first_passages(cell, convention)
    gen = grok_runs(cell, convention).generalisation()
    p_mem = cell.k_mem / c_model.value

    def points(runs: FirstPassages, rows: pd.DataFrame) -> tuple[SpeedPoint, ...]:
        if not len(runs):
            return ()
        found = find_speeds(runs, units=convention.units, level=convention.level)
        ids = {
            (int(w), int(s)): int(i)
            for w, s, i in zip(rows["width"], rows["seed"], rows["run_id"], strict=True)
        }
        failed = {
            (int(w), int(s))
            for w, s, d in zip(runs.width, runs.seed, runs.diverged, strict=True)
            if d
        }
        return tuple(_point(row, found, p_mem, ids, failed) for row in found.rows)

    return SpeedsAnswer(
        **asked.head(),
        units=convention.units,
        level=convention.level,
        k_mem=cell.k_mem,
        n_train=cell.n_train,
        c_model=c_model,
        p_mem=p_mem,
        t_mem=points(mem, cell.speed),
        t_gen=points(gen, cell.grok),
        seeds=ByKind(speed=len(mem.seeds), grok=len(gen.seeds)),
        censored=ByKind(speed=mem.n_censored, grok=gen.n_censored),
        diverged=ByKind(speed=mem.n_diverged, grok=gen.n_diverged),
        missing=ByKind(speed=mem.n_missing, grok=gen.n_missing),
    )


def _point(
    row: WidthSpeed,
    found: Speeds,
    p_mem: float,
    ids: dict[tuple[int, int], int],
    failed: set[tuple[int, int]],
) -> SpeedPoint:
    return SpeedPoint(
        width=row.width,
        params=int(row.params),
        fraction=p_mem / row.params,
        median=finite(row.median),
        low=finite(row.low),
        high=finite(row.high),
        mean_reached=finite(row.mean),
        restricted_mean=finite(row.restricted_mean),
        horizon=found.horizon,
        seeds=len(row.seeds),
        reached=row.n_reached,
        censored=row.n_censored,
        diverged=row.n_diverged,
        missing=row.n_missing,
        values=tuple(
            SeedSpeed(
                run=ids[row.width, seed],
                seed=seed,
                value=value,
                last=last,
                diverged=(row.width, seed) in failed,
            )
            for seed, value, last in zip(row.seeds, row.values, row.last_epochs, strict=True)
        ),
    )
