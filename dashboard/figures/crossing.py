"""Both speeds over the size, and where they cross, in words and numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from groktime.dashboard.figures.theme import (
    COLOURS,
    Figure,
    Meta,
    Note,
    Reading,
    Trace,
    answer_caption,
    cell_title,
    figure,
    layout,
    log_axis,
    span,
    vertical,
)
from groktime.service.analysis.delay import OnsetPoint
from groktime.service.analysis.survival import SpeedPoint
from groktime.service.answers.crossing import CrossingAnswer, DelayAnswer, SpeedsAnswer
from groktime.service.answers.verdicts import bits_source, bits_text
from groktime.service.words import (
    ONSET_SENTENCES,
    advice_text,
    count,
    crossing_sentence,
    dex,
    human,
    interval,
    percent,
    sentence,
)

_STEPS = 12  # pieces of the curve between two widths: it looks smooth


CROWDED = 20  # widths from which the points of a small multiple run into each other


def speed_traces(
    name: str,
    role: str,
    points: Sequence[SpeedPoint],
    answer: SpeedsAnswer,
    *,
    axis: str,
    small: bool = False,
) -> list[Trace]:
    """The curve over widths, the band from the fastest to the slowest seed, and open ends.

    A small multiple of many widths has a line through them instead of points on a curve.
    """
    if not points:
        return []
    centre = centres(points, answer)
    params = [p.params for p in points]
    banded = [(p.params, watched(p)) for p in points if watched(p)]
    ends = [(x, max(times)) for x, times in banded]
    ends += [(x, min(times)) for x, times in reversed(banded)]
    label = subscript(name)
    shared = {"yaxis": axis, "legendgroup": name}
    band_trace: Trace = {
        "type": "scatter",
        "mode": "lines",
        "name": f"{label} fastest to slowest seed",
        "x": [x for x, _ in ends],
        "y": [y for _, y in ends],
        "fill": "toself",
        "fillcolor": COLOURS[f"{role}_band"],
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
        **shared,
    }
    word = "memorise" if role == "mem" else "generalise"
    between = _between_widths(params, centre, answer.method)
    line: Trace = {
        "type": "scatter",
        "mode": "lines",
        "name": f"{label}: {answer.units} to {word}",
        "x": [x for x, _ in between],
        "y": [y for _, y in between],
        "connectgaps": False,
        "line": {"color": COLOURS[role], "width": 2.5},
        "hoverinfo": "skip",
        **shared,
    }
    curve: Trace = {
        "type": "scatter",
        "mode": "markers",
        "name": f"{label}: {answer.units} to {word}",
        "x": params,
        "y": centre,
        "marker": {"color": COLOURS[role], "size": 5},
        "showlegend": False,
        "customdata": [[p.width, p.reached, p.seeds] for p in points],
        "hovertemplate": f"{label} %{{y:,.0f}} {answer.units}<br>P %{{x:,}} · "
        "d %{customdata[0]}<br>%{customdata[1]} of %{customdata[2]} seeds reached it"
        "<extra></extra>",
        **shared,
    }
    plain = small and len(points) > CROWDED and not _alone(centre)
    joined: Trace = {**curve, "mode": "lines", "line": line["line"], "connectgaps": False}
    return [
        band_trace,
        *([joined] if plain else [line, curve]),
        *_open_ends(label, role, points, centre, shared),
        *_diverged(label, role, points, shared),
    ]


def _alone(centre: Sequence[float | None]) -> bool:
    """Whether a width has a centre and neither of its neighbours does: no line would show it."""
    there = [False, *(c is not None for c in centre), False]
    return any(there[i] and not (there[i - 1] or there[i + 1]) for i in range(1, len(there) - 1))


def _between_widths(
    params: Sequence[int], centre: Sequence[float | None], method: str
) -> list[tuple[float, float | None]]:
    """The curve as the crossing sees it: 1/T linear in log P, by the paper's method T in P.

    None where a width has no centre, so that the line breaks there
    """
    drawn: list[tuple[float, float | None]] = []
    for i, (x, y) in enumerate(zip(params, centre, strict=True)):
        drawn.append((x, y))
        after = centre[i + 1] if i + 1 < len(params) else None
        if y is None or after is None:
            continue
        for share in (step / _STEPS for step in range(1, _STEPS)):
            if method == "paper":
                at, time = x + share * (params[i + 1] - x), y + share * (after - y)
            else:
                at = x * (params[i + 1] / x) ** share
                time = 1 / (1 / y + share * (1 / after - 1 / y))
            drawn.append((at, time))
    return drawn


def centres(points: Sequence[SpeedPoint], answer: SpeedsAnswer) -> list[float | None]:
    """The centre over seeds that the answer's method goes by; None: not reached."""
    return [p.mean_reached if answer.method == "paper" else p.median for p in points]


def subscript(name: str) -> str:
    """T_mem as it is set in a figure."""
    return f"{name[0]}<sub>{name[2:]}</sub>"


def watched(point: SpeedPoint) -> list[float]:
    """Times of the seeds: first passages, and last epochs of those that were watched in vain.

    A diverged run ended early without being slow or fast, so it has no time here.
    """
    return [s.last if s.value is None else s.value for s in point.values if not s.diverged]


def _top(points: Sequence[SpeedPoint]) -> float:
    """Where marks stand that have no time of their own: at the longest anything was watched."""
    return max((t for p in points for t in watched(p)), default=max(p.horizon for p in points))


def _open_ends(
    label: str,
    role: str,
    points: Sequence[SpeedPoint],
    centre: Sequence[float | None],
    shared: dict[str, Any],
) -> list[Trace]:
    """Arrows where the centre lies above the last epoch trained: not reached, never a value."""
    unreached = [p for p, c in zip(points, centre, strict=True) if c is None and watched(p)]
    if not unreached:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{label} not reached",
            "x": [p.params for p in unreached],
            "y": [max(watched(p)) for p in unreached],
            "marker": {"symbol": "arrow-up", "size": 9, "color": COLOURS[role]},
            "customdata": [[p.width, p.reached, p.seeds] for p in unreached],
            "hovertemplate": f"{label} above %{{y:,.0f}}: not reached<br>P %{{x:,}} · "
            "d %{customdata[0]}<br>%{customdata[1]} of %{customdata[2]} seeds reached it"
            "<extra></extra>",
            "showlegend": False,
            **shared,
        }
    ]


def _diverged(
    label: str, role: str, points: Sequence[SpeedPoint], shared: dict[str, Any]
) -> list[Trace]:
    """A cross at widths where a seed's loss became infinite: counted as never reached."""
    lost = [p for p in points if p.diverged]
    if not lost:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{label} diverged",
            "x": [p.params for p in lost],
            "y": [_top(points)] * len(lost),
            "marker": {"symbol": "x-thin-open", "size": 8, "color": COLOURS[role]},
            "customdata": [[p.width, p.diverged, p.seeds] for p in lost],
            "hovertemplate": f"{label}: %{{customdata[1]}} of %{{customdata[2]}} seeds diverged"
            "<br>P %{x:,} · d %{customdata[0]}<extra></extra>",
            "showlegend": False,
            **shared,
        }
    ]


def speeds_figure(answer: SpeedsAnswer) -> Figure:
    """T_mem and T_gen over P on log axes: centres, bands over seeds, and every seed."""
    points = (*answer.t_mem, *answer.t_gen)
    low, high = span([p.params for p in points])
    t_low, t_high = span([t for p in points for t in watched(p)], margin=0.08)
    data = [
        trace
        for name, role, own in (("T_gen", "gen", answer.t_gen), ("T_mem", "mem", answer.t_mem))
        for trace in (
            *speed_traces(name, role, own, answer, axis="y"),
            *_seeds(name, role, own, answer),
        )
    ]
    at_capacity = [vertical(answer.p_mem, COLOURS["p_mem"], "dot")]
    frame = layout(
        _meta(answer),
        xaxis=log_axis("parameters P", low, high),
        yaxis=log_axis(f"{answer.units} to memorise or generalise", t_low, t_high),
        shapes=at_capacity if low <= answer.p_mem <= high else [],
    )
    return figure(data, frame)


def _seeds(name: str, role: str, points: Sequence[SpeedPoint], answer: SpeedsAnswer) -> list[Trace]:
    """One faint point a run; a triangle where it was watched that long in vain."""
    runs = [(p, s) for p in points for s in p.values if not s.diverged]
    if not runs:
        return []
    label = subscript(name)
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{label} of each seed",
            "x": [p.params for p, _ in runs],
            "y": [s.last if s.value is None else s.value for _, s in runs],
            "marker": {
                "color": COLOURS[role],
                "size": 5,
                "opacity": 0.45,
                "symbol": ["triangle-up" if s.value is None else "circle" for _, s in runs],
            },
            "customdata": [
                [s.run, p.width, s.seed, "above " if s.value is None else ""] for p, s in runs
            ],
            "hovertemplate": f"{label} %{{customdata[3]}}%{{y:,.0f}} {answer.units}<br>"
            "P %{x:,} · d %{customdata[1]} · seed %{customdata[2]}<extra></extra>",
            "legendgroup": name,
            "showlegend": False,
        }
    ]


def _reached(points: Sequence[SpeedPoint], answer: SpeedsAnswer) -> list[tuple[int, float]]:
    """(P, centre) of the widths that reached it, ascending in P."""
    found = zip(points, centres(points, answer), strict=True)
    return [(p.params, time) for p, time in found if time is not None]


def _sentence(name: str, points: Sequence[SpeedPoint], answer: SpeedsAnswer) -> str:
    reached = _reached(points, answer)
    if not reached:
        return f"{name} was not reached at any width."
    (first, slow), (last, fast) = reached[0], reached[-1]
    return (
        f"{name} goes from {human(slow)} {answer.units} at P = {human(first)} "
        f"to {human(fast)} at P = {human(last)}."
    )


def _reading(
    name: str, role: str, points: Sequence[SpeedPoint], answer: SpeedsAnswer, censored: int
) -> Reading:
    reached = _reached(points, answer)
    return {
        "term": name,
        "value": f"{len(reached)} of {len(points)} widths",
        "detail": f"reached it; {censored} runs were stopped before",
        "role": role,
    }


def _meta(answer: SpeedsAnswer) -> Meta:
    mem, gen = answer.t_mem, answer.t_gen
    meta: Meta = {
        "title": f"{cell_title(answer)}: speeds",
        "summary": f"{_sentence('T_mem', mem, answer)} {_sentence('T_gen', gen, answer)}",
        "caption": answer_caption(answer, bits_text(answer.c_model)),
        "readings": [
            _reading("T_mem", "mem", mem, answer, answer.censored.speed),
            _reading("T_gen", "gen", gen, answer, answer.censored.grok),
            {
                "term": "P_mem",
                "value": human(answer.p_mem),
                "detail": "K_mem / C_model, parameters",
                "role": "p_mem",
            },
        ],
        "notes": [],
        "sources": [{"label": "speeds", "route": "/speeds"}],
    }
    if not mem and not gen:
        meta["empty"] = "No run of this cell has finished yet."
    return meta


# Within this many decades the onset counts as being at the crossing, as the paper's verdicts do.
CLOSE = 0.11


def summary(answer: CrossingAnswer) -> str:
    """Two sentences that stand for the chart where it cannot be seen."""
    cross, onset = answer.p_cross.estimate, answer.p_onset.estimate
    first = crossing_sentence(answer.status, answer.unresolved_widths)
    if cross is not None:
        first += f" P_cross is {human(cross)} parameters"
        if answer.p_cross.level is not None:
            first += f" ({_level(answer.p_cross.level)} {_bounds(answer)})"
        first += "."
    if onset is None:
        return f"{first} Onset: {ONSET_SENTENCES[answer.p_onset.status]}."
    second = f"Delays start at P_onset = {human(onset)}"
    if answer.residual is not None:
        side = "below" if answer.residual < 0 else "above"
        near = "close to" if abs(answer.residual) <= CLOSE else side
        second += f", {near} the crossing ({dex(answer.residual)})"
    return f"{first} {second}."


def readings(answer: CrossingAnswer) -> list[Reading]:
    """The panel's numbers in the order the argument needs them."""
    cross, onset = answer.p_cross, answer.p_onset
    cross_detail = crossing_sentence(answer.status, answer.unresolved_widths)
    if cross.level is not None:
        cross_detail = f"{_level(cross.level)} {_bounds(answer)}"
        if answer.epochs is not None:
            cross_detail += f" · both take {human(answer.epochs)} {answer.units}"
    elif answer.epochs is not None:
        cross_detail = f"both take {human(answer.epochs)} {answer.units}"
    if answer.bracket is not None:
        ends = answer.bracket.low_width, answer.bracket.high_width
        cross_detail += f" · between d = {ends[0]} and {ends[1]}"
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
        missing = crossing_sentence(answer.status, answer.unresolved_widths).rstrip(".")
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
        say("warn", crossing_sentence(answer.status, answer.unresolved_widths))
    bracket = answer.bracket
    if bracket is not None and bracket.coarse:
        how = (
            "is not reached at one of"
            if bracket.change is None
            else "changes more than 3-fold over"
        )
        say(
            "warn",
            f"Coarse: T_mem {how} the speed widths {bracket.low_width} and {bracket.high_width} "
            "around the crossing, so its interval may be too short.",
        )
    if answer.advice is not None:
        advice = answer.advice
        say("plain", f"To train next: {advice_text(advice.kind, advice.width, advice.why)}.")
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
