"""Does grokking start where the speeds cross? Every cell of a suite, and the tests on them.

The median of log10(P_onset / P_cross) moves with the delay that counts, with the thresholds and
with the clock; the order of the primes hardly does. So it is told under other conventions, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace
from typing import Annotated

import numpy as np
from pydantic import Field
from sqlalchemy import Connection

from groktime.service.analysis import ANALYSIS_VERSION, MinimumDelay
from groktime.service.analysis.calibration import (
    ClusteredLine,
    Concordance,
    Equivalence,
    Line,
    RobustSlope,
    SignedRank,
)
from groktime.service.analysis.cells import Cell as AnalysedCell
from groktime.service.analysis.cells import cells_frame, make_cell, two_points
from groktime.service.analysis.crossing import Advice, Bracket
from groktime.service.analysis.delay import Onset
from groktime.service.analysis.hypotheses import (
    FirstFourSeeds,
    HypothesisTests,
    Model,
    NestedTest,
    SeedsApart,
    Slope,
    hypothesis_tests,
)
from groktime.service.analysis.inputs import ByKind, finite
from groktime.service.analysis.regression import PERFECT, Kendall, Spearman
from groktime.service.analysis.robustness import AxisTrend, WithinSetting, within_setting
from groktime.service.answers.cell import (
    Cell,
    cells,
    first_passages,
    grok_runs,
    setting_value,
    swept_axes,
)
from groktime.service.answers.choice import choose
from groktime.service.answers.question import (
    CHOSEN,
    Choice,
    Clock,
    Convention,
    Method,
    Question,
    QuestionError,
    Setting,
    Thresholds,
    Units,
    asked_runs,
    put,
)
from groktime.service.errors import InputError


@dataclass(frozen=True, kw_only=True)
class CellRow:
    """One cell: predicted and empirical onset, and what stands behind them."""

    prime: int
    setting: Setting
    p_cross: float | None
    p_cross_low: float | None
    p_cross_high: float | None
    crossing_status: str
    at_edge: Annotated[
        bool, Field(description="paper: the closest approach is an end of the measured widths")
    ]
    few_seeds: Annotated[
        bool, Field(description="fewer than 5 common seeds at a width that its interval rests on")
    ]
    unresolved_widths: Annotated[
        tuple[int, ...], Field(description="which speed is the faster is not known there")
    ]
    bracket: Annotated[
        Bracket | None, Field(description="the speed widths around P_cross; null without one")
    ]
    advice: Annotated[
        Advice | None, Field(description="what to train next; null: nothing is left to ask for")
    ]
    p_onset: float | None
    p_onset_low: float | None
    p_onset_high: float | None
    p_onset_level: Annotated[float | None, Field(description="null: its ends are a bracket")]
    onset_status: str
    at_floor: bool
    at_cap: bool
    onset_step: Annotated[
        float | None, Field(description="paper: decades from the next smaller P to the onset")
    ]
    residual: Annotated[float | None, Field(description="log10(P_onset / P_cross)")]
    k_mem: float
    batch_size: int
    last_batch: Annotated[int, Field(description="examples in the last step of an epoch")]
    seeds: ByKind
    censored: ByKind
    missing: ByKind
    inherited: bool


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """One test on the cells; `testable` false: the cells cannot carry it, `note` says why."""

    test: str
    statistic: str
    value: float | None
    low: float | None
    high: float | None
    p: float | None
    floor: Annotated[float | None, Field(description="smallest p this test can show here")]
    df: str
    n: int
    testable: bool
    note: str


Test = (
    Spearman
    | Kendall
    | Concordance
    | Line
    | SignedRank
    | ClusteredLine
    | RobustSlope
    | Equivalence
    | FirstFourSeeds
    | NestedTest
    | Slope
    | AxisTrend
)


@dataclass(frozen=True)
class Pooled:
    """One number of a pooled test: the test itself (None: the cells cannot carry it), its row."""

    test: Test | None
    row: Statistic


@dataclass(frozen=True, kw_only=True)
class _Head:
    """Which cells, by which convention."""

    suite: str
    revision: int
    method: Method
    clock: Clock
    units: Units
    level: float
    thresholds: Thresholds
    max_width: int | None
    axes: tuple[str, ...]
    n: Annotated[int, Field(description="cells with both a crossing and an onset")]
    n_total: int
    n_at_floor: Annotated[int, Field(description="of all cells: onset at the smallest width")]
    n_at_cap: Annotated[int, Field(description="of all cells: onset at the largest width or above")]
    cells: tuple[CellRow, ...]
    chosen: Annotated[Choice | None, CHOSEN] = None


@dataclass(frozen=True, kw_only=True)
class CellTests(_Head):
    """A suite's cells and the tests on them, as charts and reports read them."""

    tests: HypothesisTests

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of the regressions."""
        return self.tests.nested.notes if self.tests.nested else ()

    def nested(self, larger: str, smaller: str) -> NestedTest | None:
        """The F-test of one model against another inside it; None where it was not made."""
        if self.tests.nested is None:
            return None
        return self.tests.nested.tests.get(f"{larger}_vs_{smaller}")


@dataclass(frozen=True, kw_only=True)
class TestsAnswer(_Head):
    """A suite's cells, the pooled tests and the within-setting table: the answer of `/tests`."""

    __test__ = False  # a class of answers, not of pytest

    pooled: tuple[Statistic, ...]
    models: tuple[Model, ...]
    within: tuple[WithinSetting, ...]
    apart: Annotated[
        tuple[SeedsApart, ...],
        Field(description="crossing and onset from different seeds, both ways; robust only"),
    ]
    notes: tuple[str, ...]
    analysis_version: int


def cell_tests(connection: Connection, question: Question) -> CellTests:
    """All cells of the suite asked about (or of one prime or setting) and the tests on them."""
    question = choose(connection, question, "suite")
    suite, convention = put(connection, question)
    runs = asked_runs(connection, suite, convention, question.prime)
    found = list(cells(runs, question.filters, convention.labels))
    analysed = [_analysed(cell, convention) for cell in found]
    axes = swept_axes(runs)
    tests = hypothesis_tests(
        cells_frame(analysed), ("p", *axes), method=convention.method, level=convention.level
    )
    within = (
        replace(r, setting={a: setting_value(v) for a, v in r.setting.items()})
        for r in tests.within
    )
    return CellTests(
        suite=suite.name,
        revision=suite.revision,
        method=convention.method,
        clock=convention.clock,
        units=convention.units,
        level=convention.level,
        thresholds=convention.thresholds,
        max_width=convention.max_width,
        axes=axes,
        n=tests.n,
        n_total=tests.n_total,
        n_at_floor=tests.n_at_floor,
        n_at_cap=tests.n_at_cap,
        cells=tuple(_row(*both) for both in zip(found, analysed, strict=True)),
        chosen=question.choice or None,
        tests=replace(tests, within=tuple(within)),
    )


def flat_answer(found: CellTests) -> TestsAnswer:
    """The tests as flat rows, for JSON and CSV."""
    head = {field.name: getattr(found, field.name) for field in fields(_Head)}
    return TestsAnswer(
        **head,
        pooled=tuple(pooled.row for pooled in pooled_tests(found.tests)),
        models=tuple(found.tests.nested.models.values()) if found.tests.nested else (),
        within=found.tests.within,
        apart=tuple(replace(way, f=finite(way.f)) for way in found.tests.apart),
        notes=found.notes,
        analysis_version=ANALYSIS_VERSION,
    )


def _analysed(cell: Cell, convention: Convention) -> AnalysedCell:
    inherited = bool(len(cell.grok)) and bool(cell.grok["inherited"].all())
    return make_cell(
        cell.prime,
        {name: "none" if value is None else value for name, value in cell.setting.items()},
        cell.k_mem,
        first_passages(cell, convention),
        grok_runs(cell, convention),
        last_batch=cell.last_batch / cell.batch_size,
        method=convention.method,
        units=convention.units,
        level=convention.level,
        inherited=inherited,
    )


def _row(trained: Cell, cell: AnalysedCell) -> CellRow:
    found, p_cross, p_onset = cell.crossing, cell.crossing.p_cross, cell.onset.p_onset
    return CellRow(
        prime=cell.prime,
        setting=cell.setting,
        p_cross=p_cross.estimate,
        p_cross_low=p_cross.low,
        p_cross_high=p_cross.high,
        crossing_status=found.status,
        at_edge=found.at_edge,
        few_seeds=p_cross.few_seeds,
        unresolved_widths=found.unresolved_widths,
        bracket=found.bracket,
        advice=found.advice,
        p_onset=p_onset.estimate,
        p_onset_low=p_onset.low,
        p_onset_high=p_onset.high,
        p_onset_level=p_onset.level,
        onset_status=p_onset.status,
        at_floor=p_onset.at_floor,
        at_cap=p_onset.at_cap,
        onset_step=_step(cell.onset),
        residual=cell.residual,
        k_mem=cell.k_mem,
        batch_size=trained.batch_size,
        last_batch=trained.last_batch,
        seeds=found.seeds,
        censored=found.censored,
        missing=found.missing,
        inherited=cell.inherited,
    )


def _step(onset: Onset) -> float | None:
    """How coarse an onset is that is always one of the measured P; None where it is not."""
    if onset.p_onset.status != "exact" or onset.p_onset.estimate is None:
        return None
    below = [point.params for point in onset.points if point.params < onset.p_onset.estimate]
    return float(np.log10(onset.p_onset.estimate / max(below))) if below else None


def pooled_tests(tests: HypothesisTests) -> Iterator[Pooled]:
    """The pooled tests in the order of the paper's appendix, each with its row."""
    yield from _ranks(tests)
    yield from _agreement(tests)
    yield from _residuals(tests)
    yield from _robust(tests)
    yield from _nested(tests)
    for trend in tests.robustness:
        yield _trend(trend)


def _pooled(test: Test | None, kind: str, statistic: str, n: int, **values: object) -> Pooled:
    numbers = {k: v for k, v in values.items() if isinstance(v, int | float)}
    given = {name: finite(value) for name, value in numbers.items()}
    row = Statistic(
        test=kind,
        statistic=statistic,
        value=given.get("value"),
        low=given.get("low"),
        high=given.get("high"),
        p=given.get("p"),
        floor=given.get("floor"),
        df=str(values.get("df", "")),
        n=n,
        testable=bool(values.get("testable", test is not None)),
        note=str(values.get("note", "" if test else "too few cells")),
    )
    return Pooled(test, row)


def _ranks(tests: HypothesisTests) -> Iterator[Pooled]:
    n, rank, tau = tests.n, tests.spearman, tests.kendall
    if rank is None:
        yield _pooled(None, "rank", "spearman", n)
    else:
        # At a perfect order the analytic formula says 0, which no n cells can show.
        note = "" if abs(rank.rho) > PERFECT else f"analytic p {rank.p_analytic:.3g}"
        yield _pooled(
            rank,
            "rank",
            "spearman",
            n,
            value=rank.rho,
            low=rank.interval.low,
            high=rank.interval.high,
            p=rank.p_permutation,
            floor=rank.floor,
            note=note,
        )
    if tau is None:
        yield _pooled(None, "rank", "kendall", n)
    else:
        yield _pooled(tau, "rank", "kendall", n, value=tau.tau, p=tau.p_analytic, floor=tau.floor)


def _agreement(tests: HypothesisTests) -> Iterator[Pooled]:
    n, ccc, line = tests.n, tests.ccc, tests.line
    if ccc is None:
        yield _pooled(None, "concordance", "ccc", n)
    else:
        note = f"{ccc.interval} interval" if ccc.low is not None else "too few cells to resample"
        bounds = {"value": ccc.value, "low": ccc.low, "high": ccc.high}
        yield _pooled(ccc, "concordance", "ccc", n, **bounds, note=note)
    if line is None:
        yield _pooled(None, "calibration", "slope", n)
        return
    for name, value, low, high, error in (
        ("slope", line.slope, line.slope_low, line.slope_high, line.slope_se),
        ("intercept", line.intercept, line.intercept_low, line.intercept_high, line.intercept_se),
    ):
        note = f"t interval, standard error {error:.3g}"
        bounds = {"value": value, "low": low, "high": high}
        yield _pooled(line, "calibration", name, n, **bounds, df=line.df_den, note=note)
    df = f"{line.df_num}, {line.df_den}"
    note = "slope 1 and intercept 0"
    yield _pooled(line, "calibration", "F", n, value=line.f, p=line.p, df=df, note=note)


def _residuals(tests: HypothesisTests) -> Iterator[Pooled]:
    n, signed = tests.n, tests.wilcoxon
    if signed is None:
        yield _pooled(None, "residuals", "wilcoxon", n)
        return
    yield _pooled(
        signed, "residuals", "wilcoxon", n, value=signed.w, p=signed.p, floor=signed.floor
    )
    bounds = {"low": signed.interval.low, "high": signed.interval.high}
    yield _pooled(signed, "residuals", "median", n, value=signed.median_residual, **bounds)


def _robust(tests: HypothesisTests) -> Iterator[Pooled]:
    """What the robust convention adds to the paper's suite."""
    n = tests.n
    if (line := tests.clustered) is not None:
        note = f"errors clustered by {line.clusters} primes"
        yield _pooled(
            line,
            "calibration",
            "slope, clustered",
            n,
            value=line.slope,
            low=line.low,
            high=line.high,
            df=line.df,
            note=note + (", unreliable below ten" if line.unreliable else ""),
        )
    for slope in (tests.theil_sen, tests.deming):
        if slope is not None:
            name = f"slope, {slope.estimator.replace('_', ' ')}"
            bounds = {"value": slope.slope, "low": slope.low, "high": slope.high}
            yield _pooled(slope, "calibration", name, n, **bounds)
    if (same := tests.equivalence) is not None:
        note = f"slope within {same.low_bound:g} to {same.high_bound:g}, errors {same.errors}"
        bounds = {"value": same.estimate, "p": same.p}
        yield _pooled(same, "equivalence", "tost", n, **bounds, df=same.df, note=note)
    if (four := tests.first_four) is not None:
        name = "median, first four seeds"
        yield _pooled(four, "residuals", name, four.n, value=four.median_residual)


def _nested(tests: HypothesisTests) -> Iterator[Pooled]:
    if tests.nested is None:
        return
    for name, test in tests.nested.tests.items():
        yield _pooled(
            test,
            "sufficiency",
            f"F {name.replace('_', ' ')}",
            tests.n,
            value=test.f,
            p=test.p,
            df=f"{test.df_num}, {test.df_den}",
            testable=test.testable,
            note=test.reason,
        )
    if (last := tests.nested.last_batch) is not None:
        note = "beside log p; decades of P_onset a decade of its share of a batch"
        bounds = {"value": last.value, "low": last.low, "high": last.high}
        yield _pooled(last, "sufficiency", "slope on last batch", tests.n, **bounds, note=note)


def _trend(trend: AxisTrend) -> Pooled:
    numeric = trend.kind == "numeric"
    words = [trend.reason] if trend.reason else []
    if trend.se is not None:
        words.append(f"standard error {trend.se:.2g}")
    if trend.p_raw is not None:
        words.append(f"Holm-corrected; raw p {trend.p_raw:.3g}")
    if trend.p_clustered is not None:
        words.append(f"clustered p {trend.p_clustered:.3g}")
    return _pooled(
        trend,
        "robustness",
        f"{'slope' if numeric else 'F'} on {trend.axis}",
        trend.n,
        value=trend.slope if numeric else trend.f,
        p=trend.p_holm,
        df="" if trend.df_den is None else f"{trend.df_num or 1}, {trend.df_den}",
        testable=trend.testable,
        note="; ".join(words),
    )


@dataclass(frozen=True, kw_only=True)
class Offset:
    """The residuals of a suite's cells by one convention; `varied` says what is unusual in it."""

    varied: str
    clock: Clock
    thresholds: Thresholds
    min_delay: MinimumDelay
    n: Annotated[int, Field(description="cells with a crossing and an onset")]
    n_total: int
    median_residual: Annotated[float | None, Field(description="log10(P_onset / P_cross)")]
    std: float | None
    rho: Annotated[float | None, Field(description="Spearman's, of P_cross with P_onset")]


# What is varied, one thing at a time; everything else is the suite's own.
VARIED: dict[str, dict[str, float | str]] = {
    "as the suite": {},
    "delay from 95 to 95 %": {"e_train": 0.95, "e_val": 0.95},
    "delay from 99 to 99 %": {"e_train": 0.99, "e_val": 0.99},
    "delay of 5 epochs": {"min_delay": 5.0},
    "delay of 5 % of E_train": {"min_delay_share": 0.05},
    "delay of 10 % of E_train": {"min_delay_share": 0.1},
    "memorised at 98.5 %": {"t_mem": 0.985},
    "memorised at 98 %": {"t_mem": 0.98},
    "memorised at 97 %": {"t_mem": 0.97},
    "memorised at 95 %": {"t_mem": 0.95},
    "eval clock": {"clock": "eval"},
    "eval clock, memorised at 95 %": {"clock": "eval", "t_mem": 0.95},
    "the paper's estimators": {"method": "paper"},
}


T_MEM = (0.9, 0.93, 0.95, 0.96, 0.97, 0.98, 0.985, 0.99)  # accuracies that count as memorised

# A threshold above the one at which runs stopped, or between those that a thinned recording keeps,
# a clock that was not recorded.
UNANSWERABLE = (QuestionError, InputError)


def offsets(
    connection: Connection, question: Question, only: Collection[str] = VARIED
) -> tuple[Offset, ...]:
    """One row for each convention; those that the suite's runs cannot answer are left out."""
    found = []
    for varied, changed in VARIED.items():
        if varied not in only:
            continue
        asked = replace(question, **changed)  # type: ignore[arg-type]
        try:
            found.append(_offset(connection, asked, varied))
        except UNANSWERABLE:
            continue
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class ThresholdResidual:
    """One cell's residual with T_mem read at one threshold."""

    t_mem: float
    prime: int
    setting: Setting
    residual: float


def residuals_by_threshold(
    connection: Connection, question: Question
) -> tuple[ThresholdResidual, ...]:
    """Every cell's residual by the accuracy that counts as memorised; none where it lacks one."""
    found = []
    for t_mem in T_MEM:
        try:
            _, analysed = _cells(connection, replace(question, t_mem=t_mem))
        except UNANSWERABLE:
            continue  # above the threshold at which runs stopped
        found += [
            ThresholdResidual(
                t_mem=t_mem, prime=cell.prime, setting=cell.setting, residual=point.residual
            )
            for cell, point in analysed
            if point.residual is not None
        ]
    return tuple(found)


def _cells(
    connection: Connection, question: Question
) -> tuple[Convention, list[tuple[Cell, AnalysedCell]]]:
    """The cells with their two points, without intervals."""
    suite, convention = put(connection, question)
    runs = asked_runs(connection, suite, convention, question.prime)
    found = list(cells(runs, question.filters, convention.labels))
    analysed = (
        two_points(
            cell.prime,
            cell.k_mem,
            first_passages(cell, convention),
            grok_runs(cell, convention),
            method=convention.method,
            units=convention.units,
        )
        for cell in found
    )
    return convention, list(zip(found, analysed, strict=True))


def _offset(connection: Connection, question: Question, varied: str) -> Offset:
    convention, analysed = _cells(connection, question)
    (row,) = within_setting(cells_frame([cell for _, cell in analysed]), ())
    return Offset(
        varied=varied,
        clock=convention.clock,
        thresholds=convention.thresholds,
        min_delay=convention.min_delay,
        n=row.n,
        n_total=row.n_total,
        median_residual=row.median_residual,
        std=row.std,
        rho=row.rho,
    )
