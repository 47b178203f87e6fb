"""/runs: every run there is, filtered, sorted and paged; one run; and its curve."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal, get_args, get_type_hints

import anyio.to_thread
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field, create_model

from groktime.api import tables
from groktime.api.database import Database
from groktime.api.middleware import MayRead
from groktime.api.problems import ApiError
from groktime.api.queries import MAX_INTEGER, TWINS, FormatQuery, StrictQuery, SuiteName
from groktime.api.responses import as_json, wants_csv
from groktime.db.runs import FILTERABLE, MAX_PAGE, BadCursor
from groktime.service.answers.question import read_suite
from groktime.service.answers.runs import (
    COLUMNS,
    RunCurve,
    RunDetail,
    RunList,
    RunRow,
    list_runs,
    run_curve,
    run_detail,
)

router = APIRouter(tags=["runs"], dependencies=[MayRead])

MAX_EPOCHS_ASKED = 2_000
MAX_POINTS = 20_000
MAX_VALUES = 100

FILTERS = tuple(name for name in COLUMNS if name in FILTERABLE)

Whole = Annotated[int, Field(ge=-MAX_INTEGER, le=MAX_INTEGER)]
Large = Annotated[int, Field(ge=0, lt=2**63)]
Number = Annotated[float, Field(allow_inf_nan=False)]
# Postgres has no NUL in text.
Word = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]


def _filter(name: str) -> Any:
    """The type of a filter's values, from the type of the run's column."""
    hint = get_type_hints(RunRow)[name]
    kinds = {kind for kind in (get_args(hint) or (hint,)) if kind is not type(None)}
    if name in ("seed", "params"):
        return Large
    if bool in kinds:
        return bool
    if float in kinds:
        return Number
    return Whole if int in kinds else Word


class RunsQuery(FormatQuery):
    """Which page of runs; every column is a filter, and may be given several times."""

    suite: SuiteName | None = Field(None, description="only runs of this suite")
    sort: Literal[tuple(COLUMNS)] = Field("id", description="column to sort by")  # type: ignore[valid-type]
    order: Literal["asc", "desc"] = "asc"
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = 100
    cursor: Annotated[str, Field(max_length=2000)] | None = Field(
        None, description="`next` of the page before"
    )


FilteredRuns = create_model(  # type: ignore[call-overload]
    "FilteredRuns",
    __base__=RunsQuery,
    **{
        name: (
            Annotated[list[_filter(name)], Field(max_length=MAX_VALUES)] | None,  # type: ignore[misc]
            Field(None, description=f"only runs of this {name}"),
        )
        for name in FILTERS
    },
)


@router.get("/runs", response_model=RunList, responses=TWINS, summary="Which runs are there?")
async def get_runs(request: Request, query: Annotated[FilteredRuns, Query()]) -> Response:
    """A page of runs in any order; `next` is the cursor of the page after it."""
    database: Database = request.app.state.database
    asked: Any = query
    filters = {name: value for name in FILTERS if (value := getattr(asked, name)) is not None}

    def read() -> RunList:
        with database.reading() as connection:
            suite_id = None if asked.suite is None else read_suite(connection, asked.suite).id
            return list_runs(
                connection,
                suite_id=suite_id,
                filters=filters,
                sort=asked.sort,
                descending=asked.order == "desc",
                limit=asked.limit,
                cursor=asked.cursor,
            )

    try:
        page = await anyio.to_thread.run_sync(read)
    except BadCursor as problem:
        raise ApiError(
            422,
            str(problem),
            parameter="cursor",
            value=asked.cursor,
            accepted="`next` of the page before, with the same sort and order",
        ) from None
    headers = {"Cache-Control": "no-cache"}
    if page.next is not None:
        headers["Link"] = f'<{request.url.include_query_params(cursor=page.next)}>; rel="next"'
    if wants_csv(request, asked):
        body = tables.as_csv([tables.flat(item) for item in page.items], COLUMNS)
        return Response(body, media_type="text/csv; charset=utf-8", headers=headers)
    return Response(as_json(page), media_type="application/json", headers=headers)


RunId = Annotated[int, Path(ge=1, le=MAX_INTEGER, description="a run's id")]


@router.get("/runs/{id}", response_model=RunDetail, summary="What is this run?")
async def get_run(request: Request, id: RunId, _query: Annotated[StrictQuery, Query()]) -> Response:
    """Its spec, first passages at every threshold of the ladder, suites and attempts."""
    database: Database = request.app.state.database

    def read() -> RunDetail:
        with database.reading() as connection:
            return run_detail(connection, id)

    return Response(as_json(await anyio.to_thread.run_sync(read)), media_type="application/json")


class CurveQuery(FormatQuery):
    """Which epochs of a curve."""

    epochs: (
        Annotated[
            list[Annotated[int, Field(ge=1, le=MAX_INTEGER)]], Field(max_length=MAX_EPOCHS_ASKED)
        ]
        | None
    ) = Field(None, description="only these epochs, given several times")
    points: Annotated[int, Field(ge=2, le=MAX_POINTS)] | None = Field(
        None, description="about this many epochs; default: all"
    )


@router.get("/runs/{id}/curve", response_model=RunCurve, responses=TWINS, summary="A run's epochs")
async def get_curve(request: Request, id: RunId, query: Annotated[CurveQuery, Query()]) -> Response:
    """Loss and accuracy by epoch; `sampled` says that these are not all of them."""
    database: Database = request.app.state.database

    def read() -> RunCurve:
        with database.reading() as connection:
            return run_curve(connection, id, epochs=query.epochs, points=query.points)

    curve = await anyio.to_thread.run_sync(read)
    if wants_csv(request, query):
        names = [f.name for f in fields(RunCurve) if isinstance(getattr(curve, f.name), tuple)]
        columns = [getattr(curve, name) for name in names]
        rows = [
            {"run": curve.run.id, **dict(zip(names, values, strict=True))}
            for values in zip(*columns, strict=True)
        ]
        return Response(tables.as_csv(rows, ["run", *names]), media_type="text/csv; charset=utf-8")
    return Response(as_json(curve), media_type="application/json")
