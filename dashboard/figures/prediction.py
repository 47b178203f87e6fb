"""Predicted against empirical onset over all cells of a suite, and the residual by axis."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TypedDict

from dashboard.figures.caption import Meta, Note, Reading, axis_name, setting_text
from dashboard.figures.theme import (
    COLOURS,
    CREST,
    Figure,
    Trace,
    figure,
    layout,
    linear_axis,
    log_axis,
    series_look,
    span,
)
from dashboard.figures.verdicts import Row, table
from dashboard.numbers import count, dex, percent
from service.answers.cell_tests import CellRow, SettingRow, TestsAnswer
from service.answers.making import SettingValue
from service.answers.reference import Reference


class SettingWords(TypedDict):
    """One row of the within-setting table, with the paper's row where it printed one."""

    setting: str
    n: str
    median: str
    std: str
    verdict: str
    paper: str


class Printed(TypedDict):
    """How the paper's column is headed, and whose numbers it holds."""

    column: str
    note: str


class PredictionMeta(Meta):
    """Also carries both tables and the axes that residuals can be shown against."""

    tests: Sequence[Row]
    test_notes: Sequence[str]
    settings: Sequence[SettingWords]
    axes: Sequence[str]
    paper: Printed | None


def prediction_figure(answer: TestsAnswer, reference: Reference | None = None) -> Figure:
    """P_onset against P_cross with both intervals and the line y = x, coloured by setting."""
    cells = [c for c in answer.cells if c.p_cross and c.p_onset]
    values = [v for c in cells for v in (c.p_cross, c.p_onset) if v]
    low, high = span(values, margin=0.08)
    groups = _by_setting(cells)
    data: list[Trace] = [_diagonal(low, high)]
    data += [_cells_trace(name, i, group) for i, (name, group) in enumerate(groups.items())]
    frame = layout(
        _meta(answer, reference, "Predicted and empirical onset of grokking", _summary(answer)),
        xaxis=log_axis("predicted: P<sub>cross</sub>", low, high),
        yaxis=log_axis("empirical: P<sub>onset</sub>", low, high),
        margin={"l": 70, "r": 20, "t": 12, "b": 96},
    )
    return figure(data, frame)


def residual_figure(
    answer: TestsAnswer, axis: str = "prime", reference: Reference | None = None
) -> Figure:
    """log10(P_onset / P_cross) of every cell against the prime or any swept axis.

    Against the prime the residuals that the paper printed stand beside ours.
    """
    cells = [c for c in answer.cells if c.residual is not None]
    values = [axis_value(c, axis) for c in cells]
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    positive = numeric and all(float(v) > 0 for v in values if isinstance(v, int | float))
    wide = positive and values and _ratio(values) > 20
    name = "prime p" if axis == "prime" else axis_name(axis)
    data: list[Trace] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "residual of a cell",
            "showlegend": False,
            "x": values if numeric else [str(v) for v in values],
            "y": [c.residual for c in cells],
            "marker": {
                "size": 9,
                "color": [c.prime for c in cells],
                "colorscale": CREST,
                "showscale": axis != "prime" and len({c.prime for c in cells}) > 1,
                "colorbar": {
                    "title": {"text": "p", "font": {"size": 11, "color": COLOURS["muted"]}},
                    "thickness": 8,
                    "outlinewidth": 0,
                    "tickfont": {"size": 11, "color": COLOURS["muted"]},
                },
                "line": {"width": 1, "color": COLOURS["outline"]},
            },
            "customdata": [[c.prime, setting_text(c.setting), dict(c.setting)] for c in cells],
            "hovertemplate": "%{y:+.3f} dex<br>p = %{customdata[0]}<br>%{customdata[1]}"
            "<extra></extra>",
        }
    ]
    if axis == "prime" and reference is not None:
        data += _printed_residuals(reference, {c.prime for c in cells})
    x_axis = (
        log_axis(name, *span([float(v) for v in values if isinstance(v, int | float)]))
        if wide
        else linear_axis(name, type="linear" if numeric else "category", tickformat="")
    )
    frame = layout(
        _meta(
            answer, reference, f"Residual against {name}", f"Residual of each cell against {name}."
        )
        | {"notes": []},  # they stand above the chart beside it
        xaxis=x_axis,
        yaxis=linear_axis("log₁₀(P<sub>onset</sub> / P<sub>cross</sub>)", tickformat="+.2f"),
        shapes=[
            {
                "type": "line",
                "xref": "paper",
                "yref": "y",
                "x0": 0,
                "x1": 1,
                "y0": 0,
                "y1": 0,
                "line": {"color": COLOURS["faint"], "width": 1.2, "dash": "dash"},
                "layer": "below",
            }
        ],
        margin={"l": 70, "r": 20, "t": 12, "b": 60},
    )
    return figure(data, frame)


def _printed_residuals(reference: Reference, primes: set[int]) -> list[Trace]:
    """Residuals that the paper printed for primes that are here, too."""
    found = {p: value for p, value in reference.residuals.items() if p in primes}
    if not found:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": reference.column,
            "x": list(found),
            "y": list(found.values()),
            "marker": {"symbol": "diamond-open", "size": 10, "color": COLOURS["gen"]},
            "hovertemplate": f"%{{y:+.2f}} dex<br>p = %{{x}}<br>{reference.column}<extra></extra>",
        }
    ]


def axis_value(cell: CellRow, axis: str) -> SettingValue:
    """A cell's place on the axis: its prime, complexity, last batch, or a swept value."""
    if axis == "prime":
        return cell.prime
    if axis == "k_mem":
        return cell.k_mem
    if axis == "last_batch":
        return cell.last_batch / cell.batch_size
    return cell.setting.get(axis)


def _ratio(values: Sequence[SettingValue]) -> float:
    numbers = [float(v) for v in values if isinstance(v, int | float)]
    return max(numbers) / min(numbers)


def _by_setting(cells: Sequence[CellRow]) -> dict[str, list[CellRow]]:
    groups: dict[str, list[CellRow]] = {}
    for cell in cells:
        groups.setdefault(setting_text(cell.setting) or "cells (one prime each)", []).append(cell)
    return groups


def _diagonal(low: float, high: float) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "y = x",
        "x": [low, high],
        "y": [low, high],
        "line": {"color": COLOURS["faint"], "width": 1.3, "dash": "dash"},
        "hoverinfo": "skip",
    }


def _cells_trace(name: str, index: int, cells: Sequence[CellRow]) -> Trace:
    colour, symbol = series_look(index)
    bar = {"type": "data", "symmetric": False, "thickness": 1, "width": 3, "color": colour}
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": name,
        "x": [c.p_cross for c in cells],
        "y": [c.p_onset for c in cells],
        "text": [str(c.prime) for c in cells] if len(cells) <= 12 and index == 0 else None,
        "textposition": "top left",
        "textfont": {"size": 10, "color": COLOURS["muted"]},
        "error_x": bar | _arms([(c.p_cross, c.p_cross_low, c.p_cross_high) for c in cells]),
        "error_y": bar | _arms([(c.p_onset, c.p_onset_low, c.p_onset_high) for c in cells]),
        "marker": {
            "color": colour,
            "symbol": [symbol + ("-open" if c.at_floor or c.at_cap else "") for c in cells],
            "size": 9,
        },
        "customdata": [
            [c.prime, dex(c.residual), setting_text(c.setting), dict(c.setting)] for c in cells
        ],
        "hovertemplate": "p = %{customdata[0]} %{customdata[2]}<br>P<sub>cross</sub> %{x:,.0f}"
        "<br>P<sub>onset</sub> %{y:,.0f}<br>%{customdata[1]}<extra></extra>",
    }


def _arms(
    values: Sequence[tuple[float | None, float | None, float | None]],
) -> dict[str, list[float]]:
    """Lengths of the error bars above and below; an open end has no bar."""
    return {
        "array": [max(0.0, high - v) if high and v else 0.0 for v, _, high in values],
        "arrayminus": [max(0.0, v - low) if low and v else 0.0 for v, low, _ in values],
    }


def _residuals(answer: TestsAnswer) -> list[float]:
    return [c.residual for c in answer.cells if c.residual is not None]


def _summary(answer: TestsAnswer) -> str:
    residuals = _residuals(answer)
    if not residuals:
        return "No cell has both a crossing and an onset yet."
    median = statistics.median(residuals)
    return (
        f"{count(answer.n, 'cell')} of {answer.n_total} have both a crossing and an onset; "
        f"the median residual is {dex(median)}, a factor of {10**median:.2f}."
    )


def _readings(answer: TestsAnswer) -> list[Reading]:
    residuals = _residuals(answer)
    if not residuals:
        return []
    median = statistics.median(residuals)
    spread = statistics.stdev(residuals) if len(residuals) > 1 else None
    return [
        {
            "term": "median residual",
            "value": dex(median),
            "detail": f"onset at {10**median:.2f} × the crossing",
            "role": "onset",
        },
        {
            "term": "spread over cells",
            "value": "–" if spread is None else f"{spread:.3f} dex",
            "detail": "standard deviation of the residual; ≤ 0.065 strong, ≤ 0.11 moderate",
            "role": "ink",
        },
        {
            "term": "cells",
            "value": f"{answer.n} of {answer.n_total}",
            "detail": f"{answer.n_at_floor} at the floor, {answer.n_at_cap} at the cap of the "
            "measured widths",
            "role": "ink",
        },
    ]


def _setting_words(row: SettingRow, reference: Reference | None) -> SettingWords:
    printed = None
    if reference is not None and len(row.setting) == 1:
        ((axis, value),) = row.setting.items()
        printed = reference.setting(axis, value)
    return {
        "setting": setting_text(row.setting) or "all cells",
        "n": f"{row.n} of {row.n_total}",
        "median": dex(row.median_residual),
        "std": _std(row.std),
        "verdict": row.verdict.replace("_", "-"),
        "paper": ""
        if printed is None
        else f"{dex(printed.median_residual)}, {_std(printed.std)}, {printed.verdict} "
        f"({count(printed.n_primes, 'prime')})",
    }


def _std(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _meta(
    answer: TestsAnswer, reference: Reference | None, title: str, summary: str
) -> PredictionMeta:
    notes: list[Note] = []
    lost = answer.n_total - answer.n
    if lost:
        notes.append(
            {
                "tone": "warn",
                "text": f"{count(lost, 'cell')} without a crossing or an onset in range "
                f"{'is' if lost == 1 else 'are'} not drawn.",
            }
        )
    parts = [
        f"suite {answer.suite}",
        f"revision {answer.revision}",
        f"method {answer.method}",
        f"{answer.clock} clock",
        f"n = {count(answer.n, 'cell')} of {answer.n_total}",
        f"{percent(answer.level)} intervals",
        f"d ≤ {answer.max_width}" if answer.max_width else "",
    ]
    meta: PredictionMeta = {
        "title": title,
        "summary": summary,
        "caption": " · ".join(part for part in parts if part),
        "readings": _readings(answer),
        "notes": notes,
        "sources": [{"label": "cells", "route": "/tests", "without": ["axis"]}],
        "tests": table(answer, reference),
        "test_notes": [f"{text[:1].upper()}{text[1:].rstrip('.')}." for text in answer.notes],
        "settings": [_setting_words(row, reference) for row in answer.within],
        "axes": ["prime", "k_mem", "last_batch", *answer.axes],
        "paper": None
        if reference is None
        else {"column": reference.column.capitalize(), "note": reference.note},
    }
    if not answer.n:
        meta["empty"] = "No cell has both a crossing and an onset in range yet."
    return meta
