"""/export: a suite's tables as CSV or Parquet, streamed in flat memory."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Annotated, Literal

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field
from sqlalchemy import text
from starlette.types import Receive, Scope, Send

from groktime.api.access import Exports, HeavyWork, MayRead, client_of
from groktime.api.database import Database
from groktime.api.middleware import no_stream, only_head
from groktime.api.queries import StrictQuery
from groktime.api.routes.suites import Name
from groktime.db.export import Format, curves_table, runs_table, write_table
from groktime.service.answers.question import read_suite

router = APIRouter(tags=["suites"], dependencies=[MayRead])

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
