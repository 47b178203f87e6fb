"""Every number the released code gave for the golden tables comes out of method="paper"."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from groktime.service.analysis.published import Check, golden_statistics, verify_statistics
from groktime.service.errors import AnalysisError

CHECKS = verify_statistics()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_golden_value_is_reproduced(check: Check) -> None:
    assert check.ok, f"expected {check.expected}, got {check.got} (± {check.tolerance})"


def test_every_number_of_the_file_is_checked() -> None:
    def leaves(value: object) -> int:
        if isinstance(value, dict):
            return sum(leaves(v) for v in value.values())
        if isinstance(value, list):
            return sum(leaves(v) for v in value)
        return 1

    golden = golden_statistics()
    tables = [t["expected"] for t in golden.values() if isinstance(t, dict)]
    # A list of predictor names is one check; the resample counts and the name of the
    # correction are inputs, and M0's empty list of predictors has no leaf.
    expected = 0
    for table in tables:
        inputs = ["n_permutations", "n_bootstrap", "correction"]
        names = [m["predictors"] for m in table["nested"]["models"].values()]
        expected += leaves(table) - len(inputs) - sum(len(n) for n in names) + len(names)
    expected += 2 * len(golden["crossings"])
    expected += sum(len(o["expected_min_delay"]) + 1 for o in golden["onsets"])
    assert len(CHECKS) == expected


def test_deterministic_values_are_held_to_nine_digits() -> None:
    loose = [
        c.name
        for c in CHECKS
        if isinstance(c.expected, float) and c.tolerance > 1e-7 * max(abs(c.expected), 1e-5)
    ]
    assert all("p_permutation" in name or "ccc.ci" in name for name in loose)


def test_a_changed_value_is_found(tmp_path: Path) -> None:
    golden = copy.deepcopy(golden_statistics())
    golden["central_like"]["expected"]["kendall"]["tau"] += 0.01
    path = tmp_path / "statistics.json"
    path.write_text(json.dumps(golden))
    assert [c.name for c in verify_statistics(path) if not c.ok] == ["central_like.kendall.tau"]


def test_a_bootstrap_interval_that_is_off_is_found() -> None:
    golden = copy.deepcopy(golden_statistics())
    golden["central_like"]["expected"]["ccc"]["ci_high"] += 0.02
    bad = [c.name for c in verify_statistics(golden) if not c.ok]
    assert bad == ["central_like.ccc.ci_high"]


def test_a_recorded_zero_is_met_by_what_is_left_of_rounding() -> None:
    golden = {"central_like": copy.deepcopy(golden_statistics()["central_like"])}
    models = golden["central_like"]["expected"]["nested"]["models"]
    assert models["M0"]["r2"] == pytest.approx(0, abs=1e-12)
    models["M0"]["r2"] = 3e-13
    assert all(c.ok for c in verify_statistics(golden))
    models["M0"]["r2"] = 3e-9
    bad = [c.name for c in verify_statistics(golden) if not c.ok]
    assert bad == ["central_like.nested.M0.r2"]


def test_curves_recorded_without_a_crossing_are_read() -> None:
    one_width, two = [[20_000.0, 300.0]], [[20_000.0, 300.0], [40_000.0, 200.0]]
    case = {"t_mem": one_width, "t_gen": [[50_000.0, 3.0]], "expected": None}
    assert [c.ok for c in verify_statistics({"crossings": [case]})] == [True, True]
    wrong = {"t_mem": two, "t_gen": two, "expected": None}
    assert [c.ok for c in verify_statistics({"crossings": [wrong]})] == [False, False]


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=r"nothing\.json: cannot be read"):
        verify_statistics(tmp_path / "nothing.json")


def test_a_file_that_is_not_json_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "statistics.json"
    path.write_text("{")
    with pytest.raises(AnalysisError, match="not JSON"):
        verify_statistics(path)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("crossings", [{"t_mem": [[1, 2]]}]),
        ("onsets", [{"delays": []}]),
        ("central_like", {"axes": ["p"], "cells": [{"p": 97}], "expected": {}}),
    ],
)
def test_a_broken_table_is_named_in_one_line(name: str, broken: object) -> None:
    with pytest.raises(AnalysisError, match=rf"{name}: not a golden table"):
        verify_statistics({name: broken})


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(AnalysisError, match="surprise: not crossings"):
        verify_statistics({"surprise": {"cells": {}}})
