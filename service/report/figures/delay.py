"""Delay and both speeds against P, one panel a prime."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dashboard.figures.theme import COLOURS, span
from service.answers.speeds import SpeedPoint
from service.report.content import Panel
from service.report.figures.canvas import grid, log_x, log_y, width_colours

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
