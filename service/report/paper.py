"""All suites on one page, by the two questions of the paper's appendix.

Within a setting: does the crossing order the onsets? Across settings: does the offset stay?
A cell counts once: in the suite with most primes at its setting, of these the one with most runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from sqlalchemy import Connection

from groktime.service.analysis.published import PublishedTest
from groktime.service.analysis.robustness import (
    FEWEST_TESTED,
    AxisTrend,
    OffsetModel,
    StratifiedOrder,
    detectable_slope,
    holm,
    offset_model,
    robustness,
    setting_law,
    stratified_order,
)
from groktime.service.answers.cell import sortable
from groktime.service.answers.cell_tests import CellRow, Offset, offsets
from groktime.service.answers.forecast import Registration
from groktime.service.answers.question import Question, Setting, SettingValue
from groktime.service.report.assembly import WORDS
from groktime.service.report.content import Members, Panel, SuiteContent, distinct_settings
from groktime.service.report.document import Block, Document, Paragraph, Picture, Section, Table
from groktime.service.report.drawings import Drawing, offset_drawing, order_drawing
from groktime.service.suites.loader import RELEASED, load_suite, shipped_suites
from groktime.service.words import (
    EN_DASH,
    axis_name,
    count,
    is_shown,
    p_value,
    plain,
    probability,
    setting_text,
    signed,
    whole,
)

ORDER_FIGURE, OFFSET_FIGURE = "paper-order", "paper-offset"
FEWEST_SEEDS = 4  # at the widths beside an onset, for a printed offset to stand beside ours
AS_THE_SUITE = "as the suite"
RULES = (AS_THE_SUITE, "delay of 5 epochs", "delay of 5 % of E_train", "delay of 10 % of E_train")
CLOCKS = (AS_THE_SUITE, "eval clock", "eval clock, memorised at 95 %")
# What might say how far onset and crossing lie apart, as the page calls it; in decades.
COVARIATES = {
    "epochs": "epochs at the crossing",
    "p_cross_log": "P_cross",
    "load": "K_mem / P_cross, bits to memorise per parameter",
}


@dataclass(frozen=True)
class Stratum:
    """One setting of one suite, with its residuals by several rules.

    `counts`: its cells are counted here and in no other suite.
    """

    suite: str
    setting: Setting
    counts: bool
    by_rule: tuple[Offset, ...]

    @property
    def name(self) -> str:
        return stratum_name(self.suite, self.setting)


def stratum_name(suite: str, setting: Setting) -> str:
    """`weight_decay-two-cores-released, weight decay 0.3`."""
    told = setting_text(setting)
    return f"{suite}, {told}" if told else suite


def strata(connection: Connection, contents: Sequence[SuiteContent]) -> tuple[Stratum, ...]:
    """Every setting of a suite that has a cell which counts there, or runs of its own."""
    return tuple(
        Stratum(content.name, setting, counts, _offsets(connection, content, setting))
        for content, rows in counted(contents)
        for setting in ([] if content.answer is None else distinct_settings(content.answer))
        if (counts := any(row.setting == setting for row in rows)) or _trained(content, setting)
    )


def _trained(content: SuiteContent, setting: Setting) -> bool:
    assert content.answer is not None
    return any(not row.inherited for row in content.answer.cells if row.setting == setting)


def _offsets(connection: Connection, content: SuiteContent, setting: Setting) -> tuple[Offset, ...]:
    if not setting:
        return content.offsets
    question = Question(suite=content.name, filters=dict(setting))
    return offsets(connection, question, {*RULES, *CLOCKS})


def counted(contents: Sequence[SuiteContent]) -> list[tuple[SuiteContent, list[CellRow]]]:
    """Every cell in one suite only.

    Cells of several suites that share runs on the task are one cell. It counts where its setting
    has most primes, of equals most runs, so that a setting stays together; of these, where it was
    trained.
    """
    there = [
        (content, row, found)
        for content in contents
        if content.answer is not None
        for row in content.answer.cells
        if (found := content.members[row.prime, setting_text(row.setting)]).grok
    ]
    primes: Counter[tuple[str, str]] = Counter()
    runs: Counter[tuple[str, str]] = Counter()
    for content, row, found in there:
        primes[content.name, setting_text(row.setting)] += 1
        runs[content.name, setting_text(row.setting)] += len(found)
    taken: set[int] = set()
    kept: dict[str, list[CellRow]] = {}

    def rank(one: tuple[SuiteContent, CellRow, Members]) -> tuple[int, int, bool]:
        content, row, _ = one
        place = content.name, setting_text(row.setting)
        return -primes[place], -runs[place], row.inherited

    for content, row, found in sorted(there, key=rank):
        if taken.isdisjoint(found.grok):
            kept.setdefault(content.name, []).append(row)
        taken |= found.grok
    return [
        (content, [row for row in content.answer.cells if row in kept.get(content.name, ())])
        for content in contents
        if content.answer is not None
    ]


def pooled_cells(contents: Sequence[SuiteContent]) -> pd.DataFrame:
    """Every cell once: prime, both points, the stratum it belongs to, and the covariates."""
    rows = [
        {
            "p": row.prime,
            "p_cross": np.nan if row.p_cross is None else row.p_cross,
            "p_onset": np.nan if row.p_onset is None else row.p_onset,
            "stratum": stratum_name(content.name, row.setting),
            "epochs": _decades(_epochs(content, row)),
            "p_cross_log": _decades(row.p_cross),
            "load": _decades(row.p_cross and row.k_mem / row.p_cross),
        }
        for content, counting in counted(contents)
        for row in counting
    ]
    return pd.DataFrame(rows, columns=["p", "p_cross", "p_onset", "stratum", *COVARIATES])


def _decades(value: float | None) -> float:
    return math.log10(value) if value else math.nan


def _epochs(content: SuiteContent, row: CellRow) -> float | None:
    """The epochs at a cell's crossing."""
    return next(
        (
            panel.crossing.epochs
            for part in content.settings
            if part.setting == row.setting
            for panel in part.panels
            if panel.crossing.prime == row.prime
        ),
        None,
    )


def overall(
    contents: Sequence[SuiteContent], found: Sequence[Stratum], quiet: Mapping[str, float]
) -> tuple[Document, list[Drawing]]:
    """The page and its figures; `quiet`: hours of each suite on cores that do nothing else."""
    cells = pooled_cells(contents)
    figures = _figures(contents, found, cells)
    pictures = {drawing.stem: (picture,) for drawing, picture in figures}
    order = stratified_order(cells, "stratum")
    model = offset_model(cells, "stratum")
    sections = (
        Section(
            "Within a setting: the order", 1, (*_order(order), *pictures.get(ORDER_FIGURE, ()))
        ),
        Section(
            "Across settings: the offset",
            1,
            (*_offset(contents, found, model), *pictures.get(OFFSET_FIGURE, ())),
        ),
        Section("Drift along each axis", 1, tuple(_drift(contents, model))),
        Section("One law of the offset?", 1, tuple(_law(cells))),
        Section("By clock", 1, tuple(_clocks(found))),
        Section("What was said beforehand", 1, tuple(_forecasts(contents))),
        Section("What it cost", 1, (_costs(contents, quiet),)),
    )
    summary = (
        "All recorded suites together, by the robust method and the online clock unless a suite's "
        "page says otherwise. Written by scripts/results; groktime report paper writes it from any "
        "database.",
        WORDS[0],
    )
    return Document("All suites", summary, sections), [drawing for drawing, _ in figures]


def _figures(
    contents: Sequence[SuiteContent], found: Sequence[Stratum], cells: pd.DataFrame
) -> list[tuple[Drawing, Picture]]:
    """Order and offset of every cell with both points; nothing where no cell has both."""
    labels = short_names(cells["stratum"])
    both = cells.assign(label=cells["stratum"].map(labels)).dropna(subset=["p_cross", "p_onset"])
    if not len(both):
        return []
    printed = {
        labels[stratum.name]: value
        for stratum in found
        if stratum.counts
        and stratum.name in labels
        and (value := _printed(contents, stratum)) is not None
    }
    order = Picture(
        ORDER_FIGURE,
        "P_onset against P_cross of every cell that has both; cells of one setting are joined, "
        "smallest prime first. Networks have no positions unless rope is named.",
        "Onset against crossing, a line for every setting",
    )
    offset = Picture(
        OFFSET_FIGURE,
        "Residual of every cell by setting, coloured by prime; bar: median; open diamond: the "
        "median that the paper printed, by its own estimators.",
        "Residuals of all cells, a row for every setting",
    )
    return [
        (Drawing(ORDER_FIGURE, lambda: order_drawing(both)), order),
        (Drawing(OFFSET_FIGURE, lambda: offset_drawing(both, printed)), offset),
    ]


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Short names of settings, `dropout 0.1` or `central-balanced`, whole where two are alike."""
    short = {}
    for name in dict.fromkeys(names):
        suite, _, setting = name.partition(", ")
        base = suite.removesuffix(RELEASED).removesuffix("-two-cores")
        model = "" if suite.endswith(RELEASED) else ", rope"
        short[name] = (setting or base) + model
    times = Counter(short.values())
    return {name: label if times[label] == 1 else name for name, label in short.items()}


def _order(order: StratifiedOrder | None) -> Iterator[Block]:
    yield Paragraph(
        "Does a larger crossing mean a larger onset at every setting? The test counts pairs of "
        "primes in order and permutes onsets within each setting only, so that differences between "
        f"settings do not count. A setting of fewer than {FEWEST_TESTED} primes gets no p: three "
        "primes are in perfect order by chance once in six."
    )
    if order is None:
        yield Paragraph("No setting has two primes with both points.")
        return
    pairs = order.in_order + order.out_of_order
    answer = "yes" if is_shown(order.p) and order.in_order > order.out_of_order else "not shown"
    floor = p_value(order.floor)
    least = "" if floor.startswith("<") else f" (the least possible here: {floor})"
    yield Paragraph(
        f"Over {count(len(order.strata), 'setting')}: {answer}. {order.in_order} of {pairs} pairs "
        f"are in order, {probability(order.p)}{least}."
    )
    yield Table(
        name="paper-order",
        caption="Pairs of primes whose onsets are in the order of their crossings.",
        header=("setting", "primes", "pairs in order", "p"),
        rows=tuple(
            (
                row.stratum,
                str(row.n),
                f"{row.in_order} of {row.in_order + row.out_of_order}",
                p_value(row.p),
            )
            for row in order.strata
        ),
        numeric=frozenset({1, 2, 3}),
    )


def _offset(
    contents: Sequence[SuiteContent], found: Sequence[Stratum], model: OffsetModel | None
) -> Iterator[Block]:
    yield Paragraph(
        "How far apart are onset and crossing, and is the distance the same everywhere? The table "
        "has the median of log₁₀(P_onset / P_cross) at each setting, by four rules for what counts "
        "as a delay. A rule that made the offset a constant would have a last row near zero. "
        "Counting optimiser steps instead of epochs changes nothing: both training sets of a cell "
        "have the same size, so both speeds change by the same factor."
    )
    if model is not None:
        rough = "" if model.converged else " (the fit did not converge: rough)"
        yield Paragraph(
            f"In a mixed model of {count(model.n, 'cell')} (primes fixed, settings random) the "
            f"standard deviation is {plain(model.between)} dex between settings and "
            f"{plain(model.within)} dex between cells of one setting: the setting explains "
            f"{model.share:.0%} of the variance{rough}."
        )
    counting = [stratum for stratum in found if stratum.counts]
    rows = [
        (
            stratum.name,
            f"{stratum.by_rule[0].n} of {stratum.by_rule[0].n_total}" if stratum.by_rule else "0",
            *(_median(stratum, rule) for rule in RULES),
            signed(_printed(contents, stratum)),
        )
        for stratum in counting
    ]
    spread = ("standard deviation", "", *(_spread(counting, rule) for rule in RULES), "")
    yield Table(
        name="paper-offset",
        caption="Median residual in dex by rule; last row: its standard deviation over settings. "
        "The paper's values come from its own estimators and are given only for settings whose "
        f"onsets have {FEWEST_SEEDS} seeds or more.",
        header=("setting", "cells", "ΔE ≥ 1 epoch", *RULES[1:], "paper"),
        rows=(*rows, spread),
        numeric=frozenset(range(1, 3 + len(RULES))),
    )


def _of(stratum: Stratum, rule: str) -> float | None:
    return next((o.median_residual for o in stratum.by_rule if o.varied == rule), None)


def _median(stratum: Stratum, rule: str) -> str:
    return signed(_of(stratum, rule))


def _spread(found: Sequence[Stratum], rule: str) -> str:
    medians = [value for stratum in found if (value := _of(stratum, rule)) is not None]
    return plain(float(np.std(medians, ddof=1))) if len(medians) > 1 else EN_DASH


def _printed(contents: Sequence[SuiteContent], stratum: Stratum) -> float | None:
    """The paper's median residual of this setting, where enough seeds stand beside our onsets."""
    content = next(content for content in contents if content.name == stratum.suite)
    reference, answer = content.reference, content.answer
    if reference is None or not reference.same_settings or answer is None:
        return None
    part = next((part for part in content.settings if part.setting == stratum.setting), None)
    seeds = [] if part is None else [seeds_beside_onset(panel) for panel in part.panels]
    if not seeds or min(seeds) < FEWEST_SEEDS:
        return None
    if not stratum.setting:
        printed = reference.tests.get("wilcoxon")
        return None if printed is None else printed.statistic
    if len(stratum.setting) != 1:
        return None
    ((axis, value),) = stratum.setting.items()
    row = reference.setting(axis, value)
    return None if row is None else row.median_residual


def seeds_beside_onset(panel: Panel) -> int:
    """Runs at the two widths around the onset, of the one that has fewer; none without an onset."""
    onset = panel.crossing.p_onset.estimate
    runs = Counter(point.params for point in panel.delay.points)
    if onset is None or not runs:
        return 0
    below = max((params for params in runs if params <= onset), default=None)
    above = min((params for params in runs if params >= onset), default=None)
    return min(runs[params] for params in (below, above) if params is not None)


@dataclass(frozen=True)
class Drift:
    """How the residual moves along one axis, over the cells of every suite that sweeps it."""

    axis: str
    suites: tuple[str, ...]
    values: tuple[SettingValue, ...]  # of the cells with a residual
    trend: AxisTrend
    printed: PublishedTest | None


def drifts(contents: Sequence[SuiteContent]) -> tuple[Drift, ...]:
    """One drift an axis; p-values corrected over the axes (Holm).

    Suites of one model that sweep one axis alone are pooled, a cell once: where it has most runs.
    One that sweeps several at once stands for itself.
    """
    groups: dict[tuple[str, bool, str], list[SuiteContent]] = {}
    for content in contents:
        axes = () if content.answer is None else content.answer.axes
        for axis in axes:
            alone = "" if len(axes) == 1 else content.name
            model = content.name.endswith(RELEASED)  # without positions
            groups.setdefault((axis, model, alone), []).append(content)
    found = []
    for (axis, *_), sweeping in groups.items():
        rows = _largest(axis, sweeping)
        cells = pd.DataFrame(
            {
                "p": [row.prime for row in rows],
                "p_cross": [row.p_cross for row in rows],
                "p_onset": [row.p_onset for row in rows],
                axis: [row.setting[axis] for row in rows],
            }
        )
        if not len(cells):
            continue
        (trend,) = robustness(cells, (axis,))
        tests = (content.reference.tests for content in sweeping if content.reference)
        printed = next((t for by in tests if (t := by.get("robustness")) and t.axis == axis), None)
        suites = tuple(content.name for content in sweeping)
        found.append(Drift(axis, suites, tuple(cells[axis]), trend, printed))
    tested = [drift.trend.p_raw for drift in found if drift.trend.p_raw is not None]
    corrected = iter(holm(tested))
    return tuple(
        drift
        if drift.trend.p_raw is None
        else replace(drift, trend=replace(drift.trend, p_holm=next(corrected)))
        for drift in found
    )


def _largest(axis: str, sweeping: Sequence[SuiteContent]) -> list[CellRow]:
    """Cells with both points, each prime and value once: where it has most runs."""
    best: dict[tuple[int, str], tuple[int, CellRow]] = {}
    for content in sweeping:
        for row in () if content.answer is None else content.answer.cells:
            if row.residual is None:
                continue
            runs = len(content.members[row.prime, setting_text(row.setting)])
            cell = row.prime, setting_text(row.setting)
            if cell not in best or runs > best[cell][0]:
                best[cell] = runs, row
    return [row for _, row in best.values()]


def _drift(contents: Sequence[SuiteContent], model: OffsetModel | None) -> Iterator[Block]:
    yield Paragraph(
        "The slope of the residual along each swept axis, beside the paper's, and the smallest "
        "slope that these cells could detect with 80 % power, given the noise of a cell. Suites "
        "that sweep the same axis are taken together, each cell where it has most runs."
    )
    found = drifts(contents)
    if found:
        yield _drift_table(found, model)
    else:
        yield Paragraph("No suite with results sweeps a setting.")
    trained = {content.name for content in contents}
    planned = [] if model is None else list(_planned(trained, model.within))
    if planned:
        yield Table(
            name="paper-planned",
            caption="Stated before training: the smallest drift (dex per unit) that the suites "
            "still to be located could detect with 80 % power, if every cell gets both points.",
            header=("suite", "axis", "cells", "detectable"),
            rows=tuple(planned),
            numeric=frozenset({2, 3}),
        )


def _planned(trained: Collection[str], spread: float) -> Iterator[tuple[str, ...]]:
    """Located suites without results that sweep a number."""
    for name in (f"{shipped}{RELEASED}" for shipped in shipped_suites()):
        file = load_suite(name).file
        if name in trained or file.design is None:
            continue
        for axis, swept in file.axes.items():
            values = [value for value in swept for _ in file.primes or ()]
            for entry in file.inherits:
                baseline = entry.settings.model_dump().get(axis)
                values += [baseline] * len(entry.primes or file.primes or ())
            numeric = all(isinstance(value, int | float) for value in values)
            least = detectable_slope(values, spread) if numeric else None
            if least is not None:
                yield name, axis_name(axis), str(len(values)), plain(least)


def _drift_table(found: Sequence[Drift], model: OffsetModel | None) -> Table:
    return Table(
        name="paper-drift",
        caption="Drift of the residual, dex per unit of the axis (F for axes without numbers), "
        "with Holm's correction over the axes.",
        header=(
            "axis",
            "values",
            "cells",
            "drift",
            "p",
            "by prime",
            "detectable",
            "paper",
            "suites",
        ),
        rows=tuple(_drift_row(drift, model) for drift in found),
        numeric=frozenset(range(2, 8)),
    )


def _drift_row(drift: Drift, model: OffsetModel | None) -> tuple[str, ...]:
    trend, printed = drift.trend, drift.printed
    numbers = [float(value) for value in drift.values if isinstance(value, int | float)]
    least = detectable_slope(numbers, model.within) if model and trend.kind == "numeric" else None
    size = f"F = {plain(trend.f)}" if trend.kind == "categorical" else signed(trend.slope)
    name = axis_name(drift.axis)
    values = [
        setting_text({drift.axis: value}).removeprefix(f"{name} ")
        for value in sorted(set(drift.values), key=sortable)
    ]
    return (
        name,
        ", ".join(values),
        str(trend.n),
        size if trend.testable else f"not testable: {trend.reason}",
        p_value(trend.p_holm),
        p_value(trend.p_clustered) + (" (few primes)" if trend.unreliable else ""),
        plain(least),
        EN_DASH if printed is None else signed(printed.statistic),
        ", ".join(drift.suites),
    )


def _law(cells: pd.DataFrame) -> Iterator[Block]:
    """Quantities that might carry the offset from one setting to another."""
    laws = [found for name in COVARIATES if (found := setting_law(cells, "stratum", name))]
    if not laws:
        yield Paragraph("Too few settings have both points.")
        return
    yield Paragraph(
        "If the offset followed one quantity, a line through the other settings would predict it "
        "at a setting left out. Each setting counts once, by the means of its cells; the last two "
        "columns are root mean squares over settings left out, by the line and by the mean of the "
        "others. These quantities were chosen with the offsets in sight."
    )
    yield Table(
        name="paper-law",
        caption="The offset of a setting against one quantity, dex per decade.",
        header=("quantity", "settings", "slope", "r", "error of the line, dex", "of the mean"),
        rows=tuple(
            (
                COVARIATES[law.covariate],
                str(law.n),
                signed(law.slope),
                signed(law.r),
                plain(law.error),
                plain(law.constant_error),
            )
            for law in laws
        ),
        numeric=frozenset({1, 2, 3, 4, 5}),
    )


def _clocks(found: Sequence[Stratum]) -> Iterator[Block]:
    yield Paragraph(
        "Training accuracy is read while an epoch trains, dropout on (online, the paper's), or "
        "after it, dropout off (eval). Each entry: cells with a crossing and an onset, and their "
        "median residual. Suites that add runs to another's cells have a row each."
    )
    yield Table(
        name="paper-clocks",
        caption="Both points by the clock that training accuracy is read on.",
        header=("setting", "online", "eval", "eval, memorised at 95 %"),
        rows=tuple(
            (stratum.name, *(_both_points(stratum, rule) for rule in CLOCKS)) for stratum in found
        ),
        numeric=frozenset({1, 2, 3}),
    )


def _both_points(stratum: Stratum, rule: str) -> str:
    offset = next((o for o in stratum.by_rule if o.varied == rule), None)
    if offset is None:
        return EN_DASH
    there = f"{offset.n} of {offset.n_total}"
    return there if offset.median_residual is None else f"{there}: {signed(offset.median_residual)}"


def _forecasts(contents: Sequence[SuiteContent]) -> Iterator[Block]:
    rows, held, scored = [], 0, 0
    for content in contents:
        registered = content.registration
        scores = [score for one in registered.forecasts for score in one.score.scores]
        inside = sum(score.inside for score in scores)
        if all(one.before_first_run for one in registered.forecasts):
            held, scored = held + inside, scored + len(scores)
        rows.append(
            (
                content.name,
                _fixed(registered),
                f"{inside} of {len(scores)}" if scores else EN_DASH,
                ", ".join(score.quantity for score in scores if not score.inside) or EN_DASH,
            )
        )
    yield Paragraph(
        f"What was stated of a suite before its first run, scored: {held} of "
        f"{count(scored, 'statement')} held. Each suite's page has them one by one."
    )
    yield Table(
        name="paper-forecasts",
        caption="When each suite was fixed, and what was stated of it.",
        header=("suite", "fixed", "statements held", "those that failed"),
        rows=tuple(rows),
        numeric=frozenset({2}),
    )


def _fixed(found: Registration) -> str:
    if found.frozen == "after":
        return f"after {found.trained_before} of {count(found.trained, 'run')}"
    return "never" if found.frozen == "never" else "before its first run"


def _costs(contents: Sequence[SuiteContent], quiet: Mapping[str, float]) -> Table:
    rows = [
        (
            content.name,
            whole(content.summary.states.done),
            whole(content.training.epochs),
            plain(quiet.get(content.name)),
            plain(content.training.core_hours),
            plain(_hours_of_a_cell(content, quiet)),
        )
        for content in contents
    ]
    hours = sum(content.training.core_hours or 0.0 for content in contents)
    undisturbed = sum(quiet.get(content.name, 0.0) for content in contents)
    epochs = whole(sum(content.training.epochs for content in contents))
    rows.append(("all", "", epochs, plain(undisturbed), plain(hours), ""))
    return Table(
        name="paper-costs",
        caption="Finished runs of each suite, epochs of its own runs, and core-hours: quiet, as if "
        "every epoch had been as fast as the fastest recorded of its shape; as trained, with "
        "whatever else the cores were doing; and quiet ones of each cell that the suite located.",
        header=("suite", "runs", "epochs", "core-hours, quiet", "as trained", "quiet, a cell"),
        rows=tuple(rows),
        numeric=frozenset({1, 2, 3, 4, 5}),
    )


def _hours_of_a_cell(content: SuiteContent, quiet: Mapping[str, float]) -> float | None:
    """Quiet core-hours of each cell that was located in this suite."""
    cells = () if content.answer is None else content.answer.cells
    located = [row for row in cells if not row.inherited]
    hours = quiet.get(content.name)
    if hours is None or not located or not content.record.is_located:
        return None
    return hours / len(located)
