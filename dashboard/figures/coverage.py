"""How far a sweep is: prime × width, coloured by the share of seeds done."""

from __future__ import annotations

from groktime.dashboard.figures.caption import Meta, Note
from groktime.dashboard.figures.theme import COLOURS, Figure, Trace, figure, layout, linear_axis
from groktime.service.answers.suites import CellCoverage, CoverageAnswer, StateCounts
from groktime.service.words import count, human

# A cell is drawn in one of three stretches of the colour scale: at work or not, then failed.
_FAILED, _RUNNING = 3.0, 2.0


def coverage_figure(answer: CoverageAnswer, kind: str = "grok") -> Figure:
    """One square per prime and width of one kind of run, over all settings of the suite.

    Waiting and done shade from pale to deep by the share of seeds done; a square with a
    running run is yellow, one with a failed run (and none running) red.
    """
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
        _meta(answer, kind, bool(squares)),
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


def _meta(answer: CoverageAnswer, kind: str, any_: bool) -> Meta:
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
