"""The words of a figure: its title, what its numbers are, and how they were made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from groktime.service.answers.context import Answer, Provenance
from groktime.service.answers.verdicts import Tone, thresholds_text
from groktime.service.words import count, setting_text


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
        _located(made),
        f"d ≤ {made.max_width}" if made.max_width else "",
        *more,
    ]
    return " · ".join(part for part in parts if part)


def _located(made: Provenance) -> str:
    """`design locate, asked for 0.03 dex, reached 0.021 (P_cross) and 0.028 (P_onset)`."""
    if made.precision is None:
        return ""
    both = (("P_cross", made.precision.crossing), ("P_onset", made.precision.onset))
    reached = " and ".join(f"{value:.3f} ({name})" for name, value in both if value is not None)
    asked = f"design locate, asked for {made.precision.asked:g} dex"
    return f"{asked}, reached {reached}" if reached else asked


def cell_title(answer: Answer) -> str:
    """The cell: its prime and what the suite sweeps."""
    setting = setting_text(answer.setting)
    return f"p = {answer.prime}" + (f" · {setting}" if setting else "")
