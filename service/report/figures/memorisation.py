"""The law of T_mem: against inverse capacity, and its collapse on the capacity fraction."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dashboard.figures.memorisation import law_value
from dashboard.figures.theme import COLOURS, span
from service.answers.law import LawAnswer
from service.report.figures.canvas import PAGE, log_x, log_y, series

FORMS = {
    "exponential": ("$b\\,e^{af}$", "-"),
    "power": ("$b\\,f^a$", "--"),
    "stretched": ("$b\\,e^{a f^c}$", ":"),
}
LINE_POINTS = 60


def law_drawing(answer: LawAnswer) -> Figure:
    """Left: one curve a prime. Right: all on one, if f is all that matters."""
    figure = Figure(figsize=(PAGE, 3.0))
    inverse, collapse = figure.subplots(1, 2, sharey=True)
    scale = answer.c_model.value
    log_x(inverse, *span([1 / (scale * p.params) for p in answer.points]))
    for i, prime in enumerate(answer.primes):
        points = sorted((p for p in answer.points if p.prime == prime), key=lambda p: p.fraction)
        times = [p.value for p in points]
        style = series(i)
        inverse.plot(
            [1 / (scale * p.params) for p in points],
            times,
            **style,
            ms=3,
            lw=0.9,
            label=f"p = {prime}",
        )
        for fitted, alpha in ((True, 1.0), (False, 0.35)):
            here = [p for p in points if p.fitted is fitted]
            collapse.scatter(
                [p.fraction for p in here],
                [p.value for p in here],
                **style,
                s=11,
                alpha=alpha,
                lw=0,
            )
    _laws(collapse, answer)
    log_y(inverse, *span([p.value for p in answer.points], margin=0.08))
    inverse.set_xlabel("inverse capacity $1/(C\\,P)$ (1/bits)")
    inverse.set_ylabel(f"$T_{{mem}}$ ({answer.units})")
    inverse.tick_params(axis="x", rotation=45)
    collapse.set_xlabel("capacity fraction $f = K_{mem}/(C\\,P)$")
    inverse.legend(fontsize=6, ncols=2)
    return figure


def _laws(axes: Axes, answer: LawAnswer) -> None:
    low = max(answer.window[0], 1e-3)
    largest = max((p.fraction for p in answer.points), default=answer.window[1]) * 1.05
    high = min(answer.window[1], largest)
    axes.axvspan(answer.window[0], high, color=COLOURS["series_5"], alpha=0.08, lw=0)
    at = [low + (high - low) * i / (LINE_POINTS - 1) for i in range(LINE_POINTS)]
    for fit in answer.rivals:
        name, dash = FORMS[fit.form]
        axes.plot(at, [law_value(fit, f) for f in at], color=COLOURS["ink"], ls=dash, label=name)
    axes.set_xlim(0, largest)
    if answer.rivals:
        axes.legend()
