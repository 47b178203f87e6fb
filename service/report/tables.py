"""The tables of a chapter: cells, pooled tests, models, settings, conventions, offsets by rule, and
what was fixed and predicted before the suite was trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from scipy import stats

from groktime.service.analysis.forecast import Score
from groktime.service.analysis.hypotheses import Model
from groktime.service.analysis.inputs import finite
from groktime.service.answers import verdicts
from groktime.service.answers.cell_tests import CellRow, CellTests, pooled_tests
from groktime.service.answers.forecast import Registration, ScoredForecast
from groktime.service.answers.verdicts import Reference
from groktime.service.report.content import CONVENTIONS, Convention, SuiteContent, sampling
from groktime.service.report.document import Block, Bullets, Paragraph, Table
from groktime.service.report.predictions import (
    median_bounds,
    onsets_at_an_end,
    rank_text,
    resolved,
    slope_of,
)
from groktime.service.words import (
    CROSSING,
    EN_DASH,
    ONSET,
    convention_text,
    count,
    estimate,
    lost_text,
    offset,
    percent,
    plain,
    real,
    setting_text,
    signed,
    whole,
)


def cell_tables(content: SuiteContent) -> list[Block]:
    """One table a convention, then the residuals of all side by side."""
    found: list[Block] = []
    for chosen in CONVENTIONS:
        answer = content.tests[chosen]
        if isinstance(answer, str):
            found.append(Paragraph(f"{convention_text(*chosen)}: no cells ({answer})."))
        else:
            found.append(cells_table(content, chosen, answer))
    found.append(_residuals_table(content))
    return found


def p_mem(content: SuiteContent, cell: CellRow, method: str) -> float | None:
    """K_mem / C_model of the cell, with C_model as the method fits it."""
    for part in content.settings:
        if part.setting == cell.setting and method in part.c_model:
            return cell.k_mem / part.c_model[method].value
    return None


def cells_table(content: SuiteContent, chosen: Convention, answer: CellTests) -> Table:
    """P_mem, crossing, onset and residual of every cell by one convention."""
    swept = bool(answer.axes)
    rows = []
    for cell in answer.cells:
        row = (
            str(cell.prime),
            *((setting_text(cell.setting, ""),) if swept else ()),
            whole(p_mem(content, cell, chosen[0])),
            estimate(cell.p_cross, cell.p_cross_low, cell.p_cross_high),
            crossing_words(cell),
            estimate(cell.p_onset, cell.p_onset_low, cell.p_onset_high),
            onset_words(cell),
            signed(cell.residual),
            f"{cell.last_batch} of {cell.batch_size}",
            f"{cell.seeds.speed} / {cell.seeds.grok}",
            f"{cell.censored.speed} / {cell.censored.grok}",
        )
        rows.append(row)
    interval = (
        f"P_cross with its {percent(answer.level)} bootstrap interval, P_onset with its interval "
        "(fitted) or the two widths it lies between; d: the speed widths around the crossing, "
        "coarse where T_mem changes more than threefold between them; few seeds: fewer than five "
        "at a width beside the crossing, where intervals cover some 90 %"
        if chosen[0] == "robust"
        else "closest approach of the seed-averaged curves, which has no interval"
    )
    header = (
        "p",
        *(("setting",) if swept else ()),
        "P_mem",
        "P_cross",
        "crossing",
        "P_onset",
        "onset",
        "residual, dex",
        "last batch",
        "seeds",
        "censored",
    )
    text = {"setting", "crossing", "onset"}
    return Table(
        name=f"{content.name}-cells-{chosen[0]}-{chosen[1]}",
        caption=f"{content.name}, {convention_text(*chosen)}: {interval}. P_mem is "
        "K_mem / C_model, fitted or the paper's (see Capacity). Last batch: examples in the last "
        "step of an epoch. Seeds and censored runs are speed / grok.",
        header=header,
        rows=tuple(rows),
        numeric=frozenset(i for i, name in enumerate(header) if name not in text),
    )


def crossing_words(cell: CellRow) -> str:
    """The status of a crossing as a reader understands it."""
    words = [CROSSING.get(cell.crossing_status, cell.crossing_status)]
    words[0] += " at an end of the widths" if cell.at_edge else ""
    if cell.bracket is not None:
        words[0] += f", d {cell.bracket.low_width}{EN_DASH}{cell.bracket.high_width}"
        words += ["coarse"] if cell.bracket.coarse else []
    if cell.unresolved_widths:
        words.append(f"order not known at d {', '.join(map(str, cell.unresolved_widths))}")
    words += ["few seeds"] if cell.few_seeds else []
    return ", ".join(words)


def onset_words(cell: CellRow) -> str:
    """The status of an onset as a reader understands it."""
    words = [ONSET.get(cell.onset_status, cell.onset_status)]
    words += ["at the narrowest trained"] if cell.at_floor and "narrowest" not in words[0] else []
    words += ["at the widest trained"] if cell.at_cap and "widest" not in words[0] else []
    return ", ".join(words)


def _residuals_table(content: SuiteContent) -> Table:
    """Residuals of every cell by convention, with the paper's where it printed one."""
    answers = {chosen: content.by(chosen) for chosen in CONVENTIONS}
    known = next((a for a in answers.values() if a is not None), None)
    cells = () if known is None else known.cells
    printed = content.reference.residuals if content.reference is not None else {}
    rows = []
    for i, cell in enumerate(cells):
        values = [None if a is None else a.cells[i].residual for a in answers.values()]
        row = [str(cell.prime), setting_text(cell.setting, "all"), *(signed(v) for v in values)]
        if printed:
            row.append(signed(printed.get(cell.prime), 2))
        rows.append(tuple(row))
    header = ["p", "setting", *(f"{method}, {clock}" for method, clock in CONVENTIONS)]
    if printed and content.reference is not None:
        header.append(content.reference.column)
    return Table(
        name=f"{content.name}-residuals",
        caption=f"{content.name}: log₁₀(P_onset / P_cross) of every cell by method and clock.",
        header=tuple(header),
        rows=tuple(rows),
        numeric=frozenset({0, *range(2, len(header))}),
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
        if answer.tests.nested is not None:
            found.append(_models(content, chosen, answer.tests.nested.models.values()))
    return found


def _pooled(content: SuiteContent, chosen: Convention, answer: CellTests) -> Table:
    printed = dict(content.reference.tests) if content.reference is not None else {}
    rows = []
    for pooled in pooled_tests(answer.tests):
        row = verdicts.row(pooled, printed)
        rows.append(
            (
                row["group"],
                row["name"],
                row["value"],
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


def _models(content: SuiteContent, chosen: Convention, models: Iterable[Model]) -> Table:
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
        for model in models
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


def _within(content: SuiteContent, chosen: tuple[str, str], answer: CellTests) -> Table:
    reference = content.reference
    rows = []
    for row in answer.tests.within:
        printed = None
        if reference is not None and len(row.setting) == 1:
            ((axis, value),) = row.setting.items()
            printed = reference.setting(axis, value)
        verdict = row.verdict.replace("_", "-")
        if row.driver_prime is not None:
            verdict += f" (driven by p = {row.driver_prime})"
        lost = lost_text(row.lost)
        theirs = EN_DASH
        if printed is not None:
            theirs = (
                f"{signed(printed.median_residual)}, {plain(printed.std)}, {printed.verdict} "
                f"({printed.n_primes} primes)"
            )
        rows.append(
            (
                setting_text(row.setting, "all cells"),
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
    "The median has an interval from six cells on; that of the slope has errors clustered by prime "
    "in the robust method. Onsets at an end of the trained widths bound the onset on one side "
    "only; where they are many, the row says more about the widths than about the networks."
)


def headline(answer: CellTests | None) -> tuple[str, ...]:
    """The few numbers by which conventions and suites are compared."""
    if answer is None:
        return (EN_DASH,) * len(HEADLINES)
    slope, ccc = slope_of(answer), answer.tests.ccc
    known = answer.tests.spearman is not None
    return (
        f"{answer.n} of {answer.n_total}",
        rank_text(answer) + (" (not testable)" if known and not resolved(answer) else ""),
        plain(None) if slope is None else real(slope.value, slope.low, slope.high),
        plain(None) if ccc is None else real(finite(ccc.value), finite(ccc.low), finite(ccc.high)),
        offset(*median_bounds(answer)),
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


LEAST_CELLS = 5  # for a rank correlation to be set beside others


def offset_blocks(content: SuiteContent) -> list[Block]:
    """The table by rule, and what it means."""
    if not content.offsets or not any(row.n for row in content.offsets):
        return []
    rows = tuple(
        (
            row.varied,
            f"{row.n} of {row.n_total}",
            EN_DASH if row.median_residual is None else signed(row.median_residual),
            plain(row.std),
            plain(row.rho),
        )
        for row in content.offsets
    )
    table = Table(
        name=f"{content.name}-offsets",
        caption=f"{content.name}: the residual log₁₀(P_onset / P_cross) when one rule, threshold "
        "or clock is another: median, standard deviation over cells, and Spearman's ρ of P_cross "
        "with P_onset. A delay counts from one epoch on, 99 % fitted to 98 % generalised, unless "
        "said; cells that do not cross within the widths trained are missing.",
        header=("rule", "cells", "median, dex", "SD", "ρ"),
        rows=rows,
        numeric=frozenset(range(1, 5)),
    )
    return [table, Bullets(tuple(offset_sentences(content)))]


def offset_sentences(content: SuiteContent) -> Iterator[str]:
    """Order is found, offset is chosen; why it is not the paper's; what its spread is made of."""
    known = [r for r in content.offsets if r.median_residual is not None and r.n >= LEAST_CELLS]
    medians = [r.median_residual for r in known if r.median_residual is not None]
    ranks = [r.rho for r in known if r.rho is not None]
    if len(medians) > 1 and ranks:
        yield (
            f"The offset is a convention: over the rules with {LEAST_CELLS} cells or more its "
            f"median runs from {signed(min(medians))} to {signed(max(medians))} dex, while ρ stays "
            f"between {plain(min(ranks))} and {plain(max(ranks))}. The order of the cells is what "
            "is found; where exactly grokking starts, in units of the crossing, is not."
        )
    robust, paper = (content.by((method, "online")) for method in ("robust", "paper"))
    if robust is not None and paper is not None:
        yield from _by_estimators(robust, paper)
    if content.answer is not None:
        yield from _spread(content, content.answer)


def _by_estimators(robust: CellTests, paper: CellTests) -> Iterator[str]:
    """Onset and crossing by the paper's estimators against ours, cell by cell."""
    ours = {(c.prime, repr(c.setting)): c for c in robust.cells}
    theirs = [(c, ours.get((c.prime, repr(c.setting)))) for c in paper.cells]
    pairs = [(t, o) for t, o in theirs if o is not None]
    onset = [np.log10(t.p_onset / o.p_onset) for t, o in pairs if t.p_onset and o.p_onset]
    cross = [np.log10(t.p_cross / o.p_cross) for t, o in pairs if t.p_cross and o.p_cross]
    if len(onset) < 3 or len(cross) < 3:
        return
    up, across = float(np.median(onset)), float(np.median(cross))
    yield (
        "Why the paper's estimators give another offset on the same runs: the smallest delay over "
        f"seeds leaves zero at a P {signed(up)} dex from where half of the seeds are delayed, and "
        f"the closest approach of mean speeds lies {signed(across)} dex from the crossing of the "
        "medians (medians over cells)."
    )


def _spread(content: SuiteContent, answer: CellTests) -> Iterator[str]:
    """The residuals' spread beside what their intervals alone would give."""
    cells = [c for c in answer.cells if c.residual is not None]
    errors = [e for c in cells if (e := residual_error(c, answer.level)) is not None]
    if len(cells) < 3 or len(errors) < 3:
        return
    spread = float(np.std([c.residual for c in cells if c.residual is not None], ddof=1))
    own = float(np.sqrt(np.mean(np.square(errors))))
    told = (
        f"Residuals spread by {plain(spread)} dex over cells; the intervals of both points alone "
        f"would spread them by about {plain(own)}"
    )
    printed = [] if content.reference is None else list(content.reference.residuals.values())
    if len(printed) > 2:
        told += (
            f", where the residuals that the paper prints spread by "
            f"{plain(float(np.std(printed, ddof=1)))}, on its own widths and seeds"
        )
    yield f"{told}."


def residual_error(cell: CellRow, level: float) -> float | None:
    """Standard error of a residual from both intervals, dex; a bracket counts as uniform."""
    reach = 2 * float(stats.norm.ppf(0.5 + level / 2))
    parts = []
    ends = (cell.p_cross_low, cell.p_cross_high), (cell.p_onset_low, cell.p_onset_high)
    uniform = float(np.sqrt(12))
    divisors = reach, uniform if cell.p_onset_level is None else reach
    for (low, high), divided in zip(ends, divisors, strict=True):
        if not low or not high:
            return None
        parts.append(np.log10(high / low) / divided)
    return float(np.hypot(*parts))


def frozen_sentence(found: Registration) -> str:
    """Whether runs and analysis were fixed before the first run."""
    if found.frozen == "never" or found.frozen_at is None:
        return (
            "Never frozen: nothing fixed the suite before its first run, and its widths and seeds "
            "may have been chosen while it trained."
        )
    by = " (by the word of the recording)" if found.claimed else ""
    at = f"{found.frozen_at:%Y-%m-%d %H:%M} UTC{by}"
    if found.frozen == "untrained" or found.first_run is None:
        return f"Frozen at {at}, before any run."
    if found.frozen == "before":
        return f"Frozen before the first run: at {at}; it began {found.first_run:%Y-%m-%d %H:%M}."
    return (
        f"Frozen after the first run: at {at}; {found.trained_before} of its "
        f"{count(found.trained, 'run')} had begun, the first {found.first_run:%Y-%m-%d %H:%M}. "
        "Widths and seeds may have been chosen with their results in sight."
    )


def registration_blocks(content: SuiteContent) -> list[Block]:
    """When the suite was frozen, and every forecast of it with its score."""
    found = content.registration
    said = frozen_sentence(found)
    if not found.forecasts:
        said += " No forecast of it was written down."
    blocks: list[Block] = [Paragraph(said)]
    for forecast in found.forecasts:
        blocks += _forecast(content.name, forecast)
    return blocks


def _forecast(name: str, forecast: ScoredForecast) -> Iterator[Block]:
    when = "before" if forecast.before_first_run else "after"
    by = " (by the word of the recording)" if forecast.claimed else ""
    made = "Stated"
    if forecast.fitted_suite is not None:
        made = f"Fitted on {forecast.fitted_suite}"
    score = forecast.score
    told = f"{made} {when} the first run, at {forecast.created_at:%Y-%m-%d %H:%M} UTC{by}: "
    if not score.scores:
        yield Paragraph(f"{told}{count(score.unscored, 'prediction')}, none measured yet.")
        return
    inside = sum(row.inside for row in score.scores)
    told += f"{inside} of {count(len(score.scores), 'prediction')} held"
    told += f", {score.unscored} not measured yet." if score.unscored else "."
    yield Paragraph(told)
    yield Table(
        name=f"{name}-forecast-{forecast.id}",
        caption=f"{name}: what was predicted, with its interval, and what was measured. Errors in "
        "dex, those of residuals and of rho in their own units.",
        header=("of", "quantity", "predicted", "measured", "error", "inside"),
        rows=tuple(_row(row) for row in score.scores),
        numeric=frozenset({2, 3, 4}),
    )


def _row(row: Score) -> tuple[str, ...]:
    named = {**row.setting, **row.convention}
    prime = [f"p = {row.prime}"] if row.prime is not None else []
    of = ", ".join([*prime, *([setting_text(named, "")] if named else [])]) or "all cells"
    return (
        of,
        row.quantity,
        f"{_value(row.predicted)} [{_value(row.low)}, {_value(row.high)}]",
        _value(row.observed),
        signed(row.error),
        "yes" if row.inside else "no",
    )


def _value(value: float) -> str:
    return whole(round(value)) if value >= 1000 else plain(value)
