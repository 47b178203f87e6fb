"""The coverage map: one square a prime and width, shaded by what its seeds are doing."""

from __future__ import annotations

import json
from dataclasses import replace

import plotly.graph_objects as go
import pytest

from groktime.dashboard.figures.progress import coverage_figure
from groktime.dashboard.figures.theme import Figure
from groktime.service.answers.suites import CellCoverage, CoverageAnswer, StateCounts


def states(**given: int) -> StateCounts:
    return StateCounts(**({"pending": 0, "running": 0, "stale": 0, "done": 0, "failed": 0} | given))


def cell(prime: int, width: int, decay: float, counts: StateCounts) -> CellCoverage:
    return CellCoverage(
        kind="grok",
        prime=prime,
        width=width,
        setting={"weight_decay": decay},
        states=counts,
        censored=0,
        diverged=0,
    )


@pytest.fixture
def answer() -> CoverageAnswer:
    return CoverageAnswer(
        suite="weight_decay",
        revision=12,
        states=states(done=7, running=1, failed=1, pending=6, stale=1),
        kinds={"grok": states(done=7, running=1, failed=1, pending=6, stale=1)},
        inherited=0,
        cells=(
            cell(97, 20, 0.1, states(done=2)),
            cell(97, 20, 1.0, states(done=1, pending=1)),
            cell(97, 24, 0.1, states(done=2, running=1)),
            cell(107, 20, 0.1, states(done=2, failed=1)),
            cell(107, 24, 0.1, states(pending=5, stale=1)),
        ),
        failures=(),
        epochs_recorded=123_456,
        runs_per_minute=None,
        seconds_left=None,
    )


def square(figure: Figure, prime: int, width: int) -> float | None:
    heat = figure["data"][0]
    value: float | None = heat["z"][heat["y"].index(str(prime))][heat["x"].index(str(width))]
    return value


def test_plotly_accepts_the_figure(answer: CoverageAnswer) -> None:
    go.Figure(json.loads(json.dumps(coverage_figure(answer), allow_nan=False)))


def test_settings_of_a_square_are_added_up(answer: CoverageAnswer) -> None:
    assert square(coverage_figure(answer), 97, 20) == pytest.approx(3 / 4)


def test_a_square_at_work_stands_out_and_so_does_a_failed_one(answer: CoverageAnswer) -> None:
    figure = coverage_figure(answer)
    at_work, failed = square(figure, 97, 24), square(figure, 107, 20)
    scale = figure["data"][0]["colorscale"]

    def colour(z: float | None) -> str:
        assert z is not None
        return str([c for place, c in scale if place <= z / 3 + 1e-9][-1])

    assert len({colour(at_work), colour(failed), colour(0.0), colour(1.0)}) == 4


def test_words_count_the_seeds_by_state(answer: CoverageAnswer) -> None:
    heat = coverage_figure(answer)["data"][0]
    assert heat["text"][0][heat["x"].index("24")] == "2 of 3 done, 1 running"


def test_lost_runs_are_mentioned(answer: CoverageAnswer) -> None:
    notes = coverage_figure(answer)["layout"]["meta"]["notes"]
    assert any("1 run lost" in n["text"] for n in notes)


def test_a_kind_without_runs_says_so(answer: CoverageAnswer) -> None:
    assert "no capacity runs" in coverage_figure(answer, "capacity")["layout"]["meta"]["empty"]


def test_a_suite_that_only_trains_speed_runs_shows_these_first(answer: CoverageAnswer) -> None:
    speed = replace(answer, cells=tuple(replace(one, kind="speed") for one in answer.cells))
    assert square(coverage_figure(speed), 97, 20) == pytest.approx(3 / 4)
    assert "Coverage of speed runs" in coverage_figure(speed)["layout"]["meta"]["title"]
