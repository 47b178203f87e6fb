"""All suites on one page, by the two questions of the paper's appendix.

Within a setting: does the crossing order the onsets? Across settings: does the offset stay?
A cell counts once: in the suite that has most runs of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sqlalchemy import Connection

from groktime.service.analysis.robustness import (
    FEWEST_TESTED,
    OffsetModel,
    StratifiedOrder,
    detectable_slope,
    offset_model,
    stratified_order,
)
from groktime.service.answers.cell_tests import CellRow, Offset, offsets
from groktime.service.answers.question import Question, Setting
from groktime.service.report.content import Panel, SuiteContent
from groktime.service.report.document import Block, Document, Paragraph, Section, Table
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

FEWEST_SEEDS = 4  # at the widths beside an onset, for a printed offset to stand beside ours
RULES = ("as the suite", "delay of 5 epochs", "delay of 5 % of E_train", "delay of 10 % of E_train")


@dataclass(frozen=True)
class Stratum:
    """One setting of one suite, with its residuals by several rules of what a delay is."""

    suite: str
    setting: Setting
    by_rule: tuple[Offset, ...]

    @property
    def name(self) -> str:
        return stratum_name(self.suite, self.setting)


def stratum_name(suite: str, setting: Setting) -> str:
    """`weight_decay-two-cores-released, weight decay 0.3`."""
    told = setting_text(setting)
    return f"{suite}, {told}" if told else suite


def strata(connection: Connection, contents: Sequence[SuiteContent]) -> tuple[Stratum, ...]:
    """Every setting of a suite that has a cell which counts there."""
    return tuple(
        Stratum(
            content.name,
            setting,
            tuple(
                offset
                for offset in offsets(
                    connection, Question(suite=content.name, filters=dict(setting))
                )
                if offset.varied in RULES
            ),
        )
        for content, rows in counted(contents)
        for setting in {tuple(row.setting.items()): row.setting for row in rows}.values()
    )


def counted(contents: Sequence[SuiteContent]) -> list[tuple[SuiteContent, list[CellRow]]]:
    """Every cell in one suite only.

    Cells of several suites that share runs on the task are one cell. It counts where it has most
    runs; of equals, where they were trained.
    """
    there = [
        (content, row, found)
        for content in contents
        if content.answer is not None
        for row in content.answer.cells
        if (found := content.members[row.prime, setting_text(row.setting)]).grok
    ]
    taken: set[int] = set()
    kept: dict[str, list[CellRow]] = {}
    for content, row, found in sorted(there, key=lambda one: (-len(one[2]), one[1].inherited)):
        if taken.isdisjoint(found.grok):
            kept.setdefault(content.name, []).append(row)
        taken |= found.grok
    return [
        (content, [row for row in content.answer.cells if row in kept.get(content.name, ())])
        for content in contents
        if content.answer is not None
    ]


def pooled_cells(contents: Sequence[SuiteContent]) -> pd.DataFrame:
    """Every cell once: prime, both points, and the stratum it belongs to."""
    rows = [
        {
            "p": row.prime,
            "p_cross": np.nan if row.p_cross is None else row.p_cross,
            "p_onset": np.nan if row.p_onset is None else row.p_onset,
            "stratum": stratum_name(content.name, row.setting),
        }
        for content, counting in counted(contents)
        for row in counting
    ]
    return pd.DataFrame(rows, columns=["p", "p_cross", "p_onset", "stratum"])


def overall(
    contents: Sequence[SuiteContent], found: Sequence[Stratum], quiet: Mapping[str, float]
) -> Document:
    """The page; `quiet`: hours of each suite on cores that do nothing else."""
    cells = pooled_cells(contents)
    order = stratified_order(cells, "stratum")
    model = offset_model(cells, "stratum")
    sections = (
        Section("Within a setting: the order", 1, tuple(_order(order))),
        Section("Across settings: the offset", 1, tuple(_offset(contents, found, model))),
        Section("Drift along each axis", 1, tuple(_drift(contents, model))),
        Section("What it cost", 1, (_costs(contents, quiet),)),
    )
    summary = (
        "Every recorded suite at once, robust method, online clock unless its page says otherwise. "
        "Written by scripts/results; groktime report paper writes it from any database.",
    )
    return Document("The whole paper", summary, sections)


def _order(order: StratifiedOrder | None) -> Iterator[Block]:
    yield Paragraph(
        "Does a larger crossing mean a larger onset at every setting? Pairs of primes are counted; "
        "onsets are exchanged only within a setting, so that settings cannot lend each other an "
        f"order. A setting of fewer than {FEWEST_TESTED} primes has no p of its own: three primes "
        "are in perfect order by chance once in six."
    )
    if order is None:
        yield Paragraph("No setting has two primes with both points.")
        return
    pairs = order.in_order + order.out_of_order
    answer = "yes" if is_shown(order.p) and order.in_order > order.out_of_order else "not shown"
    yield Paragraph(
        f"Over {count(len(order.strata), 'setting')}: {answer}. {order.in_order} of {pairs} pairs "
        f"are in order, {probability(order.p)} (the least possible here: {p_value(order.floor)})."
    )
    yield Table(
        name="paper-order",
        caption="Pairs of primes whose onsets lie as their crossings do.",
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
        "How far do onset and crossing lie apart, and is it one number? The median of "
        "log₁₀(P_onset / P_cross) at each setting, by four rules of what counts as a delay. "
        "If one rule made the offset a constant, its last row would be near zero. Optimiser steps "
        "instead of epochs change none of it: both sets of a cell are as large, so that both "
        "speeds are multiplied alike."
    )
    if model is not None:
        rough = "" if model.converged else " (the fit did not converge: rough)"
        yield Paragraph(
            f"A mixed model of {count(model.n, 'cell')} (primes fixed, settings random) puts "
            f"{plain(model.between)} dex between settings and {plain(model.within)} dex between "
            f"cells of one setting: {model.share:.0%} of the variance belongs to the setting"
            f"{rough}."
        )
    rows = [
        (
            stratum.name,
            f"{stratum.by_rule[0].n} of {stratum.by_rule[0].n_total}" if stratum.by_rule else "0",
            *(_median(stratum, rule) for rule in RULES),
            _printed(contents, stratum),
        )
        for stratum in found
    ]
    spread = ("standard deviation", "", *(_spread(found, rule) for rule in RULES), "")
    yield Table(
        name="paper-offset",
        caption="Median residual in dex by rule; last, its standard deviation over settings. The "
        f"paper's stand only beside settings whose onsets rest on {FEWEST_SEEDS} seeds or more, "
        "and come from its own estimators.",
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


def _printed(contents: Sequence[SuiteContent], stratum: Stratum) -> str:
    content = next(content for content in contents if content.name == stratum.suite)
    reference, answer = content.reference, content.answer
    if reference is None or not reference.same_settings or answer is None:
        return EN_DASH
    part = next((part for part in content.settings if part.setting == stratum.setting), None)
    seeds = [] if part is None else [seeds_beside_onset(panel) for panel in part.panels]
    if not seeds or min(seeds) < FEWEST_SEEDS:
        return EN_DASH
    if not stratum.setting:
        printed = reference.tests.get("wilcoxon")
        return EN_DASH if printed is None else signed(printed.statistic)
    if len(stratum.setting) != 1:
        return EN_DASH
    ((axis, value),) = stratum.setting.items()
    row = reference.setting(axis, value)
    return EN_DASH if row is None else signed(row.median_residual)


def seeds_beside_onset(panel: Panel) -> int:
    """Runs at the two widths around the onset, of the one that has fewer; none without an onset."""
    onset = panel.crossing.p_onset.estimate
    runs = Counter(point.params for point in panel.delay.points)
    if onset is None or not runs:
        return 0
    below = max((params for params in runs if params <= onset), default=None)
    above = min((params for params in runs if params >= onset), default=None)
    return min(runs[params] for params in (below, above) if params is not None)


def _drift(contents: Sequence[SuiteContent], model: OffsetModel | None) -> Iterator[Block]:
    yield Paragraph(
        "The slope of the residual along each swept axis, beside the paper's, and the smallest "
        "slope that these cells would show four times in five at the noise of a cell."
    )
    rows = []
    for content in contents:
        answer = content.answer
        if answer is None:
            continue
        for trend in answer.tests.robustness:
            if trend.axis != "p":
                rows.append((content.name, *_trend(content, trend.axis, model)))
    if rows:
        yield _drift_table(rows)
    else:
        yield Paragraph("No suite with results sweeps a setting.")
    trained = {content.name for content in contents}
    planned = [] if model is None else list(_planned(trained, model.within))
    if planned:
        yield Table(
            name="paper-planned",
            caption="Said before training: the smallest drift (dex a unit) that the suites still "
            "to be located would show four times in five, if every cell gets both points.",
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


def _drift_table(rows: Sequence[tuple[str, ...]]) -> Table:
    return Table(
        name="paper-drift",
        caption="Drift of the residual, dex a unit of the axis (F for axes without numbers), with "
        "Holm's correction within a suite.",
        header=("suite", "axis", "cells", "drift", "p", "by prime", "detectable", "paper"),
        rows=tuple(rows),
        numeric=frozenset(range(2, 8)),
    )


def _trend(content: SuiteContent, axis: str, model: OffsetModel | None) -> tuple[str, ...]:
    answer = content.answer
    assert answer is not None
    trend = next(t for t in answer.tests.robustness if t.axis == axis)
    printed = content.reference.tests.get("robustness") if content.reference else None
    theirs = printed is not None and printed.axis == axis
    values = [
        float(value)
        for row in answer.cells
        if row.residual is not None and isinstance(value := row.setting.get(axis), int | float)
    ]
    least = detectable_slope(values, model.within) if model and trend.kind == "numeric" else None
    drift = f"F = {plain(trend.f)}" if trend.kind == "categorical" else signed(trend.slope)
    return (
        axis_name(axis),
        str(trend.n),
        drift if trend.testable else f"not testable: {trend.reason}",
        p_value(trend.p_holm),
        p_value(trend.p_clustered) + (" (few primes)" if trend.unreliable else ""),
        plain(least),
        signed(printed.statistic) if theirs and printed is not None else EN_DASH,
    )


def _costs(contents: Sequence[SuiteContent], quiet: Mapping[str, float]) -> Table:
    rows = [
        (
            content.name,
            whole(content.summary.states.done),
            whole(content.training.epochs),
            plain(quiet.get(content.name)),
            plain(content.training.core_hours),
        )
        for content in contents
    ]
    hours = sum(content.training.core_hours or 0.0 for content in contents)
    undisturbed = sum(quiet.get(content.name, 0.0) for content in contents)
    epochs = whole(sum(content.training.epochs for content in contents))
    rows.append(("all", "", epochs, plain(undisturbed), plain(hours)))
    return Table(
        name="paper-costs",
        caption="Finished runs of each suite, its own epochs, and core-hours: had every epoch been "
        "as fast as the fastest recorded of its shape, and as trained, beside whatever else the "
        "cores had to do.",
        header=("suite", "runs", "epochs", "core-hours, quiet", "as trained"),
        rows=tuple(rows),
        numeric=frozenset({1, 2, 3, 4}),
    )
