"""/sweeps: start a suite or locate a cell on the Ray cluster, look at it, stop it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

import anyio.to_thread
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from sqlalchemy import Engine

from groktime.api.database import Database
from groktime.api.middleware import MayRead, MayWrite
from groktime.api.problems import ApiError, described
from groktime.api.queries import MAX_INTEGER, StrictQuery, SuiteName
from groktime.db.engine import connect, database_url
from groktime.db.records import suite_names
from groktime.db.sweeps import SweepRow, SweepState, get_sweep, list_sweeps
from groktime.service.errors import InputError, SuiteError, SweepError
from groktime.service.settings import Settings
from groktime.service.spec import MAX_EPOCHS, MAX_PRIME, MAX_WIDTH, Kind
from groktime.service.suites import Suite, load_suite, shipped_suites
from groktime.service.suites.loader import MADE, RELEASED, cell_suite
from groktime.service.suites.values import AXES, typed_settings
from groktime.service.sweep.jobs import (
    JobState,
    job_log,
    job_state,
    job_states,
    set_state,
    stop_job,
    submit_sweep,
)
from groktime.service.sweep.selection import (
    LocatedSuite,
    NotInSuite,
    Selection,
    SweepOptions,
    check_located,
)

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

CellSettings = dict[str, bool | int | float | str | dict[str, float]]
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
    settings: Annotated[CellSettings, Field(max_length=len(AXES))] = Field(
        default_factory=dict, description="only the cells at these, such as weight_decay 0.3"
    )

    @field_validator("settings")
    @classmethod
    def _known(cls, given: CellSettings) -> CellSettings:
        try:
            typed_settings(given)
        except InputError as refused:
            raise ValueError(str(refused)) from None
        return given


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


Point = Literal["crossing", "onset"]
Width = Annotated[int, Field(ge=2, le=MAX_WIDTH)]


class LocateRequest(Body):
    """One cell whose crossing and onset are located; runs are chosen one by one."""

    prime: Annotated[int, Field(ge=2, le=MAX_PRIME, description="p of the cell")]
    settings: Annotated[CellSettings, Field(max_length=len(AXES))] = Field(
        default_factory=dict,
        description=f"what differs from the paper's setting, of {', '.join(AXES)}",
    )
    precision: Annotated[float, Field(gt=0, le=1)] = Field(
        0.03, description="target standard deviation of each point, dex"
    )
    place: Annotated[tuple[Point, ...], Field(min_length=1, max_length=2)] = Field(
        ("crossing", "onset"), description="the points that are located"
    )
    seeds: Annotated[int, Field(ge=1, le=1000)] = Field(10, description="at most this many")
    widths: tuple[Width, Width] = Field(
        (16, 256), description="narrowest and widest that may be trained, both even"
    )
    max_epochs: Annotated[int, Field(ge=1, le=MAX_EPOCHS)] = Field(
        5000, description="runs are censored here"
    )
    max_runs: Annotated[int, Field(ge=4, le=10_000)] = Field(60, description="most runs of it")
    max_hours: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        None, description="most core-hours of it; default: no limit"
    )
    seeds_apart: bool = Field(False, description="no seed for both the crossing and the onset")
    prior: Annotated[tuple[SuiteName, ...], Field(max_length=100)] = Field(
        (), description="suites of the database to start the search from"
    )
    min_delay: Annotated[float, Field(ge=1, le=MAX_EPOCHS)] | None = Field(
        None, description="least delay that counts, epochs; default 1"
    )
    min_delay_share: Annotated[float, Field(ge=0, le=1e6)] | None = Field(
        None, description="least delay that counts, share of E_train; default 0"
    )

    def suite(self) -> Suite:
        """The suite that asks this; refusals name the field."""
        for name in self.settings:
            if name not in AXES:
                raise ApiError(
                    422,
                    f"locate.settings.{name}: is not a setting",
                    parameter=f"locate.settings.{name}",
                    value=self.settings[name],
                    accepted=list(AXES),
                )
        try:
            return cell_suite(
                self.prime,
                self.settings,
                precision=self.precision,
                place=self.place,
                seeds=self.seeds,
                widths=self.widths,
                max_epochs=self.max_epochs,
                max_runs=self.max_runs,
                max_hours=self.max_hours,
                seeds_apart=self.seeds_apart,
                prior=self.prior,
                min_delay=self.min_delay,
                min_delay_share=self.min_delay_share,
            )
        except SuiteError as refused:
            said = str(refused).removeprefix(f"{MADE}: ")
            raise ApiError(
                422,
                f"locate: {said}",
                parameter="locate",
                value=self.model_dump(exclude_defaults=True),
                accepted="a cell that a suite file could ask for",
            ) from None


class SweepRequest(Body):
    """What to train on the Ray cluster: a suite by its name, or a cell that is located."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "suite": "mini",
                    "filters": {"prime": [59], "kind": ["speed", "grok"]},
                    "resources": {"gpus_per_bundle": 0.25},
                },
                {"locate": {"prime": 113, "settings": {"weight_decay": 0.3}, "precision": 0.03}},
            ]
        },
    )

    suite: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_\-]{0,99}$")] | None = Field(
        None, description="a shipped suite; instead of `locate`"
    )
    locate: LocateRequest | None = Field(None, description="a cell; instead of `suite`")
    filters: SweepFilters = SweepFilters()
    resources: SweepResources = SweepResources()
    retry_failed: bool = False

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.suite is None) == (self.locate is None):
            raise ValueError("give either suite or locate")
        if self.locate is not None and self.filters != SweepFilters():
            raise ValueError("filters choose from a suite; a located cell has none")
        return self

    def asked_suite(self) -> str | Suite:
        """The name of the suite, or the suite that a cell makes."""
        return self.locate.suite() if self.locate is not None else str(self.suite)

    def options(self) -> SweepOptions:
        """The same as options of `groktime sweep`."""
        filters, resources = self.filters, self.resources
        return SweepOptions(
            Selection(filters.prime, filters.kind, filters.width, filters.seed, filters.settings),
            resources.limit,
            resources.gpus_per_bundle,
            resources.workers,
            self.retry_failed,
        )


@dataclass(frozen=True, kw_only=True)
class SweepDetail(SweepRow):
    """One sweep with the end of its log."""

    log: Annotated[list[str], Field(description=f"last {LOG_LINES} lines")]


class Sweeps:
    """Starts, shows and stops sweeps. Only starting and stopping write, as writer."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._address = settings.ray_jobs_address

    def start(self, asked: SweepRequest, by: str) -> SweepRow:
        """Record the sweep and submit it; one that would train nothing is refused, not recorded."""
        suite = asked.asked_suite()
        if isinstance(suite, str):
            _refuse_nothing(suite, asked)
        if asked.locate is not None:
            self._refuse_unknown_priors(asked.locate.prior)
        with self._writing() as engine:
            number, job = submit_sweep(
                engine, suite, asked.options(), self._settings, self._address, by=by
            )
        name = suite if isinstance(suite, str) else suite.name
        log.info("sweep submitted", extra={"sweep": number, "suite": name, "job": job})
        return _shown(self._row(number), {})

    def list(self, suite: str | None, limit: int) -> list[SweepRow]:
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
        return SweepDetail(**vars(shown), log=lines)

    def stop(self, number: int) -> SweepRow:
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

    def _refuse_unknown_priors(self, names: Sequence[str]) -> None:
        """A suite that is not in the database teaches nothing: the job would refuse it."""
        if not names:
            return
        with self._database.reading() as connection:
            known = suite_names(connection)
        for name in names:
            if name not in known:
                raise ApiError(
                    422,
                    f"locate.prior: {name} is not in the database",
                    parameter="locate.prior",
                    value=name,
                    accepted=known,
                )

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


def _refuse_nothing(suite: str, asked: SweepRequest) -> None:
    """Refuse a suite that is not there, and filters that none of its runs passes."""
    names = sorted(n + ending for n in shipped_suites() for ending in ("", RELEASED))
    if suite not in names:
        raise ApiError(
            422,
            f"suite: {suite} does not exist",
            parameter="suite",
            value=suite,
            accepted=names,
        )
    loaded = load_suite(suite)
    try:
        asked.options().selection.chosen(loaded)
        check_located(loaded, asked.options())
    except LocatedSuite as chosen:
        field = "resources.limit" if chosen.name == "limit" else f"filters.{chosen.name}"
        raise ApiError(
            422,
            f"{field}: {suite} is located and chooses its own runs",
            parameter=field,
            accepted=["filters.prime", "filters.settings"],
        ) from None
    except NotInSuite as absent:
        field = f"filters.{absent.name.replace('set ', 'settings.')}"
        raise ApiError(
            422,
            f"{field}: {suite} has no run with {absent.value}",
            parameter=field,
            value=absent.value,
            accepted=absent.known,
        ) from None
    except InputError:
        raise ApiError(
            422,
            f"filters: no run of {suite} passes all of them",
            parameter="filters",
            value=asked.filters.model_dump(exclude_defaults=True),
            accepted="values that a run has together",
        ) from None


def _shown(row: SweepRow, live: dict[str, JobState]) -> SweepRow:
    state = row.state
    if row.job_id is not None and row.job_id in live and state in OPEN:
        state = STATES[live[row.job_id]]
    return replace(row, state=state)


class SweepsQuery(StrictQuery):
    """Which sweeps are listed."""

    suite: SuiteName | None = Field(None, description="only sweeps of this suite")
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class SweepList(BaseModel):
    """The latest sweeps, newest first."""

    items: list[SweepRow]


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
async def post_sweep(request: Request, response: Response, asked: SweepRequest) -> SweepRow:
    """Submit it as a Ray job; needs the API token. A located cell is a suite of its own, named
    after a hash of the request: the same request resumes it."""
    by = f"api from {request.client.host}" if request.client else "api"
    sweep = await anyio.to_thread.run_sync(_sweeps(request).start, asked, by)
    response.headers["Location"] = f"/sweeps/{sweep.id}"
    return sweep


@router.get("/sweeps", dependencies=[MayRead], summary="Which sweeps were started?")
async def get_sweeps(request: Request, query: Annotated[SweepsQuery, Query()]) -> SweepList:
    """The latest sweeps and their states."""
    items = await anyio.to_thread.run_sync(_sweeps(request).list, query.suite, query.limit)
    return SweepList(items=items)


@router.get("/sweeps/{id}", dependencies=[MayRead], summary="What is the state of this sweep?")
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
async def delete_sweep(request: Request, id: Number) -> SweepRow:
    """End its Ray job; what it has recorded stays, and the next sweep continues from there."""
    return await anyio.to_thread.run_sync(_sweeps(request).stop, id)
