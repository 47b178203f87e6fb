"""How far a suite is: its runs cell by cell, and the cells of a located one run by run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groktime.dashboard.figures.theme import (
    COLOURS,
    Figure,
    Meta,
    Note,
    Reading,
    Trace,
    figure,
    layout,
    linear_axis,
    log_axis,
    span,
)
from groktime.service.answers.suites import (
    CellCoverage,
    CoverageAnswer,
    NextRun,
    PlacedCell,
    PlacedPoint,
    PlacementAnswer,
    StateCounts,
    Step,
    shown_kinds,
)
from groktime.service.words import count, duration, human, interval, setting_text

# A cell is drawn in one of three stretches of the colour scale: at work or not, then failed.
_FAILED, _RUNNING = 3.0, 2.0


def coverage_figure(answer: CoverageAnswer, kind: str | None = None) -> Figure:
    """One square per prime and width of one kind of run, over all settings of the suite.

    Without a kind, the first that the suite trains itself.

    Waiting and done shade from pale to deep by the share of seeds done; a square with a
    running run is yellow, one with a failed run (and none running) red.
    """
    kind = kind or next(iter(shown_kinds({cell.kind for cell in answer.cells})), "grok")
    squares: dict[tuple[int, int], StateCounts] = {}
    for cell in answer.cells:
        if cell.kind == kind:
            at = cell.prime, cell.width
            squares[at] = _add(squares.get(at), cell)
    primes = sorted({prime for prime, _ in squares})
    widths = sorted({width for _, width in squares})
    z = [[_shade(squares.get((p, w))) for w in widths] for p in primes]
    words = [[_words(squares.get((p, w))) for w in widths] for p in primes]
    data: list[Trace] = [
        {
            "type": "heatmap",
            "x": [str(w) for w in widths],
            "y": [str(p) for p in primes],
            "z": z,
            "text": words,
            "zmin": 0,
            "zmax": 3,
            "colorscale": _scale(),
            "showscale": False,
            "xgap": 2 if len(widths) < 80 else 1,
            "ygap": 2,
            "hoverongaps": False,
            "hovertemplate": "p = %{y} · d = %{x}<br>%{text}<extra></extra>",
        }
    ]
    frame = layout(
        _coverage_meta(answer, kind, bool(squares)),
        xaxis=linear_axis("width d", type="category", showgrid=False, tickformat=""),
        yaxis=linear_axis(
            "prime p", type="category", showgrid=False, tickformat="", autorange="reversed"
        ),
        margin={"l": 60, "r": 16, "t": 8, "b": 52},
    )
    return figure(data, frame)


def _scale() -> list[list[object]]:
    """0–1 by share done, 2 running, 3 failed: four colours of one scale."""
    return [
        [0.0, COLOURS["pending"]],
        [1 / 3, COLOURS["done"]],
        [0.5, COLOURS["done"]],
        [0.5, COLOURS["running"]],
        [5 / 6, COLOURS["running"]],
        [5 / 6, COLOURS["failed"]],
        [1.0, COLOURS["failed"]],
    ]


def _add(sum_: StateCounts | None, cell: CellCoverage) -> StateCounts:
    if sum_ is None:
        return cell.states
    return StateCounts(
        pending=sum_.pending + cell.states.pending,
        running=sum_.running + cell.states.running,
        stale=sum_.stale + cell.states.stale,
        done=sum_.done + cell.states.done,
        failed=sum_.failed + cell.states.failed,
        set_aside=sum_.set_aside + cell.states.set_aside,
    )


def total(states: StateCounts) -> int:
    open_ = states.pending + states.running + states.stale
    return open_ + states.done + states.failed + states.set_aside


def _shade(states: StateCounts | None) -> float | None:
    if states is None or not total(states):
        return None
    if states.running:
        return _RUNNING
    if states.failed:
        return _FAILED
    return states.done / total(states)


def _words(states: StateCounts | None) -> str:
    if states is None:
        return ""
    parts = [f"{states.done} of {total(states)} done"]
    parts += [
        f"{number} {name}"
        for name, number in (
            ("running", states.running),
            ("stale", states.stale),
            ("failed", states.failed),
            ("set aside", states.set_aside),
        )
        if number
    ]
    return ", ".join(parts)


def _coverage_meta(answer: CoverageAnswer, kind: str, any_: bool) -> Meta:
    states = answer.kinds.get(kind)
    notes: list[Note] = []
    if answer.states.stale:
        notes.append(
            {
                "tone": "warn",
                "text": f"{count(answer.states.stale, 'run')} lost the worker; the next sweep "
                "goes on with it.",
            }
        )
    done = 0 if states is None else states.done
    planned = 0 if states is None else total(states)
    summary = f"{done:,} of {count(planned, f'{kind} run')} done in suite {answer.suite}."
    meta: Meta = {
        "title": f"Coverage of {kind} runs",
        "summary": summary,
        "caption": f"suite {answer.suite} · revision {answer.revision} · {kind} runs · "
        f"n = {done:,} of {planned:,} done · {human(answer.epochs_recorded)} epochs recorded",
        "readings": [],
        "notes": notes,
        "sources": [
            {
                "label": "coverage",
                "route": f"/suites/{answer.suite}/coverage",
                "without": ["suite", "kind"],
            }
        ],
    }
    if not any_:
        meta["empty"] = f"Suite {answer.suite} has no {kind} runs of its own."
    return meta


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
        _placement_meta(answer, cell),
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


def _placement_meta(answer: PlacementAnswer, cell: PlacedCell | None) -> Meta:
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
