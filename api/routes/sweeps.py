"""/sweeps: start a suite on the Ray cluster, look at it, stop it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Engine

from groktime.api.access import MayRead, MayWrite
from groktime.api.database import Database
from groktime.api.problems import ApiError, described
from groktime.api.queries import MAX_INTEGER, StrictQuery, SuiteName
from groktime.db.engine import connect, database_url
from groktime.db.sweeps import SweepRow, SweepState, get_sweep, list_sweeps
from groktime.service.errors import InputError, SweepError
from groktime.service.settings import Settings
from groktime.service.spec import MAX_PRIME, MAX_WIDTH, Kind
from groktime.service.suites import load_suite, shipped_suites
from groktime.service.suites.loader import RELEASED
from groktime.service.sweep.jobs import (
    JobState,
    job_log,
    job_state,
    job_states,
    set_state,
    stop_job,
    submit_sweep,
)
from groktime.service.sweep.selection import NotInSuite, Selection, SweepOptions

router = APIRouter(tags=["sweeps"])

Number = Annotated[int, Path(ge=1, le=MAX_INTEGER, description="number of the sweep")]
OFF: dict[int | str, dict[str, Any]] = {403: described("No token is configured: writing is off.")}

log = logging.getLogger("groktime.api.sweeps")

LOG_LINES = 200
STATES: dict[JobState, SweepState] = {
    "PENDING": "submitted",
    "RUNNING": "running",
    "STOPPED": "stopped",
    "SUCCEEDED": "done",
    "FAILED": "failed",
}
OPEN: tuple[SweepState, ...] = ("submitted", "running")

Some: Any = Field(default_factory=list, max_length=200)


class Body(BaseModel):
    """Refuses fields it does not know."""

    model_config = ConfigDict(extra="forbid")


class SweepFilters(Body):
    """Which part of the suite is trained; empty: all of it."""

    prime: list[Annotated[int, Field(ge=2, le=MAX_PRIME)]] = Some
    kind: list[Kind] = Some
    width: list[Annotated[int, Field(ge=2, le=MAX_WIDTH)]] = Some
    seed: list[Annotated[int, Field(ge=0, lt=2**63)]] = Some


class SweepResources(Body):
    """What the sweep may use of the cluster."""

    gpus_per_bundle: Annotated[float, Field(ge=0, le=64)] | None = Field(
        None, description="0 trains on CPUs; default: chosen by what the cluster has"
    )
    workers: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None, description="bundles trained at once; default: all that fit"
    )
    limit: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        None, description="train at most this many runs"
    )


class SweepRequest(Body):
    """A suite to train, by name, on the Ray cluster."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "suite": "mini",
                "filters": {"prime": [59], "kind": ["speed", "grok"]},
                "resources": {"gpus_per_bundle": 0.25},
            }
        },
    )

    suite: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_\-]{0,99}$")]
    filters: SweepFilters = SweepFilters()
    resources: SweepResources = SweepResources()
    retry_failed: bool = False

    def options(self) -> SweepOptions:
        """The same as options of `groktime sweep`."""
        filters, resources = self.filters, self.resources
        return SweepOptions(
            Selection(filters.prime, filters.kind, filters.width, filters.seed),
            resources.limit,
            resources.gpus_per_bundle,
            resources.workers,
            self.retry_failed,
        )


class Sweep(BaseModel):
    """One sweep and how it stands."""

    id: int
    suite: str
    job_id: Annotated[str | None, Field(description="Ray's submission id")]
    submitted_by: str
    filters: dict[str, Any]
    state: SweepState
    message: str | None
    created_at: datetime
    updated_at: datetime


class SweepDetail(Sweep):
    """One sweep with the end of its log."""

    log: Annotated[list[str], Field(description=f"last {LOG_LINES} lines")]


class Sweeps:
    """Starts, shows and stops sweeps. Only starting and stopping write, as writer."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._address = settings.ray_jobs_address

    def start(self, asked: SweepRequest, by: str) -> Sweep:
        """Note the sweep and submit it; one that would train nothing is refused and not noted."""
        _refuse_nothing(asked)
        with self._writing() as engine:
            number, job = submit_sweep(
                engine, asked.suite, asked.options(), self._settings, self._address, by=by
            )
        log.info("sweep submitted", extra={"sweep": number, "suite": asked.suite, "job": job})
        return _shown(self._row(number), {})

    def list(self, suite: str | None, limit: int) -> list[Sweep]:
        """The latest sweeps; those that Ray still knows as it knows them."""
        with self._database.reading() as connection:
            rows = list_sweeps(connection, suite=suite, limit=limit)
        live = self._live() if any(row.state in OPEN for row in rows) else {}
        return [_shown(row, live) for row in rows]

    def detail(self, number: int) -> SweepDetail:
        """One sweep with the end of its log, as far as Ray still has it."""
        row = self._row(number)
        shown = _shown(row, self._live() if row.state in OPEN else {})
        lines: list[str] = []
        if row.job_id is not None:
            try:
                lines = job_log(row.job_id, self._address).splitlines()[-LOG_LINES:]
            except SweepError as absent:
                lines = [f"(no log: {absent})"]
        return SweepDetail(**shown.model_dump(), log=lines)

    def stop(self, number: int) -> Sweep:
        """Ask Ray to end the sweep, unless it is over; what it recorded stays."""
        row = self._row(number)
        if row.job_id is None:
            raise ApiError(409, f"sweep {number} never reached Ray; there is nothing to stop")
        if row.state in OPEN:
            running = stop_job(row.job_id, self._address)
            state = "stopped" if running else STATES[job_state(row.job_id, self._address)]
            with self._writing() as engine:
                set_state(engine, number, state, "stopped by the API" if running else None)
        return _shown(self._row(number), {})

    @contextmanager
    def _writing(self) -> Iterator[Engine]:
        engine = connect(database_url("writer", self._settings), "writer", pool_size=1)
        try:
            yield engine
        finally:
            engine.dispose()

    def _row(self, number: int) -> SweepRow:
        with self._database.reading() as connection:
            row = get_sweep(connection, number)
            known = [] if row else [s.id for s in list_sweeps(connection, limit=100)]
        if row is None:
            raise ApiError(
                404, f"there is no sweep {number}", parameter="id", value=number, accepted=known
            )
        return row

    def _live(self) -> dict[str, JobState]:
        try:
            return job_states(self._address)
        except SweepError as absent:
            log.warning("states of sweeps are the last ones known: %s", absent)
            return {}


def _refuse_nothing(asked: SweepRequest) -> None:
    """Refuse a suite that is not there, and filters that none of its runs passes."""
    names = sorted(n + ending for n in shipped_suites() for ending in ("", RELEASED))
    if asked.suite not in names:
        raise ApiError(
            422,
            f"suite: {asked.suite} does not exist",
            parameter="suite",
            value=asked.suite,
            accepted=names,
        )
    try:
        asked.options().selection.chosen(load_suite(asked.suite).runs())
    except NotInSuite as absent:
        raise ApiError(
            422,
            f"filters.{absent.name}: {asked.suite} has no run with {absent.value}",
            parameter=f"filters.{absent.name}",
            value=absent.value,
            accepted=absent.known,
        ) from None
    except InputError:
        raise ApiError(
            422,
            f"filters: no run of {asked.suite} passes all of them",
            parameter="filters",
            value=asked.filters.model_dump(exclude_defaults=True),
            accepted="values that a run has together",
        ) from None


def _shown(row: SweepRow, live: dict[str, JobState]) -> Sweep:
    state = row.state
    if row.job_id is not None and row.job_id in live and state in OPEN:
        state = STATES[live[row.job_id]]
    return Sweep(**{**asdict(row), "state": state})


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
