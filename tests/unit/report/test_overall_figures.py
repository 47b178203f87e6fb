"""The figures of the page of all suites: every cell with both points is in them once."""

from __future__ import annotations

import numpy as np
import pandas as pd

from groktime.service.report.drawings import Drawing, offset_drawing, order_drawing, render
from groktime.service.report.paper import short_names

CELLS = pd.DataFrame(
    {
        "p": [97, 113, 97, 113],
        "p_cross": [1e5, 2e5, 1e5, 2e5],
        "p_onset": [5e4, 1e5, 2e4, 3e4],
        "label": ["dropout 0.1", "dropout 0.1", "central", "central"],
    }
)


def test_names_of_settings_are_short_and_tell_the_model() -> None:
    assert short_names(
        ["dropout-two-cores-released, dropout 0.1", "mini-released", "mini", "mini"]
    ) == {
        "dropout-two-cores-released, dropout 0.1": "dropout 0.1",
        "mini-released": "mini",
        "mini": "mini, rope",
    }


def test_names_that_would_be_alike_stay_whole() -> None:
    names = ["a-released, depth 4", "b-released, depth 4", "c-released, depth 6"]
    assert list(short_names(names).values()) == [*names[:2], "depth 6"]


def test_the_offsets_are_sorted_by_their_medians_with_the_papers_beside() -> None:
    drawing = Drawing("offset", lambda: offset_drawing(CELLS, {"central": -0.16, "gone": 1.0}))
    axes = drawing.draw().axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["central", "dropout 0.1"]
    points = {line.get_label(): line for line in axes.lines}
    assert np.allclose(points["p = 97"].get_xdata(), np.log10([0.5, 0.2]))
    assert list(points["p = 97"].get_ydata()) == [1, 0]
    assert (
        list(points["paper's median"].get_xdata()),
        list(points["paper's median"].get_ydata()),
    ) == (
        [-0.16],
        [0],
    )
    assert render(drawing, ("svg",))["svg"]


def test_cells_of_a_setting_are_joined_by_prime() -> None:
    axes = order_drawing(CELLS.iloc[::-1]).axes[0]
    (line,) = (one for one in axes.lines if one.get_label() == "central")
    assert list(line.get_ydata()) == [2e4, 3e4]
