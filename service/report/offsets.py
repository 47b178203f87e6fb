"""The offset between onset and crossing by rule, threshold and clock: what of it is convention."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import stats

from groktime.service.answers.cell_tests import CellRow, CellTests
from groktime.service.report.content import SuiteContent
from groktime.service.report.document import Block, Bullets, Table
from groktime.service.words import EN_DASH, plain, signed

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
    errors = [e for c in cells if (e := _error(c, answer.level)) is not None]
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


def _error(cell: CellRow, level: float) -> float | None:
    """Standard error of a residual from both intervals, dex; a bracket counts as uniform."""
    reach = 2 * float(stats.norm.ppf(0.5 + level / 2))
    parts = []
    ends = (cell.p_cross_low, cell.p_cross_high), (cell.p_onset_low, cell.p_onset_high)
    for (low, high), divided in zip(ends, (reach, _divisor(cell, reach)), strict=True):
        if not low or not high:
            return None
        parts.append(np.log10(high / low) / divided)
    return float(np.hypot(*parts))


def _divisor(cell: CellRow, reach: float) -> float:
    return float(np.sqrt(12)) if cell.onset_status == "separated" else reach
