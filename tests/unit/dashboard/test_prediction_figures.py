"""Prediction figures and the tests table in plain language."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import pytest

from dashboard.figures.prediction import prediction_figure, residual_figure
from dashboard.figures.verdicts import row, table, verdict
from service.analysis.published import published_settings, published_tests
from service.answers.cell_tests import (
    Apart,
    CellRow,
    NestedModel,
    SettingRow,
    Statistic,
    TestsAnswer,
)
from service.answers.making import ByKind, Thresholds
from service.answers.reference import Reference


def cell(prime: int, decay: float, cross: float | None, onset: float | None) -> CellRow:
    both = cross is not None and onset is not None
    return CellRow(
        prime=prime,
        setting={"weight_decay": decay},
        p_cross=cross,
        p_cross_low=cross and cross * 0.9,
        p_cross_high=cross and cross * 1.1,
        crossing_status="crossed" if cross else "mem_always_slower",
        at_edge=False,
        few_seeds=False,
        p_onset=onset,
        p_onset_low=onset and onset * 0.8,
        p_onset_high=None,
        onset_status="separated",
        at_floor=False,
        at_cap=prime == 139,
        onset_step=None,
        residual=0.05 if both else None,
        k_mem=40_000.0,
        batch_size=512,
        last_batch=512,
        seeds=ByKind(speed=5, grok=5),
        censored=ByKind(speed=0, grok=0),
        missing=ByKind(speed=0, grok=0),
        inherited=False,
    )


def statistic(test: str, name: str, **given: Any) -> Statistic:
    values: dict[str, Any] = {
        "value": 0.9,
        "low": None,
        "high": None,
        "p": None,
        "floor": None,
        "df": "",
        "n": 10,
        "testable": True,
        "note": "",
    }
    return Statistic(test=test, statistic=name, **(values | given))


@pytest.fixture
def answer() -> TestsAnswer:
    return TestsAnswer(
        suite="any-name",
        revision=9,
        method="robust",
        clock="online",
        units="epochs",
        level=0.95,
        thresholds=Thresholds(),
        max_width=256,
        axes=("weight_decay",),
        n=3,
        n_total=4,
        n_at_floor=0,
        n_at_cap=1,
        cells=(
            cell(97, 0.1, 80e3, 90e3),
            cell(113, 0.1, 110e3, 120e3),
            cell(139, 1.0, 170e3, 200e3),
            cell(139, 0.1, None, 200e3),
        ),
        pooled=(
            statistic("calibration", "slope", value=0.98),
            statistic("rank", "spearman", value=0.97, p=0.001, floor=0.0001),
            statistic("robustness", "slope on weight_decay", testable=False, note="one value"),
        ),
        models=(),
        apart=(),
        within=(
            SettingRow(
                setting={"weight_decay": 0.1},
                n=2,
                n_total=3,
                n_inherited=0,
                median_residual=0.05,
                std=0.01,
                mad=None,
                rho=None,
                verdict="under_resolved",
                driver_prime=None,
                lost={},
            ),
        ),
        notes=("predictors are nearly collinear",),
        analysis_version=1,
    )


def test_plotly_accepts_both_figures(answer: TestsAnswer) -> None:
    for figure in (prediction_figure(answer), residual_figure(answer, "weight_decay")):
        go.Figure(json.loads(json.dumps(figure, allow_nan=False)))


def test_cells_without_a_prediction_are_counted_not_drawn(answer: TestsAnswer) -> None:
    figure = prediction_figure(answer)
    drawn = sum(len(t["x"]) for t in figure["data"] if t["name"] != "y = x")
    assert drawn == 3
    assert any("1 cell without" in n["text"] for n in figure["layout"]["meta"]["notes"])


def test_the_median_of_an_even_number_of_cells_is_between_the_middle_two(
    answer: TestsAnswer,
) -> None:
    first, second, *_ = answer.cells
    given = replace(answer, cells=(replace(first, residual=0.1), replace(second, residual=0.3)))
    meta = prediction_figure(given)["layout"]["meta"]
    assert "the median residual is +0.200 dex, a factor of 1.58." in meta["summary"]
    values = {reading["term"]: reading["value"] for reading in meta["readings"]}
    assert values["median residual"] == "+0.200 dex"
    assert values["spread over cells"] == "0.141 dex"


def test_one_cell_has_no_spread(answer: TestsAnswer) -> None:
    meta = prediction_figure(replace(answer, cells=answer.cells[:1]))["layout"]["meta"]
    assert meta["readings"][1]["value"] == "–"


def test_the_diagonal_is_y_equals_x(answer: TestsAnswer) -> None:
    diagonal = prediction_figure(answer)["data"][0]
    assert diagonal["x"] == diagonal["y"]


def test_an_onset_at_the_edge_is_an_open_marker(answer: TestsAnswer) -> None:
    symbols = [s for t in prediction_figure(answer)["data"][1:] for s in t["marker"]["symbol"]]
    assert [s.endswith("-open") for s in symbols] == [False, False, True]


def test_an_open_interval_has_no_bar_on_that_side(answer: TestsAnswer) -> None:
    bars = prediction_figure(answer)["data"][1]["error_y"]
    assert bars["array"] == [0.0, 0.0]
    assert bars["arrayminus"] == pytest.approx([18e3, 24e3])


@pytest.mark.parametrize("axis", ["prime", "weight_decay", "k_mem"])
def test_residuals_stand_against_any_axis(answer: TestsAnswer, axis: str) -> None:
    figure = residual_figure(answer, axis)
    assert len(figure["data"][0]["x"]) == 3
    assert axis in figure["layout"]["meta"]["axes"]


def test_residuals_against_words_are_categories(answer: TestsAnswer) -> None:
    cells = tuple(replace(c, setting={"operation": "+"}) for c in answer.cells)
    figure = residual_figure(replace(answer, cells=cells, axes=("operation",)), "operation")
    assert figure["layout"]["xaxis"]["type"] == "category"


def reference(name: str, **given: Any) -> Reference:
    """The paper's tables, whatever our suite is called."""
    values: dict[str, Any] = {"residuals": {}, "differences": (), "same_model": True} | given
    return Reference(
        suite=name, tests=published_tests(name), settings=published_settings(name), **values
    )


def test_the_papers_value_stands_beside_ours_with_its_n(answer: TestsAnswer) -> None:
    meta = prediction_figure(answer, reference("central"))["layout"]["meta"]
    rows = {row["name"]: row for row in meta["tests"]}
    assert rows["Spearman ρ"]["paper"] == "0.976, p < 1e−3 (10 cells)"
    assert rows["OLS slope"]["paper"] == "0.985 (10 cells)"
    assert meta["paper"]["column"] == "Paper"
    assert "same settings and primes" in meta["paper"]["note"]


def test_a_suite_the_paper_did_not_print_has_no_column(answer: TestsAnswer) -> None:
    meta = prediction_figure(replace(answer, suite="central"))["layout"]["meta"]
    assert meta["paper"] is None
    assert {row["paper"] for row in meta["tests"]} == {""}


def test_another_models_values_are_called_so(answer: TestsAnswer) -> None:
    other = reference("central", same_model=False, differences=("positions rope",))
    printed = prediction_figure(answer, other)["layout"]["meta"]["paper"]
    assert printed["column"] == "Paper (another model)"
    assert "differ in: positions rope" in printed["note"]


def test_within_a_setting_the_papers_row_stands_beside_ours(answer: TestsAnswer) -> None:
    none = replace(answer.within[0], setting={"weight_decay": 0.0})
    given = replace(answer, within=(none, answer.within[0]))
    rows = prediction_figure(given, reference("weight_decay"))["layout"]["meta"]["settings"]
    assert rows[0]["setting"] == "weight decay 0"
    assert rows[0]["paper"].startswith("−0.535 dex, ")
    assert prediction_figure(given)["layout"]["meta"]["settings"][0]["paper"] == ""


def test_printed_residuals_stand_against_the_prime_only(answer: TestsAnswer) -> None:
    printed = reference("central", residuals={97: -0.17, 107: -0.15, 139: -0.13})
    against_prime = residual_figure(answer, "prime", printed)["data"]
    assert against_prime[1]["x"] == [97, 139]  # 107 is not among our cells
    assert against_prime[1]["y"] == [-0.17, -0.13]
    assert len(residual_figure(answer, "weight_decay", printed)["data"]) == 1


def test_questions_are_in_the_order_of_the_argument(answer: TestsAnswer) -> None:
    rows = prediction_figure(answer)["layout"]["meta"]["tests"]
    assert [row["name"] for row in rows] == ["Spearman ρ", "OLS slope", "slope on weight decay"]


def model(name: str, error: float | None) -> NestedModel:
    return NestedModel(
        name=name,
        predictors=(),
        dropped=(),
        n=7,
        r_squared=None,
        r_squared_adjusted=None,
        aicc=None,
        loo_rmse=error,
        largest_vif=None,
        collinear=False,
    )


def test_left_out_cells_compare_the_crossing_with_its_rivals(answer: TestsAnswer) -> None:
    models = (model("M0", 0.12), model("M1", 0.054), model("MP", 0.044), model("M3", 0.05))
    alone = replace(answer, models=(*models, model("M2", 0.02)), axes=())
    given = replace(answer, models=models)
    rows = prediction_figure(given)["layout"]["meta"]["tests"]
    # With the other tests of what the crossing carries, before those of single settings.
    assert rows[-1]["name"] == "slope on weight decay"
    own, prime, constant = rows[-4:-1]
    assert own["name"] == "leave-one-out error, the crossing alone"
    assert (own["value"], own["n"], own["tone"]) == ("0.054 dex", 7, "warn")
    assert own["verdict"] == "Predicts no better than the prime alone (log p)."
    assert prime["verdict"] == "Predicts at least as well as the crossing (0.044 against 0.054)."
    assert constant["verdict"] == "Predicts worse than the crossing (0.12 against 0.054)."
    assert prediction_figure(alone)["layout"]["meta"]["tests"] == rows
    assert prediction_figure(replace(answer, models=models[:1]))["layout"]["meta"]["tests"] == [
        row for row in rows if not row["name"].startswith("leave-one-out")
    ]


def test_swept_settings_are_a_rival_of_the_crossing(answer: TestsAnswer) -> None:
    given = replace(answer, models=(model("M1", 0.2), model("M2", 0.1)))
    own, settings = prediction_figure(given)["layout"]["meta"]["tests"][-3:-1]
    assert own["verdict"] == "Predicts no better than the prime and the settings together."
    assert settings["name"] == "leave-one-out error, the prime and the settings together"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("slope", "OLS slope"),
        ("slope, clustered", "OLS slope, clustered errors"),
        ("slope, theil sen", "Theil–Sen slope"),
        ("slope, deming", "Deming slope"),
    ],
)
def test_every_slope_is_called_by_its_estimator(name: str, shown: str) -> None:
    assert row(statistic("calibration", name), {})["name"] == shown


def test_notes_on_the_regressions_stand_with_the_tests(answer: TestsAnswer) -> None:
    meta = prediction_figure(answer)["layout"]["meta"]
    assert meta["test_notes"] == ["Predictors are nearly collinear."]
    assert not any("collinear" in note["text"] for note in meta["notes"])


def test_a_point_carries_what_leads_to_its_cell(answer: TestsAnswer) -> None:
    for figure in (prediction_figure(answer), residual_figure(answer, "prime")):
        first = figure["data"][-1]["customdata"][-1]
        assert (first[0], first[-1]) == (139, {"weight_decay": 1.0})


@pytest.mark.parametrize(
    ("value", "shown"), [(1234.0, "1.23k"), (-0.05, "−0.05"), (2.3e29, "2.3·10²⁹")]
)
def test_values_of_any_size_can_be_read(answer: TestsAnswer, value: float, shown: str) -> None:
    given = replace(answer, pooled=(statistic("calibration", "F", value=value, p=0.1),))
    assert prediction_figure(given)["layout"]["meta"]["tests"][0]["value"] == shown


def test_what_cannot_be_tested_says_so(answer: TestsAnswer) -> None:
    rows = prediction_figure(answer)["layout"]["meta"]["tests"]
    assert rows[-1]["verdict"] == "Not testable: one value."


@pytest.mark.parametrize(
    ("given", "words", "tone"),
    [
        (statistic("rank", "spearman", p=0.001), "Yes: cells with a larger crossing", "good"),
        (statistic("rank", "spearman", p=0.4), "No order can be told", "plain"),
        (statistic("rank", "kendall", value=-0.9, p=0.001), "The order is reversed", "bad"),
        (statistic("concordance", "ccc", value=0.95), "Agreement in value is strong", "good"),
        (statistic("calibration", "F", p=0.2), "Compatible with the line", "good"),
        (statistic("calibration", "F", p=0.01), "Slope and intercept differ", "warn"),
        (
            statistic("calibration", "slope, deming", low=0.8, high=1.1),
            "The interval contains 1",
            "good",
        ),
        (
            statistic("calibration", "slope, deming", low=0.7, high=0.95),
            "The interval excludes 1",
            "warn",
        ),
        (statistic("residuals", "wilcoxon", p=0.002), "Onsets lie systematically", "warn"),
        (statistic("residuals", "median", value=-0.3), "Onset typically at 0.50 ×", "plain"),
        (statistic("equivalence", "tost", p=0.01), "The slope is 1 within", "good"),
        (statistic("sufficiency", "F M1 vs M0", p=0.001), "The crossing explains", "good"),
        (statistic("sufficiency", "F MP+ vs MP", p=0.3), "Not shown that the crossing", "warn"),
        (statistic("sufficiency", "F M3 vs M1", p=0.01), "The settings add something", "warn"),
        (statistic("sufficiency", "F MB vs MP", p=0.01), "The size of an epoch's last", "warn"),
        (statistic("sufficiency", "F MB+ vs MB", p=0.3), "Not shown that the crossing", "warn"),
        (statistic("sufficiency", "F MB+ vs M1", p=0.3), "Not shown that prime and last", "good"),
        (
            replace(statistic("sufficiency", "slope on last batch", value=-0.2), low=-1, high=-0.1),
            "A smaller last batch goes with a larger onset",
            "plain",
        ),
        (
            replace(statistic("sufficiency", "slope on last batch", value=-0.2), low=-1, high=0.6),
            "No trend with the last batch can be told",
            "plain",
        ),
        (statistic("robustness", "slope on lr", p=0.01), "The residual drifts with lea", "warn"),
        (statistic("sufficiency", "F MP+ vs MP", p=0.03), "There is a hint that the cr", "plain"),
        (statistic("sufficiency", "F MP+ vs MP", p=0.009), "The crossing tells more than", "good"),
    ],
)
def test_every_test_has_a_verdict_in_words(given: Statistic, words: str, tone: str) -> None:
    said, how = verdict(given)
    assert said.startswith(words)
    assert how == tone


@pytest.mark.parametrize(
    ("ps", "loo", "words"),
    [
        ((0.01, 0.02), 0.1, "The crossing tells more than the prime, even with different seeds."),
        ((0.01, 0.2), 0.1, "Not shown that the crossing of other seeds tells more than the prime."),
        (
            (0.01, 0.02),
            0.3,
            "Not shown that the crossing of other seeds tells more than the prime.",
        ),
    ],
)
def test_seeds_apart_are_one_row_that_holds_only_both_ways(
    answer: TestsAnswer, ps: tuple[float, float], loo: float, words: str
) -> None:
    ways = tuple(
        Apart(n=9, rho=0.9, median_residual=-0.2, loo_crossing=loo, loo_prime=0.12, f=3.0, p=p)
        for p in ps
    )
    (found,) = [r for r in table(replace(answer, apart=ways), None) if "apart" in r["name"]]
    assert found["verdict"] == words
    assert found["value"] == f"{loo} against 0.12 and {loo} against 0.12 dex"
    assert not any("apart" in r["name"] for r in table(answer, None))
