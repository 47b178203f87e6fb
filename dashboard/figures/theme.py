"""Colours, axes, the frame and the captions that all figures share."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from groktime.dashboard.page import STATIC_DIR
from groktime.service.answers.context import Answer, Provenance
from groktime.service.answers.verdicts import Tone, thresholds_text
from groktime.service.words import count, human, scientific, setting_text

Figure = dict[str, Any]
Trace = dict[str, Any]

COLOURS: Mapping[str, str] = json.loads((STATIC_DIR / "palette.json").read_text())["light"]
FONT = "Inter, ui-sans-serif, system-ui, sans-serif"

# Small models pale, large ones deep: the sequence the paper uses for width.
CREST = [[i / 5, COLOURS[f"crest_{i}"]] for i in range(6)]
SERIES = tuple(COLOURS[f"series_{i}"] for i in range(8))
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "pentagon", "star")
# Primes are ordered, and so are their colours: small ones yellow, large ones blue.
PRIMES = tuple(COLOURS[f"prime_{i}"] for i in range(10))
PRIME_SYMBOLS = (*SYMBOLS, "triangle-down", "hexagon")

# Ticks inside a decade, for axes over at most so many decades.
_STEPS = (
    (0.4, (1, 1.2, 1.5, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9)),
    (1.3, (1, 1.5, 2, 3, 5, 7)),
    (3, (1, 2, 5)),
    (5, (1, 3)),
    (math.inf, (1,)),
)
_SMALL = 1e-3
_WIDTH_TICKS = 5

# A legend of several lines at the very bottom, where it meets no title of an axis.
LOW_LEGEND: Mapping[str, Any] = {"yref": "container", "y": 0, "yanchor": "bottom"}
# For a legend of several lines, or a colour bar, below the axis.
ROOM_BELOW: Mapping[str, int] = {"l": 64, "r": 20, "t": 12, "b": 116}


def series_look(index: int) -> tuple[str, str]:
    """Colour and symbol of the index-th series; no two of the first 64 look the same."""
    turn = index // len(SERIES)
    return SERIES[index % len(SERIES)], SYMBOLS[(index + turn) % len(SYMBOLS)]


def prime_look(prime: int, primes: Sequence[int]) -> tuple[str, str]:
    """Colour and symbol of a prime among others: its place on the one scale of primes."""
    rank = sorted(primes).index(prime)
    place = rank / max(len(primes) - 1, 1)
    return PRIMES[round(place * (len(PRIMES) - 1))], PRIME_SYMBOLS[rank % len(PRIME_SYMBOLS)]


def log_ticks(low: float, high: float) -> tuple[list[float], list[str]]:
    """Round values of 1, 2, 5 · 10^k inside [low, high], thinned out over many decades."""
    decades = math.log10(high / low)
    steps = next(inside for most, inside in _STEPS if decades <= most)
    if low < _SMALL and len(steps) > 3:
        steps = (1, 2, 5)  # powers of ten are wide labels
    values = [
        step * 10.0**k
        for k in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for step in steps
    ]
    inside = [v for v in values if low <= v <= high]
    return inside, [scientific(v) if low < _SMALL else human(v) for v in inside]


def span(values: Iterable[float], *, margin: float = 0.04) -> tuple[float, float]:
    """Smallest and largest positive value with a margin, a share of their log range."""
    positive = [v for v in values if v > 0 and math.isfinite(v)]
    if not positive:
        return 1.0, 10.0
    low, high = math.log10(min(positive)), math.log10(max(positive))
    pad = max(margin * (high - low), 0.02)
    return float(10 ** (low - pad)), float(10 ** (high + pad))


def log_axis(title: str, low: float, high: float, **more: Any) -> dict[str, Any]:
    """A logarithmic axis with ticks that human read."""
    values, labels = log_ticks(low, high)
    return _axis(title) | {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickvals": values,
        "ticktext": labels,
        **more,
    }


def linear_axis(title: str, **more: Any) -> dict[str, Any]:
    return _axis(title) | {"type": "linear", "tickformat": ",~r", **more}


def _axis(title: str) -> dict[str, Any]:
    return {
        "title": {"text": title, "font": {"size": 13, "color": COLOURS["muted"]}, "standoff": 12},
        "gridcolor": COLOURS["grid"],
        "linecolor": COLOURS["axis"],
        "tickcolor": COLOURS["axis"],
        "tickfont": {"size": 12, "color": COLOURS["muted"]},
        "zeroline": False,
        "showline": True,
        "ticks": "outside",
        "ticklen": 4,
        "automargin": True,
    }


def layout(meta: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The frame: quiet background, legend below, and the words that belong to the figure."""
    return {
        "font": {"family": FONT, "size": 13, "color": COLOURS["ink"]},
        "paper_bgcolor": COLOURS["paper"],
        "plot_bgcolor": COLOURS["paper"],
        "margin": {"l": 64, "r": 24, "t": 16, "b": 48},
        "hovermode": "closest",
        "hoverlabel": {
            "bgcolor": COLOURS["surface"],
            "bordercolor": COLOURS["axis"],
            "font": {"family": FONT, "size": 12, "color": COLOURS["ink"]},
            "align": "left",
        },
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": -0.16,
            "yanchor": "top",
            "font": {"size": 12, "color": COLOURS["muted"]},
            "itemsizing": "trace",
            "bgcolor": "rgba(0,0,0,0)",
        },
        "dragmode": "zoom",
        "meta": dict(meta),
    } | more


def figure(data: Sequence[Trace], frame: Mapping[str, Any]) -> Figure:
    return {"data": list(data), "layout": dict(frame)}


def width_colour(widths: Sequence[int], *, bar: bool, all_widths: Sequence[int]) -> dict[str, Any]:
    """Marker settings that colour by width on the crest scale, spread in log2 d."""
    low, high = (min(all_widths), max(all_widths)) if all_widths else (1, 2)
    bounds = [math.log2(low), math.log2(max(high, low + 1))]
    marker: dict[str, Any] = {
        "color": [math.log2(w) for w in widths],
        "colorscale": CREST,
        "cmin": bounds[0],
        "cmax": bounds[1],
        "showscale": bar,
    }
    if bar:
        shown = _width_ticks(sorted(set(all_widths)))
        marker["colorbar"] = {
            "title": {
                "text": "width d",
                "side": "right",
                "font": {"size": 11, "color": COLOURS["muted"]},
            },
            "orientation": "h",
            "x": 1,
            "xanchor": "right",
            "y": -0.235,
            "yanchor": "top",
            "len": 0.36,
            "thickness": 8,
            "outlinewidth": 0,
            "tickvals": [math.log2(w) for w in shown],
            "ticktext": [str(w) for w in shown],
            "tickfont": {"size": 11, "color": COLOURS["muted"]},
        }
    return marker


def _width_ticks(widths: Sequence[int]) -> list[int]:
    """Up to five of the widths, about evenly spread in log2."""
    if len(widths) <= _WIDTH_TICKS:
        return list(widths)
    low, high = math.log2(widths[0]), math.log2(widths[-1])
    wanted = [low + (high - low) * i / (_WIDTH_TICKS - 1) for i in range(_WIDTH_TICKS)]
    return sorted({_nearest(widths, at) for at in wanted})


def _nearest(widths: Sequence[int], log2_width: float) -> int:
    return min(widths, key=lambda width: abs(math.log2(width) - log2_width))


def vertical(x: float, colour: str, dash: str) -> dict[str, Any]:
    """A line over the whole height at x."""
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": x,
        "x1": x,
        "y0": 0,
        "y1": 1,
        "line": {"color": colour, "width": 1.5, "dash": dash},
        "layer": "above",
    }


def band(low: float, high: float, colour: str, *, y0: float = 0, y1: float = 1) -> dict[str, Any]:
    """A filled band between two x over a share of the height."""
    return {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": low,
        "x1": high,
        "y0": y0,
        "y1": y1,
        "fillcolor": colour,
        "line": {"width": 0},
        "layer": "below",
    }


class Reading(TypedDict):
    """One number of the panel beside a chart; `role` names the colour it has in the chart."""

    term: str
    value: str
    detail: str
    role: str


class Note(TypedDict):
    """A sentence the reader should see before trusting the chart."""

    tone: Tone
    text: str


class Source(TypedDict):
    """A route whose CSV twin holds the chart's data; it takes the chart's query.

    `without` names parameters that only the chart knows.
    """

    label: str
    route: str
    without: NotRequired[Sequence[str]]


class Meta(TypedDict):
    """`layout.meta` of every figure."""

    title: str
    summary: str
    caption: str
    readings: Sequence[Reading]
    notes: Sequence[Note]
    sources: Sequence[Source]
    empty: NotRequired[str]  # why nothing is drawn


def answer_caption(answer: Answer, *more: str) -> str:
    """Suite, revision, cell, method, clock, thresholds and n: what makes a chart citable."""
    made = answer.provenance
    runs = made.runs.speed + made.runs.grok
    n = f"n = {count(runs, 'run')} ({made.runs.speed:,} speed, {made.runs.grok:,} grok)"
    parts = [
        f"suite {answer.suite}",
        f"revision {answer.revision}",
        f"p = {answer.prime}",
        setting_text(answer.setting),
        f"method {answer.method}",
        f"{answer.clock} clock",
        thresholds_text(made.thresholds),
        n,
        _located(made),
        f"d ≤ {made.max_width}" if made.max_width else "",
        *more,
    ]
    return " · ".join(part for part in parts if part)


def _located(made: Provenance) -> str:
    """`design locate, asked for 0.03 dex, reached 0.021 (P_cross) and 0.028 (P_onset)`."""
    if made.precision is None:
        return ""
    both = (("P_cross", made.precision.crossing), ("P_onset", made.precision.onset))
    reached = " and ".join(f"{value:.3f} ({name})" for name, value in both if value is not None)
    asked = f"design locate, asked for {made.precision.asked:g} dex"
    return f"{asked}, reached {reached}" if reached else asked


def cell_title(answer: Answer) -> str:
    """The cell: its prime and what the suite sweeps."""
    setting = setting_text(answer.setting)
    return f"p = {answer.prime}" + (f" · {setting}" if setting else "")
