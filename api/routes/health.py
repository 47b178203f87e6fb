"""/health and /metrics: for whoever watches the service."""

from __future__ import annotations

from importlib.metadata import version
from typing import Literal

import anyio.to_thread
from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from sqlalchemy import text

from api.database import Database
from api.metrics import exposition
from api.tokens import MayRead
from service.analysis import ANALYSIS_VERSION

router = APIRouter(tags=["service"])


class Health(BaseModel):
    """The service can answer: it and its database are there."""

    status: Literal["ok"]
    database: Literal["ok"]
    version: str
    analysis_version: int
    suites: int


@router.get("/health", summary="Is the service able to answer?")
async def health(request: Request) -> Health:
    """200 when the database answers, else 503; needs no token."""
    database: Database = request.app.state.database

    def count() -> int:
        with database.reading() as connection:
            return int(connection.scalar(text("SELECT count(*) FROM suites")) or 0)

    return Health(
        status="ok",
        database="ok",
        version=version("groktime"),
        analysis_version=ANALYSIS_VERSION,
        suites=await anyio.to_thread.run_sync(count),
    )


@router.get(
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
