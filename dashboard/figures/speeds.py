"""How fast models of every size memorise and generalise: both speeds of one cell over P."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.figures.caption import Meta, Reading, answer_caption, bits_text
from dashboard.figures.crossing_words import title
from dashboard.figures.speed_traces import centres, speed_traces, subscript, watched
from dashboard.figures.theme import (
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
from dashboard.numbers import people
from service.answers.speeds import SpeedPoint, SpeedsAnswer


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
        f"{name} goes from {people(slow)} {answer.units} at P = {people(first)} "
        f"to {people(fast)} at P = {people(last)}."
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
        "title": f"{title(answer)}: speeds",
        "summary": f"{_sentence('T_mem', mem, answer)} {_sentence('T_gen', gen, answer)}",
        "caption": answer_caption(answer, bits_text(answer.c_model)),
        "readings": [
            _reading("T_mem", "mem", mem, answer, answer.censored.speed),
            _reading("T_gen", "gen", gen, answer, answer.censored.grok),
            {
                "term": "P_mem",
                "value": people(answer.p_mem),
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
