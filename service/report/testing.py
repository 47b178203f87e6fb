"""The pooled tests, the models behind them, the within-setting table and the conventions."""

from __future__ import annotations

from dashboard.figures import verdicts
from dashboard.numbers import EN_DASH
from service.answers.cell_tests import TestsAnswer
from service.answers.reference import Reference
from service.report.content import CONVENTIONS, Convention, SuiteContent
from service.report.document import Block, Paragraph, Table
from service.report.sampling import sampling
from service.report.words import (
    convention_text,
    offset,
    onsets_at_an_end,
    plain,
    real,
    resolved,
    setting_or,
    signed,
    slope_of,
    statistic,
    with_interval,
)

NO_REFERENCE = "The paper printed no table for a suite like this one."


def pooled_tables(content: SuiteContent) -> list[Block]:
    """The tests in both methods on the suite's own clock."""
    reference = content.reference
    note = NO_REFERENCE if reference is None else reference.note
    found: list[Block] = [Paragraph(f"{note} {sampling(content)}".rstrip())]
    clock = content.main[1]
    for method in ("robust", "paper"):
        chosen: Convention = ("robust", clock) if method == "robust" else ("paper", clock)
        answer = content.tests[chosen]
        if isinstance(answer, str):
            found.append(Paragraph(f"{convention_text(*chosen)}: not testable ({answer})."))
            continue
        found.append(_pooled(content, chosen, answer))
        if answer.models:
            found.append(_models(content, chosen, answer))
    return found


def _pooled(content: SuiteContent, chosen: Convention, answer: TestsAnswer) -> Table:
    printed = dict(content.reference.tests) if content.reference is not None else {}
    rows = []
    for test in answer.pooled:
        row = verdicts.row(test, printed)
        rows.append(
            (
                row["group"],
                row["name"],
                row["value"] if test.testable else "not testable",
                row["p"],
                str(row["n"]),
                row["paper"] or EN_DASH,
                row["verdict"],
                row["note"],
            )
        )
    column = "paper" if content.reference is None else content.reference.column
    return Table(
        name=f"{content.name}-tests-{chosen[0]}-{chosen[1]}",
        caption=f"{content.name}: pooled tests on {answer.n} of {answer.n_total} cells, "
        f"{convention_text(*chosen)}. The paper's column gives its number of cells.",
        header=("question", "test", "ours", "p", "cells", column, "what it says", "note"),
        rows=tuple(rows),
        numeric=frozenset({2, 3, 4}),
    )


def _models(content: SuiteContent, chosen: Convention, answer: TestsAnswer) -> Table:
    rows = tuple(
        (
            model.name,
            ", ".join(model.predictors) or "constant",
            plain(model.r_squared),
            plain(model.r_squared_adjusted),
            plain(model.aicc, 4),
            plain(model.loo_rmse),
            plain(model.largest_vif) + (" (collinear)" if model.collinear else ""),
            ", ".join(model.dropped) or EN_DASH,
        )
        for model in answer.models
    )
    return Table(
        name=f"{content.name}-models-{chosen[0]}-{chosen[1]}",
        caption=f"{content.name}: regressions of log₁₀ P_onset, {convention_text(*chosen)}. "
        "Leave-one-out error in dex.",
        header=("model", "predictors", "R²", "adjusted", "AICc", "leave-one-out", "VIF", "dropped"),
        rows=rows,
        numeric=frozenset({2, 3, 4, 5}),
    )


def within_tables(content: SuiteContent) -> list[Block]:
    """Within-setting rows of both methods with the paper's beside them."""
    found: list[Block] = []
    clock = content.main[1]
    robust: Convention = ("robust", clock)
    for chosen in (robust, ("paper", clock)):
        answer = content.by(chosen)
        if answer is not None:
            found.append(_within(content, chosen, answer))
    return found


def _within(content: SuiteContent, chosen: tuple[str, str], answer: TestsAnswer) -> Table:
    reference = content.reference
    rows = []
    for row in answer.within:
        printed = None
        if reference is not None and len(row.setting) == 1:
            ((axis, value),) = row.setting.items()
            printed = reference.setting(axis, value)
        verdict = row.verdict.replace("_", "-")
        if row.driver_prime is not None:
            verdict += f" (driven by p = {row.driver_prime})"
        lost = "; ".join(f"{n} × {why.replace('_', ' ')}" for why, n in row.lost.items())
        theirs = EN_DASH
        if printed is not None:
            theirs = (
                f"{signed(printed.median_residual)}, {plain(printed.std)}, {printed.verdict} "
                f"({printed.n_primes} primes)"
            )
        rows.append(
            (
                setting_or(row.setting, "all cells"),
                f"{row.n} of {row.n_total}",
                signed(row.median_residual),
                plain(row.std),
                plain(row.rho),
                verdict,
                theirs,
                lost or EN_DASH,
            )
        )
    column = "paper" if reference is None else reference.column
    return Table(
        name=f"{content.name}-within-{chosen[0]}-{chosen[1]}",
        caption=f"{content.name}: residuals over the primes of each setting, "
        f"{convention_text(*chosen)}. Standard deviation ≤ 0.065 dex is strong, ≤ 0.11 moderate, "
        "above weak; two cells or fewer are under-resolved. The verdict is on the spread alone: a "
        "strong row may lie far from zero.",
        header=(
            "setting",
            "cells",
            "median residual",
            "std",
            "ρ",
            "verdict (spread)",
            f"{column}: median, std, verdict",
            "cells lost",
        ),
        rows=tuple(rows),
        numeric=frozenset({1, 2, 3, 4}),
    )


HEADLINES = ("cells", "Spearman ρ", "slope", "Lin's CCC", "median residual", "onsets at an end")
HEADLINES_EXPLAINED = (
    "Intervals are given where the cells can carry one: of the median from six cells on; the "
    "slope's has errors clustered by prime in the robust method. Onsets at an end of the trained "
    "widths bound the onset on one side only; where they are many, the row says more about the "
    "widths than about the networks."
)


def headline(answer: TestsAnswer | None) -> tuple[str, ...]:
    """The few numbers by which conventions and suites are compared."""
    if answer is None:
        return (EN_DASH,) * len(HEADLINES)
    rank = statistic(answer, "spearman")
    told = rank is not None and rank.value is not None
    return (
        f"{answer.n} of {answer.n_total}",
        with_interval(rank) + (" (not testable)" if told and not resolved(answer) else ""),
        with_interval(slope_of(answer)),
        with_interval(statistic(answer, "ccc")),
        offset(statistic(answer, "median")),
        f"{onsets_at_an_end(answer)} of {answer.n_total}",
    )


def conventions_table(content: SuiteContent) -> Table:
    """The headline numbers in both methods and on both clocks, and the paper's."""
    rows = [
        (method, clock, *headline(content.by((method, clock)))) for method, clock in CONVENTIONS
    ]
    reference = content.reference
    if reference is not None and reference.tests:
        rows.append(_printed(reference))
    return Table(
        name=f"{content.name}-conventions",
        caption=f"{content.name}: the same runs by method and training clock. "
        + HEADLINES_EXPLAINED,
        header=("method", "clock", *HEADLINES),
        rows=tuple(rows),
        numeric=frozenset(range(2, 2 + len(HEADLINES))),
    )


def _printed(reference: Reference) -> tuple[str, ...]:
    def text(test: str) -> str:
        found = reference.tests.get(test)
        return EN_DASH if found is None or found.statistic is None else plain(found.statistic)

    ccc = reference.tests.get("ccc")
    interval = ccc.ci if ccc is not None and ccc.ci is not None else (None, None)
    cells = next(iter(reference.tests.values())).cells
    return (
        f"{reference.column}, {reference.suite}",
        "online",
        str(cells),
        text("spearman"),
        text("ols_slope"),
        real(None if ccc is None else ccc.statistic, *interval),
        text("wilcoxon"),
        EN_DASH,
    )
