"""The page of a suite that only shows how training goes: curves from underfitting to grokking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from matplotlib.figure import Figure

from groktime.dashboard.figures.theme import COLOURS
from groktime.service.analysis.delay import WidthRegime
from groktime.service.answers.runs import RunCurve
from groktime.service.report.content import SuiteContent
from groktime.service.report.document import Picture, Table
from groktime.service.report.drawings import Drawing, grid, log_x, slug
from groktime.service.words import EN_DASH, REGIMES, whole

COLUMNS = 4


def curve_figure(content: SuiteContent) -> tuple[Drawing, Picture]:
    """Training and validation accuracy of every run, one panel per width."""
    found = {point.width: point for point in _regimes(content)}
    curves = content.curves
    picture = Picture(
        slug(f"{content.name} curves"),
        f"Accuracy while training (online clock) and on unseen examples against epochs, one panel "
        f"per width ({content.name}, p = {curves[0].run.prime}, seed {curves[0].run.seed}).",
        "Training and validation curves by width",
    )
    return Drawing(picture.stem, lambda: curves_drawing(curves, found)), picture


def curves_drawing(curves: Sequence[RunCurve], regimes: dict[int, WidthRegime]) -> Figure:
    """Small multiples with the same axes in all."""
    figure, all_axes = grid(len(curves), columns=COLUMNS, height=1.6)
    last = max(curve.recorded for curve in curves)
    for i, (curve, axes) in enumerate(zip(curves, all_axes, strict=True)):
        log_x(axes, 0.95, last * 1.05)
        axes.set_ylim(-0.02, 1.04)
        axes.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
        axes.plot(curve.epoch, _reals(curve.train_accuracy), color=COLOURS["mem"], label="training")
        axes.plot(curve.epoch, _reals(curve.val_accuracy), color=COLOURS["gen"], label="unseen")
        regime = regimes.get(curve.run.width)
        words = "" if regime is None else f": {REGIMES[regime.regime]}"
        axes.set_title(f"d = {curve.run.width}{words}", loc="left", fontsize=7)
        if i % COLUMNS:
            axes.tick_params(axis="y", labelleft=False)
        if i + COLUMNS >= len(curves):
            axes.set_xlabel("epoch")
    figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _reals(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _regimes(content: SuiteContent) -> Iterator[WidthRegime]:
    for part in content.settings:
        for panel in part.panels:
            yield from panel.regimes.points


def regime_sentences(content: SuiteContent) -> Iterator[str]:
    """Which widths do what, from narrow to wide."""
    for regime, points in groupby(_regimes(content), key=lambda point: point.regime):
        widths = [point.width for point in points]
        first, last = widths[0], widths[-1]
        where = f"d = {first}" if first == last else f"d = {first} to {last}"
        yield f"{where}: {REGIMES[regime]}."


def curve_table(content: SuiteContent) -> Table:
    """When each width fits its training set and when it generalises."""
    regimes = {point.width: point.regime for point in _regimes(content)}
    delays = {
        (point.width, point.seed): point
        for part in content.settings
        for panel in part.panels
        for point in panel.delay.points
    }
    rows = []
    for curve in content.curves:
        run = curve.run
        delay = delays.get((run.width, run.seed))
        fitted = (EN_DASH,) * 3 if delay is None else (delay.e_train, delay.e_val, delay.delay)
        bound = "≥ " if delay is not None and delay.censored else ""
        rows.append(
            (
                str(run.width),
                whole(run.params),
                whole(run.last_epoch),
                *(whole(v) if isinstance(v, float) else EN_DASH for v in fitted[:2]),
                f"{bound}{whole(fitted[2])}" if isinstance(fitted[2], float) else EN_DASH,
                REGIMES[regimes[run.width]],
            )
        )
    return Table(
        name=f"{content.name}-curves",
        caption=f"{content.name}: first epochs with 99 % of the training set and 98 % of unseen "
        "examples right, and the delay between them.",
        header=("d", "P", "epochs", "E_train", "E_val", "ΔE", "regime"),
        rows=tuple(rows),
        numeric=frozenset(range(6)),
    )
