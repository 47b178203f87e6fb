"""How many bits models of a setting can memorise, and how many a parameter holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field
from sqlalchemy import Connection, text

from groktime.db.records import SuiteRecord
from groktime.service.analysis import ANALYSIS_VERSION
from groktime.service.analysis.capacity import (
    SAG,
    BitsPerParameter,
    Capacity,
    CapacityFit,
    Flag,
    Plateau,
    choose_c_model,
)
from groktime.service.analysis.capacity import capacity as fit_capacity
from groktime.service.analysis.inputs import CapacityRuns
from groktime.service.answers.cell import closed, setting_value, sortable
from groktime.service.answers.choice import CENTRAL, choose
from groktime.service.answers.context import CellContext
from groktime.service.answers.question import (
    CHOSEN,
    Ambiguous,
    Choice,
    Method,
    NotEnough,
    Question,
    QuestionError,
    Setting,
    SettingValue,
    prime_runs,
    put,
    read_capacity,
    read_runs,
    read_suite,
)
from groktime.service.spec import MODEL_COLUMNS

# The network and optimiser whose capacity is meant. Dropout and batch size are left open:
# capacity runs have no dropout unless a suite sweeps it.
MATCHED = (
    *(name for name in MODEL_COLUMNS if name != "dropout"),
    "lr",
    "beta1",
    "beta2",
    "eps",
    "weight_decay",
)
SMALL_LAST_BATCH = 0.2  # of a batch: below it the last one is called small
PREFERRED = {"dropout": 0.0, "batch_size": None}

# Other suites with finished capacity runs of the same network and optimiser: those with the nearest
# batch size first, which goes with the size of the task, then those with most runs.
OTHERS = f"""
SELECT s.name FROM suites s
JOIN suite_runs sr ON sr.suite_id = s.id JOIN runs r ON r.id = sr.run_id
WHERE s.id <> :suite_id AND r.kind = 'capacity' AND r.state = 'done' AND NOT sr.inherited
  AND {" AND ".join(f"r.{name} = :{name}" for name in MATCHED)}
GROUP BY s.name
ORDER BY min(abs(ln(r.batch_size::float / :batch_size))), count(*) DESC, s.name LIMIT 1
"""

DONOR = """
SELECT s.name FROM suite_runs sr JOIN suites s ON s.id = sr.suite_id
WHERE sr.run_id = :run_id AND NOT sr.inherited ORDER BY s.id LIMIT 1
"""


def cell_bits(connection: Connection, asked: CellContext) -> BitsPerParameter:
    """C_model for the cell asked about."""
    convention, cell = asked.convention, asked.cell
    capacity = prime_runs(connection, asked.suite, convention, cell.prime).capacity
    return bits_per_parameter(
        connection, asked.suite, capacity, cell.values, convention.method, convention.level
    )


def bits_per_parameter(
    connection: Connection,
    suite: SuiteRecord,
    capacity: pd.DataFrame,
    values: Setting,
    method: Method,
    level: float,
) -> BitsPerParameter:
    """C_model for a cell's setting from the suite's capacity runs, with where it comes from."""
    chosen = capacity_runs(capacity, values)
    own = fitted_capacity(chosen, method, level)
    if own is not None and own.c_model is not None:
        donor = _donor(connection, chosen)
        if donor is not None:
            return choose_c_model(None, own, donor)
        return choose_c_model(own, None, suite.name)
    other = connection.scalar(
        text(OTHERS),
        {"suite_id": suite.id, **{name: values[name] for name in (*MATCHED, "batch_size")}},
    )
    matched = None
    if other is not None:
        runs = read_capacity(connection, read_suite(connection, other))
        matched = fitted_capacity(capacity_runs(runs, values), method, level)
    return choose_c_model(None, matched, other or "")


def _donor(connection: Connection, runs: pd.DataFrame) -> str | None:
    """The suite that trained those of these runs that are fitted, where another is still here."""
    if not runs["inherited"].any():
        return None
    fitted = measured_runs(runs)
    if not fitted["inherited"].all():
        return None
    name = connection.scalar(text(DONOR), {"run_id": int(fitted["run_id"].iloc[0])})
    return None if name is None else str(name)


def capacity_runs(runs: pd.DataFrame, values: Setting) -> pd.DataFrame:
    """Capacity runs of the cell's network and optimiser, at the nearest regularisation.

    Where a suite sweeps dropout or the batch size in its capacity runs too, those equal to the
    cell's are taken; else the runs without dropout.
    """
    keep = np.ones(len(runs), dtype=np.bool_)
    for name in MATCHED:
        keep &= (runs[name] == values[name]).to_numpy(dtype=np.bool_)
    runs = runs[keep]
    for name, usual in PREFERRED.items():
        for wanted in (values[name], usual):
            if wanted is not None and (runs[name] == wanted).any():
                runs = runs[runs[name] == wanted]
                break
    return runs


def fitted_capacity(runs: pd.DataFrame, method: Method, level: float) -> Capacity | None:
    """The capacity fit of runs of one setting; None when none of them is finished."""
    inputs = capacity_inputs(runs)
    if inputs is None:
        return None
    columns = (inputs.width, inputs.params, inputs.n, inputs.bits)
    return _kept_fit(
        method,
        level,
        inputs.vocabulary,
        tuple(sorted(inputs.missing.items())),
        *(tuple(column.tolist()) for column in columns),
    )


@lru_cache(maxsize=64)
def _kept_fit(
    method: Method,
    level: float,
    vocabulary: int,
    missing: tuple[tuple[int, int], ...],
    *columns: tuple[float, ...],
) -> Capacity:
    """Fits by their very inputs: capacity runs seldom change, and every cell needs their C."""
    width, params, n, bits = (np.array(column) for column in columns)
    inputs = CapacityRuns(width, params, n, bits, vocabulary, dict(missing))
    return fit_capacity(inputs, method=method, level=level)


def measured_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Finished runs of the prime with most of them: those that are fitted."""
    return _measured(closed(runs)[0])


def _measured(done: pd.DataFrame) -> pd.DataFrame:
    measured: pd.DataFrame = done[done["bits"].notna()]
    if not len(measured) or measured["prime"].nunique() == 1:
        return measured
    most: pd.DataFrame = measured[measured["prime"] == measured["prime"].value_counts().index[0]]
    return most


def capacity_inputs(runs: pd.DataFrame) -> CapacityRuns | None:
    """The measured runs as the analysis wants them."""
    finished, missing = closed(runs)
    done = _measured(finished)
    if not len(done):
        return None
    return CapacityRuns(
        width=done["width"].to_numpy(),
        params=done["params"].to_numpy(),
        n=done["n_train"].to_numpy(),
        bits=done["bits"].to_numpy(dtype=float),
        vocabulary=int(done["vocabulary"].iloc[0]),
        missing=missing,
    )


@dataclass(frozen=True, kw_only=True)
class CapacityPoint:
    """Total memorisation at one dataset size; `complexity` is n·log2 V, the most there is."""

    run: int
    n: int
    bits: float
    complexity: float
    batch_size: int | None = None
    last_batch: Annotated[
        int | None, Field(description="examples in the last step of an epoch")
    ] = None


@dataclass(frozen=True, kw_only=True)
class WidthCapacity(Plateau):
    """M_T(n) of one width and its plateau."""

    fitted: Annotated[bool, Field(description="the line of C_model uses this width")]
    points: tuple[CapacityPoint, ...]


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
    chosen: Annotated[Choice | None, CHOSEN] = None


def capacity(connection: Connection, question: Question) -> CapacityAnswer:
    """Capacity curves and C_model of the setting asked about."""
    question = choose(connection, question, "capacity")
    suite, convention = put(connection, question)
    runs = read_capacity(connection, suite)
    values, choice = _one_setting(suite, runs, question)
    method, level = convention.method, convention.level
    chosen = capacity_runs(runs, values)
    fitted = fitted_capacity(chosen, method, level)
    c_model = bits_per_parameter(connection, suite, runs, values, method, level)
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
        fit=None if fitted is None else fitted.fit,
        c_model=c_model,
        p_mem=_thresholds(structured, c_model.value),
        missing=0 if fitted is None else fitted.missing,
        analysis_version=ANALYSIS_VERSION,
        chosen=question.choice | choice or None,
    )


def _swept(runs: pd.DataFrame) -> tuple[str, ...]:
    """Columns that tell the suite's capacity runs apart, sizes and seeds aside."""
    names = (*MATCHED, *PREFERRED)
    return tuple(name for name in names if runs[name].nunique(dropna=False) > 1)


def _one_setting(
    suite: SuiteRecord, runs: pd.DataFrame, question: Question
) -> tuple[Setting, Choice]:
    """The one setting of capacity runs that passes the filters, or the baseline of several."""
    if not len(runs):
        raise NotEnough(
            "suite", suite.name, "a suite with capacity runs", f"{suite.name} has no capacity runs"
        )
    columns = [*MATCHED, *PREFERRED]
    kept = runs
    for name, value in question.filters.items():
        if name not in columns:
            raise QuestionError(name, value, columns, "capacity runs have no such setting")
        matching = kept[kept[name] == value]
        if not len(matching):
            there = sorted({setting_value(v) for v in kept[name]}, key=sortable)
            raise QuestionError(
                name, value, there, f"{value} is not among the suite's capacity runs"
            )
        kept = matching
    there_are = kept[columns].drop_duplicates()
    settings = _baseline(there_are)
    if len(settings) > 1:
        choices: dict[str, list[SettingValue]] = {
            name: sorted({setting_value(v) for v in settings[name]}, key=sortable)
            for name in columns
            if settings[name].nunique(dropna=False) > 1
        }
        names = ", ".join(choices)
        raise Ambiguous(
            next(iter(choices)), None, choices, f"{len(settings)} settings match; choose by {names}"
        )
    values = {name: setting_value(settings.iloc[0][name]) for name in columns}
    swept = [name for name in columns if there_are[name].nunique(dropna=False) > 1]
    if not swept:
        return values, Choice()
    others = [
        {name: setting_value(row[name]) for name in swept} for row in there_are.to_dict("records")
    ]
    taken = {name: values[name] for name in swept}
    why = "the baseline, " + ", ".join(f"{name} {value}" for name, value in taken.items())
    rest = tuple(other for other in others if other != taken)
    return values, Choice(setting=why, other_settings=rest)


def _baseline(settings: pd.DataFrame) -> pd.DataFrame:
    """The settings with the central value on every axis that has it, without dropout."""
    for name in settings.columns:
        usual = CENTRAL[name] if PREFERRED.get(name) is None else PREFERRED[name]
        central = settings[settings[name] == usual]
        settings = central if len(central) else settings
    return settings


def _width(plateau: Plateau, runs: pd.DataFrame, fitted: bool) -> WidthCapacity:
    done = runs[runs["width"] == plateau.width].sort_values(["n_train", "seed", "run_id"])
    points = tuple(
        CapacityPoint(
            run=row["run_id"],
            n=row["n_train"],
            bits=float(row["bits"]),
            complexity=row["k_mem"],
            batch_size=(batch := min(row["batch_size"], row["n_train"])),
            last_batch=row["n_train"] - (-(-row["n_train"] // batch) - 1) * batch,
        )
        for row in done.to_dict("records")
    )
    dips: tuple[Flag, ...] = ("last_batch_dip",) if last_batch_dips(points) else ()
    return WidthCapacity(
        **vars(replace(plateau, flags=(*plateau.flags, *dips))),
        fitted=fitted,
        points=points,
    )


def last_batch_dips(points: Sequence[CapacityPoint]) -> tuple[CapacityPoint, ...]:
    """Points memorised worse than a smaller and a larger set, whose last batch is a small one.

    A small last batch is a full step on few examples: it undoes what the others have learnt.
    """
    mean = {n: float(np.mean([p.bits for p in points if p.n == n])) for n in {p.n for p in points}}
    found = []
    for point in points:
        if point.batch_size is None or point.last_batch is None:
            continue
        small = point.last_batch < SMALL_LAST_BATCH * point.batch_size
        smaller = max((b for n, b in mean.items() if n < point.n), default=0.0)
        larger = max((b for n, b in mean.items() if n > point.n), default=0.0)
        if small and point.bits < (1 - SAG) * min(smaller, larger):
            found.append(point)
    return tuple(found)


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
