"""From a question to a response: tagged, cached, computed once off the event loop, in JSON or CSV.

Every route that answers from a suite goes through `answered`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import anyio.to_thread
from fastapi import Request, Response
from pydantic import TypeAdapter
from sqlalchemy import Connection, text

from api.cache import AnswerCache, Entry, Stamp, etag
from api.database import Database
from api.limits import HeavyWork
from api.metrics import CACHE
from api.queries import FormatQuery
from api.tables import Row, as_csv
from service.analysis import ANALYSIS_VERSION
from service.answers.reading import SuiteRecord

FINISHED_SECONDS = 60

# C_model may come from another suite's capacity runs, so their state is part of the stamp, and how
# many suites there are that may have trained them.
CAPACITY_STAMP = """
SELECT count(*), max(closed_at), (SELECT count(*) FROM suites)
FROM runs WHERE kind = 'capacity' AND state IN ('done', 'failed')
"""

Find = Callable[[Connection], SuiteRecord]
Compute = Callable[[Connection], Any]


_adapters: dict[type, TypeAdapter[Any]] = {}


def as_json(answer: Any) -> bytes:
    """An answer's JSON; the adapters are built once per type."""
    kind = type(answer)
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind].dump_json(answer)


def wants_csv(request: Request, query: FormatQuery) -> bool:
    """`format` decides; without it the Accept header does."""
    if query.format is not None:
        return query.format == "csv"
    accept = request.headers.get("accept", "")
    return "text/csv" in accept and "application/json" not in accept


def stamp_of(connection: Connection, suite: SuiteRecord) -> Stamp:
    """What an answer about the suite depends on."""
    capacity = tuple(connection.execute(text(CAPACITY_STAMP)).one())
    return (suite.id, suite.hash, suite.revision, *map(str, capacity), ANALYSIS_VERSION)


async def answered(
    request: Request,
    query: FormatQuery,
    find: Find,
    compute: Compute,
    rows: Callable[[Any], list[Row]],
    name: str,
) -> Response:
    """The answer, from the cache where the suite has not changed since."""
    csv = wants_csv(request, query)

    def encode(answer: Any) -> tuple[bytes, str]:
        if csv:
            return as_csv(rows(answer)), "text/csv; charset=utf-8"
        return as_json(answer), "application/json"

    asked = (name, csv, query.model_dump_json(exclude={"format"}))
    filename = f"{name.replace('/', '-')}.csv" if csv else None
    return await served(request, asked, find, compute, encode, filename=filename)


async def served(
    request: Request,
    asked: Hashable,
    find: Find,
    compute: Compute,
    encode: Callable[[Any], tuple[bytes, str]],
    *,
    filename: str | None = None,
) -> Response:
    """Serve one cached body: 304 where the client has it, else the body with its tag."""
    database: Database = request.app.state.database
    answers: AnswerCache = request.app.state.answers

    def look() -> tuple[SuiteRecord, Stamp]:
        with database.reading() as connection:
            suite = find(connection)
            return suite, stamp_of(connection, suite)

    suite, stamp = await anyio.to_thread.run_sync(look)
    known = request.headers.get("if-none-match")
    if known is not None and _lists(known, etag(asked, stamp)):
        CACHE.labels("not_modified").inc()
        return Response(status_code=304, headers=_headers(suite, etag(asked, stamp)))
    entry = answers.fresh(asked, stamp, suite.running)
    if entry is None:
        heavy: HeavyWork = request.app.state.heavy
        heavy.take(request.client.host if request.client else "")

        def work() -> tuple[bytes, str, Stamp]:
            with database.reading() as connection:
                now = stamp_of(connection, find(connection))
                body, media_type = encode(compute(connection))
            return body, media_type, now

        CACHE.labels("computed").inc()
        entry = await answers.computed_once(asked, stamp, work, running=suite.running)
    else:
        CACHE.labels("hit").inc()
    if known is not None and _lists(known, entry.etag):
        return Response(status_code=304, headers=_headers(suite, entry.etag))
    return _response(entry, suite, filename)


def _response(entry: Entry, suite: SuiteRecord, filename: str | None) -> Response:
    headers = _headers(suite, entry.etag)
    if filename is not None:
        headers["Content-Disposition"] = f'attachment; filename="{filename}"'
    return Response(entry.body, media_type=entry.media_type, headers=headers)


def _headers(suite: SuiteRecord, tag: str) -> dict[str, str]:
    """A finished suite may be kept for a moment; one with open runs is asked about each time."""
    lifetime = "no-cache" if suite.open else f"max-age={FINISHED_SECONDS}"
    return {"ETag": tag, "Cache-Control": f"private, {lifetime}", "Vary": "Accept, Authorization"}


def _lists(header: str, tag: str) -> bool:
    """If-None-Match holds the tag; weak comparison, as RFC 9110 says."""
    named = (part.strip().removeprefix("W/") for part in header.split(","))
    return header.strip() == "*" or tag in named
