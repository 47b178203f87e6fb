"""Pages: the dashboard at every view's address, /docs without a network, and their files; /health
and /metrics for whoever watches the service.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Literal

import anyio.to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, HTMLResponse
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from pydantic import BaseModel
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from groktime.api.database import Database
from groktime.api.middleware import MayRead
from groktime.api.problems import ApiError
from groktime.api.responses import Wanted, marked
from groktime.dashboard.page import CSP, VIEWS, page, static_files, version
from groktime.service.analysis import ANALYSIS_VERSION
from groktime.service.errors import DatabaseError

STATIC = Path(__file__).parent.parent / "static"
ASSETS = {
    "docs.js": STATIC / "docs.js",
    "docs.css": STATIC / "docs.css",
    "swagger-ui.css": STATIC / "swagger_ui" / "swagger-ui.css",
    "swagger-ui-bundle.js": STATIC / "swagger_ui" / "swagger-ui-bundle.js",
}
# Swagger UI sets style attributes and shows its icons as data.
DOCS_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)

router = APIRouter(include_in_schema=False)


def _page(status: int = 200) -> HTMLResponse:
    headers = {"Content-Security-Policy": CSP, "Cache-Control": "no-cache"}
    return HTMLResponse(page(), status_code=status, headers=headers)


@router.get("/")
async def index() -> HTMLResponse:
    return _page()


@router.get("/view/{name}")
async def view(request: Request, name: str) -> HTMLResponse:
    if name in VIEWS:
        return _page()
    if "text/html" in request.headers.get("accept", ""):
        return _page(404)  # which says so, and leads back
    raise ApiError(404, f"there is no view {name!r}", parameter="name", accepted=VIEWS)


_VERSIONED = re.compile(r"v-([0-9a-f]{12})/")


@router.get("/static/{path:path}")
async def static(request: Request, path: str) -> Response:
    """A file of the dashboard from memory, or 304; there is nothing outside its folder."""
    asked = _VERSIONED.match(path)
    file = static_files().get(path[asked.end() :] if asked else path)
    if file is None:
        raise ApiError(404, "there is no such file")
    # Under its version a file never changes. A page from before an update gets the new files.
    lasting = asked is not None and asked[1] == version()
    kept = "public, max-age=31536000, immutable" if lasting else "no-cache"
    wanted = Wanted.of(request.scope["headers"])
    headers = {"Cache-Control": kept, "Vary": "Accept-Encoding", "ETag": file.etag}
    if wanted.gzip and file.gzipped is not None:
        headers["ETag"] = marked(file.etag)
        headers["Content-Encoding"] = "gzip"
    if wanted.has(file.etag):
        headers.pop("Content-Encoding", None)
        return Response(status_code=304, headers=headers)
    body = file.gzipped if "Content-Encoding" in headers else file.body
    return Response(body, media_type=file.media_type, headers=headers)


@router.get("/docs")
async def docs() -> FileResponse:
    return FileResponse(STATIC / "docs.html", headers={"Content-Security-Policy": DOCS_CSP})


@router.get("/docs/assets/{name}")
async def docs_asset(name: str) -> FileResponse:
    if name not in ASSETS:
        raise ApiError(404, f"there is no {name!r} here", accepted=sorted(ASSETS))
    return FileResponse(ASSETS[name], headers={"Cache-Control": "public, max-age=86400"})


service = APIRouter(tags=["service"])


RUNS = "SELECT kind, state, count(*), coalesce(sum(last_epoch), 0) FROM runs GROUP BY kind, state"
SIZE = "SELECT pg_database_size(current_database())"


class Health(BaseModel):
    """The service can answer: it and its database are there."""

    status: Literal["ok"]
    database: Literal["ok"]
    version: str
    analysis_version: int
    suites: int


@service.get("/health", summary="Is the service able to answer?")
async def health(request: Request) -> Health:
    """200 when the database answers, else 503; needs no token."""
    database: Database = request.app.state.database

    def count() -> int:
        with database.reading() as connection:
            return int(connection.scalar(text("SELECT count(*) FROM suites")) or 0)

    return Health(
        status="ok",
        database="ok",
        version=metadata.version("groktime"),
        analysis_version=ANALYSIS_VERSION,
        suites=await anyio.to_thread.run_sync(count),
    )


@service.get(
    "/metrics",
    summary="Numbers for Prometheus",
    dependencies=[MayRead],
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """Requests, answers by source, runs by state and epochs recorded."""
    body = await anyio.to_thread.run_sync(exposition, request.app.state.database)
    return Response(body, media_type=CONTENT_TYPE_LATEST)


class RunsCollector:
    """Runs by kind and state and the epochs they recorded, read when Prometheus asks."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def collect(self) -> Iterator[Metric]:
        runs = GaugeMetricFamily("groktime_runs", "Runs", labels=["kind", "state"])
        # Not a counter: a run that is claimed anew loses the epochs after its checkpoint.
        epochs = GaugeMetricFamily(
            "groktime_epochs_recorded", "Epochs in the database", labels=["kind"]
        )
        size = GaugeMetricFamily("groktime_database_bytes", "Size of the database")
        up = GaugeMetricFamily("groktime_database_up", "The database answers")
        try:
            with self._database.reading() as connection:
                rows = connection.execute(text(RUNS)).all()
                size.add_metric([], connection.scalar(text(SIZE)) or 0)
        except (DatabaseError, DBAPIError):
            up.add_metric([], 0)
            yield up
            return
        totals: dict[str, float] = {}
        for kind, state, count, recorded in rows:
            runs.add_metric([kind, state], count)
            totals[kind] = totals.get(kind, 0.0) + float(recorded)
        for kind, total in totals.items():
            epochs.add_metric([kind], total)
        up.add_metric([], 1)
        yield from (up, runs, epochs, size)


def exposition(database: Database) -> bytes:
    """All metrics as text; of every worker process when there are several."""
    own = CollectorRegistry()
    own.register(RunsCollector(database))
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return bytes(generate_latest(shared) + generate_latest(own))
    return bytes(generate_latest(REGISTRY) + generate_latest(own))
