"""The regimes along P as pale bands, with a strip on top that names them by colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any

from dashboard.figures.theme import COLOURS, band
from service.answers.regimes import RegimePoint, RegimesAnswer

STRIP = 0.052  # share of the plot's height
NAMES = {
    "under_capacity": "under capacity",
    "memorised_only": "memorised only",
    "immediate": "generalises at once",
    "grokking": "grokking",
    "mixed": "mixed",
}


def regime_shapes(answer: RegimesAnswer, low: float, high: float) -> list[dict[str, Any]]:
    """A full-height tint and a strip for every stretch of widths in one regime.

    Stretches meet half-way (in log P) between the last width of one and the first of the next.
    """
    shapes = []
    for name, start, end in stretches(answer.points, low, high):
        shapes.append(band(start, end, COLOURS[name]))
        strip = band(start, end, COLOURS[f"{name}_strip"], y0=1 - STRIP) | {"layer": "above"}
        if end / start > (high / low) ** 0.14:  # room for the word
            strip["label"] = {
                "text": NAMES[name],
                "textposition": "middle center",
                "font": {"size": 11, "color": COLOURS["ink"]},
            }
        shapes.append(strip)
    return shapes


def stretches(
    points: Sequence[RegimePoint], low: float, high: float
) -> list[tuple[str, float, float]]:
    """(regime, from P, to P) of neighbouring widths in the same regime, covering [low, high]."""
    groups = [(name, list(group)) for name, group in groupby(points, key=lambda p: p.regime)]
    ends = [
        math.sqrt(before[-1].params * after[0].params)
        for (_, before), (_, after) in pairwise(groups)
    ]
    edges = [low, *ends, high]
    return [(name, edges[i], edges[i + 1]) for i, (name, _) in enumerate(groups)]
