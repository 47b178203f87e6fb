"""The suites there are: what each asks, what it sweeps and how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pandas as pd
from pydantic import Field
from sqlalchemy import Connection

from db.queries.coverage import coverage_frame
from db.schema import RUN_STATES
from service.answers.cell import SETTING_COLUMNS, plain, sortable, swept_axes
from service.answers.coverage import StateCounts
from service.answers.making import SettingValue
from service.answers.reading import SuiteRecord
from service.spec import KINDS


@dataclass(frozen=True, kw_only=True)
class SuiteSummary:
    """One suite at one revision."""

    name: str
    description: str
    default: Annotated[bool, Field(description="answers that name no suite come from it")]
    revision: int
    hash: str
    frozen: bool
    running: Annotated[bool, Field(description="a worker trains one of its runs now")]
    complete: Annotated[bool, Field(description="all of its runs are closed")]
    primes: tuple[int, ...]
    axes: Annotated[
        Mapping[str, tuple[SettingValue, ...]], Field(description="swept axes and their values")
    ]
    labels: Annotated[tuple[str, ...], Field(description="labels of the speed runs")]
    kinds: Annotated[Mapping[str, int], Field(description="runs by kind, inherited ones too")]
    states: StateCounts
    inherited: int
    analysis: Annotated[Mapping[str, Any], Field(description="how it means to be analysed")]
    recorded: Annotated[
        Mapping[str, Any] | None, Field(description="of a suite loaded from a dump: its making")
    ]


def suite_summary(connection: Connection, suite: SuiteRecord, default_suite: str) -> SuiteSummary:
    """What one suite is and how far."""
    shape = coverage_frame(connection, suite.id, ("prime", "n_train", *SETTING_COLUMNS))
    own = shape[~shape["inherited"]]
    compared = shape[shape["kind"] != "capacity"]
    return SuiteSummary(
        name=suite.name,
        description=str(suite.spec.get("description", "")),
        default=suite.name == default_suite,
        revision=suite.revision,
        hash=suite.hash,
        frozen=suite.frozen,
        running=suite.running,
        complete=not suite.open,
        primes=tuple(sorted({int(p) for p in compared["prime"]})),
        axes=axis_values(shape),
        labels=tuple(sorted({str(task) for task in shape.loc[shape["kind"] == "speed", "task"]})),
        kinds={kind: int(shape.loc[shape["kind"] == kind, "runs"].sum()) for kind in KINDS},
        states=StateCounts(**{state: int(own[state].sum()) for state in RUN_STATES}),
        inherited=int(shape.loc[shape["inherited"], "runs"].sum()),
        analysis=suite.analysis,
        recorded=suite.recorded,
    )


def axis_values(shape: pd.DataFrame) -> dict[str, tuple[SettingValue, ...]]:
    """Values of every swept axis; a batch of the whole training set is called full."""
    grok = shape[shape["kind"] == "grok"]
    defining = grok if len(grok) else shape[shape["kind"] == "speed"]
    if not len(defining):
        return {}
    axes: dict[str, tuple[SettingValue, ...]] = {}
    for name in swept_axes(shape):
        column = defining[name]
        if name == "batch_size":
            column = column.astype(object).where(column < defining["n_train"], "full")
        axes[name] = tuple(sorted({plain(value) for value in column}, key=sortable))
    return axes
