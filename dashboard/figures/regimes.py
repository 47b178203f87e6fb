"""What happens at each P of one cell: the regimes as bars, and as bands behind other charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any

from groktime.dashboard.figures.caption import Meta, Reading, answer_caption, cell_title
from groktime.dashboard.figures.theme import (
    COLOURS,
    Figure,
    Trace,
    band,
    figure,
    layout,
    linear_axis,
)
from groktime.service.analysis.delay import WidthRegime
from groktime.service.answers.crossing import RegimesAnswer
from groktime.service.words import EN_DASH, REGIMES, human

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
        _meta(answer),
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


def _meta(answer: RegimesAnswer) -> Meta:
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
