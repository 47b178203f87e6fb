"""Curves of runs: training beside validation, coloured by width, seeds told apart by dashes."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import plotly.graph_objects as go

from groktime.dashboard.figures.curves import Shown, curves_figure
from groktime.service.answers.runs import RunCurve, RunRow

EPOCHS = 20


def run_curve(width: int, seed: int, *, n_val: int = 100, **given: Any) -> RunCurve:
    values: dict[str, Any] = {f.name: None for f in fields(RunRow)}
    values |= {"id": width * 10 + seed, "width": width, "seed": seed, "prime": 97, "state": "done"}
    values |= {"n_train": 100, "n_val": n_val, "last_epoch": EPOCHS} | given
    climb = tuple(epoch / EPOCHS for epoch in range(1, EPOCHS + 1))
    nothing = (None,) * EPOCHS
    return RunCurve(
        run=RunRow(**values),
        recorded=EPOCHS,
        shown=EPOCHS,
        sampled=False,
        epoch=tuple(range(1, EPOCHS + 1)),
        train_loss=climb,
        train_accuracy=climb,
        train_accuracy_eval=climb,
        val_loss=climb if n_val else nothing,
        val_accuracy=climb if n_val else nothing,
        bits=nothing,
        weight_norm=climb,
    )


def test_plotly_accepts_the_figure() -> None:
    figure = curves_figure([run_curve(20, 1), run_curve(64, 2)])
    go.Figure(json.loads(json.dumps(figure, allow_nan=False)))


def test_training_and_validation_have_a_panel_each() -> None:
    lines = [t for t in curves_figure([run_curve(20, 1)])["data"] if t["mode"] == "lines"]
    assert [(t["xaxis"], t["yaxis"]) for t in lines] == [("x", "y"), ("x2", "y2")]


def test_a_run_without_validation_fills_the_whole_width() -> None:
    figure = curves_figure([run_curve(20, 1, n_val=0)])
    assert figure["layout"]["xaxis"]["domain"] == [0, 1]
    assert "xaxis2" not in figure["layout"]


def test_widths_have_colours_and_seeds_dashes() -> None:
    figure = curves_figure([run_curve(20, 1), run_curve(20, 2), run_curve(64, 1)])
    lines = [t["line"] for t in figure["data"] if t.get("showlegend") and t["mode"] == "lines"]
    assert lines[0]["color"] == lines[1]["color"] != lines[2]["color"]
    assert lines[0]["dash"] == lines[2]["dash"] != lines[1]["dash"]


def test_epochs_are_logarithmic() -> None:
    assert curves_figure([run_curve(20, 1)])["layout"]["xaxis"]["type"] == "log"


def test_a_failed_run_says_why() -> None:
    figure = curves_figure([run_curve(20, 1, state="failed", reason="diverged")])
    notes = [n["text"] for n in figure["layout"]["meta"]["notes"]]
    assert "Run 201 failed: diverged." in notes


def test_the_caption_says_whose_runs_these_are() -> None:
    caption = curves_figure([run_curve(20, 1)], Shown("mini", 42))["layout"]["meta"]["caption"]
    assert caption.startswith("suite mini · revision 42 · n = 1 run ·")


def test_every_run_has_its_table() -> None:
    figure = curves_figure([run_curve(width, 1) for width in range(10, 30)])
    assert len(figure["layout"]["meta"]["sources"]) == 20


def test_nothing_chosen_invites_to_choose() -> None:
    assert "Choose runs" in curves_figure([])["layout"]["meta"]["empty"]
