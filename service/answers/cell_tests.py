"""Does grokking start where the speeds cross? Every cell of a suite, and the tests on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from sqlalchemy import Connection

from service.analysis import ANALYSIS_VERSION
from service.analysis.cells import Cell as AnalysedCell
from service.analysis.cells import cells_frame, make_cell
from service.analysis.hypotheses import HypothesisTests, hypothesis_tests
from service.analysis.nested import Sufficiency
from service.analysis.onset import Onset
from service.analysis.robustness import AxisTrend
from service.analysis.seeds_apart import SeedsApart
from service.analysis.small_samples import PERFECT
from service.analysis.within_setting import WithinSetting
from service.answers.asking import asked_runs
from service.answers.cell import Cell, cells, plain, swept_axes
from service.answers.inputs import first_passages, grok_runs
from service.answers.making import ByKind, Clock, Method, Setting, Thresholds, Units, finite
from service.answers.question import Convention, Question, put

LAST_BATCH_SLOPE = "slope on last batch"
CLUSTERED = "clustered p"  # begins the part of a trend's note that has it


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
    p_onset: float | None
    p_onset_low: float | None
    p_onset_high: float | None
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


@dataclass(frozen=True, kw_only=True)
class NestedModel:
    """One regression of log10 P_onset."""

    name: str
    predictors: tuple[str, ...]
    dropped: Annotated[tuple[str, ...], Field(description="columns that add no rank")]
    n: int
    r_squared: float | None
    r_squared_adjusted: float | None
    aicc: float | None
    loo_rmse: Annotated[float | None, Field(description="leave-one-out error, decades")]
    largest_vif: float | None
    collinear: bool


@dataclass(frozen=True, kw_only=True)
class SettingRow:
    """Residuals over the primes of one setting."""

    setting: Setting
    n: int
    n_total: int
    n_inherited: int
    median_residual: float | None
    std: Annotated[float | None, Field(description="standard deviation, ddof 1, decades")]
    mad: float | None
    rho: float | None
    verdict: Literal["strong", "moderate", "weak", "under_resolved", "no_cells"]
    driver_prime: Annotated[int | None, Field(description="without it the verdict is better")]
    lost: Annotated[Mapping[str, int], Field(description="why cells have no residual")]


@dataclass(frozen=True, kw_only=True)
class Apart:
    """Onsets of one half of the seeds predicted by the crossings of the other half."""

    n: int
    rho: float
    median_residual: float
    loo_crossing: Annotated[
        float, Field(description="leave-one-out error of the crossing, decades")
    ]
    loo_prime: Annotated[float, Field(description="leave-one-out error of log p, decades")]
    f: Annotated[float | None, Field(description="crossing beside log p")]
    p: float


@dataclass(frozen=True, kw_only=True)
class TestsAnswer:
    """A suite's cells, the pooled tests and the within-setting table."""

    __test__ = False  # a class of answers, not of pytest

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
    pooled: tuple[Statistic, ...]
    models: tuple[NestedModel, ...]
    within: tuple[SettingRow, ...]
    apart: Annotated[
        tuple[Apart, ...],
        Field(description="crossing and onset from different seeds, both ways; robust only"),
    ]
    notes: tuple[str, ...]
    analysis_version: int


def cell_tests(connection: Connection, question: Question) -> TestsAnswer:
    """All cells of the suite asked about (or of one prime or setting) and the tests on them."""
    suite, convention = put(connection, question)
    runs = asked_runs(connection, suite, convention, question.prime)
    found = list(cells(runs, question.filters, convention.labels))
    analysed = [_analysed(cell, convention) for cell in found]
    axes = swept_axes(runs)
    tests = hypothesis_tests(
        cells_frame(analysed), ("p", *axes), method=convention.method, level=convention.level
    )
    return TestsAnswer(
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
        pooled=tuple(_pooled(tests)),
        models=_models(tests.nested),
        within=tuple(_within(row) for row in tests.within),
        apart=tuple(_apart(way) for way in tests.apart),
        notes=tests.nested.notes if tests.nested else (),
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
    interval = cell.crossing.interval
    return CellRow(
        prime=cell.prime,
        setting=cell.setting,
        p_cross=finite(cell.crossing.params),
        p_cross_low=(finite(interval.low) or None) if interval else None,
        p_cross_high=finite(interval.high) if interval else None,
        crossing_status=cell.crossing.status,
        at_edge=cell.crossing.at_edge,
        few_seeds=cell.crossing.few_seeds,
        p_onset=finite(cell.onset.params),
        p_onset_low=finite(cell.onset.low) or None,
        p_onset_high=finite(cell.onset.high),
        onset_status=cell.onset.status,
        at_floor=bool(cell.onset.at_floor),
        at_cap=bool(cell.onset.at_cap),
        onset_step=_step(cell.onset),
        residual=finite(cell.residual),
        k_mem=cell.k_mem,
        batch_size=trained.batch_size,
        last_batch=trained.last_batch,
        seeds=ByKind(speed=cell.crossing.seeds[0], grok=cell.crossing.seeds[1]),
        censored=ByKind(speed=cell.crossing.censored[0], grok=cell.crossing.censored[1]),
        missing=ByKind(speed=cell.crossing.missing[0], grok=cell.crossing.missing[1]),
        inherited=cell.inherited,
    )


def _step(onset: Onset) -> float | None:
    """How coarse an onset is that is always one of the measured P."""
    if onset.method != "paper" or onset.params is None:
        return None
    below = onset.curve.params[onset.curve.params < onset.params]
    return float(np.log10(onset.params / below.max())) if len(below) else None


def _statistic(test: str, statistic: str, n: int, **values: object) -> Statistic:
    given = {name: finite(value) for name, value in values.items() if isinstance(value, float)}
    return Statistic(
        test=test,
        statistic=statistic,
        value=given.get("value"),
        low=given.get("low"),
        high=given.get("high"),
        p=given.get("p"),
        floor=given.get("floor"),
        df=str(values.get("df", "")),
        n=n,
        testable=bool(values.get("testable", True)),
        note=str(values.get("note", "")),
    )


def _untestable(test: str, statistic: str, n: int, note: str = "too few cells") -> Statistic:
    return _statistic(test, statistic, n, testable=False, note=note)


def _pooled(tests: HypothesisTests) -> Iterator[Statistic]:
    """The pooled tests in the order of the paper's appendix."""
    n = tests.n
    yield from _ranks(tests)
    if (ccc := tests.ccc) is None:
        yield _untestable("concordance", "ccc", n)
    else:
        note = f"{ccc.interval} interval" if ccc.low is not None else "too few cells to resample"
        yield _statistic(
            "concordance", "ccc", n, value=ccc.value, low=ccc.low, high=ccc.high, note=note
        )
    if (line := tests.line) is None:
        yield _untestable("calibration", "slope", n)
    else:
        yield _statistic(
            "calibration",
            "slope",
            n,
            value=line.slope,
            low=line.slope_low,
            high=line.slope_high,
            df=line.df_den,
            note=f"t interval, standard error {line.slope_se:.3g}",
        )
        yield _statistic(
            "calibration",
            "intercept",
            n,
            value=line.intercept,
            low=line.intercept_low,
            high=line.intercept_high,
            df=line.df_den,
            note=f"t interval, standard error {line.intercept_se:.3g}",
        )
        df = f"{line.df_num}, {line.df_den}"
        yield _statistic(
            "calibration", "F", n, value=line.f, p=line.p, df=df, note="slope 1 and intercept 0"
        )
    if (wilcoxon := tests.wilcoxon) is None:
        yield _untestable("residuals", "wilcoxon", n)
    else:
        yield _statistic(
            "residuals", "wilcoxon", n, value=wilcoxon.w, p=wilcoxon.p, floor=wilcoxon.floor
        )
        yield _statistic(
            "residuals",
            "median",
            n,
            value=wilcoxon.median_residual,
            low=wilcoxon.interval.low,
            high=wilcoxon.interval.high,
        )
    yield from _robust(tests)
    if tests.nested is not None:
        for name, nested in tests.nested.tests.items():
            df = f"{nested.df_num}, {nested.df_den}"
            yield _statistic(
                "sufficiency",
                f"F {name.replace('_', ' ')}",
                n,
                value=nested.f,
                p=nested.p,
                df=df,
                testable=nested.testable,
                note=nested.reason,
            )
        if (last := tests.nested.last_batch) is not None:
            yield _statistic(
                "sufficiency",
                LAST_BATCH_SLOPE,
                n,
                value=last.value,
                low=last.low,
                high=last.high,
                note="beside log p; decades of P_onset a decade of its share of a batch",
            )
    for trend in tests.robustness:
        yield _trend(trend)


def _ranks(tests: HypothesisTests) -> Iterator[Statistic]:
    if (rank := tests.spearman) is None:
        yield _untestable("rank", "spearman", tests.n)
    else:
        # At a perfect order the analytic formula says 0, which no n cells can show.
        note = "" if abs(rank.rho) > PERFECT else f"analytic p {rank.p_analytic:.3g}"
        yield _statistic(
            "rank",
            "spearman",
            tests.n,
            value=rank.rho,
            low=rank.interval.low,
            high=rank.interval.high,
            p=rank.p_permutation,
            floor=rank.floor,
            note=note,
        )
    if (tau := tests.kendall) is None:
        yield _untestable("rank", "kendall", tests.n)
    else:
        yield _statistic(
            "rank", "kendall", tests.n, value=tau.tau, p=tau.p_analytic, floor=tau.floor
        )


def _robust(tests: HypothesisTests) -> Iterator[Statistic]:
    """What the robust convention adds to the paper's suite."""
    n = tests.n
    if (clustered := tests.clustered) is not None:
        note = f"errors clustered by {clustered.clusters} primes"
        yield _statistic(
            "calibration",
            "slope, clustered",
            n,
            value=clustered.slope,
            low=clustered.low,
            high=clustered.high,
            df=clustered.df,
            note=note + (", unreliable below ten" if clustered.unreliable else ""),
        )
    for slope in (tests.theil_sen, tests.deming):
        if slope is not None:
            name = slope.estimator.replace("_", " ")
            yield _statistic(
                "calibration",
                f"slope, {name}",
                n,
                value=slope.slope,
                low=slope.low,
                high=slope.high,
            )
    if (same := tests.equivalence) is not None:
        note = f"slope within {same.low_bound:g} to {same.high_bound:g}, errors {same.errors}"
        yield _statistic(
            "equivalence", "tost", n, value=same.estimate, p=same.p, df=same.df, note=note
        )
    if (four := tests.first_four) is not None:
        yield _statistic(
            "residuals", "median, first four seeds", four.n, value=four.median_residual
        )


def _trend(trend: AxisTrend) -> Statistic:
    numeric = trend.kind == "numeric"
    value = trend.slope if numeric else trend.f
    words = [trend.reason] if trend.reason else []
    if trend.se is not None:
        words.append(f"standard error {trend.se:.2g}")
    if trend.p_raw is not None:
        words.append(f"Holm-corrected; raw p {trend.p_raw:.3g}")
    if trend.p_clustered is not None:
        words.append(f"{CLUSTERED} {trend.p_clustered:.3g}")
    df = "" if trend.df_den is None else f"{trend.df_num or 1}, {trend.df_den}"
    return _statistic(
        "robustness",
        f"{'slope' if numeric else 'F'} on {trend.axis}",
        trend.n,
        value=value,
        p=trend.p_holm,
        df=df,
        testable=trend.testable,
        note="; ".join(words),
    )


def _models(nested: Sufficiency | None) -> tuple[NestedModel, ...]:
    if nested is None:
        return ()
    return tuple(
        NestedModel(
            name=model.name,
            predictors=model.predictors,
            dropped=model.dropped,
            n=model.n,
            r_squared=finite(model.r2),
            r_squared_adjusted=finite(model.r2_adj),
            aicc=finite(model.aicc),
            loo_rmse=finite(model.loo_rmse),
            largest_vif=finite(max(model.vif.values(), default=None)),
            collinear=model.collinear,
        )
        for model in nested.models.values()
    )


def _apart(way: SeedsApart) -> Apart:
    return Apart(
        n=way.n,
        rho=way.rho,
        median_residual=way.median_residual,
        loo_crossing=way.loo_crossing,
        loo_prime=way.loo_prime,
        f=finite(way.f),
        p=way.p,
    )


def _within(row: WithinSetting) -> SettingRow:
    return SettingRow(
        setting={name: plain(value) for name, value in row.setting.items()},
        n=row.n,
        n_total=row.n_total,
        n_inherited=row.n_inherited,
        median_residual=finite(row.median_residual),
        std=finite(row.std),
        mad=finite(row.mad),
        rho=finite(row.rho),
        verdict=row.verdict,
        driver_prime=row.driver_prime,
        lost=row.lost,
    )
