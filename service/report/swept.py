"""What the settings a suite sweeps change, and what the crossing tells beside them."""

from __future__ import annotations

from collections.abc import Iterator

from dashboard.figures.caption import axis_name
from dashboard.figures.verdicts import ALPHA
from dashboard.numbers import count
from service.answers.cell_tests import CLUSTERED, TestsAnswer
from service.answers.making import Setting
from service.report.content import Convention, SuiteContent
from service.report.words import (
    f_and_p,
    plain,
    probability,
    setting_or,
    signed,
    statistic,
    tells_more,
)


def swept(answer: TestsAnswer) -> str:
    """`weight decay and depth`; empty where the prime alone changes."""
    return " and ".join(axis_name(axis) for axis in answer.axes)


def prime_and_settings(answer: TestsAnswer) -> str:
    """The predictors of M2 in a suite that sweeps settings."""
    prime = "log p, log K_mem" if answer.method == "robust" else "p"
    return f"{prime} and {swept(answer)}"


def by_setting(content: SuiteContent) -> Iterator[str]:
    """The median residual in each setting, by both methods, beside the paper's."""
    answer = content.answer
    if answer is None or not swept(answer):
        return
    papers: Convention = ("paper", content.main[1])
    other = content.by(papers)
    rows = () if other is None else other.within
    parts = []
    for row in answer.within:
        told = f"{setting_or(row.setting, 'all cells')} {signed(row.median_residual)} "
        told += f"({row.n} of {count(row.n_total, 'cell')}{_undelayed(answer, row.setting)})"
        same = next((r for r in rows if r.setting == row.setting), None)
        if same is not None and same.median_residual is not None:
            told += f", by the paper's conventions {signed(same.median_residual)}"
            told += f" ({same.n} of {same.n_total})"
        printed = _printed(content, row.setting)
        parts.append(told + (f", printed {signed(printed)}" if printed is not None else ""))
    if parts:
        yield f"Median residual by setting, in dex: {'; '.join(parts)}."


def _undelayed(answer: TestsAnswer, setting: Setting) -> str:
    """How many cells lack a residual because their onset lies above every width trained."""
    cells = [c for c in answer.cells if c.setting == setting and c.onset_status == "above_range"]
    return f", no delay up to the widest in {len(cells)}" if cells else ""


def _printed(content: SuiteContent, setting: Setting) -> float | None:
    if content.reference is None or len(setting) != 1:
        return None
    ((axis, value),) = setting.items()
    row = content.reference.setting(axis, value)
    return None if row is None else row.median_residual


def beside_settings(answer: TestsAnswer) -> Iterator[str]:
    """What the crossing tells beside the settings, and they beside it."""
    if not swept(answer):
        return
    known = prime_and_settings(answer)
    for name, what, than in (
        ("F M3 vs M2", f"the crossing with {known}", "these alone"),
        ("F M3 vs M1", f"the crossing with {known}", "the crossing alone"),
    ):
        test = statistic(answer, name)
        if test is None:
            continue
        if not test.testable or test.p is None:
            yield f"Whether {what} tells more than {than} is not testable: {test.note}."
        else:
            yield f"{tells_more(what, test)} than {than}{f_and_p(test)}."


def across(answer: TestsAnswer) -> Iterator[str]:
    """Whether the residual depends on the prime and on every swept setting."""
    for trend in answer.pooled:
        if trend.test != "robustness":
            continue
        axis = axis_name(trend.statistic.partition(" on ")[2])
        if not trend.testable or trend.p is None:
            yield f"Whether the residual depends on {axis} is not testable: {trend.note}."
            continue
        clustered = next((w for w in trend.note.split("; ") if w.startswith(CLUSTERED)), "")
        kind = "F" if trend.statistic.startswith("F ") else "slope"
        unit = " dex a unit" if kind == "slope" else ""
        shown = "drifts" if trend.p < ALPHA else "is not shown to drift"
        yield (
            f"The residual {shown} with {axis} ({kind} {plain(trend.value)}{unit}, "
            f"Holm-corrected {probability(trend.p)}{f', {clustered}' if clustered else ''})."
        )
