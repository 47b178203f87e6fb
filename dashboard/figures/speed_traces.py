"""A speed over P as traces: its centre, the band of its seeds, and what was not reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dashboard.figures.theme import COLOURS, Trace
from service.answers.speeds import SpeedPoint, SpeedsAnswer


def speed_traces(
    name: str, role: str, points: Sequence[SpeedPoint], answer: SpeedsAnswer, *, axis: str
) -> list[Trace]:
    """The curve over widths, the band from the fastest to the slowest seed, and open ends."""
    if not points:
        return []
    centre = centres(points, answer)
    params = [p.params for p in points]
    banded = [(p.params, watched(p)) for p in points if watched(p)]
    ends = [(x, max(times)) for x, times in banded]
    ends += [(x, min(times)) for x, times in reversed(banded)]
    label = subscript(name)
    shared = {"yaxis": axis, "legendgroup": name}
    band_trace: Trace = {
        "type": "scatter",
        "mode": "lines",
        "name": f"{label} fastest to slowest seed",
        "x": [x for x, _ in ends],
        "y": [y for _, y in ends],
        "fill": "toself",
        "fillcolor": COLOURS[f"{role}_band"],
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
        **shared,
    }
    word = "memorise" if role == "mem" else "generalise"
    curve: Trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": f"{label}: {answer.units} to {word}",
        "x": params,
        "y": centre,
        "connectgaps": False,
        "line": {"color": COLOURS[role], "width": 2.5},
        "marker": {"color": COLOURS[role], "size": 4},
        "customdata": [[p.width, p.reached, p.seeds] for p in points],
        "hovertemplate": f"{label} %{{y:,.0f}} {answer.units}<br>P %{{x:,}} · "
        "d %{customdata[0]}<br>%{customdata[1]} of %{customdata[2]} seeds reached it"
        "<extra></extra>",
        **shared,
    }
    return [
        band_trace,
        curve,
        *_open_ends(label, role, points, centre, shared),
        *_diverged(label, role, points, shared),
    ]


def centres(points: Sequence[SpeedPoint], answer: SpeedsAnswer) -> list[float | None]:
    """The centre over seeds that the answer's method goes by; None: not reached."""
    return [p.mean_reached if answer.method == "paper" else p.median for p in points]


def subscript(name: str) -> str:
    """T_mem as it is set in a figure."""
    return f"{name[0]}<sub>{name[2:]}</sub>"


def watched(point: SpeedPoint) -> list[float]:
    """Times of the seeds: first passages, and last epochs of those that were watched in vain.

    A diverged run ended early without being slow or fast, so it has no time here.
    """
    return [s.last if s.value is None else s.value for s in point.values if not s.diverged]


def _top(points: Sequence[SpeedPoint]) -> float:
    """Where marks stand that have no time of their own: at the longest anything was watched."""
    return max((t for p in points for t in watched(p)), default=max(p.horizon for p in points))


def _open_ends(
    label: str,
    role: str,
    points: Sequence[SpeedPoint],
    centre: Sequence[float | None],
    shared: dict[str, Any],
) -> list[Trace]:
    """Arrows where the centre lies above the last epoch trained: not reached, never a value."""
    unreached = [p for p, c in zip(points, centre, strict=True) if c is None and watched(p)]
    if not unreached:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{label} not reached",
            "x": [p.params for p in unreached],
            "y": [max(watched(p)) for p in unreached],
            "marker": {"symbol": "arrow-up", "size": 9, "color": COLOURS[role]},
            "customdata": [[p.width, p.reached, p.seeds] for p in unreached],
            "hovertemplate": f"{label} above %{{y:,.0f}}: not reached<br>P %{{x:,}} · "
            "d %{customdata[0]}<br>%{customdata[1]} of %{customdata[2]} seeds reached it"
            "<extra></extra>",
            "showlegend": False,
            **shared,
        }
    ]


def _diverged(
    label: str, role: str, points: Sequence[SpeedPoint], shared: dict[str, Any]
) -> list[Trace]:
    """A cross at widths where a seed's loss became infinite: counted as never reached."""
    lost = [p for p in points if p.diverged]
    if not lost:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{label} diverged",
            "x": [p.params for p in lost],
            "y": [_top(points)] * len(lost),
            "marker": {"symbol": "x-thin-open", "size": 8, "color": COLOURS[role]},
            "customdata": [[p.width, p.diverged, p.seeds] for p in lost],
            "hovertemplate": f"{label}: %{{customdata[1]}} of %{{customdata[2]}} seeds diverged"
            "<br>P %{x:,} · d %{customdata[0]}<extra></extra>",
            "showlegend": False,
            **shared,
        }
    ]
