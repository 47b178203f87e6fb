"""Numbers and settings as a report prints them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dashboard.figures.caption import setting_text
from dashboard.figures.verdicts import ALPHA, HINT
from dashboard.numbers import EN_DASH, p_value
from service.answers.cell_tests import Statistic, TestsAnswer
from service.answers.making import BitsPerParameter, Setting

LEAST_SLOPE = 6  # cells below which pairwise slopes cannot carry an interval


def whole(value: float | None) -> str:
    """A count of parameters or bits: 121,345; a dash where there is none."""
    return EN_DASH if value is None else f"{round(value):,}"


def span(numbers: Sequence[int]) -> str:
    """`3 to 5` of sorted numbers, or the only one there is."""
    first, last = whole(numbers[0]), whole(numbers[-1])
    return first if first == last else f"{first} to {last}"


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


def tells_more(what: str, test: Statistic) -> str:
    """How surely the larger model of an F-test tells more."""
    if test.p is None or test.p >= ALPHA:
        return f"{what[:1].upper()}{what[1:]} is not shown to tell more"
    if test.p >= HINT:
        return f"There is a hint that {what} tells more"
    return f"{what[:1].upper()}{what[1:]} tells more"


def f_and_p(test: Statistic) -> str:
    """`: F 9, p = 0.001`."""
    return f": F {plain(test.value)}, {probability(test.p)}"


def resolved(answer: TestsAnswer) -> bool:
    """Whether the cells can show an order: enough of them, and most with both ends in sight."""
    rank = statistic(answer, "spearman")
    if rank is None or not rank.testable or (rank.floor or 0.0) >= ALPHA:
        return False
    return 2 * max(onsets_at_an_end(answer), sum(c.at_edge for c in answer.cells)) <= answer.n_total


def onsets_at_an_end(answer: TestsAnswer) -> int:
    """Cells whose onset is only bounded, by the narrowest or the widest network."""
    return sum(c.at_floor or c.at_cap for c in answer.cells)


def slope_of(answer: TestsAnswer) -> Statistic | None:
    """The slope with the safest interval these cells carry; the OLS slope where none has any."""
    names = ["slope, clustered", "slope, theil sen", "slope"]
    if answer.n < LEAST_SLOPE:
        names.remove("slope, theil sen")
    found = [s for s in (statistic(answer, name) for name in names) if s is not None]
    carried = (s for s in found if s.low is not None and s.high is not None)
    return next(carried, found[-1] if found else None)


def with_interval(found: Statistic | None) -> str:
    """`0.976 [0.862, 0.996]`; a dash where there is no value."""
    return EN_DASH if found is None else real(found.value, found.low, found.high)


def offset(found: Statistic | None) -> str:
    """A residual in dex with its interval, signs always there."""
    if found is None or found.low is None or found.high is None:
        return signed(None if found is None else found.value)
    return f"{signed(found.value)} [{signed(found.low)}, {signed(found.high)}]"
