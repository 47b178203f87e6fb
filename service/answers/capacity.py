"""How many bits models of a setting can memorise, and how many a parameter holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pandas as pd
from pydantic import Field
from sqlalchemy import Connection

from service.analysis import ANALYSIS_VERSION
from service.analysis.capacity import Capacity, Plateau
from service.answers.bits import (
    MATCHED,
    PREFERRED,
    bits_per_parameter,
    capacity_inputs,
    capacity_runs,
    fitted_capacity,
    measured_runs,
)
from service.answers.cell import plain, sortable
from service.answers.making import BitsPerParameter, Method, Setting, SettingValue, finite
from service.answers.question import Question, put
from service.answers.reading import SuiteRecord, read_capacity, read_runs
from service.answers.refusals import Ambiguous, NotEnough, Refusal


@dataclass(frozen=True, kw_only=True)
class CapacityPoint:
    """Total memorisation at one dataset size; `complexity` is n·log2 V, the most there is."""

    run: int
    n: int
    bits: float
    complexity: float


@dataclass(frozen=True, kw_only=True)
class WidthCapacity:
    """M_T(n) of one width and its plateau."""

    width: int
    params: int
    capacity: Annotated[float | None, Field(description="bits")]
    low: float | None
    high: float | None
    flags: Annotated[tuple[str, ...], Field(description="not_saturated, sagging")]
    fitted: Annotated[bool, Field(description="the line of C_model uses this width")]
    points: tuple[CapacityPoint, ...]


@dataclass(frozen=True, kw_only=True)
class CapacityFit:
    """Cap = intercept + C·P by least squares."""

    slope: Annotated[float, Field(description="C_model, bits per parameter")]
    low: float | None
    high: float | None
    level: float
    interval: Annotated[
        Literal["bootstrap", "t"] | None,
        Field(description="over resampled widths, or least squares' with three; null: none"),
    ]
    intercept: float
    intercept_low: float | None
    intercept_high: float | None
    r_squared: float | None
    widths: int


@dataclass(frozen=True, kw_only=True)
class PrimeThreshold:
    """The capacity threshold of one prime of the suite at one dataset size."""

    prime: int
    n_train: int
    k_mem: float
    p_mem: float


@dataclass(frozen=True, kw_only=True)
class CapacityAnswer:
    """Capacity curves of one setting, the fit of C_model, and P_mem of the suite's primes."""

    suite: str
    revision: int
    setting: Setting
    method: Method
    prime: Annotated[int | None, Field(description="prime of the random-label runs; null: none")]
    vocabulary: int | None
    widths: tuple[WidthCapacity, ...]
    fit: Annotated[CapacityFit | None, Field(description="null: too few widths")]
    c_model: BitsPerParameter
    p_mem: tuple[PrimeThreshold, ...]
    missing: int
    analysis_version: int


def capacity(connection: Connection, question: Question) -> CapacityAnswer:
    """Capacity curves and C_model of the setting asked about."""
    suite, convention = put(connection, question)
    runs = read_capacity(connection, suite)
    values = _one_setting(suite, runs, question)
    method, level = convention.method, convention.level
    fitted = fitted_capacity(runs, values, method, level)
    chosen = capacity_runs(runs, values)
    c_model = bits_per_parameter(connection, suite, values, method, level)
    inputs = capacity_inputs(chosen)
    measured = measured_runs(chosen)
    structured = read_runs(connection, suite)
    return CapacityAnswer(
        suite=suite.name,
        revision=suite.revision,
        setting={name: values[name] for name in _swept(runs)},
        method=method,
        prime=None if inputs is None else int(inputs.vocabulary) - 2,
        vocabulary=None if inputs is None else inputs.vocabulary,
        widths=()
        if fitted is None
        else tuple(_width(p, measured, p.width in fitted.used) for p in fitted.plateaus),
        fit=None if fitted is None else _fit(fitted),
        c_model=c_model,
        p_mem=_thresholds(structured, c_model.value),
        missing=0 if fitted is None else fitted.missing,
        analysis_version=ANALYSIS_VERSION,
    )


def _swept(runs: pd.DataFrame) -> tuple[str, ...]:
    """Columns that tell the suite's capacity runs apart, sizes and seeds aside."""
    names = (*MATCHED, *PREFERRED)
    return tuple(name for name in names if runs[name].nunique(dropna=False) > 1)


def _one_setting(suite: SuiteRecord, runs: pd.DataFrame, question: Question) -> Setting:
    """The one setting of capacity runs that passes the filters."""
    if not len(runs):
        raise NotEnough(
            "suite", suite.name, "a suite with capacity runs", f"{suite.name} has no capacity runs"
        )
    columns = [*MATCHED, *PREFERRED]
    kept = runs
    for name, value in question.filters.items():
        if name not in columns:
            raise Refusal(name, value, columns, "capacity runs have no such setting")
        matching = kept[kept[name] == value]
        if not len(matching):
            there = sorted({plain(v) for v in kept[name]}, key=sortable)
            raise Refusal(name, value, there, f"{value} is not among the suite's capacity runs")
        kept = matching
    settings = kept[columns].drop_duplicates()
    if len(settings) > 1:
        choices: dict[str, list[SettingValue]] = {
            name: sorted({plain(v) for v in settings[name]}, key=sortable)
            for name in columns
            if settings[name].nunique(dropna=False) > 1
        }
        names = ", ".join(choices)
        raise Ambiguous(
            next(iter(choices)), None, choices, f"{len(settings)} settings match; choose by {names}"
        )
    return {name: plain(settings.iloc[0][name]) for name in columns}


def _width(plateau: Plateau, runs: pd.DataFrame, fitted: bool) -> WidthCapacity:
    done = runs[runs["width"] == plateau.width].sort_values("n_train")
    flags = [name for name in ("not_saturated", "sagging") if getattr(plateau, name)]
    return WidthCapacity(
        width=plateau.width,
        params=int(plateau.params),
        capacity=finite(plateau.capacity),
        low=finite(plateau.low),
        high=finite(plateau.high),
        flags=tuple(flags),
        fitted=fitted,
        points=tuple(
            CapacityPoint(
                run=row["run_id"],
                n=row["n_train"],
                bits=float(row["bits"]),
                complexity=row["k_mem"],
            )
            for row in done.to_dict("records")
        ),
    )


def _fit(found: Capacity) -> CapacityFit | None:
    if found.c_model is None or found.intercept is None:
        return None
    return CapacityFit(
        slope=found.c_model.value,
        low=finite(found.c_model.low),
        high=finite(found.c_model.high),
        level=found.level,
        interval=found.interval,
        intercept=found.intercept,
        intercept_low=finite(found.intercept_low),
        intercept_high=finite(found.intercept_high),
        r_squared=finite(found.r2),
        widths=len(found.used),
    )


def _thresholds(runs: pd.DataFrame, c_model: float) -> tuple[PrimeThreshold, ...]:
    """P_mem for every dataset size of the suite's structured task."""
    sizes = runs[runs["kind"] == "grok"][["prime", "n_train", "k_mem"]].drop_duplicates()
    return tuple(
        PrimeThreshold(
            prime=row["prime"],
            n_train=row["n_train"],
            k_mem=row["k_mem"],
            p_mem=row["k_mem"] / c_model,
        )
        for row in sizes.sort_values(["prime", "n_train"]).to_dict("records")
    )
