"""A crossing in words: what was found, how sure it is, and what to be careful about."""

from __future__ import annotations

from dashboard.figures.caption import Note, Reading, bits_source, setting_text
from dashboard.numbers import count, dex, interval, people, percent
from service.answers.crossing import CrossingAnswer
from service.answers.delay import DelayAnswer
from service.answers.making import Answer

# Within this many decades the onset counts as being at the crossing, as the paper's verdicts do.
CLOSE = 0.11

STATUS = {
    "crossed": "The two speed curves cross.",
    "bracketed": "The curves cross between two measured widths; the crossing is only bracketed.",
    "mem_always_slower": "Memorisation is slower at every measured width: no crossing in range.",
    "mem_always_faster": "Memorisation is faster at every measured width: no crossing in range.",
    "unresolved": "Neither speed was reached at any common width, so no crossing can be told.",
    "insufficient_data": "Too few widths have finished runs of both kinds to look for a crossing.",
    "closest_approach": "The point where the seed-averaged curves come closest (paper's rule).",
}
ONSET_STATUS = {
    "exact": "first P above the last zero delay",
    "fitted": "half of the seeds delayed (penalised logit)",
    "separated": "between the last P without and the first with delay",
    "reentrant": "delays come and go with P: no single onset",
    "at_floor": "already delayed at the smallest P",
    "above_range": "no delay at any measured P",
    "insufficient_data": "too few widths with a delay",
}


def title(answer: Answer) -> str:
    """The cell: its prime and what the suite sweeps."""
    setting = setting_text(answer.setting)
    return f"p = {answer.prime}" + (f" · {setting}" if setting else "")


def summary(answer: CrossingAnswer) -> str:
    """Two sentences that stand for the chart where it cannot be seen."""
    cross, onset = answer.p_cross.estimate, answer.p_onset.estimate
    first = STATUS[answer.status]
    if cross is not None:
        first += f" P_cross is {people(cross)} parameters"
        if answer.p_cross.level is not None:
            first += f" ({_level(answer.p_cross.level)} {_bounds(answer)})"
        first += "."
    if onset is None:
        return f"{first} Onset: {ONSET_STATUS[answer.p_onset.status]}."
    second = f"Delays start at P_onset = {people(onset)}"
    if answer.residual is not None:
        near = "close to" if abs(answer.residual) <= CLOSE else "away from"
        second += f", {near} the crossing ({dex(answer.residual)})"
    return f"{first} {second}."


def readings(answer: CrossingAnswer) -> list[Reading]:
    """The panel's numbers in the order the argument needs them."""
    cross, onset = answer.p_cross, answer.p_onset
    cross_detail = STATUS[answer.status]
    if cross.level is not None:
        cross_detail = f"{_level(cross.level)} {_bounds(answer)}"
        if answer.epochs is not None:
            cross_detail += f" · both take {people(answer.epochs)} {answer.units}"
    elif answer.epochs is not None:
        cross_detail = f"both take {people(answer.epochs)} {answer.units}"
    onset_detail = ONSET_STATUS[onset.status]
    if onset.low is not None or onset.high is not None:
        name = "bracket" if onset.level is None else _level(onset.level)
        onset_detail = f"{name} {interval(onset.low, onset.high)} · {onset_detail}"
    return [
        {
            "term": "P_cross",
            "value": people(cross.estimate),
            "detail": cross_detail,
            "role": "cross",
        },
        {
            "term": "P_onset",
            "value": people(onset.estimate),
            "detail": onset_detail,
            "role": "onset",
        },
        {
            "term": "residual",
            "value": dex(answer.residual),
            "detail": _ratio(answer.residual),
            "role": "ink",
        },
        {
            "term": "P_mem",
            "value": people(answer.p_mem),
            "detail": f"K_mem {people(answer.k_mem)} bits ÷ {answer.c_model.value:.3g} "
            f"bits/parameter ({bits_source(answer.c_model)})",
            "role": "p_mem",
        },
    ]


def _ratio(residual: float | None) -> str:
    if residual is None:
        return "needs both P_cross and P_onset"
    return f"log₁₀(P_onset ÷ P_cross): onset at {10**residual:.2f} × the crossing"


def notes(answer: CrossingAnswer, delay: DelayAnswer) -> list[Note]:
    """What a careful reader would ask about, only where it applies."""
    found: list[Note] = []

    def say(tone: str, text: str) -> None:
        found.append({"tone": tone, "text": text})  # type: ignore[typeddict-item]

    if answer.status not in ("crossed", "closest_approach"):
        say("warn", STATUS[answer.status])
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
        others = ", ".join(people(root.params) for root in answer.roots)
        say("plain", f"The curves meet {len(answer.roots)} times (at {others}).")
    censored = answer.censored.speed + answer.censored.grok
    if censored:
        how = "dropped (the paper's rule)" if answer.method == "paper" else "counted as censored"
        say("plain", f"{count(censored, 'run')} never reached the threshold and are {how}.")
    diverged = answer.diverged.speed + answer.diverged.grok
    if diverged:
        say("warn", f"{count(diverged, 'run')} diverged and count as never reached.")
    if delay.untrained:
        say("plain", f"{count(delay.untrained, 'grok run')} never fitted the training set: no ΔE.")
    if answer.p_onset.status in ("at_floor", "above_range", "reentrant"):
        say("warn", f"Onset: {ONSET_STATUS[answer.p_onset.status]}.")
    return found


def _level(level: float) -> str:
    return f"{percent(level)} CI"


def _bounds(answer: CrossingAnswer) -> str:
    return interval(answer.p_cross.low, answer.p_cross.high)
