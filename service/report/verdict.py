"""The verdict: plain sentences that follow from the numbers, negative ones as plainly."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dashboard.numbers import count, percent
from service.analysis.small_samples import median_interval, spearman_interval
from service.answers.cell_tests import Statistic, TestsAnswer
from service.answers.reference import MORRIS_BITS, PAPER_BITS
from service.report.content import CONVENTIONS, SuiteContent
from service.report.laws import c_model, c_model_text, collapse_sentence
from service.report.words import (
    convention_text,
    plain,
    probability,
    real,
    setting_or,
    signed,
    statistic,
    value_of,
)

ALPHA = 0.05
FEW_SEEDS = 5
LEAST_SLOPE = 6  # cells below which pairwise slopes cannot carry an interval


def verdict(content: SuiteContent) -> tuple[str, ...]:
    """Both of the appendix's questions, the constants, and what the runs cannot say."""
    answer = content.answer
    if answer is None:
        return (f"Nothing can be said: {content.tests[content.main]}.",)
    return tuple(
        [
            *_prediction(answer),
            *_calibration(answer),
            *_baselines(answer),
            *_within(answer),
            *_across(answer),
            *_conventions(content),
            *_beside(content, answer),
            *_capacity(content),
            *_law(content),
            *_limits(content, answer),
        ]
    )


def _prediction(answer: TestsAnswer) -> Iterator[str]:
    rank = statistic(answer, "spearman")
    if rank is None or not rank.testable or rank.value is None:
        yield (
            "Does the crossing predict the onset? Not testable: "
            f"{count(answer.n, 'cell')} of {answer.n_total} have both a crossing and an onset."
        )
        return
    interval = spearman_interval(rank.value, rank.n, answer.level)
    ends = f", {percent(answer.level)} interval {real(rank.value, interval.low, interval.high)}"
    number = f"Spearman ρ {plain(rank.value)} over {count(rank.n, 'cell')}"
    if interval.low is not None:
        number = f"Spearman ρ over {count(rank.n, 'cell')}{ends}"
    number += f", permutation {probability(rank.p)}"
    if rank.p is not None and rank.p < ALPHA and rank.value > 0:
        yield f"Does the crossing predict the onset? In rank, yes: {number}."
    elif rank.p is not None and rank.p < ALPHA:
        yield f"Does the crossing predict the onset? No, the order is reversed: {number}."
    elif rank.floor is not None and rank.floor >= ALPHA:
        yield (
            f"Does the crossing predict the onset? Not testable: with {count(rank.n, 'cell')} "
            f"no order can give p below {plain(rank.floor)} ({number})."
        )
    else:
        yield f"Does the crossing predict the onset? Not shown: {number}."


def _slope(answer: TestsAnswer) -> Statistic | None:
    """The slope with the safest interval these cells carry; the OLS slope where none has any."""
    names = ["slope, clustered", "slope, theil sen", "slope"]
    if answer.n < LEAST_SLOPE:
        names.remove("slope, theil sen")
    found = [s for s in (statistic(answer, name) for name in names) if s is not None]
    carried = (s for s in found if s.low is not None and s.high is not None)
    return next(carried, found[-1] if found else None)


def _calibration(answer: TestsAnswer) -> Iterator[str]:
    residuals = np.array([c.residual for c in answer.cells if c.residual is not None])
    if not len(residuals):
        yield "Calibration is not testable: no cell has a residual."
        return
    median = float(np.median(residuals))
    interval = median_interval(residuals, answer.level)
    factor = f"the onset lies at {10**median:.2f} × the crossing"
    if interval.low is None or interval.high is None:
        yield (
            f"The median residual is {signed(median)} dex ({factor}); "
            f"{count(len(residuals), 'cell')} cannot carry a {percent(answer.level)} interval "
            "of a median."
        )
    else:
        side = "no offset can be told"
        if interval.low > 0 or interval.high < 0:
            side = "onsets come later" if median > 0 else "onsets come earlier"
            side += " than the crossing"
        yield (
            f"The median residual is {signed(median)} dex, {percent(answer.level)} interval "
            f"{signed(interval.low)} to {signed(interval.high)}: {factor}, and {side}."
        )
    slope = _slope(answer)
    if slope is not None and slope.low is not None and slope.high is not None:
        told = "contains 1" if slope.low <= 1 <= slope.high else "excludes 1"
        yield (
            "The slope of log P_onset on log P_cross is "
            f"{real(slope.value, slope.low, slope.high)}: its interval {told}"
            f"{f' ({slope.note})' if slope.note else ''}."
        )
    elif slope is None or slope.value is None:
        yield "The slope is not testable with these cells."
    else:
        yield f"The slope is {plain(slope.value)}; these cells cannot carry its interval."
    same = statistic(answer, "tost")
    if same is not None and same.p is not None:
        shown = "is shown" if same.p < ALPHA else "is not shown"
        yield f"That the slope is 1 within ± 0.05 {shown} ({probability(same.p)})."


BASELINES = {"F MP+ vs MP": "log p", "F MK+ vs MK": "log K_mem"}


def _baselines(answer: TestsAnswer) -> Iterator[str]:
    errors = {m.name: m.loo_rmse for m in answer.models if m.loo_rmse is not None}
    named = {"M1": "the crossing", "MP": "log p alone", "MK": "log K_mem alone", "M0": "a constant"}
    parts = [f"{named[n]} {plain(e)} dex" for n, e in errors.items() if n in named]
    if parts:
        yield "Leave-one-out error of predicting P_onset: " + ", ".join(parts) + "."
    for name, what in BASELINES.items():
        test = statistic(answer, name)
        if test is None:
            continue
        if not test.testable or test.p is None:
            yield f"Whether the crossing tells more than {what} is not testable: {test.note}."
        else:
            shown = "tells more" if test.p < ALPHA else "is not shown to tell more"
            number = f"F {plain(test.value)}, {probability(test.p)}"
            yield f"The crossing {shown} than {what} ({number})."
    for note in answer.notes:
        yield f"{note[:1].upper()}{note[1:].rstrip('.')}."


def _within(answer: TestsAnswer) -> Iterator[str]:
    for row in answer.within:
        name = setting_or(row.setting, "all cells")
        if row.verdict == "no_cells":
            why = "; ".join(f"{n} × {reason.replace('_', ' ')}" for reason, n in row.lost.items())
            yield f"Within {name}: no cell has both a crossing and an onset ({why})."
        elif row.verdict == "under_resolved":
            yield f"Within {name}: under-resolved, only {count(row.n, 'cell')} of {row.n_total}."
        else:
            driven = f", driven by p = {row.driver_prime}" if row.driver_prime else ""
            yield (
                f"Within {name}: {row.verdict} by spread (residuals "
                f"{signed(row.median_residual)} ± {plain(row.std)} dex over "
                f"{count(row.n, 'prime')}{driven})."
            )


def _across(answer: TestsAnswer) -> Iterator[str]:
    for trend in answer.pooled:
        if trend.test != "robustness":
            continue
        axis = trend.statistic.partition(" on ")[2]
        if not trend.testable or trend.p is None:
            yield f"Whether the residual depends on {axis} is not testable: {trend.note}."
            continue
        kind = "F" if trend.statistic.startswith("F ") else "slope"
        shown = "drifts" if trend.p < ALPHA else "is not shown to drift"
        yield (
            f"The residual {shown} with {axis} ({kind} {plain(trend.value)}, "
            f"Holm-corrected {probability(trend.p)})."
        )


def _conventions(content: SuiteContent) -> Iterator[str]:
    parts = []
    for chosen in CONVENTIONS:
        median = value_of(content.by(chosen), "median")
        if median is not None:
            parts.append(f"{signed(median)} ({convention_text(*chosen)})")
    if len(parts) > 1:
        yield "Median residual by convention: " + ", ".join(parts) + "."


def _beside(content: SuiteContent, answer: TestsAnswer) -> Iterator[str]:
    reference = content.reference
    if reference is None:
        return
    whose = "" if reference.same_model else " (another model's, see the pooled tests)"
    pairs = []
    for name, test, label in (
        ("spearman", "spearman", "ρ"),
        ("slope", "ols_slope", "slope"),
        ("median", "wilcoxon", "median residual"),
    ):
        printed = reference.tests.get(test)
        if printed is not None and printed.statistic is not None:
            show = signed if name == "median" else plain
            ours = show(value_of(answer, name))
            pairs.append(f"{label} {ours} beside {show(printed.statistic)}")
    if pairs:
        cells = next(iter(reference.tests.values())).cells
        yield (
            f"Ours beside the paper's{whose}: {', '.join(pairs)} ({answer.n} and {cells} cells)."
        )


def _capacity(content: SuiteContent) -> Iterator[str]:
    for part in content.settings:
        bits = c_model(content, part)
        if bits is None:
            continue
        name = setting_or(part.setting, "")
        where = f" at {name}" if name else ""
        if bits.source == "paper":
            yield f"C_model{where} is not measured; the paper's {PAPER_BITS:g} is used."
            continue
        text = c_model_text(bits)
        if bits.source == "matched_suite":
            yield f"C_model{where} is not measured here; {text} of {bits.suite} is used."
            continue
        said = []
        if bits.low is not None and bits.high is not None:
            for value, whose in ((PAPER_BITS, "the paper's"), (MORRIS_BITS, "Morris et al.'s")):
                inside = "contains" if bits.low <= value <= bits.high else "excludes"
                said.append(f"{inside} {whose} {value:g}")
        told = f": the interval {' and '.join(said)}" if said else ", without an interval"
        yield f"C_model{where} is {text} bits per parameter{told}."


def _law(content: SuiteContent) -> Iterator[str]:
    for part in content.settings:
        if isinstance(part.law, str):
            continue
        name = setting_or(part.setting, "")
        where = f"At {name}: " if name else ""
        best = part.law.rivals[0] if part.law.rivals else None
        if best is None or part.law.pooled is None:
            yield f"{where}T_mem's law is not testable: too few widths inside the window of f."
            continue
        pooled = part.law.pooled
        first = (
            "of the three forms the exponential has the smallest AIC"
            if best.form == "exponential"
            else f"but the {best.form} form has the smaller AIC"
        )
        yield (
            f"{where}T_mem = b·exp(a·f) fits with a = "
            f"{real(pooled.a, pooled.a_low, pooled.a_high)} and R² {plain(pooled.r_squared)} "
            f"over {count(pooled.n, 'width')}; {first}. "
            f"{collapse_sentence(part.law)}"
        )


def _limits(content: SuiteContent, answer: TestsAnswer) -> Iterator[str]:
    lost = answer.n_total - answer.n
    if lost:
        cells = f"{count(lost, 'cell')} of {answer.n_total}"
        yield f"{cells} without a crossing or an onset: not pooled."
    if answer.n_at_floor or answer.n_at_cap:
        yield (
            f"{count(answer.n_at_floor, 'onset')} at the smallest and {answer.n_at_cap} at the "
            "largest measured width: these bound the onset on one side only."
        )
    few = sum(
        1 for c in answer.cells if c.few_seeds or min(c.seeds.speed, c.seeds.grok) < FEW_SEEDS
    )
    if few:
        yield (
            f"{count(few, 'cell')} with fewer than {FEW_SEEDS} seeds at a width that the crossing "
            "rests on: intervals are rough there, or cannot be given."
        )
    states = content.coverage.states
    open_runs = states.pending + states.running + states.stale
    if open_runs:
        yield f"{count(open_runs, 'run')} of the suite not trained yet."
