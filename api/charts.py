"""Charts by name: which answers a figure is drawn from, and in which form it is given."""

from __future__ import annotations

import html
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import Connection

from api.problems import ApiError
from api.queries import LawQuery
from dashboard.figures.capacity import capacity_curves_figure, capacity_fit_figure
from dashboard.figures.coverage import coverage_figure
from dashboard.figures.delay import delay_figure
from dashboard.figures.memorisation import (
    memorisation_capacity_figure,
    memorisation_fraction_figure,
)
from dashboard.figures.prediction import prediction_figure, residual_figure
from service.answers.asking import ask
from service.answers.bits import cell_bits
from service.answers.capacity import capacity
from service.answers.cell_tests import cell_tests
from service.answers.coverage import coverage
from service.answers.crossing import crossing_of
from service.answers.delay import delay_of
from service.answers.law import law
from service.answers.question import Question, put
from service.answers.regimes import regimes_of
from service.answers.speeds import speeds_of
from service.spec import Kind

if TYPE_CHECKING:
    import plotly.graph_objects as go

Figure = dict[str, Any]
ChartFormat = Literal["json", "html", "svg", "png"]

IMAGE_WIDTH, IMAGE_HEIGHT, IMAGE_SCALE = 1000, 600, 2
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


class ChartQuery(LawQuery):
    """The parameters of the answers a chart shows, and of the chart itself."""

    format: ChartFormat | None = None  # type: ignore[assignment]
    axis: str = "prime"
    kind: Kind = "grok"
    run: list[int] | None = None
    points: int = 400


@dataclass(frozen=True)
class Chart:
    """One chart: what it shows, and the figure for a question."""

    title: str
    draw: Callable[[Connection, Question, ChartQuery], Figure]
