"""Sweeps started through the API: noted in the database, run and stopped by Ray."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Engine

from api.database import Database
from api.problems import ApiError
from db.engine import connect, database_url
from db.sweeps import SweepRow, SweepState, get_sweep, list_sweeps
from service.errors import InputError, SweepError
from service.settings import Settings
from service.spec import MAX_PRIME, MAX_WIDTH, Kind
from service.suites import load_suite, shipped_suites
from service.suites.loader import RELEASED
from service.sweep.job import SweepOptions
from service.sweep.noting import note, submit_noted
from service.sweep.selection import NotInSuite, Selection
from service.sweep.submit import JobState, job_log, job_state, job_states, stop_job

log = logging.getLogger("api.sweeps")

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

    gpus_per_bundle: Annotated[float, Field(ge=0, le=64)] = 0.0
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
                "resources": {"gpus_per_bundle": 0.0},
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
            number, job = submit_noted(
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
                note(engine, number, state, "stopped by the API" if running else None)
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
