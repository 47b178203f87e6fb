"""/suites: what there is to ask about, and how far it is; /export: a suite's tables as CSV or
Parquet, streamed in flat memory.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio.to_thread
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from sqlalchemy import Connection, text
from starlette.types import Receive, Scope, Send

from groktime.api import tables
from groktime.api.database import Database, Stamps
from groktime.api.middleware import Exports, HeavyWork, MayRead, client_of, no_stream, only_head
from groktime.api.queries import SUITES, TWINS, FormatQuery, StrictQuery
from groktime.api.responses import HOLD_SECONDS, answered, as_json, served, wants_csv
from groktime.db.export import Format, curves_table, runs_table, write_table
from groktime.db.records import SuiteRecord, read_suites
from groktime.db.suites import ForecastRow, list_forecasts
from groktime.service.answers.choice import default_suite
from groktime.service.answers.question import read_suite
from groktime.service.answers.runs import CellList, list_cells
from groktime.service.answers.suites import (
    CoverageAnswer,
    PlacementAnswer,
    RunCounts,
    SuiteSummary,
    coverage,
    run_counts,
    suite_summary,
)
from groktime.service.errors import SuiteError
from groktime.service.report.assembly import assemble
from groktime.service.report.content import gather
from groktime.service.report.document import webpage
from groktime.service.report.drawings import render
from groktime.service.spec import MAX_PRIME, SUITE_NAME, Kind
from groktime.service.sweep.locator import placement

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("groktime.api.suites")

router = APIRouter(tags=["suites"], dependencies=[MayRead])

# The page is one file: its styles and pictures are inside it, and it has no script.
REPORT_CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"

Name = Annotated[str, Path(pattern=SUITE_NAME, description="name of the suite", examples=SUITES)]


class DamagedSuite(BaseModel):
    """A suite that is in the database, but not as one can be."""

    name: str
    damage: Annotated[str, Field(description="what is wrong with it")]


class SuiteList(BaseModel):
    """All suites, by name."""

    items: list[SuiteSummary]
    damaged: Annotated[
        list[DamagedSuite], Field(description="suites that cannot be read; the others are not less")
    ]


class Summaries:
    """Summaries by suite, kept until the suite changes, or a moment while it runs."""

    def __init__(self, stamps: Stamps) -> None:
        self._stamps = stamps
        self._kept: dict[int, tuple[Hashable, float, SuiteSummary]] = {}

    def of(
        self,
        connection: Connection,
        suite: SuiteRecord,
        default: str | None,
        counted: RunCounts | None = None,
    ) -> SuiteSummary:
        """One suite's; `counted` are the runs of all that have changed, counted at once."""
        self._stamps.seen(suite.name, suite.revision)
        if (kept := self._find(suite, default)) is not None:
            return kept
        now, own = time.monotonic(), None if counted is None else counted.get(suite.id)
        summary = _summary(connection, suite, default, own)
        self._kept[suite.id] = (_key(suite, default), now, summary)
        return summary

    def changed(self, suites: Iterable[SuiteRecord], default: str | None) -> list[int]:
        """Which of them have to be summarised anew."""
        return [one.id for one in suites if not one.damage and self._find(one, default) is None]

    def _find(self, suite: SuiteRecord, default: str | None) -> SuiteSummary | None:
        kept = self._kept.get(suite.id)
        if kept is None or kept[0] != _key(suite, default):
            return None
        held = not suite.running or time.monotonic() - kept[1] < HOLD_SECONDS
        return kept[2] if held else None


def _key(suite: SuiteRecord, default: str | None) -> Hashable:
    return suite.revision, suite.hash, suite.running, suite.open, default


def _summary(
    connection: Connection,
    suite: SuiteRecord,
    default: str | None,
    counted: pd.DataFrame | None,
) -> SuiteSummary:
    """The summary, or a SuiteError where what is stored is no suite."""
    if suite.damage is not None:
        raise SuiteError(suite.damage)
    try:
        return suite_summary(connection, suite, default, counted)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        log.warning("suite %r cannot be read", suite.name, exc_info=error)
        raise SuiteError(f"its runs or settings cannot be read ({error})") from error


@router.get(
    "/suites",
    response_model=SuiteList,
    responses=TWINS,
    summary="Which suites are there?",
)
async def get_suites(request: Request, query: Annotated[FormatQuery, Query()]) -> Response:
    """Every suite with its primes, swept axes, run counts and analysis settings."""
    database: Database = request.app.state.database
    summaries: Summaries = request.app.state.summaries
    configured = request.app.state.settings.default_suite

    def read() -> SuiteList:
        found = SuiteList(items=[], damaged=[])
        with database.reading() as connection:
            default = default_suite(connection, configured)
            suites = read_suites(connection)
            counted = run_counts(connection, summaries.changed(suites, default))
            for suite in suites:
                try:
                    found.items.append(summaries.of(connection, suite, default, counted))
                except SuiteError as error:
                    found.damaged.append(DamagedSuite(name=suite.name, damage=str(error)))
        return found

    found = await anyio.to_thread.run_sync(read)
    if wants_csv(request, query):
        rows = [tables.flat(suite, without=["analysis", "recorded"]) for suite in found.items]
        return Response(tables.as_csv(rows), media_type="text/csv; charset=utf-8")
    return Response(as_json(found), media_type="application/json")


class SuiteDetail(BaseModel):
    """A suite with the file it was written as."""

    summary: SuiteSummary
    spec: Annotated[dict[str, Any], Field(description="the suite's file, validated")]


@router.get("/suites/{suite}", response_model=SuiteDetail, summary="What is this suite?")
async def get_suite(
    request: Request, suite: Name, _query: Annotated[StrictQuery, Query()]
) -> Response:
    """Its summary and the file it was written as."""
    database: Database = request.app.state.database
    summaries: Summaries = request.app.state.summaries
    configured = request.app.state.settings.default_suite

    def read() -> SuiteDetail:
        with database.reading() as connection:
            record = read_suite(connection, suite)
            default = default_suite(connection, configured)
            summary = summaries.of(connection, record, default)
            return SuiteDetail(summary=summary, spec=dict(record.spec))

    return Response(as_json(await anyio.to_thread.run_sync(read)), media_type="application/json")


@router.get(
    "/suites/{suite}/coverage",
    response_model=CoverageAnswer,
    responses=TWINS,
    summary="How much of this suite is done?",
)
async def get_coverage(
    request: Request, suite: Name, query: Annotated[FormatQuery, Query()]
) -> Response:
    """Runs by state, cell by cell; how fast it goes and what is left."""
    database: Database = request.app.state.database
    stamps: Stamps = request.app.state.stamps

    def read() -> CoverageAnswer:
        with database.reading() as connection:
            found = read_suite(connection, suite)
            stamps.seen(found.name, found.revision)
            return coverage(connection, found)

    # Runs change state without a new revision, so this answer is not kept.
    found = await anyio.to_thread.run_sync(read)
    if wants_csv(request, query):
        body = tables.as_csv(tables.coverage_rows(found))
        return Response(body, media_type="text/csv; charset=utf-8")
    return Response(as_json(found), media_type="application/json")


@router.get(
    "/suites/{suite}/placement",
    response_model=PlacementAnswer,
    responses=TWINS,
    summary="How precisely are the points of a located suite known?",
)
async def get_placement(
    request: Request, suite: Name, query: Annotated[FormatQuery, Query()]
) -> Response:
    """Of a suite with `design: locate`, every cell: estimates with intervals and brackets, runs
    and core-seconds spent, what is wanted next and why; as CSV one row for each cell."""
    database: Database = request.app.state.database
    stamps: Stamps = request.app.state.stamps

    def read() -> PlacementAnswer:
        with database.reading() as connection:
            found = read_suite(connection, suite)
            stamps.seen(found.name, found.revision)
            return placement(connection, found)

    # Runs are chosen and taken without a new revision, so this answer is not kept.
    found = await anyio.to_thread.run_sync(read)
    if wants_csv(request, query):
        body = tables.as_csv(tables.placement_rows(found))
        return Response(body, media_type="text/csv; charset=utf-8")
    return Response(as_json(found), media_type="application/json")


class CellsQuery(FormatQuery):
    """Which runs are grouped."""

    kind: Kind | None = None
    prime: Annotated[int, Field(ge=2, le=MAX_PRIME)] | None = None
    level: Annotated[float, Field(ge=0.5, le=0.999)] = 0.95


@router.get(
    "/suites/{suite}/cells",
    response_model=CellList,
    responses=TWINS,
    summary="The suite's runs grouped over seeds",
)
async def get_cells(
    request: Request, suite: Name, query: Annotated[CellsQuery, Query()]
) -> Response:
    """Per kind, prime, setting and width: seeds, and means of first passages with intervals."""
    summaries: Summaries = request.app.state.summaries
    configured = request.app.state.settings.default_suite

    def compute(connection: Connection) -> CellList:
        record = read_suite(connection, suite)
        default = default_suite(connection, configured)
        axes = list(summaries.of(connection, record, default).axes)
        items = list_cells(
            connection, record.id, axes, kind=query.kind, prime=query.prime, level=query.level
        )
        return CellList(suite=record.name, revision=record.revision, level=query.level, items=items)

    return await answered(
        request,
        query,
        lambda connection: read_suite(connection, suite),
        compute,
        lambda answer: [
            {"suite": answer.suite, "revision": answer.revision} | tables.flat(item)
            for item in answer.items
        ],
        f"suites/{suite}/cells",
    )


class ForecastList(BaseModel):
    """Predictions made before their runs were trained."""

    items: list[ForecastRow]


@router.get(
    "/suites/{suite}/forecasts",
    response_model=ForecastList,
    responses=TWINS,
    summary="What was predicted for this suite, and how did it turn out?",
)
async def get_forecasts(
    request: Request, suite: Name, query: Annotated[FormatQuery, Query()]
) -> Response:
    """Every stored forecast with its score, where it has been scored; as CSV one row for each
    prime and quantity."""
    database: Database = request.app.state.database

    def read() -> list[ForecastRow]:
        with database.reading() as connection:
            return list_forecasts(connection, read_suite(connection, suite).id)

    items = await anyio.to_thread.run_sync(read)
    if wants_csv(request, query):
        rows = [row for item in items for row in tables.forecast_rows(item)]
        return Response(
            tables.as_csv(rows, tables.FORECAST_COLUMNS), media_type="text/csv; charset=utf-8"
        )
    return Response(as_json(ForecastList(items=items)), media_type="application/json")


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
        return webpage(report.document, pictures, home="/").encode()

    return await served(
        request,
        ("report", suite),
        lambda connection: read_suite(connection, suite),
        write,
        lambda page: (page, "text/html; charset=utf-8"),
        headers={"Content-Security-Policy": REPORT_CSP},
    )


CHUNK_BYTES = 64 * 1024
MEDIA_TYPES = {"csv": "text/csv; charset=utf-8", "parquet": "application/vnd.apache.parquet"}


class ExportQuery(StrictQuery):
    """Which table of the suite."""

    table: Literal["runs", "curves"] = Field(
        "runs", description="runs with their summaries, or every epoch of their curves"
    )


@router.get(
    "/export/{suite}.{form}",
    summary="A suite's runs or curves as a file",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {
                "text/csv": {"schema": {"type": "string"}},
                "application/vnd.apache.parquet": {"schema": {"type": "string"}},
            }
        }
    },
)
async def get_export(
    request: Request,
    suite: Name,
    form: Format,
    query: Annotated[ExportQuery, Query()],
) -> StreamingResponse:
    """Exact and unsampled; the columns are those of the database, which explains them."""
    database: Database = request.app.state.database
    heavy: HeavyWork = request.app.state.heavy
    heavy.take(client_of(request))

    def find() -> int:
        with database.reading() as connection:
            return read_suite(connection, suite).id

    suite_id = await anyio.to_thread.run_sync(find)
    headers = {"Content-Disposition": f'attachment; filename="{suite}-{query.table}.{form}"'}
    if only_head(request):
        return StreamingResponse(no_stream(), media_type=MEDIA_TYPES[form], headers=headers)
    client = client_of(request)
    places: Exports = request.app.state.exports
    places.take(client)
    return Download(
        _written(database, suite_id, query.table, form),
        ended=lambda: places.leave(client),
        media_type=MEDIA_TYPES[form],
        headers=headers,
    )


class Download(StreamingResponse):
    """A stream that says when it has ended, also where its client left before it began."""

    def __init__(
        self,
        content: AsyncIterator[bytes],
        *,
        ended: Callable[[], None],
        media_type: str,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(content, media_type=media_type, headers=headers)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


async def _written(
    database: Database, suite_id: int, name: str, form: Format
) -> AsyncIterator[bytes]:
    """A thread writes the table into a pipe; who stops reading ends it by closing the pipe."""
    table = runs_table(suite_id) if name == "runs" else curves_table(suite_id)
    read_end, write_end = os.pipe()
    failures: list[Exception] = []

    def produce() -> None:
        try:
            with os.fdopen(write_end, "wb") as sink, database.reading() as connection:
                # A long export is not a runaway query.
                connection.execute(text("SET LOCAL statement_timeout = 0"))
                write_table(connection, table, sink, form)
        except BrokenPipeError:
            return  # the client went away
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=produce, name="groktime-export", daemon=True)
    thread.start()
    with os.fdopen(read_end, "rb", buffering=0) as source:
        while chunk := await anyio.to_thread.run_sync(source.read, CHUNK_BYTES):
            yield chunk
    if failures:
        raise failures[0]  # the response is cut off, so that nobody takes it for whole
