"""The tests table in plain language, with the paper's values beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from dashboard.figures.caption import Tone, axis_name
from dashboard.numbers import count, p_value, people, scientific
from service.analysis.published import PublishedTest
from service.answers.cell_tests import (
    LAST_BATCH_SLOPE,
    Apart,
    Statistic,
    TestsAnswer,
)
from service.answers.reference import Reference

ALPHA = 0.05
HINT = 0.01  # between this and ALPHA a difference is called a hint
HUGE = 1e12  # an F of cells that lie on a line


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
    "tost": "equivalence of the slope",
}
GROUPS = {
    "rank": "Does a larger crossing mean a larger onset?",
    "concordance": "Do the two agree in value?",
    "calibration": "Is the line y = x?",
    "residuals": "Is there a constant offset?",
    "equivalence": "Is the slope close to 1?",
    "sufficiency": "Does the crossing carry the information?",
    "robustness": "Does the residual depend on a setting?",
}
MODELS = {
    "M1 vs M0": "F: crossing against a constant",
    "M3 vs M2": "F: crossing beside the settings",
    "M3 vs M1": "F: settings beside the crossing",
    "MP+ vs MP": "F: crossing beside the prime",
    "MK+ vs MK": "F: crossing beside K_mem",
    "MB+ vs MB": "F: crossing beside prime and last batch",
    "MB vs MP": "F: last batch beside the prime",
    "MB+ vs M1": "F: prime and last batch beside the crossing",
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
    "F M1 vs M0": "m1_vs_m0",
    "F M3 vs M2": "m3_vs_m2",
    "F M3 vs M1": "m3_vs_m1",
}


def table(answer: TestsAnswer, reference: Reference | None) -> list[Row]:
    """Every test with its verdict, question by question."""
    printed: Mapping[str, PublishedTest] = {} if reference is None else reference.tests
    rows = [row(statistic, printed) for statistic in answer.pooled]
    order = list(GROUPS.values())
    return sorted(
        rows + left_out(answer) + seeds_apart(answer.apart),
        key=lambda r: order.index(r["group"]) if r["group"] in order else len(order),
    )


def row(statistic: Statistic, printed: Mapping[str, PublishedTest]) -> Row:
    words, tone = verdict(statistic)
    return {
        "group": GROUPS.get(statistic.test, statistic.test),
        "name": _name(statistic),
        "value": _value(statistic),
        "p": p_value(statistic.p),
        "n": statistic.n,
        "verdict": words,
        "tone": tone,
        "note": _note(statistic, printed),
        "paper": _paper(statistic, printed),
    }


def left_out(answer: TestsAnswer) -> list[Row]:
    """The error of predicting each onset from the other cells: by the crossing, by its rivals."""
    # Without swept settings M2 is the prime under two names.
    models = {m.name: m for m in answer.models if m.name != "M2" or answer.axes}
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
                "p": p_value(None),
                "n": models[name].n,
                "verdict": words,
                "tone": tone,
                "note": "each onset predicted from the other cells" if name == "M1" else "",
                "paper": "",
            }
        )
    return rows


def seeds_apart(ways: Sequence[Apart]) -> list[Row]:
    """The crossing beside log p where crossing and onset share no run, both ways in one row."""
    if not ways:
        return []
    holds = all(w.p < ALPHA and w.loo_crossing < w.loo_prime for w in ways)
    errors = (f"{w.loo_crossing:.3g} against {w.loo_prime:.3g}" for w in ways)
    return [
        {
            "group": GROUPS["sufficiency"],
            "name": "leave-one-out errors with seeds apart, the crossing against log p",
            "value": " and ".join(errors) + " dex",
            "p": " and ".join(p_value(w.p) for w in ways),
            "n": min(w.n for w in ways),
            "verdict": "The crossing tells more than the prime, even with different seeds."
            if holds
            else "Not shown that the crossing of other seeds tells more than the prime.",
            "tone": "good" if holds else "warn",
            "note": "T_gen and delay share their runs: here the crossing is of one half of the "
            "seeds and the onset of the other, one way and the other",
            "paper": "",
        }
    ]


def _left_out_verdict(name: str, errors: Mapping[str, float]) -> tuple[str, Tone]:
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


def _name(statistic: Statistic) -> str:
    if statistic.test == "robustness":
        what, _, axis = statistic.statistic.partition(" on ")
        return f"{what} on {axis_name(axis)}"
    if statistic.test == "sufficiency":
        return MODELS.get(statistic.statistic.removeprefix("F "), statistic.statistic)
    if statistic.statistic in NAMES:
        return NAMES[statistic.statistic]
    head, _, tail = statistic.statistic.partition(", ")
    return NAMES.get(head, head) + (f", {tail}" if tail else "")


def _value(statistic: Statistic) -> str:
    if statistic.value is None:
        return "–"
    size = abs(statistic.value)
    if size >= HUGE:
        return scientific(statistic.value)
    large = size >= 1000
    text = people(statistic.value) if large else f"{statistic.value:.3g}".replace("-", "−")
    if statistic.low is not None and statistic.high is not None:
        ends = f"{statistic.low:.3g} to {statistic.high:.3g}".replace("-", "−")
        return f"{text} ({ends})"
    return text


# What the paper's M2 held: no prime, and a column that was the same in every cell.
ANOTHER_M2 = ("F M3 vs M2", "F M3 vs M1")


def _note(statistic: Statistic, printed: Mapping[str, PublishedTest]) -> str:
    parts = [statistic.note]
    if statistic.statistic in ANOTHER_M2 and PUBLISHED[statistic.statistic] in printed:
        parts.append("the prime was not in the published M2: its number tests another model")
    if statistic.floor is not None:
        parts.append(f"smallest p it can show with n = {statistic.n}: {p_value(statistic.floor)}")
    if statistic.df:
        parts.append(f"df {statistic.df}")
    return "; ".join(part for part in parts if part)


def verdict(statistic: Statistic) -> tuple[str, Tone]:
    """What a statistic says, in a sentence without symbols."""
    if not statistic.testable:
        return f"Not testable: {statistic.note or 'too few cells'}.", "plain"
    if statistic.value is None:
        return "Not testable: no value.", "plain"
    test, value, p = statistic.test, statistic.value, statistic.p
    small = p is not None and p < ALPHA
    if test == "rank":
        return _rank_verdict(value, small)
    if test == "concordance":
        word = "strong" if value >= 0.9 else "moderate" if value >= 0.6 else "weak"
        return f"Agreement in value is {word}.", "good" if value >= 0.6 else "warn"
    if statistic.statistic == "F" and test == "calibration":
        return (
            ("Slope and intercept differ from 1 and 0: the prediction is off.", "warn")
            if small
            else ("Compatible with the line y = x.", "good")
        )
    if test == "calibration" and statistic.statistic == "intercept":
        return "Zero on the diagonal, if the slope is 1.", "plain"
    if test == "calibration":
        return _slope_verdict(statistic)
    if test == "residuals" and statistic.statistic == "wilcoxon":
        return (
            ("Onsets lie systematically to one side of the crossing.", "warn")
            if small
            else ("No systematic offset can be told.", "good")
        )
    if test == "residuals":
        return f"Onset typically at {10**value:.2f} × the crossing.", "plain"
    if test == "equivalence":
        return (
            ("The slope is 1 within the margin.", "good")
            if small
            else ("Not shown to be 1 within the margin.", "plain")
        )
    if statistic.statistic == LAST_BATCH_SLOPE:
        if statistic.low is None or statistic.high is None or statistic.low <= 0 <= statistic.high:
            return "No trend with the last batch can be told.", "plain"
        way = "smaller" if value < 0 else "larger"
        return f"A {way} last batch goes with a larger onset.", "plain"
    if test == "sufficiency":
        return _sufficiency_verdict(statistic.statistic, small, hint=p is not None and p >= HINT)
    if test == "robustness":
        axis = axis_name(statistic.statistic.partition(" on ")[2])
        return (
            (f"The residual drifts with {axis}.", "warn")
            if small
            else (f"No drift with {axis} can be told.", "good")
        )
    return "", "plain"


def _rank_verdict(value: float, small: bool) -> tuple[str, Tone]:
    if small and value > 0:
        return "Yes: cells with a larger crossing have a larger onset.", "good"
    if small:
        return "The order is reversed.", "bad"
    return "No order can be told from these cells.", "plain"


def _slope_verdict(statistic: Statistic) -> tuple[str, Tone]:
    low, high = statistic.low, statistic.high
    if low is not None and high is not None:
        if low <= 1 <= high:
            return "The interval contains 1.", "good"
        return "The interval excludes 1.", "warn"
    return f"One decade of P_cross goes with {statistic.value:.2f} of P_onset.", "plain"


ADDED_TO = {
    "M3 vs M2": "the prime and the settings together",
    "MP+ vs MP": "the prime alone",
    "MK+ vs MK": "the dataset's complexity alone",
    "MB+ vs MB": "the prime and the size of the last batch",
}


def _sufficiency_verdict(name: str, small: bool, hint: bool) -> tuple[str, Tone]:
    if "M1 vs M0" in name:
        return (
            ("The crossing explains the onset better than a constant.", "good")
            if small
            else ("The crossing is not shown to beat a constant.", "warn")
        )
    if "MB vs MP" in name:
        return (
            ("The size of an epoch's last batch tells more than the prime alone.", "warn")
            if small
            else ("Not shown that the size of an epoch's last batch matters.", "good")
        )
    for pair, what in ADDED_TO.items():
        if pair in name:
            if not small:
                return f"Not shown that the crossing tells more than {what}.", "warn"
            if hint:
                return f"There is a hint that the crossing tells more than {what}.", "plain"
            return f"The crossing tells more than {what}.", "good"
    if "MB+ vs M1" in name:
        return (
            ("Prime and last batch tell more than the crossing alone.", "warn")
            if small
            else ("Not shown that prime and last batch tell more than the crossing.", "good")
        )
    return (
        ("The settings add something beyond the crossing.", "warn")
        if small
        else ("Nothing is shown to add to the crossing.", "good")
    )


def _paper(statistic: Statistic, printed: Mapping[str, PublishedTest]) -> str:
    """The printed value with its n; the published Wilcoxon row holds the median residual."""
    key = PUBLISHED.get(statistic.statistic)
    if key is None and statistic.test == "robustness":
        key = "robustness"
    found = printed.get(key) if key else None
    if found is None:
        return ""
    if key == "robustness" and found.axis != statistic.statistic.partition(" on ")[2]:
        return ""
    parts = []
    if statistic.statistic != "wilcoxon" and found.statistic is not None:
        parts.append(found.statistic_text or people(found.statistic))
    if statistic.statistic != "median" and found.p is not None:
        relation = found.p_relation if found.p_relation in ("<", ">") else "="
        parts.append(f"p {relation} {found.p_text or p_value(found.p)}")
    return f"{', '.join(parts)} ({count(found.cells, 'cell')})".replace("-", "−") if parts else ""
