"""What happens at each P of one cell: the share of seeds in every regime, and which has most."""

from __future__ import annotations

from itertools import groupby

from dashboard.figures.caption import Meta, Reading, answer_caption
from dashboard.figures.crossing_words import title
from dashboard.figures.regime_strip import NAMES
from dashboard.figures.theme import COLOURS, Figure, Trace, figure, layout, linear_axis
from dashboard.numbers import EN_DASH, people
from service.answers.regimes import RegimePoint, RegimesAnswer

COUNTED = ("under_capacity", "memorised_only", "immediate", "grokking")
ABOVE = 1.06  # where the marks of the majority stand


def regimes_figure(answer: RegimesAnswer) -> Figure:
    """A stacked bar a width, ascending in P, and above it the regime of most of its seeds."""
    points = answer.points
    places = [f"{people(p.params)}<br>d {p.width}" for p in points]
    bars: list[Trace] = [
        {
            "type": "bar",
            "name": NAMES[name],
            "x": places,
            "y": [getattr(p, name) / max(_seeds(p), 1) for p in points],
            "marker": {
                "color": COLOURS[f"{name}_strip"],
                "line": {"width": 1, "color": COLOURS["axis"]},
            },
            "customdata": [[p.params, p.width, getattr(p, name), _seeds(p)] for p in points],
            "hovertemplate": f"{NAMES[name]}: %{{customdata[2]}} of %{{customdata[3]}} seeds<br>"
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
        "customdata": [[p.params, p.width, NAMES[p.regime]] for p in points],
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


def _seeds(point: RegimePoint) -> int:
    return sum(getattr(point, name) for name in COUNTED)


def _summary(answer: RegimesAnswer) -> str:
    """The regimes in the order of P, neighbouring widths together."""
    parts = []
    for name, group in groupby(answer.points, key=lambda p: p.regime):
        sizes = [p.params for p in group]
        ends = people(sizes[0])
        if len(sizes) > 1:
            ends += f" {EN_DASH} {people(sizes[-1])}"
        parts.append(f"{NAMES[name]} at P = {ends}")
    return ("By most seeds: " + ", then ".join(parts) + ".") if parts else "Nothing is known yet."


def _readings(answer: RegimesAnswer) -> list[Reading]:
    found = []
    for name in NAMES:
        sizes = [p.params for p in answer.points if p.regime == name]
        if sizes:
            reading: Reading = {
                "term": NAMES[name],
                "value": f"{len(sizes)} of {len(answer.points)} widths",
                "detail": f"P from {people(min(sizes))} to {people(max(sizes))}",
                "role": f"{name}_strip",
            }
            found.append(reading)
    return found


def _meta(answer: RegimesAnswer) -> Meta:
    meta: Meta = {
        "title": f"{title(answer)}: regimes",
        "summary": _summary(answer),
        "caption": answer_caption(answer),
        "readings": _readings(answer),
        "notes": [],
        "sources": [{"label": "regimes", "route": "/regimes"}],
    }
    if not answer.points:
        meta["empty"] = "No grok run of this cell has finished yet."
    return meta
