"""What the tests say in sentences: does the crossing predict the onset, and beyond what?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from groktime.service.analysis.hypotheses import NestedTest, SeedsApart
from groktime.service.analysis.inputs import finite
from groktime.service.answers.cell_tests import CellTests
from groktime.service.answers.question import Setting
from groktime.service.answers.verdicts import compared_models, holds_apart
from groktime.service.report.content import Convention, SuiteContent
from groktime.service.words import (
    axis_name,
    count,
    evidence,
    is_shown,
    lost_text,
    percent,
    plain,
    probability,
    real,
    setting_text,
    signed,
    span,
)

LEAST_SLOPE = 6  # cells below which pairwise slopes cannot carry an interval
LEAST_FREE = 3  # degrees of freedom below which an F-test of two predictors is left unsaid
ONE_PREDICTOR = 0.999  # correlation above which log K_mem is log p under another name


@dataclass(frozen=True)
class SlopeFound:
    """A slope of log P_onset on log P_cross with its interval, and what that rests on."""

    value: float
    low: float | None
    high: float | None
    note: str


def slope_of(found: CellTests) -> SlopeFound | None:
    """The slope with the safest interval these cells carry; the OLS slope where none has any."""
    tests = found.tests
    known = []
    if (line := tests.clustered) is not None:
        note = f"errors clustered by {line.clusters} primes"
        note += ", unreliable below ten" if line.unreliable else ""
        known.append(SlopeFound(line.slope, finite(line.low), finite(line.high), note))
    if (slope := tests.theil_sen) is not None and found.n >= LEAST_SLOPE:
        known.append(SlopeFound(slope.slope, finite(slope.low), finite(slope.high), "Theil–Sen"))
    if (ols := tests.line) is not None:
        bounds = finite(ols.slope_low), finite(ols.slope_high)
        known.append(SlopeFound(ols.slope, *bounds, "t interval"))
    carried = (s for s in known if s.low is not None and s.high is not None)
    return next(carried, known[-1] if known else None)


def onsets_at_an_end(found: CellTests) -> int:
    """Cells whose onset is only bounded, by the narrowest or the widest network."""
    return sum(c.at_floor or c.at_cap for c in found.cells)


def resolved(found: CellTests) -> bool:
    """Whether the cells can show an order: enough of them, and most with both ends in sight."""
    rank = found.tests.spearman
    if rank is None or evidence(rank.p_permutation, rank.floor) == "not testable":
        return False
    return 2 * max(onsets_at_an_end(found), sum(c.at_edge for c in found.cells)) <= found.n_total


def rank_text(found: CellTests) -> str:
    """`0.976 [0.862, 0.996]`."""
    rank = found.tests.spearman
    if rank is None:
        return plain(None)
    return real(finite(rank.rho), finite(rank.interval.low), finite(rank.interval.high))


def median_bounds(found: CellTests) -> tuple[float | None, float | None, float | None]:
    """The median residual and its interval, None where the cells carry none."""
    test = found.tests.wilcoxon
    if test is None:
        return None, None, None
    return test.median_residual, finite(test.interval.low), finite(test.interval.high)


def adds(what: str, test: NestedTest, beyond: str) -> str:
    """Whether the larger model of an F-test adds information beyond the smaller one."""
    what = f"{what[:1].upper()}{what[1:]}"
    numbers = f"(F = {plain(test.f)}, {probability(test.p)})"
    found = evidence(test.p)
    if found in ("not shown", "not testable"):
        return f"{what} is not shown to add information beyond {beyond} {numbers}."
    if found == "hint":
        return f"{what} may add information beyond {beyond} {numbers}."
    return f"{what} adds information beyond {beyond} {numbers}."


def prediction(found: CellTests) -> Iterator[str]:
    """Whether the crossing orders the onsets, and how well the prime alone does."""
    rank = found.tests.spearman
    asked = "Does the crossing predict the onset?"
    if rank is None:
        both = f"{found.n} of {count(found.n_total, 'cell')} with both a crossing and an onset"
        yield f"{asked} Not testable: {both}."
        return
    p = rank.p_permutation
    number = f"Spearman ρ {rank_text(found)} over {count(rank.n, 'cell')}"
    number += f", permutation {probability(p)}"
    found_so = evidence(p, rank.floor)
    if found_so in ("shown", "hint") and rank.rho > 0:
        yield f"{asked} In rank, yes: {number}."
    elif found_so in ("shown", "hint"):
        yield f"{asked} No, the order is reversed: {number}."
    elif found_so == "not testable":
        yield (
            f"{asked} Not testable: with {count(rank.n, 'cell')} "
            f"no order can give p below {plain(rank.floor)} ({number})."
        )
    else:
        yield f"{asked} It is not shown to: {number}."
    known = [(c.prime, c.p_onset) for c in found.cells if c.residual is not None]
    if len({prime for prime, _ in known}) > 2:
        alone = float(stats.spearmanr(*zip(*known, strict=True)).statistic)
        yield f"The prime alone orders the same onsets with ρ {plain(alone)}."


def calibration(found: CellTests) -> Iterator[str]:
    """The offset and the slope, each with its interval."""
    value, low, high = median_bounds(found)
    if value is None:
        known = any(c.residual is not None for c in found.cells)
        why = "every residual is zero" if known else "no cell has a residual"
        yield f"Calibration is not testable: {why}."
        return
    factor = f"the onset lies at {10**value:.2f} × the crossing"
    if low is None or high is None:
        yield (
            f"The median residual is {signed(value)} dex ({factor}); with "
            f"{count(found.n, 'cell')} a median has no {percent(found.level)} interval."
        )
    else:
        side = "the interval contains zero"
        if low > 0 or high < 0:
            side = f"onsets are {'larger' if value > 0 else 'smaller'} than crossings"
        yield (
            f"The median residual is {signed(value)} dex, {percent(found.level)} interval "
            f"{signed(low)} to {signed(high)}: {factor}, and {side}."
        )
    slope = slope_of(found)
    if slope is None:
        yield "The slope is not testable with these cells."
    elif slope.low is None or slope.high is None:
        yield f"The slope is {plain(slope.value)}; too few cells for its interval."
    else:
        told = "contains 1" if slope.low <= 1 <= slope.high else "excludes 1"
        yield (
            "The slope of log P_onset on log P_cross is "
            f"{real(slope.value, slope.low, slope.high)}: its interval {told} ({slope.note})."
        )
    same = found.tests.equivalence
    if same is not None:
        shown = "is" if is_shown(same.p) else "is not shown to be"
        yield (
            f"The slope {shown} 1 within {same.low_bound:g} to {same.high_bound:g} "
            f"(equivalence test, {probability(same.p)})."
        )


def baselines(found: CellTests) -> Iterator[str]:
    """What the crossing adds beyond simpler predictors."""
    named = {
        "M0": "a constant",
        "M1": "the crossing",
        "MP": "log p alone",
        "MK": "log K_mem alone",
        "MB": "log p with the last batch",
        "M2": prime_and_settings(found),
    }
    models = compared_models(found)
    errors = {name: m.loo_rmse for name, m in models.items() if m.loo_rmse is not None}
    parts = [f"{named[n]} {plain(e)} dex" for n, e in errors.items() if n in named]
    if parts:
        primes = [c.prime for c in found.cells if c.residual is not None]
        known = ", other cells of its prime known" if len(set(primes)) < len(primes) else ""
        yield f"Leave-one-out error of predicting P_onset{known}: {'; '.join(parts)}."
    same = _complexity_follows_the_prime(found)
    for larger, smaller, what in (("MP+", "MP", "log p"), ("MK+", "MK", "log K_mem")):
        test = found.nested(larger, smaller)
        if test is None or (same and what == "log K_mem"):
            continue
        beyond = f"{what} (or log K_mem, here nearly a function of it)" if same else what
        if test.testable:
            yield adds("the crossing", test, beyond)
        else:
            yield f"What the crossing adds beyond {beyond} is not testable: {test.reason}."


def _complexity_follows_the_prime(found: CellTests) -> bool:
    logs = np.log([(c.prime, c.k_mem) for c in found.cells if c.residual is not None])
    if len(logs) < 3 or np.any(np.ptp(logs, axis=0) == 0):
        return False
    return bool(np.corrcoef(logs.T)[0, 1] > ONE_PREDICTOR)


def last_batch(found: CellTests) -> Iterator[str]:
    """Whether what is left for an epoch's last step moves the onset, and what that leaves over."""
    size = found.nested("MB", "MP")
    beside, back = found.nested("MB+", "MB"), found.nested("MB+", "M1")
    nested = found.tests.nested
    if nested is None or size is None or beside is None or size.p is None:
        return
    known = [c for c in found.cells if c.residual is not None]
    batches = [
        span(sorted(sizes))
        for sizes in ([c.last_batch for c in known], {c.batch_size for c in known})
    ]
    what = "that size" if len({c.batch_size for c in known}) == 1 else "that share of a batch"
    slope = nested.last_batch
    power = plain(None) if slope is None else real(slope.value, slope.low, slope.high)
    yield (
        f"The last batch of an epoch holds what is left, {batches[0]} examples, all others "
        f"{batches[1]}. {adds('its size', size, 'log p alone')} Beside log p, P_onset goes as "
        f"{what} to the power {power} (exploratory, not corrected for multiple tests)."
    )
    model = nested.models.get("MB+")
    if beside.p is None or back is None or back.p is None or model is None:
        return
    if model.n - len(model.predictors) - 1 < LEAST_FREE:
        return
    if not is_shown(beside.p) and not is_shown(back.p):
        alike = ""
        if model.collinear:
            worst = math.inf if model.largest_vif is None else model.largest_vif
            alike = f", being nearly functions of each other (VIF {worst:.0f})"
        first, second = (f"F = {plain(t.f)}, {probability(t.p)}" for t in (beside, back))
        yield (
            f"The data cannot separate the crossing from log p with the last batch{alike}: the "
            f"first beside the second {first}, the second beside the first {second}. The crossing "
            "may carry what the last batch does, or only share it."
        )
        return
    yield adds("the crossing", beside, "log p and the last batch")
    yield adds("log p with the last batch", back, "the crossing")


def apart(ways: Sequence[SeedsApart]) -> Iterator[str]:
    """The same prediction where crossing and onset share no run."""
    if not ways:
        return

    def both(values: Iterable[str]) -> str:
        return " and ".join(values)

    told = "This way the crossing is not shown to add information beyond log p."
    if holds_apart(ways):
        told = "This way, too, the crossing adds information beyond log p."
    yield (
        "T_gen and delay are read off the same runs, so chance moves crossing and onset together. "
        "With the crossing of one half of the seeds and the onset of the other, one way "
        f"and the other: ρ {both(plain(w.rho) for w in ways)}; leave-one-out error "
        f"{both(plain(w.loo_crossing) for w in ways)} dex by the crossing against "
        f"{both(plain(w.loo_prime) for w in ways)} by log p; tests of the crossing beside "
        f"log p: {both(probability(w.p) for w in ways)}, on {both(str(w.n) for w in ways)} "
        f"cells with both points. {told}"
    )


def within(found: CellTests) -> Iterator[str]:
    """How far the residuals of each setting spread over its primes."""
    for row in found.tests.within:
        name = setting_text(row.setting, "all cells")
        if row.verdict == "no_cells":
            why = lost_text(row.lost)
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


def swept(found: CellTests) -> str:
    """`weight decay and depth`; empty where the prime alone changes."""
    return " and ".join(axis_name(axis) for axis in found.axes)


def prime_and_settings(found: CellTests) -> str:
    """The predictors of M2 in a suite that sweeps settings."""
    prime = "log p, log K_mem" if found.method == "robust" else "p"
    return f"{prime} and {swept(found)}"


def by_setting(content: SuiteContent) -> Iterator[str]:
    """The median residual in each setting, by both methods, beside the paper's."""
    found = content.answer
    if found is None or not swept(found):
        return
    papers: Convention = ("paper", content.main[1])
    other = content.by(papers)
    rows = () if other is None else other.tests.within
    parts = []
    for row in found.tests.within:
        told = f"{setting_text(row.setting, 'all cells')} {signed(row.median_residual)} "
        told += f"({row.n} of {count(row.n_total, 'cell')}{_undelayed(found, row.setting)})"
        same = next((r for r in rows if r.setting == row.setting), None)
        if same is not None and same.median_residual is not None:
            told += f", by the paper's conventions {signed(same.median_residual)}"
            told += f" ({same.n} of {same.n_total})"
        printed = _printed(content, row.setting)
        parts.append(told + (f", printed {signed(printed)}" if printed is not None else ""))
    if parts:
        yield f"Median residual by setting, in dex: {'; '.join(parts)}."


def _undelayed(found: CellTests, setting: object) -> str:
    """How many cells lack a residual because their onset lies above every width trained."""
    cells = [c for c in found.cells if c.setting == setting and c.onset_status == "above_range"]
    return f", no delay up to the widest in {len(cells)}" if cells else ""


def _printed(content: SuiteContent, setting: Setting | dict[str, object]) -> float | None:
    if content.reference is None or len(setting) != 1:
        return None
    ((axis, value),) = setting.items()
    row = content.reference.setting(axis, value)
    return None if row is None else row.median_residual


def beside_settings(found: CellTests) -> Iterator[str]:
    """What the crossing adds beyond the settings, and they beyond it."""
    if not swept(found):
        return
    known = prime_and_settings(found)
    for larger, smaller, what, beyond in (
        ("M3", "M2", "the crossing", known),
        ("M3", "M1", f"the set of {known}", "the crossing"),
    ):
        test = found.nested(larger, smaller)
        if test is None:
            continue
        if test.testable:
            yield adds(what, test, beyond)
        else:
            yield f"What {what} adds beyond {beyond} is not testable: {test.reason}."


def across(found: CellTests) -> Iterator[str]:
    """Whether the residual depends on the prime and on every swept setting."""
    for trend in found.tests.robustness:
        axis = axis_name(trend.axis)
        if not trend.testable or trend.p_holm is None:
            yield f"Whether the residual depends on {axis} is not testable: {trend.reason}."
            continue
        numeric = trend.kind == "numeric"
        number = f"slope {plain(trend.slope)} dex per unit" if numeric else f"F = {plain(trend.f)}"
        shown = "drifts" if is_shown(trend.p_holm) else "is not shown to drift"
        clustered = ""
        if trend.p_clustered is not None:
            clustered = f", {probability(trend.p_clustered)} with errors clustered by prime"
        yield (
            f"The residual {shown} with {axis} ({number}, Holm-corrected "
            f"{probability(trend.p_holm)}{clustered})."
        )
