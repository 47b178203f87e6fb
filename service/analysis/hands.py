"""A cell's seeds dealt into two hands, each with a crossing and an onset of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from service.analysis.crossing import crossing
from service.analysis.inputs import FirstPassages, GrokRuns, Units
from service.analysis.onset import onset

FEWEST = 4  # seeds of a cell: two in each hand


@dataclass(frozen=True)
class Hand:
    """Robust crossing and onset of every second seed of a cell; None where there is none."""

    p_cross: float | None
    p_onset: float | None


def deal(mem: FirstPassages, grok: GrokRuns, units: Units = "epochs") -> tuple[Hand, Hand] | None:
    """Seeds that both kinds have, by turns in two hands; None when one would hold fewer than two.

    A width has those seeds of a hand that were trained there.
    """
    seeds = sorted({*mem.seeds} & {*grok.seeds})
    if len(seeds) < FEWEST:
        return None
    return _hand(mem, grok, seeds[::2], units), _hand(mem, grok, seeds[1::2], units)


def _hand(mem: FirstPassages, grok: GrokRuns, seeds: list[int], units: Units) -> Hand:
    runs = grok.where(np.isin(grok.seed, seeds))
    speeds = mem.where(np.isin(mem.seed, seeds))
    found = crossing(speeds, runs.generalisation(), units=units, n_resamples=0)
    return Hand(found.params, onset(runs).params)
