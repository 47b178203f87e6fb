"""A question: which suite, prime and setting, by which convention; and why it is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from groktime.service.analysis.conventions import Method as Method
from groktime.service.analysis.conventions import MinimumDelay
from groktime.service.analysis.conventions import Units as Units
from groktime.service.errors import AnalysisError

Clock = Literal["online", "eval"]
Labels = Literal["random", "shuffled"]
SettingValue = bool | int | float | str | None
Setting = Mapping[str, SettingValue]


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Accuracies whose first epochs are the clocks: T_mem, T_gen, E_train and E_val."""

    t_mem: float = 0.99
    t_gen: float = 0.99
    e_train: float = 0.99
    e_val: float = 0.98


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a question left open and was chosen for it, each with why; null: it was named."""

    suite: str | None = None
    prime: str | None = None
    setting: str | None = None
    other_settings: Annotated[
        tuple[Setting, ...], Field(description="settings that could have been asked for instead")
    ] = ()

    def __bool__(self) -> bool:
        return self != NOTHING

    def __or__(self, other: Choice) -> Choice:
        """Both choices as one."""
        return Choice(
            suite=other.suite or self.suite,
            prime=other.prime or self.prime,
            setting=other.setting or self.setting,
            other_settings=other.other_settings or self.other_settings,
        )


NOTHING = Choice()
CHOSEN = Field(description="what the question left open and why this was taken; null: nothing")

Accepted = Sequence[object] | Mapping[str, Sequence[object]] | str


class QuestionError(AnalysisError):
    """A question was refused: the parameter, its value and what is accepted."""

    def __init__(self, parameter: str, value: object, accepted: Accepted, why: str) -> None:
        super().__init__(f"{parameter}: {why}")
        self.parameter = parameter
        self.value = value
        self.accepted = accepted


class Unknown(QuestionError):
    """What was named is not in the database; `accepted` lists what is."""


class Ambiguous(QuestionError):
    """Several settings match; `accepted` maps each axis to the values to choose from."""


class NotEnough(QuestionError):
    """The runs that the answer needs have not been trained yet."""


DEFAULT_LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked; None leaves suite and prime to be chosen, conventions to the suite's own.

    `choice` says what has been chosen for it already.
    """

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
    min_delay: float | None = None
    min_delay_share: float | None = None
    max_width: int | None = None
    level: float = DEFAULT_LEVEL
    choice: Choice = NOTHING

    def __post_init__(self) -> None:
        for name in ("t_mem", "t_gen", "e_train", "e_val"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise QuestionError(
                    name, value, "above 0, at most 1", f"{value} is not an accuracy"
                )
        if self.min_delay is not None and not 1 <= self.min_delay < math.inf:
            raise QuestionError(
                "min_delay", self.min_delay, "1 or more epochs", f"{self.min_delay} is below 1"
            )
        if self.min_delay_share is not None and not 0 <= self.min_delay_share < math.inf:
            why = f"{self.min_delay_share} is no share of E_train"
            raise QuestionError("min_delay_share", self.min_delay_share, "0 or more", why)
        if not 0.5 <= self.level <= 0.999:
            raise QuestionError(
                "level", self.level, "0.5 to 0.999", f"{self.level} is out of range"
            )


@dataclass(frozen=True, kw_only=True)
class Convention:
    """A question's conventions after the suite's analysis settings have filled the gaps."""

    method: Method
    clock: Clock
    units: Units
    labels: Labels | None
    thresholds: Thresholds
    min_delay: MinimumDelay
    max_width: int | None
    level: float
    fraction_window: tuple[float, float]


def _first(*values: float | None) -> float:
    """The first value that is given."""
    return next(value for value in values if value is not None)


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
        min_delay=MinimumDelay(
            question.min_delay or analysis.get("min_delay") or 1.0,
            _first(question.min_delay_share, analysis.get("min_delay_share"), 0.0),
        ),
        max_width=question.max_width or analysis.get("max_width"),
        level=question.level,
        fraction_window=(float(window[0]), float(window[1])),
    )
