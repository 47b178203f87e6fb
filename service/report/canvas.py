"""The frame that all figures of a report share, and how they become files."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from groktime.dashboard.figures.theme import COLOURS, SERIES, log_ticks, prime_look

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
