"""What every answer about a cell begins with: the cell, and how the answer came about."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field
from sqlalchemy import Connection

from groktime.db.records import SuiteRecord
from groktime.service.analysis import ANALYSIS_VERSION, ANY_DELAY, MinimumDelay
from groktime.service.analysis.inputs import ByKind
from groktime.service.answers.cell import Cell, CellResults, cells, prime_cells
from groktime.service.answers.choice import baseline_cells, choose
from groktime.service.answers.question import (
    CHOSEN,
    NOTHING,
    Choice,
    Clock,
    Convention,
    Labels,
    Method,
    Question,
    Setting,
    Thresholds,
    asked_precision,
    asked_runs,
    put,
)


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Of a located suite: the standard deviation asked for and those reached, in dex."""

    asked: float
    crossing: Annotated[
        float | None, Field(description="of log10 P_cross, from its interval; null: none")
    ] = None
    onset: Annotated[
        float | None, Field(description="of log10 P_onset, from its interval; null: none")
    ] = None


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
    min_delay: Annotated[MinimumDelay, Field(description="from which a run counts as delayed")] = (
        ANY_DELAY
    )
    design: Annotated[
        Literal["grid", "locate"], Field(description="locate: runs were chosen as they came")
    ] = "grid"
    precision: Annotated[
        Precision | None, Field(description="of a located suite; /crossing says what was reached")
    ] = None
    prior: Annotated[
        tuple[str, ...],
        Field(description="earlier suites that told a located one where to look; no estimate does"),
    ] = ()


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
    chosen: Annotated[Choice | None, CHOSEN] = None


def provenance(suite: SuiteRecord, cell: Cell, convention: Convention) -> Provenance:
    """How an answer about the cell came about."""
    return Provenance(
        analysis_version=ANALYSIS_VERSION,
        suite_hash=suite.hash,
        frozen=suite.frozen,
        thresholds=convention.thresholds,
        max_width=convention.max_width,
        labels=cell.labels,
        runs=ByKind(speed=len(cell.speed), grok=len(cell.grok)),
        inherited=ByKind(
            speed=int(cell.speed["inherited"].sum()), grok=int(cell.grok["inherited"].sum())
        ),
        engines=_values(cell, "engine"),
        devices=_values(cell, "device"),
        min_delay=convention.min_delay,
        design="locate" if suite.is_located else "grid",
        precision=Precision(asked=asked_precision(suite)) if suite.is_located else None,
        prior=suite.prior,
    )


def _values(cell: Cell, name: str) -> tuple[str, ...]:
    """What a column of text has in any run of the cell."""
    both = (*cell.speed[name].unique(), *cell.grok[name].unique())
    return tuple(sorted({value for value in both if isinstance(value, str)}))  # not NULL


@dataclass(frozen=True, eq=False)
class CellContext:
    """A question that found its cell."""

    suite: SuiteRecord
    results: CellResults
    choice: Choice = NOTHING

    @property
    def cell(self) -> Cell:
        return self.results.cell

    @property
    def convention(self) -> Convention:
        return self.results.convention

    @cached_property
    def provenance(self) -> Provenance:
        """How answers about the cell came about."""
        return provenance(self.suite, self.cell, self.convention)

    def head(self) -> dict[str, Any]:
        """The fields every answer about a cell begins with."""
        return {
            "suite": self.suite.name,
            "revision": self.suite.revision,
            "prime": self.cell.prime,
            "setting": self.cell.setting,
            "method": self.convention.method,
            "clock": self.convention.clock,
            "provenance": self.provenance,
            "chosen": self.choice or None,
        }


def cell_context(connection: Connection, question: Question) -> CellContext:
    """Find the cell among the prime's; says what there is when it is not found.

    Questions about one cell of one revision share what was read and computed.
    """
    question = choose(connection, question)
    assert question.prime is not None, "choose() names the prime"
    suite, convention = put(connection, question)
    found = prime_cells(connection, suite, convention, question.prime, question.filters)
    (cell, *_), chosen = baseline_cells([one.cell for one in found])
    results = next(one for one in found if one.cell is cell)
    return CellContext(suite, results, question.choice | chosen)


# What a start is for: one cell, one setting over all primes, a whole suite, or capacity runs.
StartOf = Literal["cell", "law", "suite", "capacity"]


@dataclass(frozen=True, kw_only=True)
class StartAnswer:
    """Where to begin: what answers a question that names no more than this one did."""

    suite: str
    prime: Annotated[int | None, Field(description="null: all primes are meant")]
    setting: Annotated[Setting, Field(description="the baseline; empty where all are meant")]
    chosen: Annotated[Choice | None, CHOSEN] = None


def start(connection: Connection, question: Question, of: StartOf) -> StartAnswer:
    """Suite, prime and setting that the question would be answered from."""
    question = choose(connection, question, "suite" if of == "law" else of)
    suite, convention = put(connection, question)
    setting: Setting = {}
    choice = question.choice
    if of in ("cell", "law"):
        runs = asked_runs(connection, suite, convention, question.prime)
        found = list(cells(runs, question.filters, convention.labels))
        kept, chosen = baseline_cells(found, one_per_prime=of == "law")
        setting, choice = kept[0].setting, choice | chosen
    return StartAnswer(
        suite=suite.name, prime=question.prime, setting=setting, chosen=choice or None
    )
