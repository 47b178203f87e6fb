"""/suites: what there is to ask about, and how far it is."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy import Connection

from api import tables
from api.answering import answered, as_json, wants_csv
from api.cache import HOLD_SECONDS
from api.database import Database
from api.examples import SUITES, TWINS
from api.queries import SUITE_NAME, FormatQuery, StrictQuery
from api.tokens import MayRead
from db.forecasts import ForecastRow, list_forecasts
from service.answers.cell_means import CellList, list_cells
from service.answers.coverage import CoverageAnswer, coverage
from service.answers.reading import SuiteRecord, read_suite, read_suites
from service.answers.suites import SuiteSummary, suite_summary
from service.spec import MAX_PRIME, Kind

router = APIRouter(tags=["suites"], dependencies=[MayRead])

Name = Annotated[str, Path(pattern=SUITE_NAME, description="name of the suite", examples=SUITES)]


class SuiteList(BaseModel):
    """All suites, by name."""

    items: list[SuiteSummary]


class Summaries:
    """Summaries by suite, kept until the suite changes, or a moment while it runs."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Hashable, float, SuiteSummary]] = {}

    def of(self, connection: Connection, suite: SuiteRecord, default: str) -> SuiteSummary:
        key = (suite.revision, suite.hash, suite.running, suite.open, default)
        kept = self._kept.get(suite.id)
        now = time.monotonic()
        if (
            kept is not None
            and kept[0] == key
            and (not suite.running or now - kept[1] < HOLD_SECONDS)
        ):
            return kept[2]
        summary = suite_summary(connection, suite, default)
        self._kept[suite.id] = (key, now, summary)
        return summary


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
    default = request.app.state.settings.default_suite

    def read() -> list[SuiteSummary]:
        with database.reading() as connection:
            return [summaries.of(connection, s, default) for s in read_suites(connection)]

    found = await anyio.to_thread.run_sync(read)
    if wants_csv(request, query):
        rows = [tables.flat(suite, without=["analysis", "recorded"]) for suite in found]
        return Response(tables.as_csv(rows), media_type="text/csv; charset=utf-8")
    return Response(as_json(SuiteList(items=found)), media_type="application/json")


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
    default = request.app.state.settings.default_suite

    def read() -> SuiteDetail:
        with database.reading() as connection:
            record = read_suite(connection, suite)
            summary = summaries.of(connection, record, default)
            return SuiteDetail(summary=summary, spec=dict(record.spec))

    return Response(as_json(await anyio.to_thread.run_sync(read)), media_type="application/json")


@router.get(
    "/suites/{suite}/coverage",
    response_model=CoverageAnswer,
    responses=TWINS,
    summary="How far is this suite?",
)
async def get_coverage(
    request: Request, suite: Name, query: Annotated[FormatQuery, Query()]
) -> Response:
    """Runs by state, cell by cell; how fast it goes and what is left."""
    database: Database = request.app.state.database

    def read() -> CoverageAnswer:
        with database.reading() as connection:
            return coverage(connection, read_suite(connection, suite))

    # Runs change state without a new revision, so this answer is not kept.
    found = await anyio.to_thread.run_sync(read)
    if wants_csv(request, query):
        body = tables.as_csv(tables.coverage_rows(found))
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
    default = request.app.state.settings.default_suite

    def compute(connection: Connection) -> CellList:
        record = read_suite(connection, suite)
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
