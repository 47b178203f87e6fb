"""/charts/{name}: figures built on the server, as Plotly JSON, a page or a picture."""

from __future__ import annotations

import html
import json
import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import anyio.to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse
from pydantic import Field
from sqlalchemy import Connection

from groktime.api.database import Database
from groktime.api.middleware import MayRead
from groktime.api.problems import ApiError, described, refusal
from groktime.api.queries import AXES, MAX_INTEGER, AnswerQuery, LawQuery, fraction_window
from groktime.api.responses import chosen, served
from groktime.api.routes.pages import STATIC
from groktime.dashboard.figures.capacity import capacity_curves_figure, capacity_fit_figure
from groktime.dashboard.figures.crossing import speeds_figure
from groktime.dashboard.figures.curves import Shown, curves_figure
from groktime.dashboard.figures.delay import (
    Arrangement,
    delay_caption,
    delay_figure,
    regimes_figure,
)
from groktime.dashboard.figures.memorisation import (
    memorisation_capacity_figure,
    memorisation_fraction_figure,
)
from groktime.dashboard.figures.prediction import (
    prediction_figure,
    residual_figure,
    threshold_figure,
)
from groktime.dashboard.figures.progress import (
    coverage_figure,
    no_placement_figure,
    placement_figure,
)
from groktime.dashboard.page import CSP
from groktime.db.records import read_suites
from groktime.service.analysis.capacity import BitsPerParameter
from groktime.service.answers.capacity import capacity, cell_bits
from groktime.service.answers.cell_tests import cell_tests, residuals_by_threshold
from groktime.service.answers.choice import About
from groktime.service.answers.context import Answer, CellContext, cell_context
from groktime.service.answers.crossing import (
    crossing_of,
    delay_of,
    regimes,
    regimes_of,
    speeds,
    speeds_of,
)
from groktime.service.answers.laws import law
from groktime.service.answers.question import Kept, Question, keep_primes, put, read_suite
from groktime.service.answers.runs import run_curve, telling_runs
from groktime.service.answers.suites import PlacedCell, PlacementAnswer, coverage
from groktime.service.answers.verdicts import suite_reference
from groktime.service.errors import AnalysisError
from groktime.service.settings import Settings
from groktime.service.spec import Kind
from groktime.service.sweep.locator import placement

WIDTH, HEIGHT, SCALE = 1000, 600, 2
SECONDS = 25
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

PAGE = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>{title}</title>
  </head>
  <body>
    <div id="chart"></div>
    <p>{caption}</p>
    <script type="application/json" id="figure">{figure}</script>
    <script src="/static/vendor/plotly/plotly.min.js"></script>
    <script src="/charts/assets/chart.js"></script>
  </body>
</html>
"""

log = logging.getLogger("groktime.api.routes.charts")

# One browser at a time: each takes some hundred megabytes.
_one_browser = threading.Lock()


def as_page(figure: dict[str, Any]) -> bytes:
    """A page that draws the figure with the server's own Plotly and no inline script."""
    meta = figure["layout"].get("meta", {})
    # A data block is not run, but it must not end early: no tag can begin inside it.
    data = json.dumps(figure, allow_nan=False).replace("<", "\\u003c")
    page = PAGE.format(
        title=html.escape(str(meta.get("title", "groktime"))),
        caption=html.escape(str(meta.get("caption", ""))),
        figure=data,
    )
    return page.encode()


def as_picture(figure: dict[str, Any], form: str) -> bytes:
    """PNG or SVG by kaleido, which drives a browser; 501 where there is none."""
    if not any(shutil.which(name) for name in BROWSERS):
        raise _not_here(form, "Chromium or Chrome on the server, which has none")
    try:
        import kaleido
    except ImportError as missing:
        raise _not_here(form, "the images extra: pip install 'groktime[images]'") from missing
    options = {"format": form, "width": WIDTH, "height": HEIGHT, "scale": SCALE}
    # Charts hold no formulas, and MathJax would be fetched from the network.
    browser = {"mathjax": False, "timeout": SECONDS}
    with _one_browser:
        try:
            picture: bytes = kaleido.calc_fig_sync(figure, opts=options, kopts=browser)
        except (RuntimeError, ValueError, OSError) as failed:
            log.warning("a picture could not be made: %s", failed)
            raise _not_here(form, "a browser that starts; the log has the reason") from failed
    return picture


def _not_here(form: str, needs: str) -> ApiError:
    return ApiError(
        501,
        f"format: {form} needs {needs}",
        parameter="format",
        value=form,
        accepted=["json", "html"],
    )


router = APIRouter(tags=["charts"])

MEDIA_TYPES = {
    "json": "application/json",
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
}
# An SVG that is opened by itself is drawn with its own styles, and nothing in it may run.
POLICIES = {
    "html": CSP,
    "svg": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "frame-ancestors 'none'; sandbox",
}
FORMS: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/html": {"schema": {"type": "string"}},
            "image/svg+xml": {"schema": {"type": "string"}},
            "image/png": {"schema": {"type": "string", "format": "binary"}},
        }
    },
    304: {"description": "The client's copy (If-None-Match) is the current one."},
    501: described("There is no browser to make a picture with."),
}

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
    "placement",
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
    axis: Literal[("prime", "k_mem", "last_batch", "t_mem", *AXES)] = Field(  # type: ignore[valid-type]
        "prime", description="residual: the axis it is drawn against"
    )
    arrangement: Arrangement = Field(
        "panels", description="delay: two panels over one axis, or the paper's twin axes"
    )
    kind: Kind | None = Field(
        None, description="coverage: which kind of run; else the first that the suite trains"
    )
    run: RunIds | None = Field(None, description="curves: ids of runs, given several times")
    points: Annotated[int, Field(ge=2, le=20_000)] = Field(
        400, description="curves: about this many epochs a run"
    )


class GridQuery(AnswerQuery):
    """The parameters of a delay chart, of which the prime is left open."""

    format: Literal["json"] | None = Field(None, description="Plotly JSON")
    prime: Literal["all"] = Field("all", description="all primes")  # type: ignore[assignment]
    arrangement: Arrangement = Field("panels", description="two panels, or the paper's twin axes")

    def question(self, settings: Settings) -> Question:
        return replace(super().question(settings), prime=None)


@dataclass(frozen=True)
class Chart:
    """One chart: how it is drawn, what it is about, and whether the suite's revision decides it."""

    draw: Callable[[Connection, Question, ChartQuery], Figure]
    about: About = "cell"
    by_revision: bool = True


def _delay(connection: Connection, question: Question, query: ChartQuery) -> Figure:
    """All four answers come from one reading of the cell."""
    context = cell_context(connection, question)
    return _delay_figure(connection, context, cell_bits(connection, context), query.arrangement)


def _delay_figure(
    connection: Connection,
    context: CellContext,
    c_model: BitsPerParameter,
    arrangement: Arrangement,
    *,
    small: bool = False,
) -> Figure:
    placed = None
    if context.suite.is_located:
        found = placement(connection, context.suite)
        placed = _asked_cell(found, context.cell.prime, context.cell.setting)
    return delay_figure(
        delay_of(context),
        crossing_of(context, c_model),
        speeds_of(context, c_model),
        regimes_of(context),
        arrangement,
        placed,
        small=small,
    )


def _asked_cell(
    found: PlacementAnswer, prime: int | None, setting: Mapping[str, Any]
) -> PlacedCell | None:
    """The cell asked for; where several are meant, the first that is still being located."""
    cells = [
        cell
        for cell in found.cells
        if (prime is None or cell.prime == prime)
        and all(str(cell.setting.get(name, value)) == str(value) for name, value in setting.items())
    ]
    return next((cell for cell in cells if cell.ended is None), cells[0] if cells else None)


def _placement(connection: Connection, question: Question, _query: ChartQuery) -> Figure:
    suite, _ = put(connection, question)
    if question.choice.suite is not None:  # no suite was named: one that is being located
        located = [one for one in read_suites(connection) if one.is_located]
        suite = next((one for one in located if one.running), located[-1] if located else suite)
    if not suite.is_located:
        return no_placement_figure(suite.name, suite.revision)
    found = placement(connection, suite)
    return placement_figure(found, _asked_cell(found, question.prime, question.filters))


MOST_PANELS = 64
_panels = Kept(MOST_PANELS)


def _grid(connection: Connection, question: Question, query: GridQuery) -> dict[str, Any]:
    """The delay chart of every prime, or why there is none; all runs are read by one statement."""
    suite, convention = put(connection, question)
    charts: list[dict[str, Any]] = []
    for prime in keep_primes(connection, suite, convention):
        figure, problem = None, None
        try:
            figure = _panel(connection, replace(question, prime=prime), query.arrangement)
        except AnalysisError as error:
            problem = refusal(error)
        charts.append({"prime": prime, "figure": figure, "problem": problem})
    return {"suite": suite.name, "revision": suite.revision, "charts": charts}


def _panel(connection: Connection, question: Question, arrangement: Arrangement) -> Figure:
    """A small delay chart, kept while its runs and its C_model stay the same: most closings concern
    another prime, and then only its caption changes, which names the revision."""
    context = cell_context(connection, question)
    c_model = cell_bits(connection, context)
    if context.suite.is_located:  # it shows a search that other cells decide as well
        return _delay_figure(connection, context, c_model, arrangement, small=True)
    where = (str(connection.engine.url), context.suite.id, repr(question), arrangement)
    stamp = (context.results, c_model, context.choice, context.provenance)
    figure = _panels.get(where, stamp)
    if not isinstance(figure, dict):
        figure = _delay_figure(connection, context, c_model, arrangement, small=True)
        _panels.put(where, stamp, figure)
    caption = delay_caption(Answer(**context.head()), c_model)
    frame = figure["layout"]
    return {**figure, "layout": {**frame, "meta": {**frame["meta"], "caption": caption}}}


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
    if query.axis == "t_mem":
        return threshold_figure(answer, residuals_by_threshold(connection, question))
    suite = read_suite(connection, answer.suite)
    return residual_figure(answer, query.axis, suite_reference(connection, suite))


def _coverage(connection: Connection, question: Question, query: ChartQuery) -> Figure:
    suite, _ = put(connection, question)
    return coverage_figure(coverage(connection, suite), query.kind)


def _curves(connection: Connection, question: Question, query: ChartQuery) -> Figure:
    runs = query.run or telling_runs(connection, question)
    shown = None
    if question.suite is not None:
        suite = read_suite(connection, question.suite)
        shown = Shown(suite.name, suite.revision)
    curves = [run_curve(connection, run, points=query.points) for run in runs]
    return curves_figure(curves, shown)


CHARTS: dict[str, Chart] = {
    "delay": Chart(_delay),
    "capacity": Chart(lambda c, q, _: capacity_curves_figure(capacity(c, q)), "capacity"),
    "capacity_fit": Chart(lambda c, q, _: capacity_fit_figure(capacity(c, q)), "capacity"),
    "memorisation": Chart(_memorisation, "suite"),
    "memorisation_inverse": Chart(
        lambda c, q, query: memorisation_capacity_figure(law(c, q, fraction_window(query))),
        "suite",
    ),
    "onset": Chart(_onset, "suite"),
    "residual": Chart(_residual, "suite"),
    "curves": Chart(_curves, by_revision=False),
    "coverage": Chart(_coverage, "suite", by_revision=False),
    "placement": Chart(_placement, "suite", by_revision=False),
    "crossing": Chart(_delay),
    "law": Chart(_memorisation, "suite"),
    "regimes": Chart(_regimes),
    "speeds": Chart(_speeds),
    "tests": Chart(_onset, "suite"),
}


@router.get("/charts/assets/chart.js", include_in_schema=False)
async def chart_script() -> FileResponse:
    return FileResponse(STATIC / "chart.js", headers={"Cache-Control": "public, max-age=3600"})


@router.get(
    "/charts/delay/primes",
    summary="The delay charts of all primes",
    dependencies=[MayRead],
    response_class=Response,
    responses={
        200: {"content": {"application/json": {"schema": {"type": "object"}}}},
        304: FORMS[304],
    },
)
async def get_grid(request: Request, query: Annotated[GridQuery, Query()]) -> Response:
    """`charts` of small multiples, by prime: each a `figure` without the marks of single seeds, or
    the `problem` that `/charts/delay` of this prime would tell."""
    question = await chosen(request, query.question(request.app.state.settings), "suite")
    return await served(
        request,
        ("charts", "delay/primes", query.model_dump_json(), repr(question.choice)),
        lambda c: read_suite(c, str(question.suite)),
        lambda c: _grid(c, question, query),
        lambda grid: (_encoded(grid, "json"), MEDIA_TYPES["json"]),
    )


@router.get(
    "/charts/{name}",
    summary="A chart of an answer",
    dependencies=[MayRead],
    response_class=Response,
    responses=FORMS,
)
async def get_chart(
    request: Request, name: ChartName, query: Annotated[ChartQuery, Query()]
) -> Response:
    """The figure of the answers it names in `layout.meta`, for the same parameters."""
    chart = CHARTS[name]
    form = query.format or "json"
    policy = {"Content-Security-Policy": POLICIES[form]} if form in POLICIES else None
    question = query.question(request.app.state.settings)
    if not (name == "curves" and query.run):  # named runs need no suite
        question = await chosen(request, question, chart.about)

    context = query.model_dump_json(exclude={"format"})

    def encode(figure: Figure) -> tuple[bytes, str]:
        return _encoded(figure, form), MEDIA_TYPES[form]

    if chart.by_revision:
        response = await served(
            request,
            ("charts", name, form, context, repr(question.choice)),
            lambda c: read_suite(c, str(question.suite)),
            lambda c: chart.draw(c, question, query),
            encode,
            headers=policy,
        )
    else:
        database: Database = request.app.state.database

        def read() -> tuple[bytes, str]:
            with database.reading() as connection:
                figure = chart.draw(connection, question, query)
            return encode(figure)

        body, media_type = await anyio.to_thread.run_sync(read)
        response = Response(body, media_type=media_type, headers=policy)
    return response


def _encoded(figure: Figure, form: str) -> bytes:
    if form == "html":
        return as_page(figure)
    if form in ("svg", "png"):
        return as_picture(figure, form)
    return json.dumps(figure, allow_nan=False, separators=(",", ":")).encode()
