"""What the paper printed and what its released code gave, to be set beside ours."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from groktime.service.analysis.calibration import concordance_coefficient
from groktime.service.analysis.delay import delay_curve, paper_onset
from groktime.service.analysis.hypotheses import CROSSING, HypothesisTests, hypothesis_tests
from groktime.service.analysis.roots import closest_approach
from groktime.service.errors import AnalysisError


@dataclass(frozen=True)
class PublishedTest:
    """One row of a pooled table; the texts are as printed."""

    suite: str
    table: str
    cells: int
    test: str
    statistic: float | None
    statistic_text: str | None
    statistic_kind: str | None
    p: float | None
    p_text: str | None
    p_relation: str | None
    ci: tuple[float, float] | None
    axis: str | None


@dataclass(frozen=True)
class PublishedSetting:
    """One row of a within-setting table."""

    suite: str
    table: str
    axis: str
    setting: float | int | str
    n_primes: int
    n_primes_total: int | None
    median_residual: float | None
    std: float | None
    verdict: str | None


@cache
def _published() -> dict[str, Any]:
    text = (
        resources.files("groktime.service.analysis").joinpath("golden/published.json").read_text()
    )
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def _tables(suite: str, kind: Literal["pooled", "within"]) -> list[dict[str, Any]]:
    return [t for t in _published()["tables"] if t["suite"] == suite and t["kind"] == kind]


def published_tests(suite: str) -> dict[str, PublishedTest]:
    """The pooled table of a suite by test name; empty when the paper printed none."""
    rows = {}
    for table in _tables(suite, "pooled"):
        for row in table["rows"]:
            rows[row["test"]] = PublishedTest(
                suite=suite,
                table=table["label"],
                cells=table["cells"],
                test=row["test"],
                statistic=row["statistic"],
                statistic_text=row.get("statistic_text"),
                statistic_kind=row.get("statistic_kind"),
                p=row.get("p"),
                p_text=row.get("p_text"),
                p_relation=row.get("p_relation"),
                ci=tuple(row["ci"]) if row.get("ci") else None,
                axis=row.get("axis"),
            )
    return rows


def published_settings(suite: str) -> tuple[PublishedSetting, ...]:
    """The within-setting table of a suite; empty when the paper printed none."""
    return tuple(
        PublishedSetting(
            suite=suite,
            table=table["label"],
            axis=table["axis"],
            setting=row["setting"],
            n_primes=row["n_primes"],
            n_primes_total=row.get("n_primes_total"),
            median_residual=row.get("median_residual"),
            std=row.get("std"),
            verdict=row.get("verdict"),
        )
        for table in _tables(suite, "within")
        for row in table["rows"]
    )


def published_scalar(name: str) -> Any:
    """A number from the running text by its name, such as `c_model`; None if not printed."""
    for scalar in _published()["scalars"]:
        if scalar["name"] == name:
            return scalar["value"]
    return None


EXACT = 1e-9  # relative, for deterministic values
FLOOR = 1e-12  # absolute: a recorded 0 is met by anything as small
MONTE_CARLO = 4.0  # standard errors, for permutation and bootstrap values
RESAMPLES_OF_RESAMPLES = 200  # to learn the Monte-Carlo error of a bootstrap quantile


@dataclass(frozen=True)
class Check:
    """One golden statistic: what the file expects and what this package computes."""

    name: str
    expected: float | str | None
    got: float | str | None
    tolerance: float  # absolute
    ok: bool


def golden_statistics() -> dict[str, Any]:
    """The tables shipped with the package."""
    text = (
        resources.files("groktime.service.analysis").joinpath("golden/statistics.json").read_text()
    )
    golden: dict[str, Any] = json.loads(text)
    return golden


def verify_statistics(source: str | Path | Mapping[str, Any] | None = None) -> list[Check]:
    """Recompute every statistic of a golden file (by default the shipped one)."""
    golden = _load(source)
    checks: list[Check] = []
    for name, table in golden.items():
        try:
            checks.extend(_checks(name, table))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise AnalysisError(f"{name}: not a golden table: {error!r}") from error
    return checks


def _checks(name: str, table: Any) -> Iterator[Check]:
    if name == "crossings":
        yield from _crossings(table)
    elif name == "onsets":
        yield from _onsets(table)
    elif isinstance(table, Mapping) and {"axes", "cells", "expected"} <= set(table):
        yield from _table(name, table)
    else:
        raise AnalysisError(
            f"{name}: not crossings, onsets or a table with axes, cells and expected"
        )


def _load(source: str | Path | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if source is None:
        return golden_statistics()
    if isinstance(source, Mapping):
        return source
    try:
        loaded = json.loads(Path(source).read_text())
    except OSError as error:
        raise AnalysisError(f"{source}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise AnalysisError(f"{source}: not JSON ({error})") from error
    if not isinstance(loaded, dict):
        raise AnalysisError(f"{source}: not a JSON object of named tables")
    return loaded


def _number(name: str, expected: Any, got: Any, tolerance: float | None = None) -> Check:
    if expected is None or got is None:
        return Check(name, expected, got, 0.0, expected is None and got is None)
    allowed = max(EXACT * abs(expected) if tolerance is None else tolerance, FLOOR)
    return Check(name, expected, got, allowed, bool(abs(got - expected) <= allowed))


def _text(name: str, expected: str, got: str) -> Check:
    return Check(name, expected, got, 0.0, expected == got)


def _crossings(cases: list[Mapping[str, Any]]) -> Iterator[Check]:
    for i, case in enumerate(cases):
        mem, gen = np.array(case["t_mem"]).T, np.array(case["t_gen"]).T
        found = closest_approach(mem[0], mem[1], gen[0], gen[1])
        params, epochs = case["expected"] or (None, None)  # null: the curves have no crossing
        yield _number(f"crossings[{i}].params", params, found and found.params)
        yield _number(f"crossings[{i}].epochs", epochs, found and found.epochs)


def _onsets(cases: list[Mapping[str, Any]]) -> Iterator[Check]:
    for i, case in enumerate(cases):
        params, delay = np.array(case["delays"]).T
        curve = delay_curve(np.zeros(len(params), dtype=np.int64), params, delay)
        expected = dict(case["expected_min_delay"])
        got = {float(point.params): point.minimum for point in curve}
        for p in sorted(expected | got):
            yield _number(f"onsets[{i}].min_delay[{p:g}]", expected.get(p), got.get(p))
        onset = paper_onset(np.array(list(got)), np.array(list(got.values())))[0]
        yield _number(f"onsets[{i}].onset", case["expected_onset"], onset)


def _table(name: str, table: Mapping[str, Any]) -> Iterator[Check]:
    cells = pd.DataFrame(table["cells"]).rename(
        columns={"predicted_onset_x": "p_cross", "empirical_onset_x": "p_onset"}
    )
    expected = table["expected"]
    permutations = int(expected["spearman"]["n_permutations"])
    bootstraps = int(expected["ccc"]["n_bootstrap"])
    got = hypothesis_tests(cells, table["axes"], method="paper", n_resamples=bootstraps)
    shuffled = hypothesis_tests(cells, table["axes"], method="paper", n_resamples=permutations)
    yield _number(f"{name}.n", expected["n"], got.n)
    yield from _rank(name, expected, got, shuffled)
    yield from _calibration(name, expected, got, cells)
    yield from _nested(name, expected["nested"], got)
    yield from _robustness(name, expected["robustness"], got)


def _rank(
    name: str, expected: Mapping[str, Any], got: HypothesisTests, shuffled: HypothesisTests
) -> Iterator[Check]:
    assert got.spearman is not None
    assert got.kendall is not None
    assert shuffled.spearman is not None
    want = expected["spearman"]
    yield _number(f"{name}.spearman.rho", want["rho"], got.spearman.rho)
    yield _number(f"{name}.spearman.p_analytic", want["p_analytic"], got.spearman.p_analytic)
    p, n = shuffled.spearman.p_permutation, int(want["n_permutations"])
    # Both p are estimates from n shuffles; the larger sets the error of their difference.
    rate = max(p, want["p_permutation"])
    error = float(np.sqrt(2 * rate * (1 - rate) / n))
    yield _number(f"{name}.spearman.p_permutation", want["p_permutation"], p, MONTE_CARLO * error)
    yield _number(f"{name}.kendall.tau", expected["kendall"]["tau"], got.kendall.tau)
    yield _number(
        f"{name}.kendall.p_analytic", expected["kendall"]["p_analytic"], got.kendall.p_analytic
    )


def _calibration(
    name: str, expected: Mapping[str, Any], got: HypothesisTests, cells: pd.DataFrame
) -> Iterator[Check]:
    assert got.ccc is not None
    assert got.line is not None
    assert got.wilcoxon is not None
    want = expected["ccc"]
    yield _number(f"{name}.ccc.value", want["value"], got.ccc.value)
    low_error, high_error = _quantile_errors(cells, int(want["n_bootstrap"]))
    yield _number(f"{name}.ccc.ci_low", want["ci_low"], got.ccc.low, MONTE_CARLO * low_error)
    yield _number(f"{name}.ccc.ci_high", want["ci_high"], got.ccc.high, MONTE_CARLO * high_error)
    for field in (
        "slope",
        "intercept",
        "f",
        "df_num",
        "df_den",
        "p",
        "rss_full",
        "rss_restricted",
    ):
        want_field = expected["joint_f"][field]
        yield _number(f"{name}.joint_f.{field}", want_field, getattr(got.line, field))
    want = expected["wilcoxon"]
    wilcoxon = got.wilcoxon
    yield _number(
        f"{name}.wilcoxon.median_log_ratio", want["median_log_ratio"], wilcoxon.median_residual
    )
    yield _number(f"{name}.wilcoxon.w", want["w"], wilcoxon.w)
    yield _number(f"{name}.wilcoxon.p", want["p"], wilcoxon.p)
    yield _number(f"{name}.wilcoxon.n", want["n"], wilcoxon.n)


def _quantile_errors(cells: pd.DataFrame, n_bootstrap: int) -> tuple[float, float]:
    """Standard errors of the difference of two bootstrap runs' 2.5 % and 97.5 % quantiles.

    Learnt by resampling one run's resamples: a quantile's error needs no density that way.
    """
    rng = np.random.default_rng(1)
    x, y = np.log10(cells["p_cross"].to_numpy()), np.log10(cells["p_onset"].to_numpy())
    drawn = rng.integers(0, len(x), size=(n_bootstrap, len(x)))
    values = np.sort(concordance_coefficient(x[drawn], y[drawn]))
    values = values[np.isfinite(values)]
    errors = []
    for q in (0.025, 0.975):
        # The rank of a sample quantile is binomial, so draw ranks instead of samples.
        ranks = rng.binomial(len(values), q, size=RESAMPLES_OF_RESAMPLES)
        errors.append(float(np.std(values[np.minimum(ranks, len(values) - 1)])))
    return float(np.sqrt(2) * errors[0]), float(np.sqrt(2) * errors[1])


MODEL_FIELDS = {"rss": "rss", "df": "df", "r2": "r_squared", "r2_adj": "r_squared_adjusted"}


def _nested(name: str, expected: Mapping[str, Any], got: HypothesisTests) -> Iterator[Check]:
    assert got.nested is not None
    for label, want in expected["models"].items():
        model = got.nested.models[label]
        for field, ours in MODEL_FIELDS.items():
            yield _number(f"{name}.nested.{label}.{field}", want[field], getattr(model, ours))
        yield _number(
            f"{name}.nested.{label}.n_predictors", want["n_predictors"], len(model.predictors)
        )
        names = [CROSSING if "predicted_onset_x" in p else p for p in want["predictors"]]
        yield _text(
            f"{name}.nested.{label}.predictors", ", ".join(names), ", ".join(model.predictors)
        )
    for label, want in expected["ftests"].items():
        test = got.nested.tests[label]
        for field in ("f", "df_num", "df_den", "p"):
            # F is a small difference of nearly equal sums of squares; it loses digits.
            tolerance = 1e-7 * abs(want[field])
            yield _number(
                f"{name}.nested.{label}.{field}", want[field], getattr(test, field), tolerance
            )


def _robustness(name: str, expected: Mapping[str, Any], got: HypothesisTests) -> Iterator[Check]:
    trends = {t.axis: t for t in got.robustness}
    for axis, want in expected["axes"].items():
        trend = trends[axis]
        yield _text(f"{name}.robustness.{axis}.kind", want["kind"], trend.kind)
        for field in want:
            if field != "kind":
                yield _number(
                    f"{name}.robustness.{axis}.{field}", want[field], getattr(trend, field)
                )
