"""The page of all suites: beside which onsets a printed offset may stand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from groktime.service.report.paper import seeds_beside_onset


def panel(onset: float | None, runs: dict[int, int]) -> Any:
    points = [SimpleNamespace(params=p) for p, seeds in runs.items() for _ in range(seeds)]
    return SimpleNamespace(
        crossing=SimpleNamespace(p_onset=SimpleNamespace(estimate=onset)),
        delay=SimpleNamespace(points=points),
    )


@pytest.mark.parametrize(
    ("onset", "seeds"),
    [
        (150.0, 3),  # between 100 and 200
        (250.0, 1),
        (200.0, 3),  # a width itself
        (50.0, 5),  # below all widths: the narrowest alone
        (None, 0),
    ],
)
def test_the_width_beside_the_onset_with_fewer_seeds_counts(
    onset: float | None, seeds: int
) -> None:
    assert seeds_beside_onset(panel(onset, {100: 5, 200: 3, 300: 1})) == seeds


def test_a_cell_without_delays_has_none() -> None:
    assert seeds_beside_onset(panel(100.0, {})) == 0
