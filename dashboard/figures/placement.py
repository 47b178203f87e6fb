"""How a located cell closes in on its points: estimate, interval and bracket after every run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groktime.dashboard.figures.caption import Meta, Note, Reading
from groktime.dashboard.figures.theme import (
    COLOURS,
    Figure,
    Trace,
    figure,
    layout,
    linear_axis,
    log_axis,
    span,
)
from groktime.service.answers.suites import (
    NextRun,
    PlacedCell,
    PlacedPoint,
    PlacementAnswer,
    Step,
)
from groktime.service.words import count, duration, human, interval, setting_text

# What is placed, how it is called, and its colour.
POINTS = (("crossing", "P_cross", "cross"), ("onset", "P_onset", "onset"))


def placement_figure(answer: PlacementAnswer, cell: PlacedCell | None) -> Figure:
    """Both points of one cell against the runs trained; `cell` None: the suite has none."""
    steps = () if cell is None else cell.steps
    data = [
        trace
        for field, name, role in POINTS
        for trace in _traces(name, role, [(s, getattr(s, field)) for s in steps])
    ]
    low, high = span([y for trace in data for y in trace["y"] if y is not None])
    most = max([4, *(step.runs for step in steps)])
    frame = layout(
        _meta(answer, cell),
        xaxis=linear_axis("runs trained", range=[0.5, most + 0.5], tickformat=",d"),
        yaxis=log_axis("parameters P", low, high),
        margin={"l": 64, "r": 24, "t": 12, "b": 84},
    )
    return figure(data, frame)


def no_placement_figure(suite: str, revision: int) -> Figure:
    """What is shown of a suite that lists its widths."""
    said = f"Suite {suite} lists its widths: nothing is located in it."
    meta: Meta = {
        "title": "Where both points are, run by run",
        "summary": said,
        "caption": f"suite {suite} · revision {revision} · design grid",
        "readings": [],
        "notes": [],
        "sources": [],
        "empty": said,
    }
    return figure([], layout(meta))


def _traces(name: str, role: str, points: Sequence[tuple[Step, PlacedPoint | None]]) -> list[Trace]:
    """The bracket as two thin steps, the interval as a band, the estimate as a line."""
    known = [(step, point) for step, point in points if point is not None and point.estimate]
    if not known:
        return []
    label = name.replace("P_", "P<sub>") + "</sub>"
    runs = [step.runs for step, _ in known]
    sides = [point.bracket or (None, None) for _, point in known]
    common: dict[str, Any] = {"type": "scatter", "x": runs, "legendgroup": name}
    quiet: dict[str, Any] = {"hoverinfo": "skip", "showlegend": False, "mode": "lines"}
    thin = {"color": COLOURS[role], "width": 1, "dash": "dot", "shape": "hv"}
    return [
        {**common, **quiet, "y": [side[0] for side in sides], "line": thin},
        {
            **common,
            **quiet,
            "y": [side[1] for side in sides],
            "line": thin,
            "name": f"widths around {label}",
            "showlegend": True,
        },
        {**common, **quiet, "y": [point.low for _, point in known], "line": {"width": 0}},
        {
            **common,
            **quiet,
            "y": [point.high for _, point in known],
            "line": {"width": 0},
            "fill": "tonexty",
            "fillcolor": COLOURS[f"{role}_band"],
            "name": f"95 % interval of {label}",
            "showlegend": True,
        },
        {
            **common,
            "y": [point.estimate for _, point in known],
            "mode": "lines+markers",
            "name": label,
            "line": {"color": COLOURS[role], "width": 2},
            "marker": {"color": COLOURS[role], "size": 5},
            "customdata": [
                [_half(point), interval(*sides[i]), duration(step.core_seconds)]
                for i, (step, point) in enumerate(known)
            ],
            "hovertemplate": f"{label} %{{y:,.0f}} %{{customdata[0]}}<br>between widths at "
            "%{customdata[1]}<br>%{x} runs, %{customdata[2]} of one core<extra></extra>",
        },
    ]


def _half(point: PlacedPoint) -> str:
    return "" if point.half_width is None else f"± {point.half_width:.3f} dex"


def next_text(cell: PlacedCell) -> str:
    """What is trained next and why, or why nothing is."""
    if cell.next:
        return run_text(cell.next[0])
    return cell.ended or f"waits for {count(cell.open, 'open run')}"


def run_text(run: NextRun) -> str:
    """`speed d = 40, seed 42: halves the bracket`."""
    return f"{run.kind} d = {run.width}, seed {run.seed}: {run.why}"


def point_note(cell: PlacedCell) -> Note | None:
    """For other charts of a cell that is still being located."""
    if cell.ended is not None:
        return None
    return {
        "tone": "plain",
        "text": f"Being located: {count(cell.runs, 'run')} so far, next {next_text(cell)}. Shaded "
        "with dotted edges is where the search expects both points, from these runs.",
    }


def _meta(answer: PlacementAnswer, cell: PlacedCell | None) -> Meta:
    meta: Meta = {
        "title": "Where both points are, run by run",
        "summary": f"Suite {answer.suite} has no cell.",
        "caption": f"suite {answer.suite} · revision {answer.revision} · design locate · "
        f"precision {answer.precision:g} dex (standard deviation) · at most "
        f"{count(answer.max_runs, 'run')} a cell · as the model that chooses runs sees it; "
        "answers are computed from the runs without it",
        "readings": [],
        "notes": [],
        "sources": [
            {
                "label": "placement",
                "route": f"/suites/{answer.suite}/placement",
                "without": ["suite", "prime"],
            }
        ],
    }
    if cell is None:
        meta["empty"] = "This suite has no cell to locate."
        return meta
    setting = setting_text(cell.setting)
    meta["title"] = f"p = {cell.prime}" + (f" · {setting}" if setting else "") + ", run by run"
    meta["readings"] = [_reading(n, r, getattr(cell, f)) for f, n, r in POINTS if getattr(cell, f)]
    points = ", ".join(f"{r['term']} {r['value']} ({r['detail']})" for r in meta["readings"])
    spent = f"{count(cell.runs, 'run')}, {duration(cell.core_seconds)} of one core"
    meta["summary"] = f"{points}. {spent}. Next: {next_text(cell)}."
    if not cell.steps:
        meta["empty"] = f"No run of this cell has finished yet. Next: {next_text(cell)}."
    return meta


def _reading(name: str, role: str, point: PlacedPoint) -> Reading:
    detail = point.status
    if point.low is not None:
        detail = f"95 % {interval(point.low, point.high)} · {detail}"
    return {"term": name, "value": human(point.estimate), "detail": detail, "role": role}
