"""The delay of every run over the size, with the crossing, and the regimes of every size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any, Literal

from groktime.dashboard.figures.crossing import (
    notes,
    readings,
    speed_traces,
    story,
    summary,
    verdict,
    watched,
)
from groktime.dashboard.figures.progress import point_note
from groktime.dashboard.figures.theme import (
    COLOURS,
    Figure,
    Meta,
    Note,
    Reading,
    Trace,
    answer_caption,
    band,
    cell_title,
    figure,
    layout,
    linear_axis,
    log_axis,
    span,
    vertical,
    width_colour,
)
from groktime.service.analysis.capacity import BitsPerParameter
from groktime.service.analysis.delay import WidthRegime
from groktime.service.answers.context import Answer
from groktime.service.answers.crossing import (
    CrossingAnswer,
    DelayAnswer,
    RegimesAnswer,
    SpeedsAnswer,
)
from groktime.service.answers.suites import PlacedCell
from groktime.service.answers.verdicts import bits_text
from groktime.service.words import EN_DASH, REGIMES, human

# `meta` of a trace: the marks of single seeds.
DETAIL = "detail"
LEAST_SCALE = 10.0  # epochs of delay the axis shows even where all are zero


class DelayMeta(Meta):
    """Also carries the cell's verdict and what the chart shows, told from left to right."""

    verdict: Note
    story: Sequence[str]


Arrangement = Literal["panels", "twin"]
# Two panels over one P axis, with the strip of the regimes between them.
DELAYS, STRIP, SPEEDS = (0.55, 1.0), (0.475, 0.525), (0.0, 0.45)


def delay_figure(
    delay: DelayAnswer,
    crossing: CrossingAnswer,
    speeds: SpeedsAnswer,
    regimes: RegimesAnswer,
    arrangement: Arrangement = "panels",
    placed: PlacedCell | None = None,
    *,
    small: bool = False,
) -> Figure:
    """Delays and both speeds of one cell over log P.

    `panels` sets delays above speeds, each with its own axis; `twin` is the paper's figure, both
    in one plot with the speeds' axis on the right. All four answers are of the same cell at the
    same revision and conventions. `placed` is how far a cell is that is being located. A `small`
    multiple leaves out single seeds and what its size does not show.
    """
    panels = arrangement == "panels"
    speed_points = (*speeds.t_mem, *speeds.t_gen)
    widths = sorted({p.width for p in delay.points} | {p.width for p in speed_points})
    sizes = [p.params for p in delay.points] + [p.params for p in speed_points]
    low, high = span([*sizes, *_expected_ends(placed)])
    t_low, t_high = span([t for p in speed_points for t in watched(p)], margin=0.08)
    data = [
        *speed_traces("T_gen", "gen", speeds.t_gen, speeds, axis="y2", small=small),
        *speed_traces("T_mem", "mem", speeds.t_mem, speeds, axis="y2", small=small),
        *([] if small else [_each_delay(delay, widths)]),
        _least_delay(delay, widths),
    ]
    largest = max([LEAST_SCALE, *(p.delay for p in delay.points)])
    strip = STRIP if panels else None
    delays = linear_axis(
        "delay ΔE (epochs)" if panels else "generalisation delay ΔE (epochs)",
        range=[-0.05 * largest, 1.12 * largest],
        tickformat=",d",
    )
    times = log_axis(
        f"{crossing.units} to reach" if panels else f"{crossing.units} to memorise or generalise",
        t_low,
        t_high,
    )
    apart = {"overlaying": "y", "side": "right", "showgrid": False}
    frame = layout(
        _meta(delay, crossing, speeds, placed),
        xaxis=log_axis("parameters P", low, high) | ({"anchor": "y2"} if panels else {}),
        yaxis=delays | ({"domain": list(DELAYS)} if panels else {}),
        yaxis2=times | ({"domain": list(SPEEDS)} if panels else apart),
        shapes=[
            *regime_shapes(regimes, low, high, strip),
            *_expected(placed),
            *_marks(crossing, low, high, DELAYS[0] if panels else 0.0),
        ],
        annotations=_labels(crossing, low, high),
        margin={"l": 64, "r": 24 if panels else 70, "t": 62, "b": 96},
    )
    return figure(data, frame)


def _each_delay(delay: DelayAnswer, widths: Sequence[int]) -> Trace:
    """One faint point a run, coloured by width."""
    points = delay.points
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "ΔE of each seed",
        "meta": DETAIL,
        "x": [p.params for p in points],
        "y": [p.delay for p in points],
        "marker": {
            **width_colour([p.width for p in points], bar=False, all_widths=widths),
            "size": 5,
            "opacity": 0.45,
            "symbol": ["triangle-up" if p.censored else "circle" for p in points],
        },
        "customdata": [[p.run, p.width, p.seed, "at least " if p.censored else ""] for p in points],
        "hovertemplate": "ΔE %{customdata[3]}%{y:,d} epochs<br>P %{x:,} · d %{customdata[1]} · "
        "seed %{customdata[2]}<extra></extra>",
    }


def _least_delay(delay: DelayAnswer, widths: Sequence[int]) -> Trace:
    """One strong point a width, coloured by it."""
    runs: dict[int, list[int]] = {}
    for point in delay.points:
        runs.setdefault(point.width, []).append(point.run)
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "least ΔE over seeds",
        "x": [p.params for p in delay.minimum],
        "y": [p.minimum for p in delay.minimum],
        "marker": {
            **width_colour([p.width for p in delay.minimum], bar=True, all_widths=widths),
            "size": 10,
            "line": {"width": 1, "color": COLOURS["outline"]},
        },
        "customdata": [
            [p.width, p.positive, p.seeds, runs.get(p.width, [])] for p in delay.minimum
        ],
        "hovertemplate": "least ΔE %{y:,d} epochs<br>P %{x:,} · d %{customdata[0]}<br>"
        "%{customdata[1]} of %{customdata[2]} seeds delayed<extra></extra>",
    }


def _bands(placed: PlacedCell | None) -> list[tuple[float, float, str]]:
    """Where a search that goes on expects both points: its interval, else the bracket."""
    if placed is None or placed.ended is not None:
        return []
    found = []
    for point, role in ((placed.crossing, "cross"), (placed.onset, "onset")):
        if point is None or point.estimate is None:
            continue
        if point.low is not None and point.high is not None:
            found.append((point.low, point.high, role))
        elif point.bracket is not None:
            found.append((*point.bracket, role))
    return found


def _expected_ends(placed: PlacedCell | None) -> list[float]:
    return [end for low, high, _ in _bands(placed) for end in (low, high)]


def _expected(placed: PlacedCell | None) -> list[dict[str, Any]]:
    """The expected places as bands with dotted edges."""
    return [
        band(low, high, COLOURS[f"{role}_band"])
        | {"line": {"color": COLOURS[role], "width": 1, "dash": "dot"}}
        for low, high, role in _bands(placed)
    ]


def _marks(crossing: CrossingAnswer, low: float, high: float, foot: float) -> list[dict[str, Any]]:
    """Crosshair with its band at P_cross, and lines at P_onset and P_mem.

    The interval of P_onset stands at the foot of the delays.
    """
    shapes: list[dict[str, Any]] = []
    cross, onset = crossing.p_cross, crossing.p_onset
    if cross.level is not None:
        ends = max(cross.low or low, low), min(cross.high or high, high)
        shapes.append(band(*ends, COLOURS["cross_band"]))
    if onset.estimate is not None and (onset.low or onset.high):
        ends = max(onset.low or low, low), min(onset.high or high, high)
        shapes.append(band(*ends, COLOURS["onset_band"], y0=foot, y1=foot + 0.06))
    if low <= crossing.p_mem <= high:
        shapes.append(vertical(crossing.p_mem, COLOURS["p_mem"], "dot"))
    if onset.estimate is not None:
        shapes.append(vertical(onset.estimate, COLOURS["onset"], "solid"))
    if cross.estimate is not None:
        shapes.append(vertical(cross.estimate, COLOURS["cross"], "dash"))
        if crossing.epochs is not None:
            shapes.append(_level_line(crossing.epochs))
    return shapes


def _level_line(epochs: float) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": "paper",
        "yref": "y2",
        "x0": 0,
        "x1": 1,
        "y0": epochs,
        "y1": epochs,
        "line": {"color": COLOURS["cross"], "width": 1, "dash": "dash"},
        "layer": "above",
    }


def _labels(crossing: CrossingAnswer, low: float, high: float) -> list[dict[str, Any]]:
    """Names above the lines, one lane each, so that close ones stay readable."""
    marks = (
        ("P<sub>mem</sub>", crossing.p_mem, "p_mem", 0),
        ("P<sub>onset</sub>", crossing.p_onset.estimate, "onset", 1),
        ("P<sub>cross</sub>", crossing.p_cross.estimate, "cross", 2),
    )
    return [
        {
            "xref": "x",
            "yref": "paper",
            "x": math.log10(value),  # annotations on a log axis go by the logarithm
            "y": 1.0,
            "yanchor": "middle",
            "yshift": 11 + 16 * lane,
            "text": f"{name} {human(value)}",
            "showarrow": False,
            "font": {"size": 12, "color": COLOURS[role]},
        }
        for name, value, role, lane in marks
        if value is not None and low <= value <= high
    ]


def delay_caption(answer: Answer, c_model: BitsPerParameter) -> str:
    """What makes the chart of this cell citable."""
    return answer_caption(answer, bits_text(c_model))


def _meta(
    delay: DelayAnswer,
    crossing: CrossingAnswer,
    speeds: SpeedsAnswer,
    placed: PlacedCell | None,
) -> DelayMeta:
    located = None if placed is None else point_note(placed)
    meta: DelayMeta = {
        "title": cell_title(crossing),
        "summary": summary(crossing),
        "caption": delay_caption(crossing, speeds.c_model),
        "readings": readings(crossing),
        "notes": [*([located] if located else []), *notes(crossing, delay)],
        "verdict": verdict(crossing),
        "story": story(crossing, delay, speeds),
        "sources": [
            {"label": "delays", "route": "/delay"},
            {"label": "speeds", "route": "/speeds"},
            {"label": "crossing", "route": "/crossing"},
        ],
    }
    if not delay.points and not speeds.t_mem and not speeds.t_gen:
        meta["empty"] = "No run of this cell has finished yet."
    return meta


ON_TOP = (0.948, 1.0)  # share of the plot's height


def regime_shapes(
    answer: RegimesAnswer, low: float, high: float, place: tuple[float, float] | None = None
) -> list[dict[str, Any]]:
    """A full-height tint and a strip (on top, or at `place`) for every stretch in one regime.

    Stretches meet half-way (in log P) between the last width of one and the first of the next.
    """
    shapes = []
    bottom, top = place or ON_TOP
    for name, start, end in stretches(answer.points, low, high):
        shapes.append(band(start, end, COLOURS[name]))
        strip = band(start, end, COLOURS[f"{name}_strip"], y0=bottom, y1=top) | {"layer": "above"}
        if end / start > (high / low) ** 0.14:  # room for the word
            strip["label"] = {
                "text": REGIMES[name],
                "textposition": "middle center",
                "font": {"size": 11, "color": COLOURS["ink"]},
            }
        shapes.append(strip)
    return shapes


def stretches(
    points: Sequence[WidthRegime], low: float, high: float
) -> list[tuple[str, float, float]]:
    """(regime, from P, to P) of neighbouring widths in the same regime, covering [low, high]."""
    groups = [(name, list(group)) for name, group in groupby(points, key=lambda p: p.regime)]
    ends = [
        math.sqrt(before[-1].params * after[0].params)
        for (_, before), (_, after) in pairwise(groups)
    ]
    edges = [low, *ends, high]
    return [(name, edges[i], edges[i + 1]) for i, (name, _) in enumerate(groups)]


COUNTED = ("under_capacity", "memorised_only", "immediate", "grokking")
ABOVE = 1.06  # where the marks of the majority stand


def regimes_figure(answer: RegimesAnswer) -> Figure:
    """A stacked bar a width, ascending in P, and above it the regime of most of its seeds."""
    points = answer.points
    places = [f"{human(p.params)}<br>d {p.width}" for p in points]
    bars: list[Trace] = [
        {
            "type": "bar",
            "name": REGIMES[name],
            "x": places,
            "y": [getattr(p, name) / max(_seeds(p), 1) for p in points],
            "marker": {
                "color": COLOURS[f"{name}_strip"],
                "line": {"width": 1, "color": COLOURS["axis"]},
            },
            "customdata": [[p.params, p.width, getattr(p, name), _seeds(p)] for p in points],
            "hovertemplate": f"{REGIMES[name]}: %{{customdata[2]}} of %{{customdata[3]}} seeds<br>"
            "P %{customdata[0]:,} · d %{customdata[1]}<extra></extra>",
        }
        for name in COUNTED
        if any(getattr(p, name) for p in points)
    ]
    majority: Trace = {
        "type": "scatter",
        "mode": "markers",
        "name": "regime of most seeds",
        "x": places,
        "y": [ABOVE] * len(points),
        "marker": {
            "symbol": "square",
            "size": 12,
            "color": [COLOURS[f"{p.regime}_strip"] for p in points],
            "line": {"width": 1, "color": COLOURS["muted"]},
        },
        "customdata": [[p.params, p.width, REGIMES[p.regime]] for p in points],
        "hovertemplate": "%{customdata[2]}<br>P %{customdata[0]:,} · d %{customdata[1]}"
        "<extra></extra>",
        "showlegend": False,
    }
    frame = layout(
        _regimes_meta(answer),
        barmode="stack",
        bargap=0.12,
        xaxis=linear_axis("parameters P, width d", type="category", tickformat=""),
        yaxis=linear_axis("share of seeds", range=[0, 1.12], tickformat=".0%"),
        margin={"l": 64, "r": 24, "t": 16, "b": 96},
    )
    return figure([*bars, majority], frame)


def _seeds(point: WidthRegime) -> int:
    return sum(getattr(point, name) for name in COUNTED)


def _summary(answer: RegimesAnswer) -> str:
    """The regimes in the order of P, neighbouring widths together."""
    parts = []
    for name, group in groupby(answer.points, key=lambda p: p.regime):
        sizes = [p.params for p in group]
        ends = human(sizes[0])
        if len(sizes) > 1:
            ends += f" {EN_DASH} {human(sizes[-1])}"
        parts.append(f"{REGIMES[name]} at P = {ends}")
    return ("By most seeds: " + ", then ".join(parts) + ".") if parts else "Nothing is known yet."


def _readings(answer: RegimesAnswer) -> list[Reading]:
    found = []
    for name in REGIMES:
        sizes = [p.params for p in answer.points if p.regime == name]
        if sizes:
            reading: Reading = {
                "term": REGIMES[name],
                "value": f"{len(sizes)} of {len(answer.points)} widths",
                "detail": f"P from {human(min(sizes))} to {human(max(sizes))}",
                "role": f"{name}_strip",
            }
            found.append(reading)
    return found


def _regimes_meta(answer: RegimesAnswer) -> Meta:
    meta: Meta = {
        "title": f"{cell_title(answer)}: regimes",
        "summary": _summary(answer),
        "caption": answer_caption(answer),
        "readings": _readings(answer),
        "notes": [],
        "sources": [{"label": "regimes", "route": "/regimes"}],
    }
    if not answer.points:
        meta["empty"] = "No grok run of this cell has finished yet."
    return meta
