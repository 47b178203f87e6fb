"""Capacity curves M_T(n), and capacity against P."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dashboard.figures.theme import COLOURS, span
from service.answers.capacity import CapacityAnswer
from service.answers.reference import MORRIS_BITS, PAPER_BITS
from service.report.figures.canvas import PAGE, log_x, log_y, width_colours


def capacity_drawing(answer: CapacityAnswer) -> Figure:
    """Left: bits memorised against the set's complexity. Right: plateaus and their line."""
    figure = Figure(figsize=(PAGE, 2.9))
    curves, fit = figure.subplots(1, 2)
    _curves(curves, answer)
    _fit(fit, answer)
    return figure


def _curves(axes: Axes, answer: CapacityAnswer) -> None:
    colour = width_colours(w.width for w in answer.widths)
    complexity = [p.complexity for w in answer.widths for p in w.points]
    bits = [p.bits for w in answer.widths for p in w.points if p.bits > 0]
    low, high = span(complexity)
    log_x(axes, low, high)
    log_y(axes, *span([*bits, *complexity[:1]]))
    axes.plot(
        [low, high], [low, high], color=COLOURS["faint"], ls="--", lw=1, label="all of the set"
    )
    for width in answer.widths:
        x, y = [p.complexity for p in width.points], [p.bits for p in width.points]
        axes.plot(x, y, color=colour(width.width), marker="o", ms=3, label=f"d = {width.width}")
        if width.capacity is not None and x:
            axes.hlines(
                width.capacity, width.capacity, x[-1], color=COLOURS["muted"], ls=":", lw=0.8
            )
    axes.set_xlabel("dataset complexity $n\\,\\log_2 V$ (bits)")
    axes.set_ylabel("total memorisation $M_T$ (bits)")
    axes.tick_params(axis="x", rotation=45)
    axes.legend(fontsize=6)


def _fit(axes: Axes, answer: CapacityAnswer) -> None:
    known = [w for w in answer.widths if w.capacity is not None]
    colour = width_colours(w.width for w in answer.widths)
    largest = max((w.params for w in known), default=1) * 1.08
    for value, name, dash in ((PAPER_BITS, "paper", "--"), (MORRIS_BITS, "Morris et al.", ":")):
        ends = [0, value * largest]
        axes.plot(
            [0, largest], ends, color=COLOURS["faint"], ls=dash, lw=1, label=f"{name}: {value:g}"
        )
    if answer.fit is not None:
        line = [answer.fit.intercept + answer.fit.slope * p for p in (0.0, largest)]
        axes.plot([0, largest], line, color=COLOURS["ink"], label=f"fit: {answer.fit.slope:.3g}")
    for width in known:
        centre = width.capacity or 0.0
        arms = [
            [max(0.0, centre - (width.low or centre))],
            [max(0.0, (width.high or centre) - centre)],
        ]
        marker = "o" if not width.flags else "v"
        axes.errorbar(
            [width.params], [centre], yerr=arms, fmt=marker, ms=4.5, color=colour(width.width), lw=1
        )
    axes.set_xlim(0, largest)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("parameters P")
    axes.set_ylabel("capacity (bits)")
    axes.legend(title="bits per parameter", title_fontsize=7, loc="upper left")
