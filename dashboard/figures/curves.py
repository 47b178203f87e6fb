"""Training and validation curves of one run or of many overlaid, by width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from groktime.dashboard.figures.theme import (
    COLOURS,
    CREST,
    ROOM_BELOW,
    Figure,
    Meta,
    Note,
    Trace,
    figure,
    layout,
    linear_axis,
    log_axis,
    width_colour,
)
from groktime.service.answers.runs import RunCurve
from groktime.service.words import count, human

DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
GUIDES = (0.99,)


@dataclass(frozen=True)
class Shown:
    """The suite whose runs are looked at."""

    suite: str
    revision: int


def curves_figure(curves: Sequence[RunCurve], shown: Shown | None = None) -> Figure:
    """Training accuracy (left) and validation accuracy (right) over log epochs.

    Runs are coloured by width on the crest scale; seeds of one width differ by their dash.
    Runs without a validation set (speed, capacity) appear on the left only.
    """
    widths = sorted({c.run.width for c in curves})
    seeds = sorted({c.run.seed for c in curves})
    last = max((c.recorded for c in curves), default=1)
    validated = any(c.run.n_val for c in curves)
    kinds = len({c.run.kind for c in curves}) > 1
    data: list[Trace] = []
    for curve in curves:
        dash = DASHES[seeds.index(curve.run.seed) % len(DASHES)]
        colour = crest_colour(curve.run.width, widths)
        data.append(
            _line(curve, curve.train_accuracy, colour, dash, "x", "y", legend=True, kinds=kinds)
        )
        if curve.run.n_val:
            data.append(
                _line(
                    curve,
                    curve.val_accuracy,
                    colour,
                    dash,
                    "x2",
                    "y2",
                    legend=False,
                    kinds=kinds,
                )
            )
    if len(widths) > 1:
        data.append(_colour_bar(widths))
    split = [0, 0.46] if validated else [0, 1]
    epochs = log_axis("epoch", 0.95, max(last, 10) * 1.05)
    accuracy = linear_axis("", range=[-0.02, 1.04], tickformat=".0%")
    frame = layout(
        _meta(curves, shown),
        xaxis=epochs | {"domain": split},
        yaxis=accuracy | {"title": _title("training accuracy (online)")},
        shapes=[_guide("x domain", "y"), *([_guide("x2 domain", "y2")] if validated else [])],
        margin=ROOM_BELOW,
        showlegend=len(curves) <= 12,
    )
    if validated:
        frame["xaxis2"] = epochs | {"domain": [0.55, 1], "anchor": "y2"}
        frame["yaxis2"] = accuracy | {
            "title": _title("validation accuracy"),
            "anchor": "x2",
        }
    return figure(data, frame)


def crest_colour(width: int, widths: Sequence[int]) -> str:
    """One of the crest scale's colours by the rank of the width, so that themes can swap it."""
    if len(widths) < 2:
        return str(CREST[4][1])
    place = widths.index(width) / (len(widths) - 1)
    return str(CREST[round(place * (len(CREST) - 1))][1])


def _line(
    curve: RunCurve,
    values: Sequence[float | None],
    colour: str,
    dash: str,
    xaxis: str,
    yaxis: str,
    *,
    legend: bool,
    kinds: bool,
) -> Trace:
    run = curve.run
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{run.kind} d = {run.width}, seed {run.seed}"
        if kinds
        else f"d = {run.width}, seed {run.seed}",
        "legendgroup": str(run.id),
        "showlegend": legend,
        "x": list(curve.epoch),
        "y": list(values),
        "xaxis": xaxis,
        "yaxis": yaxis,
        # Thin lines are runs on random labels, where both kinds are drawn.
        "line": {
            "color": colour,
            "width": 2 if run.kind == "grok" or not kinds else 1,
            "dash": dash,
        },
        "hovertemplate": f"epoch %{{x:,}}: %{{y:.2%}}<br>{run.kind} run {run.id} · "
        f"p = {run.prime} · d {run.width} · seed {run.seed}<extra></extra>",
    }


def _colour_bar(widths: Sequence[int]) -> Trace:
    """An invisible trace that carries the scale of widths."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [None],
        "y": [None],
        "showlegend": False,
        "hoverinfo": "skip",
        "marker": width_colour([widths[0]], bar=True, all_widths=widths),
    }


def _guide(xref: str, yref: str) -> dict[str, object]:
    return {
        "type": "line",
        "xref": xref,
        "yref": yref,
        "x0": 0,
        "x1": 1,
        "y0": GUIDES[0],
        "y1": GUIDES[0],
        "line": {"color": COLOURS["faint"], "width": 1, "dash": "dot"},
        "layer": "below",
    }


def _title(text: str) -> dict[str, object]:
    return {"text": text, "font": {"size": 13, "color": COLOURS["muted"]}, "standoff": 12}


def _meta(curves: Sequence[RunCurve], shown: Shown | None) -> Meta:
    notes: list[Note] = []
    thinned = sum(c.sampled for c in curves)
    if thinned:
        notes.append(
            {
                "tone": "plain",
                "text": f"{count(thinned, 'curve')} drawn with fewer epochs, even in log epoch; "
                "the CSV of a run has every epoch that is kept.",
            }
        )
    open_runs = [c for c in curves if c.run.state not in ("done", "failed")]
    if open_runs:
        notes.append({"tone": "warn", "text": f"{count(len(open_runs), 'run')} still in training."})
    failed = [c for c in curves if c.run.state == "failed"]
    notes += [
        {"tone": "bad", "text": f"Run {c.run.id} failed: {c.run.reason or 'unknown'}."}
        for c in failed[:5]
    ]
    widths = sorted({c.run.width for c in curves})
    primes = sorted({c.run.prime for c in curves})
    epochs = sum(c.recorded for c in curves)
    meta: Meta = {
        "title": "Training and validation accuracy",
        "summary": f"Accuracy over epochs of {count(len(curves), 'run')} with width "
        f"{', '.join(map(str, widths))}.",
        "caption": " · ".join(
            [
                *([f"suite {shown.suite}", f"revision {shown.revision}"] if shown else []),
                f"n = {count(len(curves), 'run')}",
                f"p = {', '.join(map(str, primes))}",
                f"d = {', '.join(map(str, widths))}",
                "as recorded: training on the online clock, validation after the epoch",
                f"{human(epochs)} epochs recorded",
                f"runs {', '.join(str(c.run.id) for c in curves[:12])}",
            ]
        ),
        "readings": [],
        "notes": notes,
        "sources": [
            {
                "label": f"run {c.run.id}",
                "route": f"/runs/{c.run.id}/curve",
                "without": ["run", "points", "suite"],
            }
            for c in curves
        ],
    }
    if not curves:
        meta["empty"] = "Choose runs in the table to see their curves."
    elif not any(c.epoch for c in curves):
        meta["empty"] = "No epoch of these runs has been recorded yet."
    return meta
