"""The page of a suite without speed runs: curves, regimes and when each width generalises."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from groktime.service.analysis.delay import WidthRegime
from groktime.service.report.curves import curve_figure, curve_table, regime_sentences
from groktime.service.report.drawings import render


def regime(width: int, name: Any) -> WidthRegime:
    counts = dict.fromkeys(("under_capacity", "memorised_only", "immediate", "grokking"), 0)
    return WidthRegime(width=width, params=width * 100, regime=name, **counts | {name: 1})


def curve(width: int, last: int) -> Any:
    run = SimpleNamespace(width=width, params=width * 100, seed=42, prime=127, last_epoch=last)
    shares = tuple(min(1.0, e / last) for e in range(1, last + 1))
    return SimpleNamespace(
        run=run,
        recorded=last,
        epoch=tuple(range(1, last + 1)),
        train_accuracy=shares,
        val_accuracy=(None, *shares[1:]),
    )


def content() -> Any:
    delays = [
        SimpleNamespace(width=32, seed=42, e_train=90.0, e_val=80.0, delay=0.0, censored=False),
        SimpleNamespace(width=64, seed=42, e_train=40.0, e_val=None, delay=20.0, censored=True),
    ]
    points = [
        regime(8, "under_capacity"),
        regime(16, "under_capacity"),
        regime(32, "immediate"),
        regime(64, "grokking"),
    ]
    panel = SimpleNamespace(
        regimes=SimpleNamespace(points=points), delay=SimpleNamespace(points=delays)
    )
    return SimpleNamespace(
        name="figure4",
        settings=(SimpleNamespace(panels=(panel,)),),
        curves=(curve(8, 200), curve(16, 200), curve(32, 95), curve(64, 60)),
    )


def test_widths_of_one_regime_are_told_together() -> None:
    assert list(regime_sentences(content())) == [
        "d = 8 to 16: under capacity.",
        "d = 32: generalises at once.",
        "d = 64: grokking.",
    ]


def test_a_width_that_never_fitted_has_no_epochs_and_a_censored_delay_is_a_lower_bound() -> None:
    narrow, _, at_once, censored = curve_table(content()).rows
    assert narrow[2:] == ("200", "–", "–", "–", "under capacity")
    assert at_once[3:] == ("90", "80", "0", "generalises at once")
    assert censored[3:] == ("40", "–", "≥ 20", "grokking")


def test_the_figure_has_a_panel_for_each_width() -> None:
    drawing, picture = curve_figure(content())
    assert picture.stem == "figure4-curves"
    assert len([axes for axes in drawing.draw().axes if axes.get_visible()]) == 4
    assert render(drawing, ("svg",))["svg"].startswith(b"<?xml")
