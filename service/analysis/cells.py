"""The table every hypothesis test works on: one row per cell, one prime at one setting.

Columns of a cells frame: `p` (prime), `p_cross`, `p_onset` (parameters, NaN = none), `k_mem`
(bits), `last_batch` (its share of a full batch), one column per swept axis (number or text),
`setting` (its label), `inherited` (from another suite), `grok_seeds` (how many the onset rests
on), `crossing_status`, `onset_status`, `at_floor`, `at_cap`, `p_onset_first4` (the onset on the
first four of them), `p_cross_a`, `p_onset_a`, `p_cross_b`, `p_onset_b` (of two halves that share
no seed). Only the first three are required; the rest serve the tests that need them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from groktime.service.analysis import Units
from groktime.service.analysis.crossing import Crossing, crossing
from groktime.service.analysis.delay import Onset, onset
from groktime.service.analysis.inputs import FirstPassages, FloatArray, GrokRuns
from groktime.service.errors import AnalysisError

FEWEST_HALVED = 4  # seeds of a cell: two in each half


@dataclass(frozen=True)
class SeedHalf:
    """Robust crossing and onset of every second seed of a cell; None where there is none."""

    p_cross: float | None
    p_onset: float | None


def seed_halves(
    mem: FirstPassages, grok: GrokRuns, units: Units = "epochs"
) -> tuple[SeedHalf, SeedHalf] | None:
    """Seeds that both kinds have, by turns in two halves; None when one would hold fewer than two.

    A width has those seeds of a half that were trained there.
    """
    seeds = sorted({*mem.seeds} & {*grok.seeds})
    if len(seeds) < FEWEST_HALVED:
        return None
    return _seed_half(mem, grok, seeds[::2], units), _seed_half(mem, grok, seeds[1::2], units)


def _seed_half(mem: FirstPassages, grok: GrokRuns, seeds: list[int], units: Units) -> SeedHalf:
    runs = grok.where(np.isin(grok.seed, seeds))
    speeds = mem.where(np.isin(mem.seed, seeds))
    found = crossing(speeds, runs.generalisation(), units=units, n_resamples=0)
    return SeedHalf(found.p_cross.estimate, onset(runs, level=None).p_onset.estimate)


REQUIRED = ("p", "p_cross", "p_onset")
FIRST_SEEDS = 4  # the smallest number of seeds any suite of the paper has

AxisValue = float | int | str | bool


def residual(p_onset: float | None, p_cross: float | None) -> float | None:
    """log10(P_onset / P_cross): how far the prediction is off, in decades."""
    if p_onset is None or p_cross is None:
        return None
    return float(np.log10(p_onset / p_cross))


@dataclass(frozen=True, eq=False)
class Cell:
    """One prime at one setting of the swept axes, with its crossing and its onset."""

    prime: int
    setting: Mapping[str, AxisValue]
    k_mem: float
    last_batch: float  # share of a full batch
    crossing: Crossing
    onset: Onset
    # The two are None, too, where only the cell's two points were asked for.
    onset_first4: Onset | None  # None: the cell has no more than four seeds
    seed_halves: tuple[SeedHalf, SeedHalf] | None  # None: too few seeds, or the paper's convention
    inherited: bool = False

    @property
    def residual(self) -> float | None:
        """log10(P_onset / P_cross), None when either is missing."""
        return residual(self.onset.p_onset.estimate, self.crossing.p_cross.estimate)


def make_cell(
    prime: int,
    setting: Mapping[str, AxisValue],
    k_mem: float,
    mem: FirstPassages,
    grok: GrokRuns,
    *,
    last_batch: float = 1.0,
    method: str = "robust",
    units: Units = "epochs",
    n_resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
    inherited: bool = False,
) -> Cell:
    """Crossing and onset of one cell, and of parts of its seeds."""
    found = crossing(
        mem,
        grok.generalisation(),
        method=method,
        units=units,
        n_resamples=n_resamples,
        level=level,
        seed=seed,
    )
    few = grok.first_seeds(FIRST_SEEDS)
    return Cell(
        prime=prime,
        setting=dict(setting),
        k_mem=k_mem,
        last_batch=last_batch,
        crossing=found,
        onset=onset(grok, method=method, level=level),
        onset_first4=onset(few, method=method, level=None)
        if len(few.seeds) < len(grok.seeds)
        else None,
        seed_halves=seed_halves(mem, grok, units) if method == "robust" else None,
        inherited=inherited,
    )


def two_points(
    prime: int,
    k_mem: float,
    mem: FirstPassages,
    grok: GrokRuns,
    *,
    method: str = "robust",
    units: Units = "epochs",
) -> Cell:
    """Crossing and onset of one cell alone: no intervals, no parts of its seeds.

    A tenth of the time, for tables that ask the same cells by many rules.
    """
    generalisation = grok.generalisation()
    return Cell(
        prime=prime,
        setting={},
        k_mem=k_mem,
        last_batch=1.0,
        crossing=crossing(mem, generalisation, method=method, units=units, n_resamples=0),
        onset=onset(grok, method=method, level=None),
        onset_first4=None,
        seed_halves=None,
    )


def setting_label(setting: Mapping[str, AxisValue]) -> str:
    """`axis=value` pairs in the order given; empty for a suite that sweeps nothing."""
    return ", ".join(f"{axis}={value}" for axis, value in setting.items())


def cells_frame(cells: Iterable[Cell]) -> pd.DataFrame:
    """The cells as the frame that the tests take."""
    rows = []
    for cell in cells:
        first4 = cell.onset if cell.onset_first4 is None else cell.onset_first4
        a, b = cell.seed_halves or (SeedHalf(None, None), SeedHalf(None, None))
        rows.append(
            {
                "p": cell.prime,
                "p_cross": _or_nan(cell.crossing.p_cross.estimate),
                "p_onset": _or_nan(cell.onset.p_onset.estimate),
                "k_mem": cell.k_mem,
                "last_batch": cell.last_batch,
                **cell.setting,
                "setting": setting_label(cell.setting),
                "inherited": cell.inherited,
                "grok_seeds": cell.crossing.seeds.grok,
                "crossing_status": cell.crossing.status,
                "onset_status": cell.onset.p_onset.status,
                "at_floor": cell.onset.p_onset.at_floor,
                "at_cap": cell.onset.p_onset.at_cap,
                "p_onset_first4": _or_nan(first4.p_onset.estimate),
                "p_cross_a": _or_nan(a.p_cross),
                "p_onset_a": _or_nan(a.p_onset),
                "p_cross_b": _or_nan(b.p_cross),
                "p_onset_b": _or_nan(b.p_onset),
            }
        )
    return pd.DataFrame(rows)


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value


def check_cells(cells: pd.DataFrame, axes: Iterable[str] = ()) -> None:
    """Refuse a frame that lacks a column a test was asked to use."""
    for name in (*REQUIRED, *axes):
        if name not in cells.columns:
            known = ", ".join(str(c) for c in cells.columns)
            raise AnalysisError(f"cells: no column {name!r}; there are {known}")


def usable(cells: pd.DataFrame) -> pd.DataFrame:
    """Cells with both a crossing and an onset: those the pooled tests can use."""
    pair = cells[["p_cross", "p_onset"]].to_numpy(dtype=np.float64)
    keep = np.isfinite(pair).all(axis=1) & (pair > 0).all(axis=1)
    good: pd.DataFrame = cells.loc[keep].reset_index(drop=True)
    return good


def log_pair(cells: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
    """log10 P_cross and log10 P_onset of usable cells."""
    x = np.log10(cells["p_cross"].to_numpy(dtype=np.float64))
    y = np.log10(cells["p_onset"].to_numpy(dtype=np.float64))
    return x, y
