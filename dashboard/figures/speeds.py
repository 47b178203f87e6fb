"""How fast models of every size memorise and generalise: both speeds of one cell over P."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groktime.dashboard.figures.caption import Meta, Reading, answer_caption, cell_title
from groktime.dashboard.figures.theme import (
    COLOURS,
    Figure,
    Trace,
    figure,
    layout,
    log_axis,
    span,
    trace_type,
    vertical,
)
from groktime.service.analysis.survival import SpeedPoint
from groktime.service.answers.crossing import SpeedsAnswer
from groktime.service.answers.verdicts import bits_text
from groktime.service.words import human

_STEPS = 12  # pieces of the curve between two widths: it looks smooth


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
    between = _between_widths(params, centre, answer.method)
    line: Trace = {
        "type": "scatter",
        "mode": "lines",
        "name": f"{label}: {answer.units} to {word}",
        "x": [x for x, _ in between],
        "y": [y for _, y in between],
        "connectgaps": False,
        "line": {"color": COLOURS[role], "width": 2.5},
        "hoverinfo": "skip",
        **shared,
    }
    curve: Trace = {
        "type": "scatter",
        "mode": "markers",
        "name": f"{label}: {answer.units} to {word}",
        "x": params,
        "y": centre,
        "marker": {"color": COLOURS[role], "size": 5},
        "showlegend": False,
        "customdata": [[p.width, p.reached, p.seeds] for p in points],
        "hovertemplate": f"{label} %{{y:,.0f}} {answer.units}<br>P %{{x:,}} · "
        "d %{customdata[0]}<br>%{customdata[1]} of %{customdata[2]} seeds reached it"
        "<extra></extra>",
        **shared,
    }
    return [
        band_trace,
        line,
        curve,
        *_open_ends(label, role, points, centre, shared),
        *_diverged(label, role, points, shared),
    ]


def _between_widths(
    params: Sequence[int], centre: Sequence[float | None], method: str
) -> list[tuple[float, float | None]]:
    """The curve as the crossing sees it: 1/T linear in log P, by the paper's method T in P.

    None where a width has no centre, so that the line breaks there
    """
    drawn: list[tuple[float, float | None]] = []
    for i, (x, y) in enumerate(zip(params, centre, strict=True)):
        drawn.append((x, y))
        after = centre[i + 1] if i + 1 < len(params) else None
        if y is None or after is None:
            continue
        for share in (step / _STEPS for step in range(1, _STEPS)):
            if method == "paper":
                at, time = x + share * (params[i + 1] - x), y + share * (after - y)
            else:
                at = x * (params[i + 1] / x) ** share
                time = 1 / (1 / y + share * (1 / after - 1 / y))
            drawn.append((at, time))
    return drawn


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


def speeds_figure(answer: SpeedsAnswer) -> Figure:
    """T_mem and T_gen over P on log axes: centres, bands over seeds, and every seed."""
    points = (*answer.t_mem, *answer.t_gen)
    low, high = span([p.params for p in points])
    t_low, t_high = span([t for p in points for t in watched(p)], margin=0.08)
    data = [
        trace
        for name, role, own in (("T_gen", "gen", answer.t_gen), ("T_mem", "mem", answer.t_mem))
        for trace in (
            *speed_traces(name, role, own, answer, axis="y"),
            *_seeds(name, role, own, answer),
        )
    ]
    at_capacity = [vertical(answer.p_mem, COLOURS["p_mem"], "dot")]
    frame = layout(
        _meta(answer),
        xaxis=log_axis("parameters P", low, high),
        yaxis=log_axis(f"{answer.units} to memorise or generalise", t_low, t_high),
        shapes=at_capacity if low <= answer.p_mem <= high else [],
    )
    return figure(data, frame)


def _seeds(name: str, role: str, points: Sequence[SpeedPoint], answer: SpeedsAnswer) -> list[Trace]:
    """One faint point a run; a triangle where it was watched that long in vain."""
    runs = [(p, s) for p in points for s in p.values if not s.diverged]
    if not runs:
        return []
    label = subscript(name)
    return [
        {
            "type": trace_type(len(runs)),
            "mode": "markers",
            "name": f"{label} of each seed",
            "x": [p.params for p, _ in runs],
            "y": [s.last if s.value is None else s.value for _, s in runs],
            "marker": {
                "color": COLOURS[role],
                "size": 5,
                "opacity": 0.45,
                "symbol": ["triangle-up" if s.value is None else "circle" for _, s in runs],
            },
            "customdata": [
                [s.run, p.width, s.seed, "above " if s.value is None else ""] for p, s in runs
            ],
            "hovertemplate": f"{label} %{{customdata[3]}}%{{y:,.0f}} {answer.units}<br>"
            "P %{x:,} · d %{customdata[1]} · seed %{customdata[2]}<extra></extra>",
            "legendgroup": name,
            "showlegend": False,
        }
    ]


def _reached(points: Sequence[SpeedPoint], answer: SpeedsAnswer) -> list[tuple[int, float]]:
    """(P, centre) of the widths that reached it, ascending in P."""
    found = zip(points, centres(points, answer), strict=True)
    return [(p.params, time) for p, time in found if time is not None]


def _sentence(name: str, points: Sequence[SpeedPoint], answer: SpeedsAnswer) -> str:
    reached = _reached(points, answer)
    if not reached:
        return f"{name} was not reached at any width."
    (first, slow), (last, fast) = reached[0], reached[-1]
    return (
        f"{name} goes from {human(slow)} {answer.units} at P = {human(first)} "
        f"to {human(fast)} at P = {human(last)}."
    )


def _reading(
    name: str, role: str, points: Sequence[SpeedPoint], answer: SpeedsAnswer, censored: int
) -> Reading:
    reached = _reached(points, answer)
    return {
        "term": name,
        "value": f"{len(reached)} of {len(points)} widths",
        "detail": f"reached it; {censored} runs were stopped before",
        "role": role,
    }


def _meta(answer: SpeedsAnswer) -> Meta:
    mem, gen = answer.t_mem, answer.t_gen
    meta: Meta = {
        "title": f"{cell_title(answer)}: speeds",
        "summary": f"{_sentence('T_mem', mem, answer)} {_sentence('T_gen', gen, answer)}",
        "caption": answer_caption(answer, bits_text(answer.c_model)),
        "readings": [
            _reading("T_mem", "mem", mem, answer, answer.censored.speed),
            _reading("T_gen", "gen", gen, answer, answer.censored.grok),
            {
                "term": "P_mem",
                "value": human(answer.p_mem),
                "detail": "K_mem / C_model, parameters",
                "role": "p_mem",
            },
        ],
        "notes": [],
        "sources": [{"label": "speeds", "route": "/speeds"}],
    }
    if not mem and not gen:
        meta["empty"] = "No run of this cell has finished yet."
    return meta
