from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.outliers_influence import OLSInfluence, variance_inflation_factor

from groktime.service.analysis.calibration import (
    clustered_line,
    concordance,
    deming,
    line,
    signed_rank,
    theil_sen,
    tost,
)
from groktime.service.analysis.cells import cells_frame, make_cell
from groktime.service.analysis.hypotheses import hypothesis_tests, sufficiency
from groktime.service.analysis.published import (
    published_scalar,
    published_settings,
    published_tests,
)
from groktime.service.analysis.regression import (
    Design,
    full_rank,
    kendall,
    spearman,
    variance_inflation,
)
from groktime.service.analysis.robustness import robustness, verdict, within_setting
from groktime.service.errors import AnalysisError

TEN = (97, 101, 103, 107, 109, 113, 127, 131, 137, 139)
FIVE = (97, 107, 113, 127, 139)


def k_mem(prime: int) -> float:
    return prime * (prime - 1) // 2 * float(np.log2(prime + 2))


def frame(
    primes: tuple[int, ...] = TEN,
    noise: float = 0.02,
    decay: tuple[float, ...] = (1.0,),
    shift: float = 0.0,
    seed: int = 0,
) -> pd.DataFrame:
    """Onset 0.15 dex below the crossing, shifted per unit of weight decay."""
    rng = np.random.default_rng(seed)
    rows = []
    for wd in decay:
        for p in primes:
            cross = 5.2 + 2.1 * np.log10(p / 97) + 0.05 * wd + noise * rng.normal()
            onset = cross - 0.15 + shift * wd + noise * rng.normal()
            rows.append(
                {
                    "p": p,
                    "p_cross": 10**cross,
                    "p_onset": 10**onset,
                    "k_mem": k_mem(p),
                    "weight_decay": wd,
                    "dropout": 0.2,
                    "inherited": wd == 1.0,
                    "grok_seeds": 10 if wd == 1.0 else 4,
                    "p_onset_first4": 10 ** (onset - 0.08) if wd == 1.0 else 10**onset,
                }
            )
    return pd.DataFrame(rows)


def test_spearman_agrees_with_scipys_permutation_test() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=9)
    y = x + rng.normal(size=9)
    found = spearman(x, y, n_permutations=20_000)
    assert found is not None
    reference = stats.permutation_test(
        (x,),
        lambda a: stats.spearmanr(a, y).statistic,
        permutation_type="pairings",
        n_resamples=4000,
        rng=np.random.default_rng(1),
    )
    assert found.rho == pytest.approx(reference.statistic)
    assert found.p_permutation == pytest.approx(reference.pvalue, abs=0.02)


def test_permutation_p_has_its_floor() -> None:
    x = np.arange(10.0)
    found = spearman(x, x, n_permutations=999)
    assert found is not None
    assert found.p_permutation == found.floor == 1 / 1000
    few = spearman(np.arange(4.0), np.arange(4.0))
    assert few is not None
    assert few.floor == 2 / math.factorial(4)


def test_rank_and_offset_come_with_their_intervals() -> None:
    found = hypothesis_tests(frame(noise=0.05), [], n_resamples=200)
    assert found.spearman is not None
    assert found.wilcoxon is not None
    for estimate, interval in (
        (found.spearman.rho, found.spearman.interval),
        (found.wilcoxon.median_residual, found.wilcoxon.interval),
    ):
        assert interval.low is not None
        assert interval.high is not None
        assert interval.low < estimate < interval.high
    wider = hypothesis_tests(frame(noise=0.05), [], n_resamples=200, level=0.99).spearman
    assert wider is not None
    assert wider.interval.low is not None
    assert wider.interval.low < (found.spearman.interval.low or 0)


@pytest.mark.parametrize(("n", "carries"), [(5, False), (6, True)])
def test_a_concordance_of_few_cells_has_no_interval(n: int, carries: bool) -> None:
    x = np.linspace(5, 6, n)
    found = concordance(x, x + 0.1 * np.sin(7 * x), n_bootstrap=200)
    assert found is not None
    assert (found.low is not None) == (found.high is not None) == carries


def test_the_crossing_and_the_prime_are_called_collinear_only_when_they_are() -> None:
    one = sufficiency(frame(noise=0.001), ["p"])
    assert one is not None
    assert any("the crossing and log p are nearly collinear" in note for note in one.notes)
    free = frame(noise=0.3)
    other = sufficiency(free, ["p"])
    assert other is not None
    assert other.models["M3"].collinear  # log p and log K_mem, which says nothing of the crossing
    assert other.notes == ()


def test_kendall_has_its_floor() -> None:
    rng = np.random.default_rng(0)
    x, y = np.arange(7.0), rng.permutation(np.arange(7.0))
    found = kendall(x, y)
    assert found is not None
    assert found.floor == pytest.approx(2 / math.factorial(7))
    assert found.p_analytic > found.floor
    perfect = kendall(x, x)
    assert perfect is not None
    assert perfect.p_analytic == perfect.floor


@given(st.permutations(range(8)))
@settings(max_examples=20)
def test_order_of_cells_changes_no_rank_statistic(order: list[int]) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=8), rng.normal(size=8)
    assert kendall(x[order], y[order]) == kendall(x, y)


def test_concordance_is_lins_and_its_interval_scipys_bca() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(5, 0.2, size=12)
    y = x - 0.1 + rng.normal(0, 0.05, size=12)
    found = concordance(x, y)
    assert found is not None
    rho = np.corrcoef(x, y)[0, 1]
    lin = 2 * rho * x.std() * y.std() / (x.var() + y.var() + (x.mean() - y.mean()) ** 2)
    assert found.value == pytest.approx(lin)

    def ccc(a: np.ndarray, b: np.ndarray, axis: int) -> np.ndarray:
        cov = (a * b).mean(axis) - a.mean(axis) * b.mean(axis)
        return 2 * cov / (a.var(axis) + b.var(axis) + (a.mean(axis) - b.mean(axis)) ** 2)

    reference = stats.bootstrap(
        (x, y), ccc, paired=True, n_resamples=10_000, rng=np.random.default_rng(0)
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx((reference.low, reference.high), abs=0.02)


def test_concordance_of_equals_is_one() -> None:
    x = np.linspace(5, 6, 8)
    found = concordance(x, x)
    assert found is not None
    assert found.value == pytest.approx(1.0)


def test_joint_f_agrees_with_statsmodels() -> None:
    cells = frame()
    x, y = np.log10(cells["p_cross"].to_numpy()), np.log10(cells["p_onset"].to_numpy())
    found = line(x, y)
    assert found is not None
    reference = sm.OLS(y, sm.add_constant(x)).fit().f_test((np.eye(2), np.array([0.0, 1.0])))
    assert found.f == pytest.approx(float(reference.fvalue))
    assert found.p == pytest.approx(float(reference.pvalue))


def test_the_lines_intervals_agree_with_statsmodels() -> None:
    cells = frame()
    x, y = np.log10(cells["p_cross"].to_numpy()), np.log10(cells["p_onset"].to_numpy())
    found = line(x, y, level=0.9)
    assert found is not None
    fit = sm.OLS(y, sm.add_constant(x)).fit()
    assert [found.intercept_se, found.slope_se] == pytest.approx(fit.bse.tolist())
    (i_low, i_high), (s_low, s_high) = fit.conf_int(0.1).tolist()
    assert (found.intercept_low, found.intercept_high) == pytest.approx((i_low, i_high))
    assert (found.slope_low, found.slope_high) == pytest.approx((s_low, s_high))


def test_wilcoxon_cannot_go_below_its_floor() -> None:
    found = signed_rank(-np.linspace(0.1, 0.2, 10))
    assert found is not None
    assert found.p == found.floor == pytest.approx(0.001953125)


def test_wilcoxon_of_zeros_is_not_testable() -> None:
    assert signed_rank(np.zeros(5)) is None


def test_clustered_errors_agree_with_the_sandwich_formula() -> None:
    cells = frame(FIVE, decay=(0.1, 0.3, 1.0), shift=0.1)
    x, y = np.log10(cells["p_cross"].to_numpy()), np.log10(cells["p_onset"].to_numpy())
    prime = cells["p"].to_numpy()
    found = clustered_line(x, y, prime)
    assert found is not None
    design = sm.add_constant(x)
    residual = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    bread = np.linalg.inv(design.T @ design)
    meat = np.zeros((2, 2))
    for p in set(prime):
        score = design[prime == p].T @ residual[prime == p]
        meat += np.outer(score, score)
    n, k, g = len(x), 2, len(set(prime))
    correction = g / (g - 1) * (n - 1) / (n - k)
    se = np.sqrt((correction * bread @ meat @ bread)[1, 1])
    assert found.slope_se == pytest.approx(se)
    assert (found.df, found.clusters, found.unreliable) == (4, 5, True)


def test_deming_treats_both_axes_alike() -> None:
    cells = frame(noise=0.05)
    x, y = np.log10(cells["p_cross"].to_numpy()), np.log10(cells["p_onset"].to_numpy())
    there, back = deming(x, y), deming(y, x)
    assert there is not None
    assert back is not None
    assert there.slope == pytest.approx(1 / back.slope)
    assert there.low < there.slope < there.high


def test_theil_sen_ignores_an_outlier() -> None:
    x = np.linspace(5, 6, 12)
    y = x - 0.1
    y[-1] += 3
    found = theil_sen(x, y)
    assert found is not None
    assert found.slope == pytest.approx(1.0)


def test_equivalence_needs_precision_and_closeness() -> None:
    assert tost(1.0, 0.01, 8).p < 0.05
    assert tost(1.0, 0.1, 8).p >= 0.05
    assert tost(1.06, 0.001, 8).p >= 0.05
    by_hand = max(stats.t.sf((1.02 - 0.95) / 0.02, 8), stats.t.cdf((1.02 - 1.05) / 0.02, 8))
    assert tost(1.02, 0.02, 8).p == pytest.approx(by_hand)


def test_leave_one_out_and_vif_agree_with_statsmodels() -> None:
    cells = frame(decay=(0.1, 1.0), shift=0.1)
    found = sufficiency(cells, ["weight_decay"])
    assert found is not None
    model = found.models["MP+"]
    y = np.log10(cells["p_onset"].to_numpy())
    columns = {
        "log10(p_cross)": np.log10(cells["p_cross"].to_numpy()),
        "log10(p)": np.log10(cells["p"].to_numpy()),
    }
    design = sm.add_constant(np.column_stack([columns[n] for n in model.predictors]))
    fit = sm.OLS(y, design).fit()
    press = OLSInfluence(fit).resid_press
    assert model.loo_rmse == pytest.approx(np.sqrt(np.mean(press**2)))
    vif = [variance_inflation_factor(design, k) for k in (1, 2)]
    assert model.largest_vif == pytest.approx(max(vif))
    assert model.rss == pytest.approx(fit.ssr)
    test = found.tests["MP+_vs_MP"]
    f, p, _ = fit.compare_f_test(sm.OLS(y, sm.add_constant(columns["log10(p)"])).fit())
    assert (test.f, test.p) == pytest.approx((f, p))


def test_the_last_batch_is_a_predictor_where_it_differs() -> None:
    """Its share of a batch of 512 moves crossing and onset: beside both, the crossing adds none."""
    share = np.array([p * (p - 1) // 2 % 512 / 512 for p in TEN])
    cells = pd.DataFrame(
        {
            "p": TEN,
            "last_batch": share,
            "p_cross": frame(noise=0.005)["p_cross"] * share**-0.2,
            "p_onset": frame(noise=0.005, seed=1)["p_onset"] * share**-0.2,
        }
    )
    found, alike = sufficiency(cells, ()), sufficiency(cells.assign(last_batch=0.3 + share / 4), ())
    assert found is not None
    assert alike is not None
    assert "MB" not in alike.models
    log_p, x, y = (np.log10(cells[name]) for name in ("p", "p_cross", "p_onset"))
    prime, both, three = (
        sm.OLS(y, sm.add_constant(np.column_stack(columns))).fit()
        for columns in ([log_p], [log_p, np.log10(share)], [log_p, np.log10(share), x])
    )
    for name, larger, smaller in (("MB_vs_MP", both, prime), ("MB+_vs_MB", three, both)):
        f, p, _ = larger.compare_f_test(smaller)
        assert found.tests[name].f == pytest.approx(f)
        assert found.tests[name].p == pytest.approx(p)
    assert found.tests["MB_vs_MP"].p < 1e-4 < 0.05 < found.tests["MB+_vs_MB"].p
    assert found.last_batch is not None
    assert found.last_batch.value == pytest.approx(both.params.iloc[-1])
    interval = (found.last_batch.low, found.last_batch.high)
    assert interval == pytest.approx(both.conf_int().iloc[-1])


def test_cells_that_share_a_prime_share_its_last_batch_and_test_nothing_of_it() -> None:
    share = np.array([p * (p - 1) // 2 % 512 / 512 for p in TEN])
    once = frame().assign(last_batch=share)
    found = sufficiency(pd.concat([once, once.assign(p_onset=once["p_onset"] * 1.1)]), ())
    assert found is not None
    assert "MB" not in found.models
    assert found.last_batch is None


def test_a_last_batch_that_follows_from_the_prime_has_no_slope() -> None:
    primes = np.array([64.0, 128.0, 256.0, 512.0, 1024.0])
    onset = np.array([1.0, 2.0, 4.1, 8.3, 15.0])
    cells = pd.DataFrame(
        {"p": primes, "last_batch": primes, "p_cross": onset * [2, 1, 2, 3, 2], "p_onset": onset}
    )
    found = sufficiency(cells, ())
    assert found is not None
    assert not found.tests["MB_vs_MP"].testable
    assert found.last_batch is None


def test_a_constant_axis_is_not_testable_and_costs_nothing() -> None:
    found = sufficiency(frame()[["p", "p_cross", "p_onset", "dropout"]], ["dropout"])
    assert found is not None
    assert "dropout" in found.models["M2"].dropped
    trend = robustness(frame(), ["dropout"])[0]
    assert not trend.testable
    assert trend.p_raw is None


def test_the_paper_counts_a_constant_axis_as_a_degree_of_freedom() -> None:
    found = sufficiency(frame(), ["dropout"], method="paper")
    assert found is not None
    m1, m3 = found.tests["M1_vs_M0"], found.tests["M3_vs_M2"]
    assert m3.df_den == m1.df_den - 1
    # The printed pair 569 and 498: the same gain over one degree of freedom less.
    assert (m3.f or 0) / (m1.f or 1) == pytest.approx(7 / 8)
    assert found.models["M2"].r_squared_adjusted == pytest.approx(-0.125)


def test_ten_primes_are_called_nearly_collinear() -> None:
    found = sufficiency(frame(), [])
    assert found is not None
    assert found.log_prime_span == pytest.approx(0.156, abs=5e-4)
    assert any("nearly collinear" in note for note in found.notes)
    assert found.models["M3"].collinear


def test_a_model_without_degrees_of_freedom_is_not_testable() -> None:
    found = sufficiency(frame(FIVE[:4], decay=(1.0,)), ["weight_decay"])
    assert found is not None
    test = found.tests["M3_vs_M2"]
    assert not test.testable
    assert "degrees of freedom" in test.reason
    assert found.models["M3"].aicc is None


def test_columns_without_rank_are_dropped_in_order() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=9), rng.normal(size=9)
    design = Design(("a", "b", "sum", "one"), np.column_stack([a, b, a + b, np.ones(9)]))
    kept, dropped = full_rank(design)
    assert kept.names == ("a", "b")
    assert dropped == ("sum", "one")
    assert set(variance_inflation(design)) == {"a", "b", "sum", "one"}
    assert variance_inflation(design)["sum"] == math.inf


def test_a_trend_along_an_axis_is_found_and_holm_corrected() -> None:
    cells = frame(FIVE, decay=(0.0, 0.1, 0.3, 1.0), shift=0.3)
    by_axis = {t.axis: t for t in robustness(cells, ["weight_decay", "p"])}
    decay = by_axis["weight_decay"]
    assert decay.slope == pytest.approx(0.3, abs=0.03)
    assert decay.p_holm == pytest.approx(2 * (decay.p_raw or 0))
    assert decay.p_clustered is not None
    assert decay.unreliable


def test_an_axis_on_another_scale() -> None:
    cells = frame(FIVE, decay=(0.5, 1.0, 2.0), shift=0.0)
    cells["p_onset"] *= 10 ** (0.2 * np.log2(cells["weight_decay"]))
    trend = robustness(cells, ["weight_decay"], scales={"weight_decay": "log2"})[0]
    assert trend.slope == pytest.approx(0.2, abs=0.03)
    with pytest.raises(AnalysisError, match="weight_decay: 0 has no log2"):
        robustness(frame(FIVE, decay=(0.0, 1.0)), ["weight_decay"], scales={"weight_decay": "log2"})


def test_text_axes_are_compared_as_groups() -> None:
    cells = frame(FIVE, decay=(0.0, 1.0), shift=0.3)
    cells["operation"] = np.where(cells["weight_decay"] > 0, "/", "+")
    trend = robustness(cells, ["operation"])[0]
    groups = [np.log10(g["p_onset"] / g["p_cross"]) for _, g in cells.groupby("operation")]
    assert trend.kind == "categorical"
    assert trend.f == pytest.approx(stats.f_oneway(*groups).statistic)


@pytest.mark.parametrize(
    ("n", "std", "label"),
    [
        (5, 0.024, "strong"),
        (5, 0.065, "strong"),
        (5, 0.066, "moderate"),
        (6, 0.11, "moderate"),
        (6, 0.119, "weak"),
        (2, 0.01, "under_resolved"),
        (1, None, "under_resolved"),
        (0, None, "no_cells"),
    ],
)
def test_verdicts_follow_the_stated_rules(n: int, std: float | None, label: str) -> None:
    assert verdict(n, std) == label


# Suites of which the paper prints a within-setting table.
SETTINGS_PRINTED = (
    "init_scale",
    "weight_decay",
    "learning_rate",
    "train_fraction",
    "depth",
    "operation",
)


def test_printed_verdicts_are_reproduced_except_two() -> None:
    wrong = []
    for suite in SETTINGS_PRINTED:
        for row in published_settings(suite):
            if row.std is None or row.verdict is None or row.n_primes == 0:
                continue
            if verdict(row.n_primes, row.std) != row.verdict:
                wrong.append((suite, row.setting))
    assert wrong == [("train_fraction", 0.6), ("train_fraction", 0.7)]


def test_within_setting_counts_lost_cells_and_names_the_driver() -> None:
    cells = frame(FIVE, decay=(0.1, 1.0), noise=0.005)
    cells.loc[cells["p"].eq(139) & cells["weight_decay"].eq(0.1), "p_onset"] *= 3
    cells.loc[cells["p"].eq(97) & cells["weight_decay"].eq(1.0), "p_onset"] = np.nan
    cells["onset_status"] = "separated"
    cells.loc[cells["p_onset"].isna(), "onset_status"] = "above_range"
    low, high = within_setting(cells, ["weight_decay", "p"])
    assert (low.setting, low.verdict, low.driver_prime) == ({"weight_decay": 0.1}, "weak", 139)
    assert (high.n, high.n_total, high.verdict) == (4, 5, "strong")
    assert high.lost == {"onset: above_range": 1}
    assert high.n_inherited == 4


def test_the_whole_suite_in_both_conventions() -> None:
    cells = frame(FIVE, decay=(0.1, 0.3, 1.0), shift=0.1)
    robust = hypothesis_tests(cells, ["weight_decay"], n_resamples=500)
    paper = hypothesis_tests(cells, ["weight_decay"], method="paper", n_resamples=500)
    assert robust.spearman == paper.spearman
    assert robust.line == paper.line
    assert robust.equivalence is not None
    assert robust.equivalence.errors == "clustered by prime"
    assert robust.ccc is not None
    assert robust.ccc.interval == "bca"
    assert paper.ccc is not None
    assert paper.ccc.interval == "percentile"
    assert (paper.clustered, paper.theil_sen, paper.equivalence) == (None, None, None)
    assert robust.first_four is not None
    assert robust.first_four.median_residual is not None
    assert robust.wilcoxon is not None
    assert robust.first_four.median_residual < robust.wilcoxon.median_residual
    assert [w.setting["weight_decay"] for w in robust.within] == [0.1, 0.3, 1.0]


@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("method", ["paper", "robust"])
def test_few_cells_give_no_numbers_instead_of_wrong_ones(n: int, method: str) -> None:
    cells = frame().head(n) if n else frame().head(0)
    found = hypothesis_tests(cells, ["weight_decay"], method=method, n_resamples=100)
    assert found.n == n
    if n < 3:
        assert found.spearman is None
        assert found.line is None
        assert found.nested is None


def test_cells_without_crossing_or_onset_are_counted_not_used() -> None:
    cells = frame()
    cells.loc[0, "p_cross"] = np.nan
    found = hypothesis_tests(cells, [], n_resamples=100)
    assert (found.n, found.n_total) == (9, 10)


def test_onsets_at_the_edge_count_without_a_value() -> None:
    cells = frame().assign(at_floor=False, at_cap=False)
    cells.loc[0, "p_onset"], cells.loc[0, "at_floor"] = np.nan, True
    cells.loc[1, "at_cap"] = True
    found = hypothesis_tests(cells, [], n_resamples=100)
    assert (found.n, found.n_at_floor, found.n_at_cap) == (9, 1, 1)


def test_a_missing_axis_is_named() -> None:
    with pytest.raises(AnalysisError, match="no column 'depth'"):
        hypothesis_tests(frame(), ["depth"])


def test_cells_are_made_from_runs(cells: Callable[..., Any]) -> None:
    made = []
    for i, p in enumerate(FIVE):
        drawn = cells(crossing=1e5 * 1.3**i, rng=np.random.default_rng(i))
        mem, _ = drawn.pair()
        grok = drawn.grok(onset=0.7e5 * 1.3**i)
        made.append(make_cell(p, {"weight_decay": 1.0}, k_mem(p), mem, grok, n_resamples=200))
    table = cells_frame(made)
    assert table["setting"].tolist() == ["weight_decay=1.0"] * 5
    residual = [c.residual for c in made]
    assert all(r is not None and -0.5 < r < 0.2 for r in residual)
    assert np.log10(table["p_onset"] / table["p_cross"]).tolist() == pytest.approx(residual)
    assert table["p_onset_first4"].notna().all()
    found = hypothesis_tests(table, ["weight_decay"], n_resamples=200)
    assert found.spearman is not None
    assert found.spearman.rho == pytest.approx(1.0)


def test_unequal_grok_seeds_count_where_speed_seeds_are_equal(cells: Callable[..., Any]) -> None:
    """The onset rests on grok runs alone, however few seeds the speed runs have."""
    made = []
    for i, p in enumerate(FIVE):
        drawn = cells(crossing=1e5 * 1.3**i, rng=np.random.default_rng(i))
        mem, _ = drawn.pair()
        mem = mem.where(np.isin(mem.seed, mem.seeds[:3]))
        grok = drawn.grok(onset=0.7e5 * 1.3**i)
        grok = grok.first_seeds(4 if i else len(grok.seeds))
        made.append(make_cell(p, {}, k_mem(p), mem, grok, n_resamples=0))
    table = cells_frame(made)
    assert table["grok_seeds"].tolist() == [10, 4, 4, 4, 4]
    found = hypothesis_tests(table, [], n_resamples=100)
    assert found.first_four is not None
    assert found.first_four.n == 5


def test_published_values_are_at_hand() -> None:
    central = published_tests("central")
    assert central["spearman"].statistic == 0.976
    assert central["ccc"].ci == (0.51, 0.80)
    assert central["joint_f"].cells == 10
    assert published_scalar("c_model") == 2.16
    assert published_scalar("nothing of the kind") is None
    assert published_settings("central") == ()
    assert [r.n_primes for r in published_settings("init_scale")] == [5, 5, 5]
