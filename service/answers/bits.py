"""C_model of a setting: fitted to the suite's capacity runs, another suite's, or the paper's."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

import pandas as pd
from sqlalchemy import Connection, text

from service.analysis.capacity import Capacity, choose_c_model
from service.analysis.capacity import capacity as fit_capacity
from service.analysis.inputs import CapacityRuns
from service.answers.asking import Asked
from service.answers.cell import MODEL_COLUMNS
from service.answers.inputs import closed
from service.answers.making import BitsPerParameter, Method, Setting, finite
from service.answers.reading import SuiteRecord, read_capacity, read_suite

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


def cell_bits(connection: Connection, asked: Asked) -> BitsPerParameter:
    """C_model for the cell asked about."""
    convention = asked.convention
    return bits_per_parameter(
        connection, asked.suite, asked.cell.values, convention.method, convention.level
    )


def bits_per_parameter(
    connection: Connection, suite: SuiteRecord, values: Setting, method: Method, level: float
) -> BitsPerParameter:
    """C_model for a cell's setting, with where it comes from."""
    capacity = read_capacity(connection, suite)
    own = fitted_capacity(capacity, values, method, level)
    if own is not None and own.c_model is not None:
        donor = _donor(connection, measured_runs(capacity_runs(capacity, values)))
        return _said(None, own, own, donor) if donor else _said(own, own, None, suite.name)
    other = connection.scalar(
        text(OTHERS),
        {"suite_id": suite.id, **{name: values[name] for name in (*MATCHED, "batch_size")}},
    )
    matched = None
    if other is not None:
        runs = read_capacity(connection, read_suite(connection, other))
        matched = fitted_capacity(runs, values, method, level)
    return _said(None, matched, matched, other)


def _donor(connection: Connection, runs: pd.DataFrame) -> str | None:
    """The suite that trained these runs, where another did and is still here."""
    if not runs["inherited"].all():
        return None
    name = connection.scalar(text(DONOR), {"run_id": int(runs["run_id"].iloc[0])})
    return None if name is None else str(name)


def capacity_runs(runs: pd.DataFrame, values: Setting) -> pd.DataFrame:
    """Capacity runs of the cell's network and optimiser, at the nearest regularisation.

    Where a suite sweeps dropout or the batch size in its capacity runs too, those equal to the
    cell's are taken; else the runs without dropout.
    """
    for name in MATCHED:
        runs = runs[runs[name] == values[name]]
    for name, usual in PREFERRED.items():
        for wanted in (values[name], usual):
            if wanted is not None and (runs[name] == wanted).any():
                runs = runs[runs[name] == wanted]
                break
    return runs


def fitted_capacity(
    runs: pd.DataFrame, values: Setting, method: Method, level: float
) -> Capacity | None:
    """The capacity fit of the cell's setting; None when no such run is finished."""
    inputs = capacity_inputs(capacity_runs(runs, values))
    if inputs is None:
        return None
    asked = (method, level, inputs.vocabulary, tuple(sorted(inputs.missing.items())))
    columns = (inputs.width, inputs.params, inputs.n, inputs.bits)
    return _fits.of((*asked, *(column.tobytes() for column in columns)), inputs)


class _Fits:
    """Fits by their very inputs: capacity runs seldom change, and every cell needs their C."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._kept: OrderedDict[tuple[Hashable, ...], Capacity] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, asked: tuple[Any, ...], inputs: CapacityRuns) -> Capacity:
        """The fit for (method, level, ...) of these inputs."""
        with self._lock:
            if asked in self._kept:
                self._kept.move_to_end(asked)
                return self._kept[asked]
        fit = fit_capacity(inputs, method=asked[0], level=asked[1])
        with self._lock:
            self._kept[asked] = fit
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return fit


_fits = _Fits()


def measured_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Finished runs of the prime with most of them: those that are fitted."""
    done, _ = closed(runs)
    done = done[done["bits"].notna()]
    return done[done["prime"] == done["prime"].value_counts().index[0]] if len(done) else done


def capacity_inputs(runs: pd.DataFrame) -> CapacityRuns | None:
    """The measured runs as the analysis wants them."""
    done, (_, missing) = measured_runs(runs), closed(runs)
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


def _said(
    own: Capacity | None, level_of: Capacity | None, matched: Capacity | None, name: str | None
) -> BitsPerParameter:
    chosen = choose_c_model(own, matched, name or "")
    published = chosen.source == "paper"
    return BitsPerParameter(
        value=chosen.value,
        low=finite(chosen.low),
        high=finite(chosen.high),
        level=level_of.level if level_of is not None and chosen.low is not None else None,
        interval=chosen.interval,
        source=chosen.source,
        suite=None if published else name,
        note=chosen.detail,
    )
