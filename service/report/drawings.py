"""The figures of a report, drawn with matplotlib from the same answers as the page's, and how they
become files.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from groktime.dashboard.figures.memorisation import law_value
from groktime.dashboard.figures.prediction import axis_value
from groktime.dashboard.figures.theme import COLOURS, SERIES, log_ticks, prime_look, span
from groktime.service.analysis.survival import SpeedPoint
from groktime.service.answers.capacity import CapacityAnswer
from groktime.service.answers.cell import sortable
from groktime.service.answers.cell_tests import CellRow, CellTests, ThresholdResidual
from groktime.service.answers.laws import LawAnswer
from groktime.service.answers.verdicts import MORRIS_BITS, PAPER_BITS
from groktime.service.report.content import Panel
from groktime.service.words import axis_name, form_formula, setting_text

FORMATS: tuple[Literal["svg", "png", "pdf"], ...] = ("svg", "png", "pdf")
PAGE = 7.0  # inches: the text width of a page
DPI = 200

# Symbols differ as well as colours, so that a print without colour can be read.
MARKERS = ("o", "s", "D", "^", "P", "X", "p", "*", "v", "h")
CREST = LinearSegmentedColormap.from_list("crest", [COLOURS[f"crest_{i}"] for i in range(6)])

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "axes.edgecolor": COLOURS["muted"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "grid.color": COLOURS["grid"],
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.3,
    "figure.constrained_layout.use": True,
    # The same drawing is the same file: no random ids; text as text in PDF.
    "svg.hashsalt": "groktime",
    "pdf.fonttype": 42,
}

# matplotlib's settings belong to the process; the API draws from several threads.
_drawing = threading.Lock()


@dataclass(frozen=True)
class Drawing:
    """A figure to be made: the stem of its files and how it is drawn."""

    stem: str
    draw: Callable[[], Figure]


def render(
    drawing: Drawing, formats: Iterable[Literal["svg", "png", "pdf"]] = FORMATS
) -> Mapping[str, bytes]:
    """The drawing's bytes by format; drawn once."""
    with _drawing, mpl.rc_context(STYLE):
        figure = drawing.draw()
        # Places are found once and kept, so that all formats show the same picture.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        return {kind: _bytes(figure, kind) for kind in formats}


def _bytes(figure: Figure, kind: Literal["svg", "png", "pdf"]) -> bytes:
    undated: dict[str, dict[str, Any]] = {
        "svg": {"Date": None, "Creator": "groktime"},
        "pdf": {"CreationDate": None, "Creator": "groktime"},
        "png": {"Software": "groktime"},
    }
    target = io.BytesIO()
    figure.savefig(target, format=kind, dpi=DPI, metadata=undated[kind])
    return target.getvalue()


def slug(text: str) -> str:
    """Letters, digits, points and hyphens: nothing that a file system could read as a path."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.") or "all"


def grid(panels: int, *, columns: int = 3, height: float = 2.1) -> tuple[Figure, list[Axes]]:
    """A figure of small multiples and the axes in use, row by row."""
    across = max(1, min(columns, panels))
    down = max(1, -(-panels // across))
    figure = Figure(figsize=(PAGE, 0.35 + height * down))
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for unused in axes[panels:]:
        unused.set_visible(False)
    return figure, axes[:panels]


def log_x(axes: Axes, low: float, high: float) -> None:
    """A logarithmic axis with the dashboard's ticks."""
    values, labels = log_ticks(low, high)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(values, labels)


def log_y(axes: Axes, low: float, high: float) -> None:
    """The same upwards."""
    values, labels = log_ticks(low, high)
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_yticks(values, labels)


def width_colours(widths: Iterable[int]) -> Callable[[int], Any]:
    """Small models pale, large ones deep, spread over log d."""
    there = sorted(set(widths)) or [1, 2]
    scale = LogNorm(there[0], max(there[-1], there[0] + 1))
    return lambda width: CREST(scale(width))


def prime_style(prime: int, primes: Sequence[int]) -> dict[str, Any]:
    """Colour and symbol of a prime: its place on the scale that the page uses, too."""
    rank = sorted(primes).index(prime)
    return {"color": prime_look(prime, primes)[0], "marker": MARKERS[rank % len(MARKERS)]}


def series(index: int) -> dict[str, Any]:
    """Colour and symbol of the series of this number."""
    return {"color": SERIES[index % len(SERIES)], "marker": MARKERS[index % len(MARKERS)]}


WIDE = 20  # an axis whose values span more than this ratio is drawn logarithmically


def prediction_drawing(answers: Sequence[tuple[str, CellTests]]) -> Figure:
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


def residual_drawing(answer: CellTests) -> Figure:
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


def order_drawing(cells: pd.DataFrame) -> Figure:
    """P_onset against P_cross of every cell, one line a setting: does a larger one mean a larger?

    `cells` has p, p_cross, p_onset and label, the setting's name.
    """
    figure = Figure(figsize=(PAGE, 4.4))
    axes = figure.subplots()
    low, high = span([*cells["p_cross"], *cells["p_onset"]], margin=0.08)
    log_x(axes, low, high)
    log_y(axes, low, high)
    axes.plot([low, high], [low, high], color=COLOURS["faint"], ls="--", lw=1, label="y = x")
    # Eight colours and ten symbols: forty settings differ in one of the two.
    for i, (label, rows) in enumerate(cells.sort_values("p").groupby("label")):
        axes.plot(rows["p_cross"], rows["p_onset"], ms=4, lw=0.8, label=str(label), **series(i))
    axes.set_xlabel("predicted: $P_{cross}$")
    axes.set_ylabel("empirical: $P_{onset}$")
    figure.legend(fontsize=6, loc="outside right upper")
    return figure


def offset_drawing(cells: pd.DataFrame, printed: Mapping[str, float]) -> Figure:
    """The residual of every cell, one row a setting, its bar the median; diamonds: the paper's.

    `cells` as in `order_drawing`, `printed` by label.
    """
    residual = pd.Series(np.log10(cells["p_onset"] / cells["p_cross"]), index=cells.index)
    medians = residual.groupby(cells["label"]).median().sort_values()
    primes = sorted({int(p) for p in cells["p"]})
    figure = Figure(figsize=(PAGE, 0.9 + 0.21 * len(medians)))
    axes = figure.subplots()
    axes.axvline(0, color=COLOURS["faint"], ls="--", lw=1)
    rows = {label: height for height, label in enumerate(medians.index)}
    axes.vlines(
        medians,
        [height - 0.35 for height in rows.values()],
        [height + 0.35 for height in rows.values()],
        color=COLOURS["ink"],
        lw=1.4,
    )
    for prime in primes:
        there = cells["p"] == prime
        axes.plot(
            residual[there],
            cells["label"][there].map(rows),
            "o",
            ms=4.5,
            alpha=0.85,
            color=prime_look(prime, primes)[0],
            label=f"p = {prime}",
        )
    known = {label: value for label, value in printed.items() if label in rows}
    axes.plot(
        list(known.values()),
        [rows[label] for label in known],
        "D",
        ms=6,
        mfc="none",
        mec=COLOURS["ink"],
        label="paper's median" if known else None,
    )
    axes.set_yticks(range(len(medians)), [str(label) for label in medians.index])
    axes.set_xlabel("$\\log_{10}(P_{onset} / P_{cross})$")
    figure.legend(fontsize=6, loc="outside right upper")
    return figure


def threshold_drawing(residuals: Sequence[ThresholdResidual]) -> Figure:
    """The residual of every cell against the accuracy that counts as memorised."""
    figure = Figure(figsize=(4.6, 3.0))
    axes = figure.subplots()
    axes.axhline(0, color=COLOURS["faint"], ls="--", lw=1)
    primes = sorted({r.prime for r in residuals})
    cells: dict[tuple[int, str], list[ThresholdResidual]] = {}
    for row in residuals:
        cells.setdefault((row.prime, setting_text(row.setting)), []).append(row)
    labelled: set[int] = set()
    for (prime, _), rows in cells.items():
        style = prime_style(prime, primes)
        axes.plot(
            [100 * row.t_mem for row in rows],
            [row.residual for row in rows],
            ms=4,
            lw=0.9,
            label=None if prime in labelled else f"p = {prime}",
            **style,
        )
        labelled.add(prime)
    axes.set_xlabel("random labels memorised, %")
    axes.set_ylabel("$\\log_{10}(P_{onset} / P_{cross})$")
    axes.legend(fontsize=6, ncols=2)
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
    for prime in primes:
        here = [c for c in cells if c.prime == prime]
        style = prime_style(prime, primes)
        axes.scatter(
            [place[axis_value(c, axis)] for c in here],
            [c.residual for c in here if c.residual is not None],
            **style,
            s=18,
            label=f"p = {prime}",
        )
    if not numeric:
        axes.set_xticks(range(len(levels)), [str(v) for v in levels])


LABELS = {"mem": "$T_{mem}$", "gen": "$T_{gen}$"}


def delay_drawing(panels: Sequence[Panel]) -> Figure:
    """Small multiples of the dashboard's delay figure; times and P have the same axes in all."""
    columns = 2 if len(panels) in (2, 4) else 3
    figure, all_axes = grid(len(panels), columns=columns)
    points = [p for panel in panels for p in (*panel.speeds.t_mem, *panel.speeds.t_gen)]
    widths = [p.width for p in points] + [d.width for q in panels for d in q.delay.points]
    params = [p.params for p in points] + [d.params for q in panels for d in q.delay.points]
    times = [s.value or s.last for p in points for s in p.values]
    colour = width_colours(widths)
    for i, (panel, axes) in enumerate(zip(panels, all_axes, strict=True)):
        log_x(axes, *span(params))
        speeds = axes.twinx()
        log_y(speeds, *span(times, margin=0.08))
        speeds.grid(False)
        speeds.spines["right"].set_visible(True)
        _delays(axes, panel, colour)
        _speed(speeds, panel.speeds.t_gen, "gen", panel.crossing.method)
        _speed(speeds, panel.speeds.t_mem, "mem", panel.crossing.method)
        _marks(axes, panel)
        axes.set_title(f"p = {panel.crossing.prime}", loc="left")
        axes.tick_params(axis="x", rotation=45)
        last_in_row = i % columns == columns - 1 or i == len(panels) - 1
        if last_in_row:
            speeds.set_ylabel(f"{panel.crossing.units} to reach")
        if i + columns >= len(panels):
            axes.set_xlabel("parameters P")
        if i == 0:
            lines = speeds.get_legend_handles_labels()
            marks = axes.get_legend_handles_labels()
            figure.legend(
                [*lines[0], *marks[0]], [*lines[1], *marks[1]], loc="outside lower center", ncols=6
            )
    figure.supylabel("generalisation delay ΔE (epochs)", fontsize=8)
    return figure


def _delays(axes: Axes, panel: Panel, colour: object) -> None:
    """One faint point a run and one strong point a width; a triangle is a lower bound."""
    assert callable(colour)
    for censored, marker in ((False, "o"), (True, "^")):
        here = [p for p in panel.delay.points if p.censored is censored]
        axes.scatter(
            [p.params for p in here],
            [p.delay for p in here],
            s=7,
            marker=marker,
            c=[colour(p.width) for p in here] or None,
            alpha=0.45,
            linewidths=0,
        )
    least = panel.delay.minimum
    axes.scatter(
        [p.params for p in least],
        [p.minimum for p in least],
        s=22,
        c=[colour(p.width) for p in least] or None,
        edgecolors=COLOURS["ink"],
        linewidths=0.4,
        zorder=3,
        label="least ΔE over seeds" if least else None,
    )
    largest = max((p.delay for p in panel.delay.points), default=1.0) or 1.0
    axes.set_ylim(-0.03 * largest, 1.12 * largest)


def _speed(axes: Axes, points: Sequence[SpeedPoint], role: str, method: str) -> None:
    """The centre over widths, the band from fastest to slowest seed, arrows where unreached."""
    if not points:
        return
    centre = [p.mean_reached if method == "paper" else p.median for p in points]
    params = [p.params for p in points]
    seeds = [_span_of(p) for p in points]
    colour = COLOURS[role]
    axes.fill_between(
        params, [min(s) for s in seeds], [max(s) for s in seeds], color=colour, alpha=0.13, lw=0
    )
    drawn = [float("nan") if c is None else c for c in centre]
    dash = "-" if role == "mem" else (0, (5, 1.5))
    axes.plot(params, drawn, color=colour, ls=dash, marker=".", ms=3, label=LABELS[role])
    unreached = [
        (p.params, max(s)) for p, c, s in zip(points, centre, seeds, strict=True) if c is None
    ]
    if unreached:
        x, y = zip(*unreached, strict=True)
        axes.scatter(x, y, marker=r"$\uparrow$", s=18, color=colour)


def _span_of(point: SpeedPoint) -> list[float]:
    """Epochs of the seeds, the last one of those that never reached; a diverged run says none."""
    said = [s.last if s.value is None else s.value for s in point.values if not s.diverged]
    return said or [s.last for s in point.values]


def _marks(axes: Axes, panel: Panel) -> None:
    crossing = panel.crossing
    cross, onset = crossing.p_cross, crossing.p_onset
    low, high = axes.get_xlim()
    if cross.level is not None:
        axes.axvspan(cross.low or low, cross.high or high, color=COLOURS["cross"], alpha=0.1, lw=0)
    if cross.estimate is not None:
        axes.axvline(cross.estimate, color=COLOURS["cross"], ls="--", lw=1, label="$P_{cross}$")
    if onset.estimate is not None:
        axes.axvline(onset.estimate, color=COLOURS["onset"], lw=1.2, label="$P_{onset}$")
    if low <= crossing.p_mem <= high:
        axes.axvline(crossing.p_mem, color=COLOURS["p_mem"], ls=":", lw=1.2, label="$P_{mem}$")
    axes.set_xlim(low, high)


def capacity_drawing(answer: CapacityAnswer) -> Figure:
    """Left: bits memorised against the set's complexity. Right: plateaus and their line."""
    figure = Figure(figsize=(PAGE, 2.9))
    curves, fit = figure.subplots(1, 2)
    _curves(curves, answer)
    _fit(fit, answer)
    return figure


def capacities_drawing(answers: Sequence[tuple[str, CapacityAnswer]]) -> Figure:
    """Plateaus and their line of every setting, beside the published constants."""
    figure = Figure(figsize=(PAGE, 3.2))
    axes = figure.subplots()
    largest = 1.08 * max(w.params for _, answer in answers for w in answer.widths)
    _published(axes, largest)
    for index, (name, answer) in enumerate(answers):
        style = series(index)
        known = [w for w in answer.widths if w.capacity is not None]
        slope = ""
        if answer.fit is not None:
            line = [answer.fit.intercept + answer.fit.slope * p for p in (0.0, largest)]
            axes.plot([0, largest], line, color=style["color"], lw=1)
            slope = f": {answer.fit.slope:.3g}"
        points = ([w.params for w in known], [w.capacity or 0.0 for w in known])
        axes.plot(*points, **style, ls="", ms=5, label=f"{name}{slope}")
    axes.set_xlim(0, largest)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("parameters P")
    axes.set_ylabel("capacity (bits)")
    axes.legend(title="bits per parameter", title_fontsize=7, fontsize=7, loc="upper left")
    return figure


def _published(axes: Axes, largest: float) -> None:
    for value, name, dash in ((PAPER_BITS, "paper", "--"), (MORRIS_BITS, "Morris et al.", ":")):
        ends = [0, value * largest]
        axes.plot(
            [0, largest], ends, color=COLOURS["faint"], ls=dash, lw=1, label=f"{name}: {value:g}"
        )


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
    _published(axes, largest)
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


DASHES = {"exponential": "-", "power": "--", "stretched": ":", "critical": "-."}
LINE_POINTS = 60


def law_drawing(answer: LawAnswer) -> Figure:
    """Left: one curve a prime. Right: all on one, if f is all that matters."""
    figure = Figure(figsize=(PAGE, 3.0))
    inverse, collapse = figure.subplots(1, 2, sharey=True)
    scale = answer.c_model.value
    log_x(inverse, *span([1 / (scale * p.params) for p in answer.points]))
    for prime in answer.primes:
        points = sorted((p for p in answer.points if p.prime == prime), key=lambda p: p.fraction)
        times = [p.value for p in points]
        style = prime_style(prime, answer.primes)
        inverse.plot(
            [1 / (scale * p.params) for p in points],
            times,
            **style,
            ms=3,
            lw=0.9,
            label=f"p = {prime}",
        )
        for fitted, alpha in ((True, 1.0), (False, 0.35)):
            here = [p for p in points if p.fitted is fitted]
            collapse.scatter(
                [p.fraction for p in here],
                [p.value for p in here],
                **style,
                s=11,
                alpha=alpha,
                lw=0,
            )
    _laws(collapse, answer)
    log_y(inverse, *span([p.value for p in answer.points], margin=0.08))
    inverse.set_xlabel("inverse capacity $1/(C\\,P)$ (1/bits)")
    inverse.set_ylabel(f"$T_{{mem}}$ ({answer.units})")
    inverse.tick_params(axis="x", rotation=45)
    collapse.set_xlabel("capacity fraction $f = K_{mem}/(C\\,P)$")
    inverse.legend(fontsize=6, ncols=2)
    return figure


def _laws(axes: Axes, answer: LawAnswer) -> None:
    low = max(answer.window[0], 1e-3)
    largest = max((p.fraction for p in answer.points), default=answer.window[1]) * 1.05
    high = min(answer.window[1], largest)
    axes.axvspan(answer.window[0], high, color=COLOURS["series_5"], alpha=0.08, lw=0)
    at = [low + (high - low) * i / (LINE_POINTS - 1) for i in range(LINE_POINTS)]
    for fit in answer.rivals:
        name, dash = form_formula(fit.form), DASHES[fit.form]
        axes.plot(at, [law_value(fit, f) for f in at], color=COLOURS["ink"], ls=dash, label=name)
    axes.set_xlim(0, largest)
    if answer.rivals:
        axes.legend()
