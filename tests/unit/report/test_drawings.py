"""The frame of figures: series told apart, files that do not depend on when they are made."""

from __future__ import annotations

from matplotlib.figure import Figure

from groktime.service.report.drawings import Drawing, render, series


def test_ten_primes_and_more_are_told_apart_by_colour_or_symbol() -> None:
    looks = {tuple(series(i).values()) for i in range(20)}
    assert len(looks) == 20


def draw() -> Figure:
    figure = Figure(figsize=(2, 2))
    figure.subplots().plot([1, 2], [3, 4])
    return figure


def test_the_same_drawing_is_the_same_bytes_in_every_format() -> None:
    first, second = render(Drawing("a", draw)), render(Drawing("a", draw))
    assert first == second
    assert set(first) == {"svg", "png", "pdf"}
