"""The law of memorisation: T_mem against inverse capacity, and its collapse on f."""

from __future__ import annotations

import math
from collections.abc import Sequence

from groktime.dashboard.figures.theme import (
    COLOURS,
    ROOM_BELOW,
    Figure,
    Meta,
    Note,
    Reading,
    Trace,
    band,
    figure,
    layout,
    linear_axis,
    log_axis,
    prime_look,
    span,
)
from groktime.service.analysis.laws import LawFit
from groktime.service.answers.laws import LawAnswer, LawPoint
from groktime.service.answers.verdicts import bits_text
from groktime.service.words import (
    count,
    form_formula,
    form_name,
    interval,
    is_shown,
    p_value,
    percent,
    setting_text,
)

LINE_POINTS = 60
DASHES = {"exponential": "solid", "power": "dash", "stretched": "dot", "critical": "dashdot"}
NEAREST = 1e-3  # how near to its end, as a share, the critical law is drawn


def memorisation_capacity_figure(answer: LawAnswer) -> Figure:
    """T_mem against 1/(C·P): one curve a prime, because larger datasets take longer.

    Each prime's own exponential law is drawn over the part of the window that was measured.
    """
    low, high = span([1 / (answer.c_model.value * p.params) for p in answer.points])
    fits = {fit.prime: fit for fit in answer.per_prime}
    data: list[Trace] = []
    for prime in answer.primes:
        points = _of(answer, prime)
        inverse = [1 / (answer.c_model.value * p.params) for p in points]
        data.append(
            _points_trace(
                prime, answer.primes, inverse, points, answer.units, joined=prime not in fits
            )
        )
        if prime in fits and points:
            look = prime_look(prime, answer.primes)[0]
            data.append(_prime_line(fits[prime], look, inverse, points, answer.window))
    frame = layout(
        _meta(
            answer,
            "Time to memorise against inverse capacity",
            "Smaller models take longer to memorise, and each prime has its own curve.",
        ),
        xaxis=log_axis("inverse capacity 1 / (C·P) (1/bits)", low, high),
        yaxis=_time_axis(answer),
        margin=ROOM_BELOW,
    )
    return figure(data, frame)


def memorisation_fraction_figure(answer: LawAnswer) -> Figure:
    """T_mem against f: if capacity fraction is all that matters, primes fall on one curve."""
    largest = max((p.fraction for p in answer.points), default=0.25) * 1.05
    data = [
        _points_trace(
            prime,
            answer.primes,
            [p.fraction for p in _of(answer, prime)],
            _of(answer, prime),
            answer.units,
            joined=False,
        )
        for prime in answer.primes
    ]
    data += [_law_line(fit, answer.window) for fit in answer.rivals]
    frame = layout(
        _meta(
            answer,
            "Collapse on the capacity fraction",
            _law_summary(answer),
        ),
        xaxis=linear_axis("capacity fraction f = K<sub>mem</sub> / (C·P)", range=[0, largest]),
        yaxis=_time_axis(answer),
        shapes=[band(answer.window[0], min(answer.window[1], largest), COLOURS["immediate"])],
        margin=ROOM_BELOW,
    )
    return figure(data, frame)


def _prime_line(
    fit: LawFit,
    colour: str,
    inverse: Sequence[float],
    points: Sequence[LawPoint],
    window: tuple[float, float],
) -> Trace:
    """One prime's law, turned from f to 1/(C·P) by its K_mem, which is f·C·P of any point."""
    k_mem = points[0].fraction / inverse[0]
    low = max(window[0], min(p.fraction for p in points))
    high = min(window[1], max(p.fraction for p in points))
    grid = [low + (high - low) * i / (LINE_POINTS - 1) for i in range(LINE_POINTS)]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"fit of p = {fit.prime}",
        "showlegend": False,
        "x": [f / k_mem for f in grid],
        "y": [law_value(fit, f) for f in grid],
        "line": {"color": colour, "width": 1.5},
        "hovertemplate": f"p = {fit.prime}: {fit.b:,.3g}·e<sup>{fit.a:.3g} f</sup><extra></extra>",
    }


def _of(answer: LawAnswer, prime: int) -> list[LawPoint]:
    return sorted((p for p in answer.points if p.prime == prime), key=lambda p: p.fraction)


def _points_trace(
    prime: int,
    primes: Sequence[int],
    x: Sequence[float],
    points: Sequence[LawPoint],
    units: str,
    *,
    joined: bool,
) -> Trace:
    colour, symbol = prime_look(prime, primes)
    return {
        "type": "scatter",
        "mode": "lines+markers" if joined else "markers",
        "name": f"p = {prime}",
        "x": list(x),
        "y": [p.value for p in points],
        "line": {"color": colour, "width": 1.2},
        "marker": {
            "color": colour,
            "symbol": symbol,
            "size": 7,
            "opacity": [1.0 if p.fitted else 0.45 for p in points],
        },
        "customdata": [[p.width, p.params, p.fraction] for p in points],
        "hovertemplate": f"T<sub>mem</sub> %{{y:,.0f}} {units}<br>p = {prime} · "
        "d %{customdata[0]} · P %{customdata[1]:,}<br>f %{customdata[2]:.3f}<extra></extra>",
    }


def _law_line(fit: LawFit, window: tuple[float, float]) -> Trace:
    """A fitted form over the window it was fitted on."""
    low = max(window[0], 1e-3)
    grid = [low + (window[1] - low) * i / (LINE_POINTS - 1) for i in range(LINE_POINTS)]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": form_formula(fit.form),
        "x": grid,
        "y": [law_value(fit, f) for f in grid],
        "line": {
            "color": COLOURS["ink"],
            "width": 2 if fit.form == "exponential" else 1.3,
            "dash": DASHES[fit.form],
        },
        "hovertemplate": f"{form_name(fit.form)}<br>f %{{x:.3f}}: %{{y:,.0f}}<extra></extra>",
    }


def law_value(fit: LawFit, f: float) -> float:
    """The fitted time at one capacity fraction."""
    if fit.form == "power":
        return fit.b * float(f**fit.a)
    if fit.form == "critical" and fit.c is not None:
        return fit.b * float(max(1 - f / fit.c, NEAREST) ** -fit.a)
    exponent = f if fit.c is None else f**fit.c
    return fit.b * math.exp(fit.a * exponent)


def _time_axis(answer: LawAnswer) -> dict[str, object]:
    low, high = span([p.value for p in answer.points], margin=0.08)
    return log_axis(f"T<sub>mem</sub> ({answer.units} to memorise)", low, high)


def _law_summary(answer: LawAnswer) -> str:
    if answer.pooled is None:
        return "Too few points inside the window to fit the law."
    return (
        f"T_mem grows as e to the {answer.pooled.a:.3g} f inside the window "
        f"{answer.window[0]:g} to {answer.window[1]:g}; best form by AICc: "
        f"{form_name(answer.rivals[0].form)}. {collapse_words(answer)}"
    )


def collapse_words(answer: LawAnswer) -> str:
    """The collapse test as a sentence."""
    found = answer.collapse
    if not found.testable or found.slope is None:
        return f"Collapse not testable: {found.reason}."
    effect = f"{_collapse_value(answer)} decades of T_mem per decade of P at fixed f"
    if is_shown(found.p):
        return f"Primes do not collapse fully: {effect} (p = {p_value(found.p)})."
    return f"That T_mem depends on P at fixed f is not shown: {effect} (p = {p_value(found.p)})."


def _readings(answer: LawAnswer) -> list[Reading]:
    found: list[Reading] = []
    if answer.pooled is not None:
        fit = answer.pooled
        ends = interval(fit.a_low, fit.a_high)
        ci = f"{percent(answer.level)} CI {ends} · " if fit.a_low is not None else ""
        r2 = "" if fit.r_squared is None else f"R² {fit.r_squared:.3f} · "
        found.append(
            {
                "term": "rate a in b·e^(a·f)",
                "value": f"{fit.a:.3g}",
                "detail": f"{ci}{r2}{count(fit.n, 'width')} pooled",
                "role": "mem",
            }
        )
    if answer.rivals:
        best = answer.rivals[0]
        others = [
            f"{form_name(fit.form)} +{fit.aicc - best.aicc:.1f}"
            for fit in answer.rivals[1:]
            if fit.aicc is not None and best.aicc is not None
        ]
        found.append(
            {
                "term": "best form by AICc",
                "value": form_name(best.form),
                "detail": f"others: {', '.join(others)}" if others else "no rival could be fitted",
                "role": "ink",
            }
        )
    found.append(
        {
            "term": "collapse",
            "value": _collapse_value(answer),
            "detail": collapse_words(answer),
            "role": "ink",
        }
    )
    return found


def _collapse_value(answer: LawAnswer) -> str:
    if not answer.collapse.testable or answer.collapse.slope is None:
        return "not testable"
    return f"{answer.collapse.slope:+.3f}".replace("-", "−")


def _meta(answer: LawAnswer, title: str, summary: str) -> Meta:
    notes: list[Note] = []
    if answer.pooled is None:
        notes.append({"tone": "warn", "text": "Too few points inside the window to fit the law."})
    if answer.collapse.testable and answer.collapse.unreliable:
        notes.append(
            {
                "tone": "warn",
                "text": f"Collapse rests on {count(answer.collapse.primes, 'prime')}; "
                "its error is unreliable below ten.",
            }
        )
    parts = [
        f"suite {answer.suite}",
        f"revision {answer.revision}",
        setting_text(answer.setting),
        f"method {answer.method}",
        f"{answer.clock} clock",
        f"T_mem at {percent(answer.thresholds.t_mem)}",
        f"fit on f in {answer.window[0]:g}–{answer.window[1]:g}",
        f"n = {count(len(answer.points), 'width')} of {count(len(answer.primes), 'prime')}",
        bits_text(answer.c_model),
    ]
    meta: Meta = {
        "title": title,
        "summary": summary,
        "caption": " · ".join(part for part in parts if part),
        "readings": _readings(answer),
        "notes": notes,
        "sources": [{"label": "law", "route": "/law"}],
    }
    if not answer.points:
        meta["empty"] = "No speed run of this setting has memorised its dataset yet."
    return meta
