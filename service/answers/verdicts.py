"""Answers in plain language: what each test asks, what it found, what the paper printed for a suite
like ours, and parts of sentences that the page and the reports share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

import pandas as pd
from sqlalchemy import Connection

from groktime.db.records import SuiteRecord, coverage_frame
from groktime.service.analysis.calibration import (
    ClusteredLine,
    Concordance,
    Equivalence,
    Line,
    RobustSlope,
    SignedRank,
)
from groktime.service.analysis.capacity import BitsPerParameter
from groktime.service.analysis.hypotheses import (
    FirstFourSeeds,
    Model,
    NestedTest,
    SeedsApart,
    Slope,
)
from groktime.service.analysis.inputs import finite
from groktime.service.analysis.published import (
    PublishedSetting,
    PublishedTest,
    published_scalar,
    published_settings,
    published_tests,
)
from groktime.service.analysis.regression import Kendall, Spearman
from groktime.service.analysis.robustness import AxisTrend
from groktime.service.answers.cell import setting_value, sortable, swept_axes
from groktime.service.answers.cell_tests import CellTests, Pooled, pooled_tests
from groktime.service.answers.question import SettingValue, Thresholds
from groktime.service.spec import SETTING_COLUMNS, ModelSpec, ModularData, OptimiserSpec
from groktime.service.words import (
    EN_DASH,
    LARGE_F,
    Evidence,
    axis_name,
    count,
    dex,
    evidence,
    human,
    is_shown,
    p_value,
    percent,
    plain,
    real,
    scientific,
)

MORRIS_BITS = 3.6  # bits per parameter of language models, Morris et al. (2025)
PAPER_BITS = float(published_scalar("c_model"))

# The published table of each set of swept axes.
TABLES: Mapping[tuple[str, ...], str] = {
    (): "central",
    ("init_scale",): "init_scale",
    ("weight_decay",): "weight_decay",
    ("lr",): "learning_rate",
    ("train_fraction",): "train_fraction",
    ("depth",): "depth",
    ("operation",): "operation",
}
PUBLISHED_OPERATIONS: list[SettingValue] = ["+", "/"]
# What every published run has in common: the usual values of a spec, which are the paper's, but
# for positions, which its code never trained.
PUBLISHED_RUNS: Mapping[str, SettingValue] = {
    name: field.default
    for part in (ModularData, ModelSpec, OptimiserSpec)
    for name, field in part.model_fields.items()
    if name in SETTING_COLUMNS
} | {"positions": "none"}
TASK = ("task", "operation")


@dataclass(frozen=True)
class Reference:
    """The paper's tables for these axes.

    `differences` name settings that our runs have otherwise, and other primes; `same_settings`
    is false when a setting differs, `same_model` when one of the network does, so that the
    printed values are another model's.
    """

    suite: str
    tests: Mapping[str, PublishedTest]
    settings: tuple[PublishedSetting, ...]
    residuals: Mapping[int, float]
    differences: tuple[str, ...]
    same_settings: bool
    same_model: bool

    @property
    def column(self) -> str:
        return "paper" if self.same_model else "paper (another model)"

    @property
    def note(self) -> str:
        """Whose numbers the paper's column holds, and in what those runs differ."""
        head = f"The paper's values are those of its table for {self.suite}."
        if not self.same_model:
            head += " They are another model's: set beside ours for information, not as a target."
        if not self.differences:
            return f"{head} Our runs have the same settings and primes."
        return f"{head} Our runs differ in: {'; '.join(self.differences)}."

    def setting(self, axis: str, value: object) -> PublishedSetting | None:
        """The printed within-setting row of one value of the axis."""
        return next((s for s in self.settings if s.axis == axis and s.setting == value), None)


MODEL = frozenset(
    ("architecture", "depth", "heads", "positions", "norm", "ffn", "released_head_projection")
)


def suite_reference(connection: Connection, suite: SuiteRecord) -> Reference | None:
    """The paper's tables for the whole suite, whichever part of it is asked about."""
    shape = coverage_frame(connection, suite.id, ("prime", *SETTING_COLUMNS))
    return find_reference(shape, swept_axes(shape))


def find_reference(runs: pd.DataFrame, axes: tuple[str, ...]) -> Reference | None:
    """The paper's tables to set beside a suite of these runs; None where it printed none."""
    name = TABLES.get(axes)
    if name is None or not len(runs):
        return None
    grok = runs[runs["kind"] == "grok"]
    differing = {
        column: values
        for column in SETTING_COLUMNS
        if column not in axes and (values := _values(grok, column)) != [PUBLISHED_RUNS[column]]
    }
    if any(column in differing for column in TASK):
        return None
    operations = _values(grok, "operation")
    if axes == ("operation",) and not set(PUBLISHED_OPERATIONS) <= set(operations):
        return None
    # Numbers over all cells say something else where there are other operations among them.
    pooled = axes != ("operation",) or operations == PUBLISHED_OPERATIONS
    words = [
        f"{column} {', '.join(map(str, values))} (published: {PUBLISHED_RUNS[column]})"
        for column, values in differing.items()
    ]
    words += _other_primes(grok, name)
    if not pooled:
        ours, theirs = (", ".join(map(str, some)) for some in (operations, PUBLISHED_OPERATIONS))
        words.append(
            f"operations {ours} (published: {theirs}, so that pooled tests do not compare)"
        )
    return Reference(
        suite=name,
        tests=published_tests(name) if pooled else {},
        settings=published_settings(name),
        residuals=_printed_residuals() if name == "central" else {},
        differences=tuple(words),
        same_settings=not differing,
        same_model=not MODEL & set(differing),
    )


def _values(runs: pd.DataFrame, column: str) -> list[SettingValue]:
    return sorted({setting_value(value) for value in runs[column]}, key=sortable)


def _other_primes(grok: pd.DataFrame, name: str) -> list[str]:
    ours = sorted({int(p) for p in grok["prime"]})
    theirs = [int(p) for p in published_scalar(f"{name}_primes") or ()]
    if ours == theirs:
        return []
    return [f"primes {', '.join(map(str, ours))} (published: {', '.join(map(str, theirs))})"]


def _printed_residuals() -> dict[int, float]:
    """log10(P_onset / P_cross) that the text prints for five primes of the central sweep."""
    primes = published_scalar("init_scale_primes")
    return dict(zip(primes, published_scalar("central_per_prime_residuals"), strict=True))


Tone = Literal["plain", "good", "warn", "bad"]
Verdict = tuple[str, Tone]


class Row(TypedDict):
    """One test: the question it asks, its numbers, what they say, and what the paper printed."""

    group: str
    name: str
    value: str
    p: str
    n: int
    verdict: str
    tone: Tone
    note: str
    paper: str


GROUPS = {
    "rank": "Does a larger crossing mean a larger onset?",
    "concordance": "Do the two agree in value?",
    "calibration": "Is the line y = x?",
    "residuals": "Is there a constant offset?",
    "equivalence": "Is the slope close to 1?",
    "sufficiency": "Does the crossing carry the information?",
    "robustness": "Does the residual depend on a setting?",
}
NAMES = {
    "spearman": "Spearman ρ",
    "kendall": "Kendall τ",
    "ccc": "Lin's concordance",
    "slope": "OLS slope",
    "slope, clustered": "OLS slope, clustered errors",
    "slope, theil sen": "Theil–Sen slope",
    "slope, deming": "Deming slope",
    "intercept": "OLS intercept",
    "F": "joint F (slope 1, intercept 0)",
    "wilcoxon": "Wilcoxon signed rank",
    "median": "median residual",
    "median, first four seeds": "median residual, first four seeds",
    "tost": "equivalence of the slope",
    "slope on last batch": "slope on last batch",
}
CROSSING, BATCH = "the crossing", "the size of the last batch"
# What the larger of two models adds, and beyond what, by their names.
ADDED = {
    ("M1", "M0"): (CROSSING, "a constant"),
    ("M3", "M2"): (CROSSING, "the prime and the settings together"),
    ("MP+", "MP"): (CROSSING, "the prime alone"),
    ("MK+", "MK"): (CROSSING, "the dataset's complexity alone"),
    ("MB+", "MB"): (CROSSING, "the prime and the size of the last batch"),
    ("MB", "MP"): (BATCH, "the prime alone"),
    ("M3", "M1"): ("the settings", CROSSING),
    ("MB+", "M1"): ("prime and last batch", CROSSING),
}
PREDICTORS = {
    "M1": "the crossing alone",
    "MP": "the prime alone (log p)",
    "MK": "the dataset's complexity alone (log K_mem)",
    "MB": "the prime and the size of the last batch",
    "M2": "the prime and the settings together",
    "M0": "a constant",
}
# Our name of a statistic -> the paper's row.
PUBLISHED = {
    "spearman": "spearman",
    "kendall": "kendall",
    "ccc": "ccc",
    "slope": "ols_slope",
    "intercept": "ols_intercept",
    "F": "joint_f",
    "wilcoxon": "wilcoxon",
    "median": "wilcoxon",
}
PUBLISHED_MODELS = {("M1", "M0"): "m1_vs_m0", ("M3", "M2"): "m3_vs_m2", ("M3", "M1"): "m3_vs_m1"}
# The published M2 held no prime, and a column that was the same in every cell.
OTHER_M2 = (("M3", "M2"), ("M3", "M1"))


def table(found: CellTests, reference: Reference | None) -> list[Row]:
    """Every test with its verdict, question by question."""
    printed: Mapping[str, PublishedTest] = {} if reference is None else reference.tests
    rows = [row(pooled, printed) for pooled in pooled_tests(found.tests)]
    order = list(GROUPS.values())
    return sorted(
        rows + left_out(found) + seeds_apart(found.tests.apart),
        key=lambda r: order.index(r["group"]),
    )


class Claim(TypedDict):
    """One of the three parts of the claim: its number here, and whether it holds."""

    claim: str
    number: str
    verdict: str
    tone: Tone
    detail: str


def claims(found: CellTests) -> list[Claim]:
    """Order, value and information: what the paper claims of the crossing, put to these cells."""
    return [_order_claim(found), _value_claim(found), _information_claim(found)]


NOT_TESTABLE: tuple[str, Tone] = ("not testable", "plain")


def _order_claim(found: CellTests) -> Claim:
    rank = found.tests.spearman
    verdict, tone, number, detail = *NOT_TESTABLE, EN_DASH, "too few cells"
    if rank is not None:
        number = (
            f"ρ = {real(finite(rank.rho), finite(rank.interval.low), finite(rank.interval.high))}"
        )
        detail = f"{count(rank.n, 'cell')}, permutation p = {p_value(rank.p_permutation)}"
        if is_shown(rank.p_permutation, rank.floor):
            verdict, tone = ("holds", "good") if rank.rho > 0 else ("reversed", "bad")
        elif evidence(rank.p_permutation, rank.floor) == "not shown":
            verdict, tone = "not shown", "warn"
    return {
        "claim": "A larger crossing means a larger onset",
        "number": number,
        "verdict": verdict,
        "tone": tone,
        "detail": detail,
    }


def _value_claim(found: CellTests) -> Claim:
    test = found.tests.wilcoxon
    verdict, tone, number, detail = *NOT_TESTABLE, EN_DASH, "no cell has both points"
    if test is not None:
        middle, low, high = test.median_residual, test.interval.low, test.interval.high
        number = f"{10**middle:.2f} × the crossing"
        detail = f"median residual {dex(middle)}, {count(test.n, 'cell')}"
        if low is not None and high is not None:
            number = f"{10**middle:.2f} [{10**low:.2f}, {10**high:.2f}] × the crossing"
            if low <= 0 <= high:
                verdict, tone = "not excluded", "plain"
            else:
                verdict, tone = (
                    ("starts earlier", "warn") if middle < 0 else ("starts later", "warn")
                )
    return {
        "claim": "Grokking starts at the crossing",
        "number": number,
        "verdict": verdict,
        "tone": tone,
        "detail": detail,
    }


INFORMATION: Mapping[Evidence, Verdict] = {
    "shown": ("holds", "good"),
    "hint": ("a hint", "plain"),
    "not shown": ("not shown", "warn"),
    "not testable": NOT_TESTABLE,
}


def _information_claim(found: CellTests) -> Claim:
    test = found.nested("MP+", "MP")
    verdict, tone, number, detail = *NOT_TESTABLE, EN_DASH, "only the robust method tests it"
    if test is not None and not test.testable:
        detail = test.reason
    elif test is not None and test.f is not None and test.p is not None:
        number = f"F = {plain(test.f)}, p = {p_value(test.p)}"
        models = compared_models(found)
        errors = [m.loo_rmse for m in (models["M1"], models["MP"]) if m.loo_rmse is not None]
        detail = "crossing with log p against log p alone"
        if len(errors) == 2:
            detail = f"leave-one-out error {errors[0]:.3g} dex, by log p alone {errors[1]:.3g}"
        verdict, tone = INFORMATION[evidence(test.p)]
    return {
        "claim": "The crossing says more than the prime alone",
        "number": number,
        "verdict": verdict,
        "tone": tone,
        "detail": detail,
    }


def row(pooled: Pooled, printed: Mapping[str, PublishedTest]) -> Row:
    words, tone = verdict(pooled)
    return {
        "group": GROUPS[pooled.row.test],
        "name": _name(pooled),
        "value": _value(pooled) if pooled.row.testable else "not testable",
        "p": p_value(pooled.row.p),
        "n": pooled.row.n,
        "verdict": words,
        "tone": tone,
        "note": _note(pooled, printed),
        "paper": _paper(pooled, printed),
    }


def left_out(found: CellTests) -> list[Row]:
    """The error of predicting each onset from the other cells: by the crossing, by its rivals."""
    models = compared_models(found)
    errors = {name: m.loo_rmse for name, m in models.items() if m.loo_rmse is not None}
    if "M1" not in errors:
        return []
    rows: list[Row] = []
    for name, what in PREDICTORS.items():
        if name not in errors:
            continue
        words, tone = _left_out_verdict(name, errors)
        rows.append(
            {
                "group": GROUPS["sufficiency"],
                "name": f"leave-one-out error, {what}",
                "value": f"{errors[name]:.3g} dex",
                "p": EN_DASH,
                "n": models[name].n,
                "verdict": words,
                "tone": tone,
                "note": "each onset predicted from the other cells" if name == "M1" else "",
                "paper": "",
            }
        )
    return rows


def compared_models(found: CellTests) -> dict[str, Model]:
    """The models by name; without swept settings M2 is the prime under two names, left out."""
    models = {} if found.tests.nested is None else found.tests.nested.models
    return {name: m for name, m in models.items() if name != "M2" or found.axes}


def seeds_apart(ways: Sequence[SeedsApart]) -> list[Row]:
    """The crossing beside log p where crossing and onset share no run, both ways in one row."""
    if not ways:
        return []
    holds = holds_apart(ways)
    errors = (f"{w.loo_crossing:.3g} against {w.loo_prime:.3g}" for w in ways)
    return [
        {
            "group": GROUPS["sufficiency"],
            "name": "leave-one-out errors with seeds apart, the crossing against log p",
            "value": " and ".join(errors) + " dex",
            "p": " and ".join(p_value(w.p) for w in ways),
            "n": min(w.n for w in ways),
            "verdict": "The crossing adds information beyond the prime, even with different seeds."
            if holds
            else "With different seeds it is not shown to add information beyond the prime.",
            "tone": "good" if holds else "warn",
            "note": "T_gen and delay share their runs: here the crossing is of one half of the "
            "seeds and the onset of the other, one way and the other",
            "paper": "",
        }
    ]


def holds_apart(ways: Sequence[SeedsApart]) -> bool:
    """Does the crossing predict better than log p, both ways round, with seeds apart?"""
    return all(is_shown(w.p) and w.loo_crossing < w.loo_prime for w in ways)


def _left_out_verdict(name: str, errors: Mapping[str, float]) -> Verdict:
    own = errors["M1"]
    if name == "M1":
        rivals = [m for m in PREDICTORS if m in errors and m != "M1"]
        better = [PREDICTORS[m] for m in rivals if errors[m] <= own]
        if better:
            return f"Predicts no better than {' or '.join(better)}.", "warn"
        return "The smallest error of those compared.", "good"
    both = f"({errors[name]:.3g} against {own:.3g})"
    if errors[name] <= own:
        return f"Predicts at least as well as the crossing {both}.", "warn"
    return f"Predicts worse than the crossing {both}.", "good"


def _name(pooled: Pooled) -> str:
    match pooled.test:
        case AxisTrend(axis=axis, kind=kind):
            return f"{'slope' if kind == 'numeric' else 'F'} on {axis_name(axis)}"
        case NestedTest(larger=larger, smaller=smaller):
            added, beyond = ADDED[larger, smaller]
            return f"F: {added} beyond {beyond}"
        case _:
            return NAMES[pooled.row.statistic]


def _value(pooled: Pooled) -> str:
    value, low, high = pooled.row.value, pooled.row.low, pooled.row.high
    if value is None:
        return EN_DASH
    if abs(value) >= LARGE_F:
        return scientific(value)
    text = human(value) if abs(value) >= 1000 else plain(value)
    if low is not None and high is not None:
        return f"{text} ({plain(low)} to {plain(high)})"
    return text


def _note(pooled: Pooled, printed: Mapping[str, PublishedTest]) -> str:
    row, test = pooled.row, pooled.test
    parts = [row.note]
    if isinstance(test, NestedTest) and (pair := (test.larger, test.smaller)) in OTHER_M2:
        known = PUBLISHED_MODELS[pair] in printed
        other = "the prime was not in the published M2: its number tests another model"
        parts.append(other if known else "")
    if row.floor is not None:
        parts.append(f"smallest p it can show with n = {row.n}: {p_value(row.floor)}")
    if row.df:
        parts.append(f"df {row.df}")
    return "; ".join(part for part in parts if part)


def verdict(pooled: Pooled) -> Verdict:
    """What a test says, in a sentence without symbols."""
    row = pooled.row
    if not row.testable or row.value is None:
        return f"Not testable: {row.note or 'no value'}.", "plain"
    value, low, high = row.value, row.low, row.high
    small = is_shown(row.p)
    match pooled.test:
        case Spearman() | Kendall():
            return _rank_verdict(value, evidence(row.p, row.floor))
        case Concordance():
            word = "strong" if value >= 0.9 else "moderate" if value >= 0.6 else "weak"
            return f"Agreement in value is {word}.", "good" if value >= 0.6 else "warn"
        case Line() if row.statistic == "F":
            if small:
                return "Slope and intercept differ from 1 and 0: the prediction is off.", "warn"
            return "No departure from the line y = x is shown.", "plain"
        case Line() if row.statistic == "intercept":
            return "Zero on the diagonal, if the slope is 1.", "plain"
        case Line() | ClusteredLine() | RobustSlope():
            return _slope_verdict(value, low, high)
        case SignedRank() if row.statistic == "wilcoxon":
            if small:
                return "Onsets lie systematically to one side of the crossing.", "warn"
            return "No systematic offset is shown.", "plain"
        case SignedRank() | FirstFourSeeds():
            return f"Onset typically at {10**value:.2f} × the crossing.", "plain"
        case Equivalence():
            if small:
                return "The slope is 1 within the margin.", "good"
            return "The slope may differ from 1 by more than the margin.", "plain"
        case Slope():
            if low is None or high is None or low <= 0 <= high:
                return "No trend with the last batch is shown.", "plain"
            way = "smaller" if value < 0 else "larger"
            return f"A {way} last batch goes with a larger onset.", "plain"
        case NestedTest() as test:
            return _nested_verdict(test)
        case AxisTrend(axis=axis):
            if small:
                return f"The residual drifts with {axis_name(axis)}.", "warn"
            return f"No drift with {axis_name(axis)} is shown.", "plain"
        case None:
            return "Not testable: too few cells.", "plain"


def _rank_verdict(value: float, found: Evidence) -> Verdict:
    if found == "not testable":
        return "Too few cells to show an order.", "plain"
    if found == "not shown":
        return "An order is not shown by these cells.", "plain"
    if value > 0:
        return "Yes: cells with a larger crossing have a larger onset.", "good"
    return "The order is reversed.", "bad"


def _slope_verdict(value: float, low: float | None, high: float | None) -> Verdict:
    if low is not None and high is not None:
        if low <= 1 <= high:
            return "A slope of 1 lies in the interval.", "plain"
        return "The interval excludes 1.", "warn"
    return f"One decade of P_cross goes with {value:.2f} of P_onset.", "plain"


def _nested_verdict(test: NestedTest) -> Verdict:
    """Good is what speaks for the crossing; that nothing is shown to add to it does not."""
    added, beyond = ADDED[test.larger, test.smaller]
    own = added == CROSSING
    what = f"{added[:1].upper()}{added[1:]}"
    plural = added in ("the settings", "prime and last batch")
    verb = "add" if plural else "adds"
    found = evidence(test.p)
    if found in ("not shown", "not testable"):
        told = f"{what} {'are' if plural else 'is'} not shown to add information beyond {beyond}."
        return told, "warn" if own else "plain"
    if found == "hint" and own and beyond != "a constant":
        return f"{what} may add information beyond {beyond}.", "plain"
    return f"{what} {verb} information beyond {beyond}.", "good" if own else "warn"


def _paper(pooled: Pooled, printed: Mapping[str, PublishedTest]) -> str:
    """The printed value with its n; the published Wilcoxon row holds the median residual."""
    statistic = pooled.row.statistic
    match pooled.test:
        case AxisTrend(axis=axis):
            found = printed.get("robustness")
            found = found if found is not None and found.axis == axis else None
        case NestedTest(larger=larger, smaller=smaller):
            found = printed.get(PUBLISHED_MODELS.get((larger, smaller), ""))
        case _:
            found = printed.get(PUBLISHED.get(statistic, ""))
    if found is None:
        return ""
    parts = []
    if statistic != "wilcoxon" and found.statistic is not None:
        parts.append(found.statistic_text or human(found.statistic))
    if statistic != "median" and found.p is not None:
        relation = found.p_relation if found.p_relation in ("<", ">") else "="
        parts.append(f"p {relation} {found.p_text or p_value(found.p)}")
    return f"{', '.join(parts)} ({count(found.cells, 'cell')})".replace("-", "−") if parts else ""


def thresholds_text(thresholds: Thresholds) -> str:
    """Thresholds in the order the chart uses them."""
    return (
        f"T_mem at {percent(thresholds.t_mem)}, T_gen at {percent(thresholds.t_gen)}, "
        f"ΔE from {percent(thresholds.e_train)} to {percent(thresholds.e_val)}"
    )


def bits_text(c_model: BitsPerParameter) -> str:
    """C = 2.16 bits/parameter (fitted)."""
    return f"C = {c_model.value:.3g} bits/parameter ({bits_source(c_model)})"


def bits_source(c_model: BitsPerParameter) -> str:
    """Where C_model came from, in words."""
    if c_model.source == "matched_suite":
        return f"fitted in suite {c_model.suite}"
    return "fitted" if c_model.source == "fitted" else "the paper's"


def bits_origin(c_model: BitsPerParameter) -> str:
    """Where C_model came from, and why, in a sentence's part."""
    named: Mapping[str, str] = {
        "fitted": f"fitted to capacity runs of {c_model.suite}",
        "matched_suite": f"fitted to capacity runs of {c_model.suite} at the same setting",
        "paper": "the paper's constant, because no capacity run of this setting could be fitted",
    }
    return named[c_model.source]
