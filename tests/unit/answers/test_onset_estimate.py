"""The onset as an answer gives it."""

from __future__ import annotations

import numpy as np
import pytest

from groktime.service.analysis.inputs import GrokRuns
from groktime.service.analysis.onset import onset
from groktime.service.answers.delay import onset_estimate


def runs(positives: list[int], seeds: int = 4) -> GrokRuns:
    """Widths of doubling P, so many seeds of each delayed."""
    n = len(positives)
    width, seed = np.repeat(np.arange(n) + 20, seeds), np.tile(np.arange(seeds), n)
    trained = np.full(n * seeds, 100.0)
    generalised = trained + 10.0 * (seed < np.repeat(positives, seeds))
    params = 1e4 * 2.0 ** (width - 20)
    return GrokRuns(width, params, seed, trained, generalised, generalised, generalised)


def test_an_end_that_the_runs_leave_open_is_null() -> None:
    found = onset(runs([1, 2, 2, 3]))
    assert found.low == 0.0
    assert found.high == np.inf
    told = onset_estimate(found)
    assert (told.low, told.high, told.level) == (None, None, 0.95)
    assert told.estimate == pytest.approx(found.params)
