"""Numbers and settings as a report prints them."""

from __future__ import annotations

from collections.abc import Mapping

from dashboard.figures.caption import setting_text
from dashboard.numbers import EN_DASH, p_value
from service.answers.cell_tests import Statistic, TestsAnswer
from service.answers.making import BitsPerParameter, Setting

METHODS = {"robust": "robust", "paper": "the paper's"}


def whole(value: float | None) -> str:
    """A count of parameters or bits: 121,345; a dash where there is none."""
    return EN_DASH if value is None else f"{round(value):,}"


def signed(value: float | None, digits: int = 3) -> str:
    """+0.031 or −0.160, the sign always there."""
    if value is None:
        return EN_DASH
    return f"{value:+.{digits}f}".replace("-", "−")


def plain(value: float | None, digits: int = 3) -> str:
    """Significant digits with a proper minus."""
    return EN_DASH if value is None else f"{value:.{digits}g}".replace("-", "−")


def ends(low: float | None, high: float | None) -> str:
    """`[12,345, 23,456]`; an open end is named so."""
    if low is None and high is None:
        return ""
    return f"[{'open' if low is None else whole(low)}, {'open' if high is None else whole(high)}]"


def estimate(value: float | None, low: float | None, high: float | None) -> str:
    """A whole number with its interval or bracket."""
    return f"{whole(value)} {ends(low, high)}".strip()


def real(value: float | None, low: float | None, high: float | None, digits: int = 3) -> str:
    """A real number with its interval."""
    if value is None or low is None or high is None:
        return plain(value, digits)
    return f"{plain(value, digits)} [{plain(low, digits)}, {plain(high, digits)}]"


def probability(value: float | None) -> str:
    """p = 0.0021, or p < 10⁻¹²."""
    text = p_value(value)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def convention_text(method: str, clock: str) -> str:
    return f"{method} method, {clock} clock"


def setting_or(setting: Setting, otherwise: str) -> str:
    return setting_text(setting) or otherwise


def source(c_model: BitsPerParameter) -> str:
    """Where C_model came from."""
    named: Mapping[str, str] = {
        "fitted": f"fitted to capacity runs of {c_model.suite}",
        "matched_suite": f"fitted to capacity runs of {c_model.suite} at the same setting",
        "paper": "the paper's constant, because no capacity run of this setting could be fitted",
    }
    return named[c_model.source]


def statistic(answer: TestsAnswer, name: str) -> Statistic | None:
    """The pooled statistic of this name, None where the convention has none."""
    return next((s for s in answer.pooled if s.statistic == name), None)


def value_of(answer: TestsAnswer | None, name: str) -> float | None:
    found = None if answer is None else statistic(answer, name)
    return None if found is None else found.value
