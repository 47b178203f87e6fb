"""/charts/{name}: figures built on the server, as Plotly JSON, a page or a picture."""

from __future__ import annotations

import json
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse

from api.answering import served
from api.charts import CHARTS, ChartName, ChartQuery, Figure
from api.database import Database
from api.pictures import as_page, as_picture
from api.problems import described
from api.routes.docs import STATIC
from api.tokens import MayRead
from dashboard.page import CSP
from service.answers.reading import find_suite

router = APIRouter(tags=["charts"])

MEDIA_TYPES = {
    "json": "application/json",
    "html": "text/html; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
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


@router.get("/charts/assets/chart.js", include_in_schema=False)
async def chart_script() -> FileResponse:
    return FileResponse(STATIC / "chart.js", headers={"Cache-Control": "public, max-age=3600"})


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
    question = query.question(request.app.state.settings)

    def encode(figure: Figure) -> tuple[bytes, str]:
        return _encoded(figure, form), MEDIA_TYPES[form]

    if chart.by_revision:
        response = await served(
            request,
            ("charts", name, form, query.model_dump_json(exclude={"format"})),
            lambda c: find_suite(c, question.suite, question.prime, question.default_suite),
            lambda c: chart.draw(c, question, query),
            encode,
        )
    else:
        database: Database = request.app.state.database

        def read() -> tuple[bytes, str]:
            with database.reading() as connection:
                figure = chart.draw(connection, question, query)
            return encode(figure)

        body, media_type = await anyio.to_thread.run_sync(read)
        response = Response(body, media_type=media_type)
    if form == "html":
        response.headers["Content-Security-Policy"] = CSP
    return response


def _encoded(figure: Figure, form: str) -> bytes:
    if form == "html":
        return as_page(figure)
    if form in ("svg", "png"):
        return as_picture(figure, form)
    return json.dumps(figure, allow_nan=False, separators=(",", ":")).encode()
