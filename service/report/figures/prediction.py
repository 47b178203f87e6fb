"""Predicted against empirical onset, and residuals against an axis."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dashboard.figures.caption import axis_name, setting_text
from dashboard.figures.prediction import axis_value
from dashboard.figures.theme import COLOURS, span
from service.answers.cell import sortable
from service.answers.cell_tests import CellRow, TestsAnswer
from service.report.figures.canvas import PAGE, log_x, log_y, series

WIDE = 20  # an axis whose values span more than this ratio is drawn logarithmically


def prediction_drawing(answers: Sequence[tuple[str, TestsAnswer]]) -> Figure:
    """P_onset against P_cross with intervals and y = x; hollow: onset at an end of the widths."""
    groups: dict[str, list[CellRow]] = {}
    for name, answer in answers:
        for cell in answer.cells:
            if cell.p_cross and cell.p_onset:
                label = (
                    " · ".join(filter(None, (name, setting_text(cell.setting)))) or "one prime each"
                )
                groups.setdefault(label, []).append(cell)
    figure = Figure(figsize=(4.6, 4.2))
    axes = figure.subplots()
    values = [v for cells in groups.values() for c in cells for v in _ends(c) if v]
    low, high = span(values, margin=0.08)
    log_x(axes, low, high)
    log_y(axes, low, high)
    axes.plot([low, high], [low, high], color=COLOURS["faint"], ls="--", lw=1, label="y = x")
    for i, (label, cells) in enumerate(groups.items()):
        _cells(axes, i, label, cells, named=len(groups) == 1)
    axes.set_xlabel("predicted: $P_{cross}$")
    axes.set_ylabel("empirical: $P_{onset}$")
    axes.tick_params(axis="x", rotation=45)
    axes.legend(fontsize=6)
    return figure


def _cells(axes: Axes, index: int, label: str, cells: Sequence[CellRow], *, named: bool) -> None:
    style = series(index)
    for i, cell in enumerate(cells):
        assert cell.p_cross is not None
        assert cell.p_onset is not None
        hollow = cell.at_floor or cell.at_cap
        axes.errorbar(
            [cell.p_cross],
            [cell.p_onset],
            xerr=_arms(cell.p_cross, cell.p_cross_low, cell.p_cross_high),
            yerr=_arms(cell.p_onset, cell.p_onset_low, cell.p_onset_high),
            fmt=style["marker"],
            color=style["color"],
            markerfacecolor="none" if hollow else style["color"],
            ms=5,
            lw=0.8,
            label=label if i == 0 else None,
        )
        if named and len(cells) <= 12:
            at = (cell.p_cross, cell.p_onset)
            axes.annotate(
                str(cell.prime), at, (-3, 4), textcoords="offset points", ha="right", size=6
            )


def _ends(cell: CellRow) -> tuple[float | None, ...]:
    """Both estimates with the ends of their intervals."""
    onset = (cell.p_onset, cell.p_onset_low, cell.p_onset_high)
    return (cell.p_cross, cell.p_cross_low, cell.p_cross_high, *onset)


def _arms(value: float, low: float | None, high: float | None) -> list[list[float]]:
    """Lengths of the bars below and above; an open end has none."""
    return [[max(0.0, value - low) if low else 0.0], [max(0.0, high - value) if high else 0.0]]


def residual_drawing(answer: TestsAnswer) -> Figure:
    """log10(P_onset / P_cross) of every cell against the prime and each swept axis."""
    names = ["prime", *answer.axes]
    figure = Figure(figsize=(min(PAGE, 1.2 + 2.9 * len(names)), 2.8))
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    cells = [c for c in answer.cells if c.residual is not None]
    primes = sorted({c.prime for c in cells})
    for axes, axis in zip(panels, names, strict=True):
        axes.axhline(0, color=COLOURS["faint"], ls="--", lw=1)
        _residuals(axes, axis, cells, primes)
        axes.set_xlabel("prime p" if axis == "prime" else axis_name(axis))
    panels[0].set_ylabel("$\\log_{10}(P_{onset} / P_{cross})$")
    if len(names) > 1:
        panels[-1].legend(fontsize=6)
    return figure


def _residuals(axes: Axes, axis: str, cells: Sequence[CellRow], primes: Sequence[int]) -> None:
    levels = sorted({axis_value(c, axis) for c in cells}, key=sortable)
    numbers = [float(v) for v in levels if isinstance(v, int | float) and not isinstance(v, bool)]
    numeric = len(numbers) == len(levels)
    if numeric and numbers and min(numbers) > 0 and max(numbers) / min(numbers) > WIDE:
        log_x(axes, *span(numbers, margin=0.08))
    place = {
        v: float(v) if numeric and isinstance(v, int | float) else i for i, v in enumerate(levels)
    }
    for i, prime in enumerate(primes):
        here = [c for c in cells if c.prime == prime]
        style = series(0 if axis == "prime" else i)
        axes.scatter(
            [place[axis_value(c, axis)] for c in here],
            [c.residual for c in here if c.residual is not None],
            **style,
            s=18,
            label=f"p = {prime}",
        )
    if not numeric:
        axes.set_xticks(range(len(levels)), [str(v) for v in levels])
