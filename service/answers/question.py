"""A question about one cell: which suite, prime and setting, by which convention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from sqlalchemy import Connection

from service.answers.making import Clock, Labels, Method, SettingValue, Thresholds, Units
from service.answers.reading import SuiteRecord, find_suite
from service.answers.refusals import Refusal

DEFAULT_LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked; None leaves the choice to the suite's own analysis settings."""

    prime: int | None = None
    suite: str | None = None
    default_suite: str = "central"
    filters: Mapping[str, SettingValue] = field(default_factory=dict)
    labels: Labels | None = None
    method: Method | None = None
    clock: Clock | None = None
    units: Units = "epochs"
    t_mem: float | None = None
    t_gen: float | None = None
    e_train: float | None = None
    e_val: float | None = None
    max_width: int | None = None
    level: float = DEFAULT_LEVEL

    def __post_init__(self) -> None:
        for name in ("t_mem", "t_gen", "e_train", "e_val"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise Refusal(name, value, "above 0, at most 1", f"{value} is not an accuracy")
        if not 0.5 <= self.level <= 0.999:
            raise Refusal("level", self.level, "0.5 to 0.999", f"{self.level} is out of range")


@dataclass(frozen=True, kw_only=True)
class Convention:
    """A question's conventions after the suite's analysis settings have filled the gaps."""

    method: Method
    clock: Clock
    units: Units
    labels: Labels | None
    thresholds: Thresholds
    max_width: int | None
    level: float
    fraction_window: tuple[float, float]


def put(connection: Connection, question: Question) -> tuple[SuiteRecord, Convention]:
    """Find the suite that is asked and settle the conventions."""
    suite = find_suite(connection, question.suite, question.prime, question.default_suite)
    return suite, convention(suite.analysis, question)


def convention(analysis: Mapping[str, Any], question: Question) -> Convention:
    """The question's own values, else the suite's, else the defaults."""
    written = analysis.get("thresholds") or {}
    names = [f.name for f in fields(Thresholds)]
    thresholds = replace(Thresholds(), **{n: written[n] for n in names if n in written})
    asked = {n: getattr(question, n) for n in names if getattr(question, n) is not None}
    window = analysis.get("fraction_window") or (0.0, 0.25)
    return Convention(
        method=question.method or analysis.get("method") or "robust",
        clock=question.clock or analysis.get("clock") or "online",
        units=question.units,
        labels=question.labels,
        thresholds=replace(thresholds, **asked),
        max_width=question.max_width or analysis.get("max_width"),
        level=question.level,
        fraction_window=(float(window[0]), float(window[1])),
    )
