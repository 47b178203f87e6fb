"""/sweeps: start a suite on the Ray cluster, look at it, stop it."""

from __future__ import annotations

from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field

from api.problems import described
from api.queries import MAX_INTEGER, StrictQuery, SuiteName
from api.sweeps import Sweep, SweepDetail, SweepRequest, Sweeps
from api.tokens import MayRead, MayWrite

router = APIRouter(tags=["sweeps"])

Number = Annotated[int, Path(ge=1, le=MAX_INTEGER, description="number of the sweep")]
OFF: dict[int | str, dict[str, Any]] = {403: described("No token is configured: writing is off.")}


class SweepsQuery(StrictQuery):
    """Which sweeps are listed."""

    suite: SuiteName | None = Field(None, description="only sweeps of this suite")
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class SweepList(BaseModel):
    """The latest sweeps, newest first."""

    items: list[Sweep]


def _sweeps(request: Request) -> Sweeps:
    sweeps: Sweeps = request.app.state.sweeps
    return sweeps


@router.post(
    "/sweeps",
    status_code=202,
    dependencies=[MayWrite],
    responses=OFF,
    summary="Start a sweep",
)
async def post_sweep(request: Request, response: Response, asked: SweepRequest) -> Sweep:
    """Submit `groktime sweep` as a Ray job; needs the API token."""
    by = f"api from {request.client.host}" if request.client else "api"
    sweep = await anyio.to_thread.run_sync(_sweeps(request).start, asked, by)
    response.headers["Location"] = f"/sweeps/{sweep.id}"
    return sweep


@router.get("/sweeps", dependencies=[MayRead], summary="Which sweeps were started?")
async def get_sweeps(request: Request, query: Annotated[SweepsQuery, Query()]) -> SweepList:
    """The latest sweeps and how they stand."""
    items = await anyio.to_thread.run_sync(_sweeps(request).list, query.suite, query.limit)
    return SweepList(items=items)


@router.get("/sweeps/{id}", dependencies=[MayRead], summary="How does this sweep stand?")
async def get_one_sweep(
    request: Request, id: Number, _query: Annotated[StrictQuery, Query()]
) -> SweepDetail:
    """Its state and the end of its log."""
    return await anyio.to_thread.run_sync(_sweeps(request).detail, id)


@router.delete(
    "/sweeps/{id}",
    dependencies=[MayWrite],
    responses=OFF,
    summary="Stop a sweep",
)
async def delete_sweep(request: Request, id: Number) -> Sweep:
    """End its Ray job; what it has recorded stays, and the next sweep goes on from there."""
    return await anyio.to_thread.run_sync(_sweeps(request).stop, id)
