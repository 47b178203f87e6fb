"""A crossing in words: what was found, how sure it is, and what to be careful about."""

from __future__ import annotations

import math
from collections.abc import Sequence

from groktime.dashboard.figures.caption import Note, Reading
from groktime.dashboard.figures.speeds import centres
from groktime.service.analysis.delay import OnsetPoint
from groktime.service.answers.crossing import CrossingAnswer, DelayAnswer, SpeedsAnswer
from groktime.service.answers.verdicts import bits_source
from groktime.service.words import (
    CROSSING_SENTENCES,
    ONSET_SENTENCES,
    count,
    dex,
    human,
    interval,
    percent,
    sentence,
)

# Within this many decades the onset counts as being at the crossing, as the paper's verdicts do.
CLOSE = 0.11


def summary(answer: CrossingAnswer) -> str:
    """Two sentences that stand for the chart where it cannot be seen."""
    cross, onset = answer.p_cross.estimate, answer.p_onset.estimate
    first = CROSSING_SENTENCES[answer.status]
    if cross is not None:
        first += f" P_cross is {human(cross)} parameters"
        if answer.p_cross.level is not None:
            first += f" ({_level(answer.p_cross.level)} {_bounds(answer)})"
        first += "."
    if onset is None:
        return f"{first} Onset: {ONSET_SENTENCES[answer.p_onset.status]}."
    second = f"Delays start at P_onset = {human(onset)}"
    if answer.residual is not None:
        near = "close to" if abs(answer.residual) <= CLOSE else "away from"
        second += f", {near} the crossing ({dex(answer.residual)})"
    return f"{first} {second}."


def readings(answer: CrossingAnswer) -> list[Reading]:
    """The panel's numbers in the order the argument needs them."""
    cross, onset = answer.p_cross, answer.p_onset
    cross_detail = CROSSING_SENTENCES[answer.status]
    if cross.level is not None:
        cross_detail = f"{_level(cross.level)} {_bounds(answer)}"
        if answer.epochs is not None:
            cross_detail += f" · both take {human(answer.epochs)} {answer.units}"
    elif answer.epochs is not None:
        cross_detail = f"both take {human(answer.epochs)} {answer.units}"
    onset_detail = ONSET_SENTENCES[onset.status]
    if onset.low is not None or onset.high is not None:
        name = "bracket" if onset.level is None else _level(onset.level)
        onset_detail = f"{name} {interval(onset.low, onset.high)} · {onset_detail}"
    return [
        {
            "term": "P_cross",
            "value": human(cross.estimate),
            "detail": cross_detail,
            "role": "cross",
        },
        {
            "term": "P_onset",
            "value": human(onset.estimate),
            "detail": onset_detail,
            "role": "onset",
        },
        {
            "term": "residual",
            "value": dex(answer.residual),
            "detail": _ratio(answer),
            "role": "ink",
        },
        {
            "term": "P_mem",
            "value": human(answer.p_mem),
            "detail": f"K_mem {human(answer.k_mem)} bits ÷ {answer.c_model.value:.3g} "
            f"bits/parameter ({bits_source(answer.c_model)})",
            "role": "p_mem",
        },
    ]


def verdict(answer: CrossingAnswer) -> Note:
    """Does grokking start at the crossing, in this cell?"""
    cross, onset, residual = answer.p_cross, answer.p_onset, answer.residual
    if residual is None:
        missing = CROSSING_SENTENCES[answer.status].rstrip(".")
        if cross.estimate is not None:
            missing = f"no onset: {ONSET_SENTENCES[onset.status]}"
        return {"tone": "plain", "text": f"This cell cannot tell. {sentence(missing)}"}
    factor = f"{10**residual:.2f} × P_cross"
    if abs(residual) <= CLOSE:
        return {
            "tone": "good",
            "text": f"Yes: grokking starts at {factor}, within the paper's margin of ±{CLOSE} dex.",
        }
    side = "below" if residual < 0 else "above"
    text = f"Not quite: grokking starts {side} the crossing, at {factor}"
    if _apart(answer):
        text += "; the intervals do not overlap"
    return {"tone": "warn", "text": f"{text}."}


def _apart(answer: CrossingAnswer) -> bool:
    """Whether the intervals of both points are known on the facing sides and do not meet."""
    cross, onset = answer.p_cross, answer.p_onset
    if answer.residual is not None and answer.residual < 0:
        return bool(onset.high and cross.low and onset.high < cross.low)
    return bool(onset.low and cross.high and onset.low > cross.high)


def story(answer: CrossingAnswer, delay: DelayAnswer, speeds: SpeedsAnswer) -> list[str]:
    """What the chart shows from left to right, told with its own numbers."""
    told = [*_speeds_told(answer, speeds)]
    if answer.p_cross.estimate is not None:
        both = "" if answer.epochs is None else f", where both take {human(answer.epochs)} "
        both += answer.units if both else ""
        told.append(f"The curves meet at P_cross = {human(answer.p_cross.estimate)}{both}.")
    onset = answer.p_onset.estimate
    if onset is not None and delay.minimum:
        below = [p for p in delay.minimum if p.params < onset]
        above = [p for p in delay.minimum if p.params >= onset]
        told.append(
            f"Below P_onset = {human(onset)} the least delay is zero at {_zero(below)}; from there "
            f"on it is positive at {len(above) - sum(p.minimum == 0 for p in above)} of "
            f"{count(len(above), 'width')}: these networks grok."
        )
    return told


def _zero(points: Sequence[OnsetPoint]) -> str:
    return f"{sum(p.minimum == 0 for p in points)} of {count(len(points), 'width')}"


def _speeds_told(answer: CrossingAnswer, speeds: SpeedsAnswer) -> list[str]:
    """Which way is quicker in the smallest and in the largest network that have both."""
    mem = {p.params: c for p, c in zip(speeds.t_mem, centres(speeds.t_mem, speeds), strict=True)}
    gen = {p.params: c for p, c in zip(speeds.t_gen, centres(speeds.t_gen, speeds), strict=True)}
    common = sorted(mem.keys() & gen.keys())
    if not common:
        return []
    told = []
    for params in dict.fromkeys((common[0], common[-1])):
        memorise, generalise = mem[params], gen[params]
        if generalise is None:
            continue
        if memorise is None or memorise > generalise:
            slow = "is not reached" if memorise is None else f"takes {human(memorise)}"
            told.append(
                f"At P = {human(params)} generalising is quicker: T_gen takes {human(generalise)} "
                f"{answer.units}, T_mem {slow}."
            )
        else:
            told.append(
                f"At P = {human(params)} memorising is quicker: T_mem takes {human(memorise)} "
                f"{answer.units}, T_gen {human(generalise)}."
            )
    return told


Estimate = tuple[float | None, float | None, float | None]  # value, low, high


def residual_ends(crossing: Estimate, onset: Estimate) -> tuple[float, float] | None:
    """Ends of log10(P_onset / P_cross), the arms of both intervals added as independent errors.

    None where a point has no interval, or one that is open on a side.
    """
    if not all(crossing) or not all(onset):
        return None
    cross, cross_low, cross_high = (math.log10(end) for end in crossing if end)
    start, start_low, start_high = (math.log10(end) for end in onset if end)
    # A crossing further to the right makes the residual smaller.
    below = math.hypot(start - start_low, cross_high - cross)
    above = math.hypot(start_high - start, cross - cross_low)
    return start - cross - below, start - cross + above


def _ratio(answer: CrossingAnswer) -> str:
    """The residual as a factor, with both intervals combined."""
    if answer.residual is None:
        return "needs both P_cross and P_onset"
    cross, onset = answer.p_cross, answer.p_onset
    ends = residual_ends(
        (cross.estimate, cross.low, cross.high), (onset.estimate, onset.low, onset.high)
    )
    between = "" if ends is None else f" ({10 ** ends[0]:.2f}–{10 ** ends[1]:.2f})"
    return f"P_onset ÷ P_cross = {10**answer.residual:.2f}{between}, as log₁₀"


def notes(answer: CrossingAnswer, delay: DelayAnswer) -> list[Note]:
    """What a careful reader would ask about, only where it applies."""
    found: list[Note] = []

    def say(tone: str, text: str) -> None:
        found.append({"tone": tone, "text": text})  # type: ignore[typeddict-item]

    if answer.status not in ("crossed", "closest_approach"):
        say("warn", CROSSING_SENTENCES[answer.status])
    if answer.at_edge:
        say("warn", "The closest approach is at an end of the range: the curves may never cross.")
    missing = answer.missing.speed + answer.missing.grok
    if missing:
        say("warn", f"Partial: {count(missing, 'run')} of this cell not finished.")
    if answer.p_cross.few_seeds and answer.p_cross.level is not None:
        say("warn", "Fewer than five common seeds: take the interval as a rough guide.")
    elif answer.p_cross.few_seeds and answer.p_cross.estimate is not None:
        say("warn", "Too few common seeds beside the crossing: no interval.")
    probability = answer.p_cross.probability
    if probability is not None and probability < 0.95:
        say("warn", f"The curves cross in only {percent(probability)} of the resamples.")
    if len(answer.roots) > 1:
        others = ", ".join(human(root.params) for root in answer.roots)
        say("plain", f"The curves meet {len(answer.roots)} times (at {others}).")
    censored = answer.censored.speed + answer.censored.grok
    if censored:
        how = "dropped (the paper's rule)" if answer.method == "paper" else "counted as censored"
        are = "is" if censored == 1 else "are"
        say("plain", f"{count(censored, 'run')} never reached the threshold and {are} {how}.")
    diverged = answer.diverged.speed + answer.diverged.grok
    if diverged:
        say("warn", f"{count(diverged, 'run')} diverged and count as never reached.")
    if delay.untrained:
        say("plain", f"{count(delay.untrained, 'grok run')} never fitted the training set: no ΔE.")
    if answer.p_onset.status in ("at_floor", "above_range", "reentrant"):
        say("warn", f"Onset: {ONSET_SENTENCES[answer.p_onset.status]}.")
    return found


def _level(level: float) -> str:
    return f"{percent(level)} CI"


def _bounds(answer: CrossingAnswer) -> str:
    return interval(answer.p_cross.low, answer.p_cross.high)
