"""What the paper printed for a suite like ours, and in what our runs differ from its runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from sqlalchemy import Connection

from groktime.db.queries.suites import SuiteRecord, coverage_frame
from groktime.service.analysis.published import (
    PublishedSetting,
    PublishedTest,
    published_scalar,
    published_settings,
    published_tests,
)
from groktime.service.answers.cell import plain, sortable, swept_axes
from groktime.service.answers.question import SettingValue
from groktime.service.spec import SETTING_COLUMNS

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
# What every published run has in common; the model without positions is what its code trained.
PUBLISHED_RUNS: Mapping[str, SettingValue] = {
    "task": "modular",
    "operation": "/",
    "train_fraction": 0.5,
    "split": "random",
    "architecture": "transformer",
    "depth": 2,
    "heads": 1,
    "positions": "none",
    "norm": "rms",
    "ffn": "gated",
    "released_head_projection": False,
    "dropout": 0.2,
    "init_scale": 1.0,
    "lr": 1e-3,
    "beta1": 0.9,
    "beta2": 0.98,
    "eps": 1e-8,
    "weight_decay": 1.0,
    "batch_size": 512,
}
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
    settings = published_settings(name)
    if axes == ("operation",) and _values(grok, "operation") != ["+", "/"]:
        return None
    words = [
        f"{column} {', '.join(map(str, values))} (published: {PUBLISHED_RUNS[column]})"
        for column, values in differing.items()
    ]
    words += _other_primes(grok, name)
    return Reference(
        suite=name,
        tests=published_tests(name),
        settings=settings,
        residuals=_printed_residuals() if name == "central" else {},
        differences=tuple(words),
        same_settings=not differing,
        same_model=not MODEL & set(differing),
    )


def _values(runs: pd.DataFrame, column: str) -> list[SettingValue]:
    return sorted({plain(value) for value in runs[column]}, key=sortable)


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
