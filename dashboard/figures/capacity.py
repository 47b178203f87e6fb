"""How much models memorise: M_T against dataset complexity, and capacity against P."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from groktime.dashboard.figures.theme import (
    COLOURS,
    ROOM_BELOW,
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
    width_colour,
)
from groktime.service.analysis.capacity import SAG, CapacityFit
from groktime.service.answers.capacity import (
    SMALL_LAST_BATCH,
    CapacityAnswer,
    CapacityPoint,
    WidthCapacity,
)
from groktime.service.answers.verdicts import bits_source, bits_text
from groktime.service.words import count, human, percent, setting_text


class Threshold(TypedDict):
    """P_mem at one prime, and what it is computed from."""

    prime: int
    n: str
    k_mem: str
    p_mem: str


class CapacityMeta(Meta):
    """Also carries the table of P_mem."""

    thresholds: Sequence[Threshold]


FLAGS = {
    "not_saturated": "never full: the largest dataset still fits, so the capacity is a lower bound",
    "last_batch_dip": "dips where the last batch is small: a full step on few examples",
    "sagging": "falls past its maximum: larger datasets made training harder",
}


def capacity_curves_figure(answer: CapacityAnswer) -> Figure:
    """M_T(n) of every width with its plateau, under the line M_T = complexity of the dataset."""
    widths = [w.width for w in answer.widths]
    complexities = [p.complexity for w in answer.widths for p in w.points]
    bits = [p.bits for w in answer.widths for p in w.points]
    low, high = span(complexities)
    b_low, b_high = span([b for b in bits if b > 0] + complexities[:1])
    data = [_complexity_line(low, high)]
    for width in answer.widths:
        data += _curve(width, widths, bar=width is answer.widths[0])
    frame = layout(
        _meta(answer, "Memorised bits against dataset complexity", curves_summary(answer)),
        xaxis=log_axis("dataset complexity n · log₂V (bits)", low, high),
        yaxis=log_axis("total memorisation M<sub>T</sub> (bits)", b_low, min(b_high, high)),
        margin=ROOM_BELOW,
    )
    return figure(data, frame)


def _complexity_line(low: float, high: float) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "all of the dataset",
        "x": [low, high],
        "y": [low, high],
        "line": {"color": COLOURS["faint"], "width": 1.5, "dash": "dash"},
        "hoverinfo": "skip",
    }


def _curve(width: WidthCapacity, widths: list[int], *, bar: bool) -> list[Trace]:
    """Measured points of one width joined by a line, and its plateau as a thin level."""
    points = width.points
    colour = width_colour([width.width] * len(points), bar=bar, all_widths=widths)
    traces: list[Trace] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": f"d = {width.width}",
            "showlegend": False,
            "x": [p.complexity for p in points],
            "y": [p.bits for p in points],
            "line": {"color": COLOURS["axis"], "width": 1.2},
            "marker": {**colour, "size": 8, "line": {"width": 1, "color": COLOURS["outline"]}},
            "customdata": [[width.width, width.params, p.n, p.run, _last_batch(p)] for p in points],
            "hovertemplate": "%{y:,.0f} of %{x:,.0f} bits<br>d %{customdata[0]} · "
            "P %{customdata[1]:,} · n %{customdata[2]:,}%{customdata[4]}<extra></extra>",
        }
    ]
    if width.capacity is not None and points:
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"plateau of d = {width.width}",
                "showlegend": False,
                "x": [width.capacity, points[-1].complexity],
                "y": [width.capacity] * 2,
                "line": {"color": COLOURS["muted"], "width": 1, "dash": "dot"},
                "hovertemplate": f"capacity of d = {width.width}: {human(width.capacity)} bits"
                "<extra></extra>",
            }
        )
    return traces


def _last_batch(point: CapacityPoint) -> str:
    if point.last_batch is None or point.batch_size is None:
        return ""
    return f"<br>last batch {point.last_batch:,} of {point.batch_size:,}"


def dips(answer: CapacityAnswer) -> dict[int, CapacityPoint]:
    """Dataset sizes at which a width memorises clearly less than at a smaller one, though their
    last batch is small: a step of full length on a few examples undoes what was stored."""
    found: dict[int, CapacityPoint] = {}
    for width in answer.widths:
        highest = 0.0
        for point in width.points:
            if point.bits < (1 - SAG) * highest and _small(point):
                found[point.n] = point
            highest = max(highest, point.bits)
    return dict(sorted(found.items()))


def _small(point: CapacityPoint) -> bool:
    if point.last_batch is None or point.batch_size is None:
        return False
    return point.last_batch < SMALL_LAST_BATCH * point.batch_size


def capacity_fit_figure(answer: CapacityAnswer) -> Figure:
    """Capacity of every width against P, with the line whose slope is C_model."""
    known = [w for w in answer.widths if w.capacity is not None]
    widths = [w.width for w in answer.widths]
    largest = max((w.params for w in known), default=1) * 1.08
    data: list[Trace] = []
    if answer.fit is not None:
        data.append(_fit_line(answer.fit, largest))
    data.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "capacity of a width",
            "x": [w.params for w in known],
            "y": [w.capacity for w in known],
            "error_y": {
                "type": "data",
                "symmetric": False,
                "array": [max(0.0, (w.high or w.capacity or 0) - (w.capacity or 0)) for w in known],
                "arrayminus": [
                    max(0.0, (w.capacity or 0) - (w.low or w.capacity or 0)) for w in known
                ],
                "color": COLOURS["faint"],
                "thickness": 1,
                "width": 3,
            },
            "marker": {
                **width_colour([w.width for w in known], bar=True, all_widths=widths),
                "size": 10,
                "symbol": ["circle-open" if w.flags else "circle" for w in known],
                "line": {
                    "width": [2 if w.flags else 1 for w in known],
                    "color": [COLOURS["warn"] if w.flags else COLOURS["outline"] for w in known],
                },
            },
            "customdata": [
                [w.width, " · ".join(name.replace("_", " ") for name in w.flags)] for w in known
            ],
            "hovertemplate": "%{y:,.0f} bits<br>P %{x:,} · d %{customdata[0]}<br>"
            "%{customdata[1]}<extra></extra>",
        }
    )
    frame = layout(
        _meta(answer, "Capacity against parameter count", fit_summary(answer)),
        xaxis=linear_axis("parameters P", rangemode="tozero", tickformat="~s"),
        yaxis=linear_axis("capacity (bits)", rangemode="tozero", tickformat="~s"),
        margin=ROOM_BELOW,
    )
    return figure(data, frame)


def _fit_line(fit: CapacityFit, largest: float) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{fit.slope:.3g} bits per parameter",
        "x": [0, largest],
        "y": [fit.intercept, fit.intercept + fit.slope * largest],
        "line": {"color": COLOURS["mem"], "width": 2},
        "hoverinfo": "skip",
    }


def curves_summary(answer: CapacityAnswer) -> str:
    return (
        f"Total memorisation of {count(len(answer.widths), 'width')} against the dataset's "
        "complexity: each curve follows the dashed line until the model is full."
    )


def fit_summary(answer: CapacityAnswer) -> str:
    if answer.fit is None:
        return f"Too few widths for a line; {bits_text(answer.c_model)} is used instead."
    return (
        f"Capacity grows by {answer.fit.slope:.3g} bits per parameter over "
        f"{count(answer.fit.widths, 'width')}."
    )


def _readings(answer: CapacityAnswer) -> list[Reading]:
    c = answer.c_model
    bounds = ""
    if c.level is not None and c.low is not None and c.high is not None:
        how = " (t, three widths)" if c.interval == "t" else ""
        bounds = f"{percent(c.level)} CI {_ends(f'{c.low:.3g}', f'{c.high:.3g}')}{how} · "
    note = f", {c.note}" if c.source == "fitted" and c.note else ""
    found: list[Reading] = [
        {
            "term": "C_model",
            "value": f"{c.value:.3g}",
            "detail": f"bits per parameter · {bounds}{bits_source(c)}{note}",
            "role": "mem",
        }
    ]
    if answer.fit is not None:
        r2 = "–" if answer.fit.r_squared is None else f"{answer.fit.r_squared:.4f}"
        found.append(
            {
                "term": "fit",
                "value": f"R² {r2}",
                "detail": f"intercept {_intercept(answer.fit)} bits over "
                f"{count(answer.fit.widths, 'width')}",
                "role": "ink",
            }
        )
    return found


def _thresholds(answer: CapacityAnswer) -> list[Threshold]:
    """P_mem of every prime: from which size its data fit into the weights at all."""
    return [
        {
            "prime": threshold.prime,
            "n": f"{threshold.n_train:,}",
            "k_mem": human(threshold.k_mem),
            "p_mem": human(threshold.p_mem),
        }
        for threshold in answer.p_mem
    ]


def _intercept(fit: CapacityFit) -> str:
    text = human(fit.intercept)
    if fit.intercept_low is None or fit.intercept_high is None:
        return text
    return f"{text} ({_ends(human(fit.intercept_low), human(fit.intercept_high))})"


def _ends(low: str, high: str) -> str:
    """A slope or an intercept may be negative, so its interval is no dash between two sizes."""
    return f"{low} to {high}".replace("-", "−")


def _meta(answer: CapacityAnswer, title: str, summary: str) -> CapacityMeta:
    notes: list[Note] = []
    found = dips(answer)
    for flag, text in FLAGS.items():
        flagged = [str(w.width) for w in answer.widths if flag in w.flags]
        if flagged and not (found and flag == "last_batch_dip"):
            notes.append({"tone": "warn", "text": f"d = {', '.join(flagged)}: {text}."})
    if found:
        said = "; ".join(
            f"n = {n:,}: {p.last_batch:,} of {p.batch_size:,}" for n, p in found.items()
        )
        text = f"Dips where the last batch is small ({said} examples): a full step on few examples."
        notes.append({"tone": "warn", "text": text})
    if answer.missing:
        notes.append(
            {"tone": "warn", "text": f"Partial: {count(answer.missing, 'run')} not finished."}
        )
    if answer.fit is None and answer.widths:
        notes.append({"tone": "warn", "text": "Too few saturated widths to fit a line."})
    runs = sum(len(w.points) for w in answer.widths)
    parts = [
        f"suite {answer.suite}",
        f"revision {answer.revision}",
        f"random labels at p = {answer.prime}" if answer.prime else "",
        setting_text(answer.setting),
        f"method {answer.method}",
        f"n = {count(runs, 'run')}",
        bits_text(answer.c_model),
    ]
    meta: CapacityMeta = {
        "title": title,
        "summary": summary,
        "caption": " · ".join(part for part in parts if part),
        "readings": _readings(answer),
        "notes": notes,
        "sources": [{"label": "capacity", "route": "/capacity"}],
        "thresholds": _thresholds(answer),
    }
    if not runs:
        meta["empty"] = (
            f"Suite {answer.suite} has no finished capacity run; {bits_text(answer.c_model)} "
            "stands in."
        )
    return meta
