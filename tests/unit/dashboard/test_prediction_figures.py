"""Prediction figures and the tests table in plain language."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import pytest
from fixtures.made_up_tests import (
    answer as made_up,
)
from fixtures.made_up_tests import (
    cell as made_up_cell,
)
from fixtures.made_up_tests import (
    concordance,
    kendall,
    line,
    median,
    model,
    nested_test,
    rank,
    robust_slope,
    sufficiency,
    trend,
    within,
)

from groktime.dashboard.figures.prediction import prediction_figure, residual_figure
from groktime.dashboard.figures.theme import PRIMES, prime_look
from groktime.service.analysis.calibration import tost
from groktime.service.analysis.hypotheses import SeedsApart, Slope
from groktime.service.analysis.published import published_settings, published_tests
from groktime.service.answers.cell_tests import CellRow, CellTests, pooled_tests
from groktime.service.answers.verdicts import Reference, table, verdict


def cell(prime: int, decay: float, cross: float | None, onset: float | None) -> CellRow:
    return made_up_cell(
        prime,
        cross,
        onset,
        setting={"weight_decay": decay},
        p_onset_low=onset and onset * 0.8,
        at_cap=prime == 139,
        residual=0.05 if cross and onset else None,
    )


def changed(given: CellTests, **tests: Any) -> CellTests:
    """The same cells with other tests."""
    return replace(given, tests=replace(given.tests, **tests))


@pytest.fixture
def answer() -> CellTests:
    given = made_up(
        cells=(
            cell(97, 0.1, 80e3, 90e3),
            cell(113, 0.1, 110e3, 120e3),
            cell(139, 1.0, 170e3, 200e3),
            cell(139, 0.1, None, 200e3),
        ),
        wilcoxon=None,
        spearman=rank(0.97, 0.001, 10),
        line=line(0.98),
        robustness=(trend("weight_decay", None, reason="one value"),),
        within=(within({"weight_decay": 0.1}, 0.05, 2),),
        nested=sufficiency(notes=["predictors are nearly collinear"]),
    )
    return replace(given, suite="any-name", revision=9, max_width=256, axes=("weight_decay",))


def shown_tests(given: CellTests) -> list[Any]:
    rows: list[Any] = prediction_figure(given)["layout"]["meta"]["tests"]
    return [row for row in rows if row["value"] != "not testable" or "on" in row["name"].split()]


def test_plotly_accepts_both_figures(answer: CellTests) -> None:
    for figure in (prediction_figure(answer), residual_figure(answer, "weight_decay")):
        go.Figure(json.loads(json.dumps(figure, allow_nan=False)))


def test_cells_without_a_prediction_are_counted_not_drawn(answer: CellTests) -> None:
    figure = prediction_figure(answer)
    drawn = sum(len(t["x"]) for t in figure["data"] if t["name"] != "y = x")
    assert drawn == 3
    assert any("1 cell without" in n["text"] for n in figure["layout"]["meta"]["notes"])


def test_the_median_of_an_even_number_of_cells_is_between_the_middle_two(
    answer: CellTests,
) -> None:
    first, second, *_ = answer.cells
    given = replace(answer, cells=(replace(first, residual=0.1), replace(second, residual=0.3)))
    meta = prediction_figure(given)["layout"]["meta"]
    assert "the median residual is +0.200 dex, a factor of 1.58." in meta["summary"]
    values = {reading["term"]: reading["value"] for reading in meta["readings"]}
    assert values["median residual"] == "+0.200 dex"
    assert values["spread over cells"] == "0.141 dex"


def test_one_cell_has_no_spread(answer: CellTests) -> None:
    meta = prediction_figure(replace(answer, cells=answer.cells[:1]))["layout"]["meta"]
    assert meta["readings"][1]["value"] == "–"


def test_the_diagonal_is_y_equals_x(answer: CellTests) -> None:
    diagonal = prediction_figure(answer)["data"][0]
    assert diagonal["x"] == diagonal["y"]


def test_an_onset_at_the_edge_is_an_open_marker(answer: CellTests) -> None:
    symbols = [s for t in prediction_figure(answer)["data"][1:] for s in t["marker"]["symbol"]]
    assert [s.endswith("-open") for s in symbols] == [False, False, True]


def test_an_open_interval_has_no_bar_on_that_side(answer: CellTests) -> None:
    bars = prediction_figure(answer)["data"][1]["error_y"]
    assert bars["array"] == [0.0, 0.0]
    assert bars["arrayminus"] == pytest.approx([18e3, 24e3])


@pytest.mark.parametrize("axis", ["prime", "weight_decay", "k_mem"])
def test_residuals_stand_against_any_axis(answer: CellTests, axis: str) -> None:
    figure = residual_figure(answer, axis)
    assert sum(len(trace["x"]) for trace in figure["data"]) == 3
    assert axis in figure["layout"]["meta"]["axes"]


def test_residuals_against_words_are_categories(answer: CellTests) -> None:
    cells = tuple(replace(c, setting={"operation": "+"}) for c in answer.cells)
    figure = residual_figure(replace(answer, cells=cells, axes=("operation",)), "operation")
    assert figure["layout"]["xaxis"]["type"] == "category"


def reference(name: str, **given: Any) -> Reference:
    """The paper's tables, whatever our suite is called."""
    values: dict[str, Any] = {"residuals": {}, "differences": ()}
    values |= {"same_settings": True, "same_model": True} | given
    return Reference(
        suite=name, tests=published_tests(name), settings=published_settings(name), **values
    )


def test_the_papers_value_stands_beside_ours_with_its_n(answer: CellTests) -> None:
    meta = prediction_figure(answer, reference("central"))["layout"]["meta"]
    rows = {row["name"]: row for row in meta["tests"]}
    assert rows["Spearman ρ"]["paper"] == "0.976, p < 1e−3 (10 cells)"
    assert rows["OLS slope"]["paper"] == "0.985 (10 cells)"
    assert meta["paper"]["column"] == "Paper"
    assert "same settings and primes" in meta["paper"]["note"]


def test_a_suite_the_paper_did_not_print_has_no_column(answer: CellTests) -> None:
    meta = prediction_figure(replace(answer, suite="central"))["layout"]["meta"]
    assert meta["paper"] is None
    assert {row["paper"] for row in meta["tests"]} == {""}


def test_another_models_values_are_called_so(answer: CellTests) -> None:
    other = reference("central", same_model=False, differences=("positions rope",))
    printed = prediction_figure(answer, other)["layout"]["meta"]["paper"]
    assert printed["column"] == "Paper (another model)"
    assert "differ in: positions rope" in printed["note"]


def test_within_a_setting_the_papers_row_stands_beside_ours(answer: CellTests) -> None:
    own = answer.tests.within[0]
    given = changed(answer, within=(replace(own, setting={"weight_decay": 0.0}), own))
    rows = prediction_figure(given, reference("weight_decay"))["layout"]["meta"]["settings"]
    assert rows[0]["setting"] == "weight decay 0"
    assert rows[0]["paper"].startswith("−0.535 dex, ")
    assert prediction_figure(given)["layout"]["meta"]["settings"][0]["paper"] == ""


def test_printed_residuals_stand_against_the_prime_only(answer: CellTests) -> None:
    printed = reference("central", residuals={97: -0.17, 107: -0.15, 139: -0.13})
    against_prime = residual_figure(answer, "prime", printed)["data"]
    assert against_prime[-1]["x"] == [97, 139]  # 107 is not among our cells
    assert against_prime[-1]["y"] == [-0.17, -0.13]
    names = {trace["name"] for trace in residual_figure(answer, "weight_decay", printed)["data"]}
    assert names == {"p = 97", "p = 113", "p = 139"}


def test_questions_are_in_the_order_of_the_argument(answer: CellTests) -> None:
    names = [row["name"] for row in shown_tests(answer)]
    assert names == [
        "Spearman ρ",
        "OLS slope",
        "OLS intercept",
        "joint F (slope 1, intercept 0)",
        "slope on weight decay",
    ]


def test_left_out_cells_compare_the_crossing_with_its_rivals(answer: CellTests) -> None:
    models = [model("M0", 0.12), model("M1", 0.054), model("MP", 0.044), model("M3", 0.05)]
    alone = sufficiency(models=[*models, model("M2", 0.02)])
    rows = shown_tests(changed(answer, nested=sufficiency(models=models)))
    # With the other tests of what the crossing carries, before those of single settings.
    assert rows[-1]["name"] == "slope on weight decay"
    own, prime, constant = rows[-4:-1]
    assert own["name"] == "leave-one-out error, the crossing alone"
    assert (own["value"], own["n"], own["tone"]) == ("0.054 dex", 7, "warn")
    assert own["verdict"] == "Predicts no better than the prime alone (log p)."
    assert prime["verdict"] == "Predicts at least as well as the crossing (0.044 against 0.054)."
    assert constant["verdict"] == "Predicts worse than the crossing (0.12 against 0.054)."
    assert shown_tests(replace(changed(answer, nested=alone), axes=())) == rows
    assert shown_tests(changed(answer, nested=sufficiency(models=models[:1]))) == [
        row for row in rows if not row["name"].startswith("leave-one-out")
    ]


def test_swept_settings_are_a_rival_of_the_crossing(answer: CellTests) -> None:
    found = sufficiency(models=[model("M1", 0.2), model("M2", 0.1)])
    own, settings = shown_tests(changed(answer, nested=found))[-3:-1]
    assert own["verdict"] == "Predicts no better than the prime and the settings together."
    assert settings["name"] == "leave-one-out error, the prime and the settings together"


def test_every_slope_is_called_by_its_estimator(answer: CellTests) -> None:
    slopes = {name: robust_slope(name, 0.9, 1.2) for name in ("theil_sen", "deming")}
    names = [row["name"] for row in shown_tests(changed(answer, **slopes))]
    assert {"OLS slope", "Theil–Sen slope", "Deming slope"} <= set(names)


def test_notes_on_the_regressions_stand_with_the_tests(answer: CellTests) -> None:
    meta = prediction_figure(answer)["layout"]["meta"]
    assert meta["test_notes"] == ["Predictors are nearly collinear."]
    assert not any("collinear" in note["text"] for note in meta["notes"])


def test_a_point_carries_what_leads_to_its_cell(answer: CellTests) -> None:
    for figure in (prediction_figure(answer), residual_figure(answer, "prime")):
        first = figure["data"][-1]["customdata"][-1]
        assert (first[0], first[-1]) == (139, {"weight_decay": 1.0})


@pytest.mark.parametrize(
    ("value", "shown"), [(1234.0, "1.23k"), (0.05, "0.05"), (2.3e29, "2.3·10²⁹")]
)
def test_values_of_any_size_can_be_read(answer: CellTests, value: float, shown: str) -> None:
    (joint,) = (
        row for row in shown_tests(changed(answer, line=line(f=value))) if "joint" in row["name"]
    )
    assert joint["value"] == shown


def test_what_cannot_be_tested_says_so(answer: CellTests) -> None:
    assert shown_tests(answer)[-1]["verdict"] == "Not testable: one value."


def f_test(larger: str, smaller: str, p: float) -> dict[str, Any]:
    return {"nested": sufficiency(nested_test(larger, smaller, p))}


def batch(low: float, high: float) -> dict[str, Any]:
    return {"nested": sufficiency(last_batch=Slope(-0.2, low, high))}


@pytest.mark.parametrize(
    ("given", "name", "words", "tone"),
    [
        ({"spearman": rank(0.9, 0.001, 10)}, "spearman", "Yes: cells with a larger", "good"),
        ({"spearman": rank(0.9, 0.4, 10)}, "spearman", "An order is not shown", "plain"),
        (
            {"spearman": rank(1.0, 0.33, 3, floor=0.33)},
            "spearman",
            "Too few cells to show",
            "plain",
        ),
        ({"kendall": kendall(-0.9, 0.001)}, "kendall", "The order is reversed", "bad"),
        ({"ccc": concordance(0.95)}, "ccc", "Agreement in value is strong", "good"),
        ({"line": line(p=0.2)}, "F", "No departure from the line", "plain"),
        ({"line": line(p=0.01)}, "F", "Slope and intercept differ", "warn"),
        (
            {"deming": robust_slope("deming", 0.8, 1.1)},
            "slope, deming",
            "A slope of 1 lies in the interval",
            "plain",
        ),
        (
            {"deming": robust_slope("deming", 0.7, 0.95)},
            "slope, deming",
            "The interval excludes 1",
            "warn",
        ),
        ({"wilcoxon": median([-0.3] * 9)}, "wilcoxon", "Onsets lie systematically", "warn"),
        ({"wilcoxon": median([-0.301] * 9)}, "median", "Onset typically at 0.50 ×", "plain"),
        ({"equivalence": tost(1.0, 0.001, 9)}, "tost", "The slope is 1 within", "good"),
        (f_test("M1", "M0", 0.001), "F M1 vs M0", "The crossing adds information", "good"),
        (f_test("MP+", "MP", 0.3), "F MP+ vs MP", "The crossing is not shown to add", "warn"),
        (f_test("M3", "M1", 0.01), "F M3 vs M1", "The settings add information", "warn"),
        (f_test("MB", "MP", 0.01), "F MB vs MP", "The size of the last batch adds i", "warn"),
        (f_test("MB+", "MB", 0.3), "F MB+ vs MB", "The crossing is not shown to add", "warn"),
        (f_test("MB+", "M1", 0.3), "F MB+ vs M1", "Prime and last batch are not sho", "plain"),
        (batch(-1, -0.1), "slope on last batch", "A smaller last batch goes with a", "plain"),
        (batch(-1, 0.6), "slope on last batch", "No trend with the last batch is shown", "plain"),
        ({"robustness": (trend("lr", 0.01),)}, "slope on lr", "The residual drifts with", "warn"),
        (f_test("MP+", "MP", 0.03), "F MP+ vs MP", "The crossing may add information", "plain"),
        (f_test("MP+", "MP", 0.009), "F MP+ vs MP", "The crossing adds information", "good"),
    ],
)
def test_every_test_has_a_verdict_in_words(
    given: dict[str, Any], name: str, words: str, tone: str
) -> None:
    rows = {pooled.row.statistic: pooled for pooled in pooled_tests(made_up(**given).tests)}
    said, how = verdict(rows[name])
    assert said.startswith(words)
    assert how == tone


@pytest.mark.parametrize(
    ("ps", "loo", "words"),
    [
        (
            (0.01, 0.02),
            0.1,
            "The crossing adds information beyond the prime, even with different seeds.",
        ),
        (
            (0.01, 0.2),
            0.1,
            "With different seeds it is not shown to add information beyond the prime.",
        ),
        (
            (0.01, 0.02),
            0.3,
            "With different seeds it is not shown to add information beyond the prime.",
        ),
    ],
)
def test_seeds_apart_are_one_row_that_holds_only_both_ways(
    answer: CellTests, ps: tuple[float, float], loo: float, words: str
) -> None:
    ways = tuple(
        SeedsApart(n=9, rho=0.9, median_residual=-0.2, loo_crossing=loo, loo_prime=0.12, f=3.0, p=p)
        for p in ps
    )
    (found,) = [r for r in table(changed(answer, apart=ways), None) if "apart" in r["name"]]
    assert found["verdict"] == words
    assert found["value"] == f"{loo} against 0.12 and {loo} against 0.12 dex"
    assert not any("apart" in r["name"] for r in table(answer, None))


def test_the_claim_is_told_in_three_parts_with_numbers(answer: CellTests) -> None:
    given = changed(
        answer,
        spearman=rank(0.97, 0.001, 10, low=0.8, high=0.99),
        wilcoxon=median([-0.3, -0.28, -0.31, -0.29, -0.33, -0.27, -0.3, -0.26]),
        nested=sufficiency(
            nested_test("MP+", "MP", 0.03), models=[model("M1", 0.05), model("MP", 0.06)]
        ),
    )
    order, value, information = prediction_figure(given)["layout"]["meta"]["claims"]
    assert (order["number"], order["verdict"]) == ("ρ = 0.97 [0.8, 0.99]", "holds")
    assert (value["number"][:4], value["verdict"]) == ("0.51", "starts earlier")
    assert (information["number"], information["verdict"]) == ("F = 9, p = 0.03", "a hint")
    assert information["detail"] == "leave-one-out error 0.05 dex, by log p alone 0.06"
    few = prediction_figure(made_up())["layout"]["meta"]["claims"]
    assert {claim["verdict"] for claim in few} == {"not testable"}


def test_no_bar_is_cut_off_at_the_frame(answer: CellTests) -> None:
    figure = prediction_figure(answer)
    (low, high) = figure["layout"]["yaxis"]["range"]
    for trace in figure["data"][1:]:
        bars = zip(trace["y"], trace["error_y"]["arrayminus"], strict=True)
        assert all(low < math.log10(y - arm) < high for y, arm in bars)


def test_labels_of_neighbours_take_different_corners(answer: CellTests) -> None:
    near = (cell(97, 0.1, 100e3, 80e3), cell(103, 0.1, 102e3, 81e3), cell(139, 0.1, 300e3, 200e3))
    places = prediction_figure(replace(answer, cells=near))["data"][1]["textposition"]
    assert places[0] != places[1]
    assert places[2] == "top left"  # alone, it has the usual corner


def test_a_residual_has_the_arms_of_both_its_points(answer: CellTests) -> None:
    closed = replace(answer.cells[0], p_onset_low=80e3, p_onset_high=100e3)
    trace = residual_figure(replace(answer, cells=(closed, answer.cells[1])))["data"]
    assert trace[0]["error_y"]["array"][0] > math.log10(100 / 90)
    assert trace[1]["error_y"]["array"] == [0.0]  # its onset is open above


def test_ten_primes_have_ten_colours_in_their_order(answer: CellTests) -> None:
    primes = (97, 101, 103, 107, 109, 113, 127, 131, 137, 139)
    looks = [prime_look(p, primes) for p in primes]
    assert len({colour for colour, _ in looks}) == len({symbol for _, symbol in looks}) == 10
    assert [colour for colour, _ in looks] == list(PRIMES)


def test_a_label_stands_on_no_other_cells_point_or_bar(answer: CellTests) -> None:
    """Two cells as two recorded ones lie: each in the way of the other's usual corner."""
    left = made_up_cell(
        137, 430_000, 270_000, setting={}, p_cross_low=405_000, p_cross_high=475_000,
        p_onset_low=227_000, p_onset_high=320_000, at_cap=False, residual=-0.2,
    )  # fmt: skip
    right = made_up_cell(
        139, 480_000, 232_000, setting={}, p_cross_low=450_000, p_cross_high=520_000,
        p_onset_low=188_000, p_onset_high=285_000, at_cap=False, residual=-0.3,
    )  # fmt: skip
    drawn = prediction_figure(replace(answer, cells=(left, right)))["data"][1]
    assert drawn["textposition"] == ["top left", "bottom right"]
    drawn = prediction_figure(replace(answer, cells=(right, left)))["data"][1]
    assert drawn["textposition"] == ["bottom right", "top left"]
