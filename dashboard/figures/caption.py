"""The words of a figure: its title, what its numbers are, and how they were made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict

from dashboard.numbers import count, percent
from service.answers.making import Answer, BitsPerParameter, Setting, Thresholds

Tone = Literal["plain", "good", "warn", "bad"]


class Reading(TypedDict):
    """One number of the panel beside a chart; `role` names the colour it has in the chart."""

    term: str
    value: str
    detail: str
    role: str


class Note(TypedDict):
    """A sentence the reader should see before trusting the chart."""

    tone: Tone
    text: str


class Source(TypedDict):
    """A route whose CSV twin holds the chart's data; it takes the chart's query.

    `without` names parameters that only the chart knows.
    """

    label: str
    route: str
    without: NotRequired[Sequence[str]]


class Meta(TypedDict):
    """`layout.meta` of every figure."""

    title: str
    summary: str
    caption: str
    readings: Sequence[Reading]
    notes: Sequence[Note]
    sources: Sequence[Source]
    empty: NotRequired[str]  # why nothing is drawn


OPERATIONS = {"+": "addition", "-": "subtraction", "*": "multiplication", "/": "division"}
AXES = {
    "lr": "learning rate",
    "weight_decay": "weight decay",
    "init_scale": "initialisation scale",
    "train_fraction": "training fraction",
    "batch_size": "batch size",
    "last_batch": "last batch, share of a full one",
}


def axis_name(axis: str) -> str:
    """weight_decay → weight decay, lr → learning rate."""
    return AXES.get(axis, axis.replace("_", " "))


def setting_text(setting: Setting) -> str:
    """weight decay 0.1 · division; empty for a suite that sweeps nothing."""
    parts = []
    for axis, value in sorted(setting.items()):
        if axis == "operation" and isinstance(value, str):
            parts.append(OPERATIONS.get(value, value))
        elif isinstance(value, float):
            parts.append(f"{axis_name(axis)} {value:g}")
        else:
            parts.append(f"{axis_name(axis)} {value}")
    return " · ".join(parts)


def thresholds_text(thresholds: Thresholds) -> str:
    """Thresholds in the order the chart uses them."""
    return (
        f"T_mem at {percent(thresholds.t_mem)}, T_gen at {percent(thresholds.t_gen)}, "
        f"ΔE from {percent(thresholds.e_train)} to {percent(thresholds.e_val)}"
    )


def answer_caption(answer: Answer, *more: str) -> str:
    """Suite, revision, cell, method, clock, thresholds and n: what makes a chart citable."""
    made = answer.provenance
    runs = made.runs.speed + made.runs.grok
    n = f"n = {count(runs, 'run')} ({made.runs.speed:,} speed, {made.runs.grok:,} grok)"
    parts = [
        f"suite {answer.suite}",
        f"revision {answer.revision}",
        f"p = {answer.prime}",
        setting_text(answer.setting),
        f"method {answer.method}",
        f"{answer.clock} clock",
        thresholds_text(made.thresholds),
        n,
        f"d ≤ {made.max_width}" if made.max_width else "",
        *more,
    ]
    return " · ".join(part for part in parts if part)


def bits_text(c_model: BitsPerParameter) -> str:
    """C = 2.16 bits/parameter (fitted)."""
    return f"C = {c_model.value:.3g} bits/parameter ({bits_source(c_model)})"


def bits_source(c_model: BitsPerParameter) -> str:
    """Where C_model came from, in words."""
    if c_model.source == "matched_suite":
        return f"fitted in suite {c_model.suite}"
    return "fitted" if c_model.source == "fitted" else "the paper's"
