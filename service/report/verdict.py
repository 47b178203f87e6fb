"""The verdict: plain sentences that follow from the numbers, negative ones as plainly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from scipy import stats

from dashboard.figures.verdicts import ALPHA
from dashboard.numbers import count, percent
from service.answers.cell_tests import LAST_BATCH_SLOPE, Apart, TestsAnswer
from service.answers.reference import MORRIS_BITS, PAPER_BITS
from service.report.content import CONVENTIONS, Convention, SuiteContent
from service.report.laws import c_model, c_model_text, collapse_sentence, falls, form_sentence
from service.report.scope import missing_sentence
from service.report.swept import across, beside_settings, prime_and_settings, swept
from service.report.words import (
    convention_text,
    f_and_p,
    offset,
    plain,
    probability,
    real,
    resolved,
    setting_or,
    signed,
    slope_of,
    span,
    statistic,
    tells_more,
    with_interval,
)

FEW_SEEDS = 5
LEAST_FREE = 3  # degrees of freedom below which an F-test of two predictors is left unsaid


def verdict(content: SuiteContent) -> tuple[str, ...]:
    """Both of the appendix's questions, the constants, and what the runs cannot say."""
    answer = content.answer
    if answer is None:
        return (f"Nothing can be said: {content.tests[content.main]}.",)
    return tuple(
        [
            *prediction(answer),
            *calibration(answer),
            *baselines(answer),
            *apart(answer.apart),
            *last_batch(answer),
            *(f"{note[:1].upper()}{note[1:].rstrip('.')}." for note in answer.notes),
            *_within(answer),
            *beside_settings(answer),
            *across(answer),
            *papers_way(content),
            *other_clock(content),
            *capacity(content),
            *law(content),
            *_limits(content, answer),
        ]
    )


def prediction(answer: TestsAnswer) -> Iterator[str]:
    """Whether the crossing orders the onsets, and how well the prime alone does."""
    rank = statistic(answer, "spearman")
    if rank is None or not rank.testable or rank.value is None:
        yield (
            "Does the crossing predict the onset? Not testable: "
            f"{count(answer.n, 'cell')} of {answer.n_total} have both a crossing and an onset."
        )
        return
    number = f"Spearman ρ {with_interval(rank)} over {count(rank.n, 'cell')}"
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
    known = [(c.prime, c.p_onset) for c in answer.cells if c.residual is not None]
    if len({prime for prime, _ in known}) > 2:
        alone = float(stats.spearmanr(*zip(*known, strict=True)).statistic)
        yield f"The prime alone orders the same onsets with ρ {plain(alone)}."


def calibration(answer: TestsAnswer) -> Iterator[str]:
    """The offset and the slope, each with its interval."""
    middle = statistic(answer, "median")
    if middle is None or middle.value is None:
        known = any(c.residual is not None for c in answer.cells)
        why = "every residual is zero" if known else "no cell has a residual"
        yield f"Calibration is not testable: {why}."
        return
    factor = f"the onset lies at {10**middle.value:.2f} × the crossing"
    if middle.low is None or middle.high is None:
        yield (
            f"The median residual is {signed(middle.value)} dex ({factor}); "
            f"{count(middle.n, 'cell')} cannot carry a {percent(answer.level)} interval "
            "of a median."
        )
    else:
        side = "no offset can be told"
        if middle.low > 0 or middle.high < 0:
            side = "onsets are larger" if middle.value > 0 else "onsets are smaller"
            side += " than crossings"
        yield (
            f"The median residual is {signed(middle.value)} dex, {percent(answer.level)} interval "
            f"{signed(middle.low)} to {signed(middle.high)}: {factor}, and {side}."
        )
    slope = slope_of(answer)
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
ONE_PREDICTOR = 0.999  # correlation above which log K_mem is log p under another name


def baselines(answer: TestsAnswer) -> Iterator[str]:
    """What the crossing tells beside simpler predictors."""
    errors = {m.name: m.loo_rmse for m in answer.models if m.loo_rmse is not None}
    named = {
        "M0": "a constant",
        "M1": "the crossing",
        "MP": "log p alone",
        "MK": "log K_mem alone",
        "MB": "log p with the last batch",
    }
    if swept(answer):
        named["M2"] = prime_and_settings(answer)
    parts = [f"{named[n]} {plain(e)} dex" for n, e in errors.items() if n in named]
    if parts:
        primes = [c.prime for c in answer.cells if c.residual is not None]
        known = ", other cells of its prime known" if len(set(primes)) < len(primes) else ""
        yield f"Leave-one-out error of predicting P_onset{known}: {'; '.join(parts)}."
    same = _complexity_follows_the_prime(answer)
    for name, what in BASELINES.items():
        test = statistic(answer, name)
        if test is None or (same and what == "log K_mem"):
            continue
        if same:
            word = "nor" if test.p is not None and test.p >= ALPHA else "or"
            what += f" ({word} than log K_mem, here nearly a function of it)"
        if not test.testable or test.p is None:
            yield f"Whether the crossing tells more than {what} is not testable: {test.note}."
            continue
        yield f"{tells_more('the crossing', test)} than {what}{f_and_p(test)}."


def last_batch(answer: TestsAnswer) -> Iterator[str]:
    """Whether what is left for an epoch's last step moves the onset, and what that leaves over."""
    size, beside, back = (
        statistic(answer, f"F {name}") for name in ("MB vs MP", "MB+ vs MB", "MB+ vs M1")
    )
    if size is None or beside is None or size.p is None:
        return
    known = [c for c in answer.cells if c.residual is not None]
    batches = [
        span(sorted(sizes))
        for sizes in ([c.last_batch for c in known], {c.batch_size for c in known})
    ]
    slope = statistic(answer, LAST_BATCH_SLOPE)
    one_size = len({c.batch_size for c in known}) == 1
    what = "that size" if one_size else "that share of a batch"
    yield (
        f"The last batch of an epoch holds what is left, {batches[0]} examples, all others "
        f"{batches[1]}. {tells_more('its size', size)} about the onset than log p alone"
        f"{f_and_p(size)}; beside log p, P_onset goes as {what} to the power "
        f"{with_interval(slope)} (not one of the planned baselines, and not corrected for)."
    )
    model = next((m for m in answer.models if m.name == "MB+"), None)
    if beside.p is None or back is None or back.p is None or model is None:
        return
    if model.n - len(model.predictors) - 1 < LEAST_FREE:
        return
    if min(beside.p, back.p) >= ALPHA:
        alike = ""
        if model.largest_vif is not None and model.collinear:
            alike = f", being nearly functions of each other (VIF {model.largest_vif:.0f})"
        first, second = (f_and_p(test).removeprefix(":") for test in (beside, back))
        yield (
            f"The crossing and log p with the last batch cannot be told apart{alike}: the first "
            f"beside the second{first}, the second beside the first{second}. The crossing may "
            "carry what the last batch does, or only share it."
        )
        return
    both = "the crossing with log p and the last batch"
    yield f"{tells_more(both, beside)} than the latter alone{f_and_p(beside)}."
    yield f"{tells_more(both, back)} than the crossing alone{f_and_p(back)}."


def _complexity_follows_the_prime(answer: TestsAnswer) -> bool:
    logs = np.log([(c.prime, c.k_mem) for c in answer.cells if c.residual is not None])
    if len(logs) < 3 or np.any(np.ptp(logs, axis=0) == 0):
        return False
    return bool(np.corrcoef(logs.T)[0, 1] > ONE_PREDICTOR)


def apart(ways: tuple[Apart, ...]) -> Iterator[str]:
    """The same prediction where crossing and onset share no run."""
    if not ways:
        return

    def both(values: Iterable[str]) -> str:
        return " and ".join(values)

    told = "That the crossing tells more than log p is not shown this way."
    if all(w.p < ALPHA and w.loo_crossing < w.loo_prime for w in ways):
        told = "The crossing tells more than log p this way, too."
    yield (
        "T_gen and delay are read off the same runs, so that chance moves crossing and onset "
        "together. With the crossing of one half of the seeds and the onset of the other, one way "
        f"and the other: ρ {both(plain(w.rho) for w in ways)}; leave-one-out error "
        f"{both(plain(w.loo_crossing) for w in ways)} dex by the crossing against "
        f"{both(plain(w.loo_prime) for w in ways)} by log p; tests of the crossing beside "
        f"log p: {both(probability(w.p) for w in ways)}, on the {both(str(w.n) for w in ways)} "
        f"cells that have both points then. {told}"
    )


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


def papers_way(content: SuiteContent) -> Iterator[str]:
    """The same runs by the paper's conventions, beside what it printed."""
    chosen: Convention = ("paper", "online")
    answer = content.by(chosen)
    if answer is None:
        return
    printed = {} if content.reference is None else content.reference.tests
    parts = []
    for name, test, label in (
        ("spearman", "spearman", "ρ"),
        ("slope", "ols_slope", "slope"),
        ("median", "wilcoxon", "median residual"),
    ):
        found, theirs = statistic(answer, name), printed.get(test)
        if found is None or found.value is None:
            continue
        show = signed if name == "median" else plain
        ours = offset(found) if name == "median" else with_interval(found)
        beside = "" if theirs is None or theirs.statistic is None else show(theirs.statistic)
        parts.append(f"{label} {ours}" + (f" beside {beside}" if beside else ""))
    if not parts:
        return
    cells = f"{answer.n} of {answer.n_total} cells"
    seeds = span(sorted({c.seeds.grok for c in answer.cells}))
    whose = "By the paper's conventions"
    if content.reference is not None:
        whose += ", beside what it printed"
        whose += "" if content.reference.same_model else " for another model"
        cells += f", its {next(iter(printed.values())).cells}" if printed else ""
    yield f"{whose}: {', '.join(parts)} ({cells}).{_onset_steps(answer, seeds)}"


def _onset_steps(answer: TestsAnswer, seeds: str) -> str:
    """How coarse the paper's onset is: it is always one of the widths, and moves with seeds."""
    steps = [s for c in answer.cells if (s := c.onset_step) is not None]
    if not steps:
        return ""
    low, high = (f"{end:.2f}" for end in (min(steps), max(steps)))
    apart = low if low == high else f"{low} to {high}"
    return (
        f" This onset can only be a trained width, {apart} dex above the next, and grows with the "
        f"number of seeds ({seeds} here): an agreement is no closer than that."
    )


def other_clock(content: SuiteContent) -> Iterator[str]:
    """Both methods on the clock that is not the suite's own."""
    for chosen in CONVENTIONS:
        answer = content.by(chosen)
        if chosen[1] == content.main[1] or answer is None:
            continue
        name = f"By the {convention_text(*chosen)}"
        cells = f"{answer.n} of {answer.n_total} cells have a crossing and an onset"
        if resolved(answer):
            yield (
                f"{name}: ρ {with_interval(statistic(answer, 'spearman'))}, median residual "
                f"{offset(statistic(answer, 'median'))} ({cells})."
            )
        else:
            yield f"{name}, not testable with these widths: {cells}{_out_of_sight(answer)}."


def _out_of_sight(answer: TestsAnswer) -> str:
    """On which side of the trained widths crossings and onsets are."""
    faster = sum(c.crossing_status == "mem_always_faster" for c in answer.cells)
    edge = sum(c.at_edge for c in answer.cells)
    told = {
        "memorisation is faster at every width": faster,
        "the closest approach is at an end of the widths": edge,
        "the delay is there at the narrowest width that fits its training set": answer.n_at_floor,
        "no delay is seen below the widest width": answer.n_at_cap,
    }
    return "".join(f"; {words} in {cells}" for words, cells in told.items() if cells)


def capacity(content: SuiteContent) -> Iterator[str]:
    """C_model beside the published values; settings that have none of their own in one sentence."""
    unmeasured = []
    for part in content.settings:
        bits = c_model(content, part)
        if bits is None:
            continue
        name = setting_or(part.setting, "")
        where = f" at {name}" if name else ""
        if bits.source == "paper":
            unmeasured.append(name)
            continue
        text = c_model_text(bits)
        low = "; it may be too low (see Capacity)" if falls(part) else ""
        if bits.source == "matched_suite":
            yield f"C_model{where} is not measured here; {text} of {bits.suite} is used{low}."
            continue
        said = []
        if bits.low is not None and bits.high is not None:
            for value, whose in ((PAPER_BITS, "the paper's"), (MORRIS_BITS, "Morris et al.'s")):
                inside = "contains" if bits.low <= value <= bits.high else "excludes"
                said.append(f"{inside} {whose} {value:g}")
        told = f": the interval {' and '.join(said)}" if said else ", without an interval"
        yield f"C_model{where} is {text} bits per parameter{told}{low}."
    if unmeasured:
        where = f" at {', '.join(unmeasured)}" if any(unmeasured) else ""
        yield f"C_model{where} is not measured; the paper's {PAPER_BITS:g} is used."


def law(content: SuiteContent) -> Iterator[str]:
    for part in content.settings:
        if isinstance(part.law, str):
            continue
        name = setting_or(part.setting, "")
        where = f"At {name}: " if name else ""
        if part.law.pooled is None:
            yield f"{where}T_mem's law is not testable: too few widths inside the window of f."
            continue
        pooled = part.law.pooled
        rate = real(pooled.a, pooled.a_low, pooled.a_high)
        yield (
            f"{where}T_mem = b·exp(a·f), C_model in f {plain(part.law.c_model.value)}, fits with "
            f"a = {rate} and R² {plain(pooled.r_squared)} over {count(pooled.n, 'width')}; "
            f"{form_sentence(part.law)}. "
            f"{collapse_sentence(part.law)}"
        )


def _limits(content: SuiteContent, answer: TestsAnswer) -> Iterator[str]:
    lost = answer.n_total - answer.n
    if lost:
        cells = f"{count(lost, 'cell')} of {answer.n_total}"
        yield f"{cells} without a crossing or an onset: not pooled."
    if answer.n_at_floor or answer.n_at_cap:
        yield (
            f"{count(answer.n_at_floor, 'onset')} at the narrowest width that fits its training "
            f"set and {answer.n_at_cap} at the widest or above it: these bound the onset on one "
            "side only."
        )
    few = sum(
        1 for c in answer.cells if c.few_seeds or min(c.seeds.speed, c.seeds.grok) < FEW_SEEDS
    )
    if few:
        yield (
            f"{count(few, 'cell')} with fewer than {FEW_SEEDS} seeds at a width that the crossing "
            "rests on: intervals are rough there, or cannot be given."
        )
    yield from missing_sentence(content.coverage)
