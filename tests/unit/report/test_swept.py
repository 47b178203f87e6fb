"""What swept settings change, in words."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from fixtures.made_up_tests import answer, cell, nested_test, sufficiency, trend, within

from groktime.service.analysis.published import published_settings
from groktime.service.analysis.robustness import WithinSetting
from groktime.service.answers.cell_tests import CellTests
from groktime.service.answers.verdicts import Reference
from groktime.service.report.predictions import across, beside_settings, by_setting, swept


def row(weight_decay: float, residual: float | None, n: int) -> WithinSetting:
    return within({"weight_decay": weight_decay}, residual, n)


def given(**tests: Any) -> CellTests:
    return replace(answer(**tests), axes=("weight_decay",))


def test_a_suite_without_swept_settings_says_nothing_of_them() -> None:
    found = sufficiency(nested_test("M3", "M2", 0.001), nested_test("M3", "M1", 0.3))
    assert swept(answer()) == ""
    assert list(beside_settings(answer(nested=found))) == []


def test_the_crossing_is_weighed_against_the_settings() -> None:
    found = sufficiency(nested_test("M3", "M2", 0.001), nested_test("M3", "M1", 0.3))
    crossing, settings = beside_settings(given(nested=found))
    assert crossing == (
        "The crossing adds information beyond log p, log K_mem and weight decay (F = 9, p = 0.001)."
    )
    assert settings.startswith("The set of log p, log K_mem and weight decay is not shown to")
    unknown = sufficiency(nested_test("M3", "M2", None, "no degrees of freedom"))
    (said,) = beside_settings(given(nested=unknown))
    assert said.endswith("weight decay is not testable: no degrees of freedom.")
    paper = given(nested=sufficiency(nested_test("M3", "M1", 0.001)))
    (said,) = beside_settings(replace(paper, method="paper"))
    assert said.startswith("The set of p and weight decay adds information beyond the crossing")


def test_a_drift_with_a_setting_is_named_as_people_say_it() -> None:
    drift = trend("weight_decay", 0.01)
    (said,) = across(given(robustness=(drift,)))
    assert said == (
        "The residual drifts with weight decay (slope 0.3 dex per unit, Holm-corrected p = 0.01)."
    )
    (said,) = across(given(robustness=(replace(drift, p_clustered=0.0468),)))
    assert said.endswith("p = 0.01, p = 0.0468 with errors clustered by prime).")


def content(papers: CellTests | None, reference: Any = None) -> Any:
    return SimpleNamespace(
        answer=given(within=(row(0.1, -0.42, 3), row(3.0, None, 0))),
        main=("robust", "online"),
        by=lambda _: papers,
        reference=reference,
    )


def test_residuals_are_told_setting_by_setting_beside_the_papers() -> None:
    (alone,) = by_setting(content(None))
    assert alone == (
        "Median residual by setting, in dex: weight decay 0.1 −0.420 (3 of 3 cells); "
        "weight decay 3 – (0 of 3 cells)."
    )
    undelayed = cell(97, 1e5, None, setting={"weight_decay": 3.0}, onset_status="above_range")
    none = content(None)
    none.answer = replace(none.answer, cells=(cell(97), undelayed))
    (bounded,) = by_setting(none)
    assert bounded.endswith("weight decay 3 – (0 of 3 cells, no delay up to the widest in 1).")
    papers = given(within=(row(0.1, -0.44, 2),))
    reference = Reference(
        suite="weight_decay",
        tests={},
        settings=published_settings("weight_decay"),
        residuals={},
        differences=(),
        same_settings=True,
        same_model=True,
    )
    (beside,) = by_setting(content(papers, reference))
    assert (
        "weight decay 0.1 −0.420 (3 of 3 cells), by the paper's conventions −0.440 (2 of 3), "
        "printed −0.458; weight decay 3 – (0 of 3 cells), printed +0.376."
    ) in beside
