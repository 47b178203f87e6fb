"""The appendix's pooled table for any suite: our statistics, and the paper's beside them."""

from __future__ import annotations

from dataclasses import dataclass

from service.analysis.hypotheses import HypothesisTests
from service.analysis.nested import NestedTest
from service.analysis.published import PublishedTest, published_tests
from service.analysis.robustness import AxisTrend

NOT_TESTABLE = "not testable"


@dataclass(frozen=True)
class PooledRow:
    """One test: its statistic and p, or a note saying why there is none.

    `test` is the name the published tables use; `published` is the paper's row where it
    printed one, for the same axis, with its own number of cells.
    """

    claim: str
    test: str
    label: str
    statistic: float | None
    p: float | None
    ci: tuple[float, float] | None
    note: str
    n: int
    published: PublishedTest | None


def pooled_table(tests: HypothesisTests, suite: str | None = None) -> tuple[PooledRow, ...]:
    """Rows in the appendix's order; `suite` is the published suite to set beside ours."""
    paper = published_tests(suite) if suite else {}
    rows = [*_rank(tests), *_calibration(tests), *_sufficiency(tests)]
    beside = [_beside(row, paper.get(row.test)) for row in rows]
    printed = paper.get("robustness")
    for trend in tests.robustness:
        same = printed if printed is not None and printed.axis == trend.axis else None
        beside.append(_beside(_robustness(trend), same))
    return tuple(beside)


def _row(
    tests: HypothesisTests,
    claim: str,
    test: str,
    label: str,
    statistic: float | None,
    p: float | None = None,
    ci: tuple[float, float] | None = None,
    note: str = "",
) -> PooledRow:
    missing = NOT_TESTABLE if statistic is None and not note else note
    return PooledRow(claim, test, label, statistic, p, ci, missing, tests.n, None)


def _beside(row: PooledRow, published: PublishedTest | None) -> PooledRow:
    return PooledRow(**{**vars(row), "published": published})


def _rank(tests: HypothesisTests) -> list[PooledRow]:
    s, k = tests.spearman, tests.kendall
    claim = "rank predictiveness"
    floor = f"p_perm cannot go below {s.floor:.2g}" if s else ""
    return [
        _row(
            tests,
            claim,
            "spearman",
            "Spearman ρ",
            s.rho if s else None,
            s.p_permutation if s else None,
            note=floor,
        ),
        _row(
            tests,
            claim,
            "kendall",
            "Kendall τ",
            k.tau if k else None,
            k.p_analytic if k else None,
        ),
    ]


def _calibration(tests: HypothesisTests) -> list[PooledRow]:
    claim = "calibration to y = x"
    c, own, w = tests.ccc, tests.line, tests.wilcoxon
    rows = [
        _row(
            tests,
            claim,
            "ccc",
            "Lin's CCC",
            c.value if c else None,
            ci=(c.low, c.high) if c else None,
            note=c.interval if c else "",
        ),
        _row(tests, claim, "ols_slope", "slope (log–log OLS)", own.slope if own else None),
        _row(tests, claim, "ols_intercept", "intercept", own.intercept if own else None),
        _row(
            tests,
            claim,
            "joint_f",
            "joint F for intercept 0, slope 1",
            own.f if own else None,
            own.p if own else None,
        ),
        _row(
            tests,
            claim,
            "wilcoxon",
            "Wilcoxon on residuals (median)",
            w.median_residual if w else None,
            w.p if w else None,
            note=f"p cannot go below {w.floor:.3g}" if w else "",
        ),
    ]
    return rows + _robust_calibration(tests, claim)


def _robust_calibration(tests: HypothesisTests, claim: str) -> list[PooledRow]:
    rows = []
    if tests.clustered is not None:
        c = tests.clustered
        note = f"{c.clusters} primes" + (", unreliable below 10" if c.unreliable else "")
        label = "slope, errors clustered by prime"
        rows.append(
            _row(tests, claim, "clustered_slope", label, c.slope, None, (c.low, c.high), note)
        )
    for name, fit in (("Theil–Sen", tests.theil_sen), ("Deming", tests.deming)):
        if fit is not None:
            interval = (fit.low, fit.high)
            rows.append(
                _row(tests, claim, fit.estimator, f"{name} slope", fit.slope, None, interval)
            )
    if tests.equivalence is not None:
        e = tests.equivalence
        label = f"slope within {e.low_bound:.2f}–{e.high_bound:.2f} (TOST)"
        rows.append(_row(tests, claim, "tost", label, e.estimate, e.p, note=f"errors: {e.errors}"))
    return rows


def _sufficiency(tests: HypothesisTests) -> list[PooledRow]:
    claim = "sufficiency against baselines"
    labels = {
        "M1_vs_M0": "intersection has signal",
        "M3_vs_M2": "intersection adds over baselines",
        "M3_vs_M1": "baselines add over intersection",
        "MP+_vs_MP": "intersection adds over log p",
        "MK+_vs_MK": "intersection adds over log K_mem",
    }
    found = tests.nested.tests if tests.nested else {}
    names = list(found) or ["M1_vs_M0", "M3_vs_M2", "M3_vs_M1"]
    return [_nested(tests, claim, name, labels[name], found.get(name)) for name in names]


def _nested(
    tests: HypothesisTests, claim: str, name: str, label: str, test: NestedTest | None
) -> PooledRow:
    text = f"{name.replace('_', ' ')}: {label}"
    if test is None:
        return _row(tests, claim, name.lower(), text, None)
    note = f"F({test.df_num}, {test.df_den})"
    if not test.testable:
        note = f"{NOT_TESTABLE}: {test.reason}"
    return _row(tests, claim, name.lower(), text, test.f, test.p, note=note)


def _robustness(trend: AxisTrend) -> PooledRow:
    numeric = trend.kind == "numeric"
    note = f"{NOT_TESTABLE}: {trend.reason}"
    if trend.testable:
        note = f"{trend.n_levels} values, Holm p {trend.p_holm:.3g}"
    scale = "" if trend.scale == "raw" else f" ({trend.scale})"
    return PooledRow(
        claim="robustness across the swept axis",
        test="robustness",
        label=f"{trend.axis}{scale}: " + ("slope, dex per unit" if numeric else "one-way F"),
        statistic=trend.slope if numeric else trend.f,
        p=trend.p_raw,
        ci=None,
        note=note,
        n=trend.n,
        published=None,
    )
