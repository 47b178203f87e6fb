"""Charts by name: which answers a figure is drawn from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field
from sqlalchemy import Connection

from api.problems import ApiError
from api.queries import AXES, MAX_INTEGER, LawQuery, fraction_window
from dashboard.figures.capacity import capacity_curves_figure, capacity_fit_figure
from dashboard.figures.coverage import coverage_figure
from dashboard.figures.curves import Shown, curves_figure
from dashboard.figures.delay import delay_figure
from dashboard.figures.memorisation import (
    memorisation_capacity_figure,
    memorisation_fraction_figure,
)
from dashboard.figures.prediction import prediction_figure, residual_figure
from dashboard.figures.regimes import regimes_figure
from dashboard.figures.speeds import speeds_figure
from service.answers.asking import ask
from service.answers.bits import cell_bits
from service.answers.capacity import capacity
from service.answers.cell_tests import cell_tests
from service.answers.coverage import coverage
from service.answers.crossing import crossing_of
from service.answers.curves import run_curve
from service.answers.delay import delay_of
from service.answers.law import law
from service.answers.question import Question, put
from service.answers.reading import read_suite
from service.answers.reference import suite_reference
from service.answers.regimes import regimes, regimes_of
from service.answers.speeds import speeds, speeds_of
from service.spec import Kind

Figure = dict[str, Any]
ChartName = Literal[
    "delay",
    "capacity",
    "capacity_fit",
    "memorisation",
    "memorisation_inverse",
    "onset",
    "residual",
    "curves",
    "coverage",
    # Every question has a chart of its own name.
    "crossing",
    "law",
    "regimes",
    "speeds",
    "tests",
]

MAX_CURVES = 60
RunIds = Annotated[
    list[Annotated[int, Field(ge=1, le=MAX_INTEGER)]], Field(min_length=1, max_length=MAX_CURVES)
]


class ChartQuery(LawQuery):
    """The parameters of the answers a chart shows, and of the chart itself."""

    format: Literal["json", "html", "svg", "png"] | None = Field(  # type: ignore[assignment]
        None, description="Plotly JSON (default), a page, or a picture"
    )
    axis: Literal[("prime", "k_mem", "last_batch", *AXES)] = Field(  # type: ignore[valid-type]
        "prime", description="residual: the axis it is drawn against"
    )
    kind: Kind = Field("grok", description="coverage: which kind of run")
    run: RunIds | None = Field(None, description="curves: ids of runs, given several times")
    points: Annotated[int, Field(ge=2, le=20_000)] = Field(
        400, description="curves: about this many epochs a run"
    )


@dataclass(frozen=True)
class Chart:
    """One chart: how it is drawn, and whether it depends on the suite's revision alone."""

    draw: Callable[[Connection, Question, ChartQuery], Figure]
    by_revision: bool = True


def _delay(connection: Connection, question: Question, _query: ChartQuery) -> Figure:
    """All four answers come from one reading of the cell."""
    asked = ask(connection, question)
    c_model = cell_bits(connection, asked)
    return delay_figure(
        delay_of(asked), crossing_of(asked, c_model), speeds_of(asked, c_model), regimes_of(asked)
    )


def _speeds(connection: Connection, question: Question, _query: ChartQuery) -> Figure:
    return speeds_figure(speeds(connection, question))


def _regimes(connection: Connection, question: Question, _query: ChartQuery) -> Figure:
    return regimes_figure(regimes(connection, question))


def _memorisation(connection: Connection, question: Question, query: ChartQuery) -> Figure:
    return memorisation_fraction_figure(law(connection, question, fraction_window(query)))


def _onset(connection: Connection, question: Question, _query: ChartQuery) -> Figure:
    answer = cell_tests(connection, question)
    suite = read_suite(connection, answer.suite)
    return prediction_figure(answer, suite_reference(connection, suite))


def _residual(connection: Connection, question: Question, query: ChartQuery) -> Figure:
    answer = cell_tests(connection, question)
    suite = read_suite(connection, answer.suite)
    return residual_figure(answer, query.axis, suite_reference(connection, suite))


def _coverage(connection: Connection, question: Question, query: ChartQuery) -> Figure:
    suite, _ = put(connection, question)
    return coverage_figure(coverage(connection, suite), query.kind)


def _curves(connection: Connection, question: Question, query: ChartQuery) -> Figure:
    if not query.run:
        raise ApiError(
            422, "run: name one run or more", parameter="run", accepted="ids that /runs lists"
        )
    shown = None
    if question.suite is not None:
        suite = read_suite(connection, question.suite)
        shown = Shown(suite.name, suite.revision)
    curves = [run_curve(connection, run, points=query.points) for run in query.run]
    return curves_figure(curves, shown)


CHARTS: dict[str, Chart] = {
    "delay": Chart(_delay),
    "capacity": Chart(lambda c, q, _: capacity_curves_figure(capacity(c, q))),
    "capacity_fit": Chart(lambda c, q, _: capacity_fit_figure(capacity(c, q))),
    "memorisation": Chart(_memorisation),
    "memorisation_inverse": Chart(
        lambda c, q, asked: memorisation_capacity_figure(law(c, q, fraction_window(asked)))
    ),
    "onset": Chart(_onset),
    "residual": Chart(_residual),
    "curves": Chart(_curves, by_revision=False),
    "coverage": Chart(_coverage, by_revision=False),
    "crossing": Chart(_delay),
    "law": Chart(_memorisation),
    "regimes": Chart(_regimes),
    "speeds": Chart(_speeds),
    "tests": Chart(_onset),
}
