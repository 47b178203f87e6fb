"""The page of all suites: drifts over suites, and figures that have every cell once."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from fixtures.made_up_tests import answer, cell
from scipy import stats

from groktime.service.analysis.published import PublishedTest
from groktime.service.report.content import Members
from groktime.service.report.drawings import Drawing, offset_drawing, order_drawing, render
from groktime.service.report.paper import drifts, short_names
from groktime.service.words import setting_text


def sweeping(
    name: str, cells: list[Any], runs: int, printed: PublishedTest | None = None, axis: str = "lr"
) -> Any:
    found = replace(answer(cells=cells), axes=(axis,))
    tests = {} if printed is None else {"robustness": printed}
    members = {
        (c.prime, setting_text(c.setting)): Members(frozenset(range(runs)), frozenset())
        for c in cells
    }
    return SimpleNamespace(
        name=name, answer=found, members=members, reference=SimpleNamespace(tests=tests)
    )


def test_suites_that_sweep_an_axis_are_one_drift_with_each_cell_where_it_has_most_runs() -> None:
    few = [cell(97, 1e5, 9e4, setting={"lr": 0.1}), cell(97, 1e5, 5e4, setting={"lr": 1.0})]
    many = [cell(97, 1e5, 2e4, setting={"lr": 0.1}), cell(113, 1e5, 3e4, setting={"lr": 0.3})]
    none = cell(113, 1e5, None, setting={"lr": 1.0})
    printed: Any = SimpleNamespace(axis="lr", statistic=20.4)
    (found,) = drifts([sweeping("a", few, 3, printed), sweeping("b", [*many, none], 9)])
    assert found.suites == ("a", "b")
    by_value = dict(zip([0.1, 1.0, 0.3], np.log10([0.2, 0.5, 0.3]), strict=True))
    assert sorted(found.values) == [0.1, 0.3, 1.0]
    expected = stats.linregress(list(by_value), list(by_value.values()))
    assert np.isclose(found.trend.slope or 0, expected.slope)
    assert found.trend.p_holm == found.trend.p_raw, "there is one axis"
    assert found.printed is printed


def test_networks_with_and_without_positions_are_not_one_drift() -> None:
    cells = [cell(97, 1e5, 9e4, setting={"lr": 0.1}), cell(97, 1e5, 5e4, setting={"lr": 1.0})]
    found = drifts([sweeping("a", cells, 3), sweeping("a-released", cells, 9)])
    assert [drift.suites for drift in found] == [("a",), ("a-released",)]


def test_several_axes_share_holms_correction() -> None:
    one = [cell(97 + i, 1e5, 4e4 + 1e3 * i * i, setting={"lr": 0.1 * i}) for i in range(4)]
    two = [cell(97 + i, 1e5, 9e4 - 1e4 * i, setting={"depth": 2 + i}) for i in range(4)]
    first, second = drifts([sweeping("a", one, 3), sweeping("b", two, 3, axis="depth")])
    assert second.trend.p_raw is not None
    assert first.trend.p_raw is not None
    low, high = sorted((first.trend, second.trend), key=lambda t: t.p_raw or 0)
    assert np.isclose(low.p_holm or 0, min(1, 2 * (low.p_raw or 0)))
    assert (high.p_holm or 0) >= (low.p_holm or 0)


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
