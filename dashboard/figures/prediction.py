"""Predicted against empirical onset over all cells of a suite, and the residual by axis."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TypedDict

from groktime.dashboard.figures.crossing import residual_ends
from groktime.dashboard.figures.theme import (
    COLOURS,
    LOW_LEGEND,
    Figure,
    Meta,
    Note,
    Reading,
    Trace,
    figure,
    layout,
    linear_axis,
    log_axis,
    prime_look,
    series_look,
    span,
)
from groktime.service.analysis.robustness import WithinSetting
from groktime.service.answers.cell_tests import CellRow, CellTests, ThresholdResidual
from groktime.service.answers.question import SettingValue
from groktime.service.answers.verdicts import Claim, Reference, Row, claims, table
from groktime.service.words import axis_name, count, dex, percent, sentence, setting_text


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

    claims: Sequence[Claim]
    tests: Sequence[Row]
    test_notes: Sequence[str]
    settings: Sequence[SettingWords]
    axes: Sequence[str]
    paper: Printed | None


def prediction_figure(answer: CellTests, reference: Reference | None = None) -> Figure:
    """P_onset against P_cross with both intervals and the line y = x, coloured by setting."""
    cells = [c for c in answer.cells if c.p_cross and c.p_onset]
    low, high = span([end for c in cells for end in _ends(c)], margin=0.05)
    groups = _by_setting(cells)
    data: list[Trace] = [_diagonal(low, high)]
    primes = sorted({c.prime for c in cells})
    data += [
        _cells_trace(name, i, group, primes if len(groups) == 1 else ())
        for i, (name, group) in enumerate(groups.items())
    ]
    frame = layout(
        _meta(answer, reference, "Predicted and empirical onset of grokking", _summary(answer)),
        xaxis=log_axis("predicted: P<sub>cross</sub>", low, high),
        yaxis=log_axis("empirical: P<sub>onset</sub>", low, high),
        margin={"l": 70, "r": 20, "t": 12, "b": 56 + 20 * _rows(data)},
    )
    frame["legend"] = frame["legend"] | LOW_LEGEND
    return figure(data, frame)


def residual_figure(
    answer: CellTests, axis: str = "prime", reference: Reference | None = None
) -> Figure:
    """log10(P_onset / P_cross) of every cell against the prime or any swept axis.

    Against the prime the residuals that the paper printed stand beside ours.
    """
    cells = [c for c in answer.cells if c.residual is not None]
    values = [axis_value(c, axis) for c in cells]
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    positive = numeric and all(float(v) > 0 for v in values if isinstance(v, int | float))
    wide = positive and values and _ratio(values) > 20
    name = "prime p" if axis == "prime" else axis_name(axis).replace("K_mem", "K<sub>mem</sub>")
    primes = sorted({c.prime for c in cells})
    data: list[Trace] = [
        _residual_trace(prime, primes, axis, numeric, [c for c in cells if c.prime == prime])
        for prime in primes
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
        margin={"l": 70, "r": 20, "t": 12, "b": 56 + 20 * _rows(data)},
    )
    frame["legend"] = frame["legend"] | LOW_LEGEND
    return figure(data, frame)


def threshold_figure(answer: CellTests, residuals: Sequence[ThresholdResidual]) -> Figure:
    """The residual of every cell against the accuracy that counts as memorised, T_mem's."""
    primes = sorted({r.prime for r in residuals})
    lines: dict[tuple[int, str], list[ThresholdResidual]] = {}
    for row in residuals:
        lines.setdefault((row.prime, setting_text(row.setting)), []).append(row)
    data: list[Trace] = []
    for (prime, setting), rows in lines.items():
        colour, symbol = prime_look(prime, primes)
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": " · ".join(filter(None, (f"p = {prime}", setting))),
                "x": [100 * row.t_mem for row in rows],
                "y": [row.residual for row in rows],
                "line": {"color": colour, "width": 1.2},
                "marker": {"size": 7, "color": colour, "symbol": symbol},
                "customdata": [[prime, setting, dict(row.setting)] for row in rows],
                "hovertemplate": "%{y:+.3f} dex at %{x:g} %<br>p = %{customdata[0]}<extra></extra>",
            }
        )
    words = "The offset moves with the accuracy that counts as memorised; the order need not."
    frame = layout(
        _meta(answer, None, "Residual against the threshold of T_mem", words) | {"notes": []},
        xaxis=linear_axis("random labels memorised, %", tickformat="g"),
        yaxis=linear_axis("log₁₀(P<sub>onset</sub> / P<sub>cross</sub>)", tickformat="+.2f"),
        margin={"l": 70, "r": 20, "t": 12, "b": 60},
    )
    return figure(data, frame)


def _residual_trace(
    prime: int, primes: Sequence[int], axis: str, numeric: bool, cells: Sequence[CellRow]
) -> Trace:
    """Residuals of one prime with bars from both intervals."""
    colour, symbol = prime_look(prime, primes)
    ends = [residual_interval(c) for c in cells]
    known = [(c.residual or 0.0, end) for c, end in zip(cells, ends, strict=True)]
    values = [axis_value(c, axis) for c in cells]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"p = {prime}",
        "showlegend": axis != "prime" and len(primes) > 1,
        "x": values if numeric else [str(v) for v in values],
        "y": [c.residual for c in cells],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "thickness": 1,
            "width": 3,
            "color": COLOURS["faint"],
            "array": [0.0 if end is None else end[1] - value for value, end in known],
            "arrayminus": [0.0 if end is None else value - end[0] for value, end in known],
        },
        "marker": {
            "size": 9,
            "color": colour,
            "symbol": "circle" if axis == "prime" else symbol,
            "line": {"width": 1, "color": COLOURS["outline"]},
        },
        "customdata": [[c.prime, setting_text(c.setting), dict(c.setting)] for c in cells],
        "hovertemplate": "%{y:+.3f} dex<br>p = %{customdata[0]}<br>%{customdata[1]}<extra></extra>",
    }


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
            "marker": {"symbol": "diamond-open", "size": 10, "color": COLOURS["ink"]},
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


def _rows(data: Sequence[Trace]) -> int:
    """Lines of the legend in a chart of half the page's width."""
    shown = [trace for trace in data if trace.get("showlegend", True)]
    return max(1, math.ceil(len(shown) / 2))


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


def _ends(cell: CellRow) -> list[float]:
    """Both points with the ends of their intervals that there are."""
    cross = (cell.p_cross, cell.p_cross_low, cell.p_cross_high)
    onset = (cell.p_onset, cell.p_onset_low, cell.p_onset_high)
    return [value for value in (*cross, *onset) if value]


def _cells_trace(name: str, index: int, cells: Sequence[CellRow], primes: Sequence[int]) -> Trace:
    """Cells of one setting; with `primes` each has the colour of its prime."""
    colour, symbol = series_look(index)
    looks = [prime_look(c.prime, primes)[0] if primes else colour for c in cells]
    bar = {"type": "data", "symmetric": False, "thickness": 1, "width": 3}
    bar["color"] = COLOURS["faint"] if primes else colour
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": name,
        "x": [c.p_cross for c in cells],
        "y": [c.p_onset for c in cells],
        "text": [str(c.prime) for c in cells] if len(cells) <= 12 and index == 0 else None,
        "textposition": _label_places(cells),
        "cliponaxis": False,
        "textfont": {"size": 11, "color": COLOURS["muted"]},
        "error_x": bar | _arms([(c.p_cross, c.p_cross_low, c.p_cross_high) for c in cells]),
        "error_y": bar | _arms([(c.p_onset, c.p_onset_low, c.p_onset_high) for c in cells]),
        "marker": {
            "color": looks,
            "symbol": [symbol + ("-open" if c.at_floor or c.at_cap else "") for c in cells],
            "size": 10,
        },
        "customdata": [
            [c.prime, dex(c.residual), setting_text(c.setting), dict(c.setting)] for c in cells
        ],
        "hovertemplate": "p = %{customdata[0]} %{customdata[2]}<br>P<sub>cross</sub> %{x:,.0f}"
        "<br>P<sub>onset</sub> %{y:,.0f}<br>%{customdata[1]}<extra></extra>",
    }


# Where a label may stand beside its point, in decades of both axes; the first corner is preferred.
LABEL = (0.055, 0.035)
CORNERS = {
    "top left": (-1, 1),
    "bottom right": (1, -1),
    "top right": (1, 1),
    "bottom left": (-1, -1),
}
CLEAR = 1.6  # lengths of a label from its middle to the next thing drawn: enough room


def _label_places(cells: Sequence[CellRow]) -> list[str]:
    """For each cell the first corner with enough room, else the one with most."""
    drawn = [_drawn(cell) for cell in cells]
    places: list[str] = []
    labels: list[tuple[float, float]] = []
    for i, cell in enumerate(cells):
        others = [at for j, parts in enumerate(drawn) if j != i for at in parts] + labels
        x, y = _logs(cell)
        rooms = {
            corner: min(
                (_apart((x + dx * LABEL[0], y + dy * LABEL[1]), at) for at in others), default=CLEAR
            )
            for corner, (dx, dy) in CORNERS.items()
        }
        most = max(rooms.values())
        place = next(corner for corner, room in rooms.items() if room >= min(CLEAR, most))
        places.append(place)
        dx, dy = CORNERS[place]
        labels.append((x + dx * LABEL[0], y + dy * LABEL[1]))
    return places


def _logs(cell: CellRow) -> tuple[float, float]:
    return math.log10(cell.p_cross or 1), math.log10(cell.p_onset or 1)


def _drawn(cell: CellRow) -> list[tuple[float, float]]:
    """The cell's point and places along its error bars."""
    x, y = _logs(cell)
    found = [(x, y)]
    for end in (cell.p_cross_low, cell.p_cross_high):
        if end:
            found += [(x + (math.log10(end) - x) * share, y) for share in (0.25, 0.5, 0.75, 1)]
    for end in (cell.p_onset_low, cell.p_onset_high):
        if end:
            found += [(x, y + (math.log10(end) - y) * share) for share in (0.25, 0.5, 0.75, 1)]
    return found


def _apart(one: tuple[float, float], other: tuple[float, float]) -> float:
    """Distance in lengths of a label, whichever direction is further."""
    return max(abs(a - b) / length for a, b, length in zip(one, other, LABEL, strict=True))


def residual_interval(cell: CellRow) -> tuple[float, float] | None:
    """Ends of a cell's residual from both its intervals."""
    return residual_ends(
        (cell.p_cross, cell.p_cross_low, cell.p_cross_high),
        (cell.p_onset, cell.p_onset_low, cell.p_onset_high),
    )


def _arms(
    values: Sequence[tuple[float | None, float | None, float | None]],
) -> dict[str, list[float]]:
    """Lengths of the error bars above and below; an open end has no bar."""
    return {
        "array": [max(0.0, high - v) if high and v else 0.0 for v, _, high in values],
        "arrayminus": [max(0.0, v - low) if low and v else 0.0 for v, low, _ in values],
    }


def _residuals(answer: CellTests) -> list[float]:
    return [c.residual for c in answer.cells if c.residual is not None]


def _summary(answer: CellTests) -> str:
    residuals = _residuals(answer)
    if not residuals:
        return "No cell has both a crossing and an onset yet."
    median = statistics.median(residuals)
    return (
        f"{count(answer.n, 'cell')} of {answer.n_total} have both a crossing and an onset; "
        f"the median residual is {dex(median)}, a factor of {10**median:.2f}."
    )


def _readings(answer: CellTests) -> list[Reading]:
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


def _setting_words(row: WithinSetting, reference: Reference | None) -> SettingWords:
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
    answer: CellTests, reference: Reference | None, title: str, summary: str
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
        "claims": claims(answer),
        "tests": table(answer, reference),
        "test_notes": [sentence(text) for text in answer.notes],
        "settings": [_setting_words(row, reference) for row in answer.tests.within],
        "axes": ["prime", "k_mem", "last_batch", *answer.axes],
        "paper": None
        if reference is None
        else {"column": reference.column.capitalize(), "note": reference.note},
    }
    if not answer.n:
        meta["empty"] = "No cell has both a crossing and an onset in range yet."
    return meta
