"""What swept settings change, in words."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from fixtures.made_up_tests import answer, cell, rank

from service.analysis.published import published_settings
from service.answers.cell_tests import SettingRow, Statistic, TestsAnswer
from service.answers.reference import Reference
from service.report.swept import across, beside_settings, by_setting, swept


def row(weight_decay: float, residual: float | None, n: int) -> SettingRow:
    return SettingRow(
        setting={"weight_decay": weight_decay},
        n=n,
        n_total=3,
        n_inherited=0,
        median_residual=residual,
        std=None,
        mad=None,
        rho=None,
        verdict="under_resolved",
        driver_prime=None,
        lost={},
    )


def f_test(name: str, p: float | None, note: str = "") -> Statistic:
    plain = replace(rank(9.0, 0.5, 10), test="sufficiency", statistic=name, floor=None)
    return replace(plain, p=p, testable=p is not None, note=note)


def given(*tests: Statistic) -> TestsAnswer:
    return replace(answer(*tests), axes=("weight_decay",))


def test_a_suite_without_swept_settings_says_nothing_of_them() -> None:
    tests = [f_test("F M3 vs M2", 0.001), f_test("F M3 vs M1", 0.3)]
    assert swept(answer()) == ""
    assert list(beside_settings(answer(*tests))) == []


def test_the_crossing_is_weighed_against_the_settings() -> None:
    crossing, settings = beside_settings(
        given(f_test("F M3 vs M2", 0.001), f_test("F M3 vs M1", 0.3))
    )
    assert crossing == (
        "The crossing with log p, log K_mem and weight decay tells more than these alone: F 9, "
        "p = 0.001."
    )
    assert settings == (
        "The crossing with log p, log K_mem and weight decay is not shown to tell more than the "
        "crossing alone: F 9, p = 0.3."
    )
    (said,) = beside_settings(given(f_test("F M3 vs M2", None, "no degrees of freedom")))
    assert said.startswith("Whether the crossing with log p, log K_mem and weight decay tells")
    assert said.endswith("more than these alone is not testable: no degrees of freedom.")
    (said,) = beside_settings(replace(given(f_test("F M3 vs M1", 0.001)), method="paper"))
    assert said == (
        "The crossing with p and weight decay tells more than the crossing alone: F 9, p = 0.001."
    )


def test_a_drift_with_a_setting_is_named_as_people_say_it() -> None:
    drift = replace(rank(0.3, 0.01, 9), test="robustness", statistic="slope on weight_decay")
    (said,) = across(given(drift))
    assert said == (
        "The residual drifts with weight decay (slope 0.3 dex a unit, Holm-corrected p = 0.01)."
    )
    (said,) = across(given(replace(drift, note="raw p 0.005; clustered p 0.0468")))
    assert said.endswith("Holm-corrected p = 0.01, clustered p 0.0468).")


def content(papers: TestsAnswer | None, reference: Any = None) -> Any:
    robust = replace(given(), within=(row(0.1, -0.42, 3), row(3.0, None, 0)))
    return SimpleNamespace(
        answer=robust, main=("robust", "online"), by=lambda _: papers, reference=reference
    )


def test_residuals_are_told_setting_by_setting_beside_the_papers() -> None:
    (alone,) = by_setting(content(None))
    assert alone == (
        "Median residual by setting, in dex: weight decay 0.1 −0.420 (3 of 3 cells); "
        "weight decay 3 – (0 of 3 cells)."
    )
    undelayed = replace(cell(97, None), setting={"weight_decay": 3.0}, onset_status="above_range")
    none = content(None)
    none.answer = replace(none.answer, cells=(cell(97, -0.4), undelayed))
    (bounded,) = by_setting(none)
    assert bounded.endswith("weight decay 3 – (0 of 3 cells, no delay up to the widest in 1).")
    papers = replace(given(), within=(row(0.1, -0.44, 2),))
    reference = Reference(
        suite="weight_decay",
        tests={},
        settings=published_settings("weight_decay"),
        residuals={},
        differences=(),
        same_model=True,
    )
    (beside,) = by_setting(content(papers, reference))
    assert (
        "weight decay 0.1 −0.420 (3 of 3 cells), by the paper's conventions −0.440 (2 of 3), "
        "printed −0.458; weight decay 3 – (0 of 3 cells), printed +0.376."
    ) in beside
