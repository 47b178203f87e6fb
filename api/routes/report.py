"""/suites/{suite}/report: the generated report of a suite as one page."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy import Connection

from api.answering import served
from api.queries import StrictQuery
from api.routes.suites import Name
from api.tokens import MayRead
from service.answers.reading import read_suite
from service.report.assembly import assemble
from service.report.content import gather
from service.report.figures.canvas import render
from service.report.webpage import webpage

router = APIRouter(tags=["suites"], dependencies=[MayRead])

# The page is one file: its styles and pictures are inside it, and it has no script.
CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"


@router.get(
    "/suites/{suite}/report",
    summary="The report of a suite",
    response_class=Response,
    responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
)
async def get_report(
    request: Request,
    suite: Name,
    _query: Annotated[StrictQuery, Query()],
) -> Response:
    """Scope, figures, tests, within-setting table, verdict and provenance, on one page."""

    def write(connection: Connection) -> bytes:
        command = f"groktime report {suite} --to DIR"
        report = assemble([gather(connection, suite)], [], command)
        pictures = {drawing.stem: render(drawing, ("svg",))["svg"] for drawing in report.drawings}
        return webpage(report.document, pictures).encode()

    response = await served(
        request,
        ("report", suite),
        lambda connection: read_suite(connection, suite),
        write,
        lambda page: (page, "text/html; charset=utf-8"),
    )
    response.headers["Content-Security-Policy"] = CSP
    return response
