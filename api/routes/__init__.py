"""The routes, one module each."""

from fastapi import APIRouter

from groktime.api.routes import (
    charts,
    events,
    export,
    health,
    pages,
    questions,
    runs,
    suites,
    sweeps,
)

ROUTERS: tuple[APIRouter, ...] = (
    questions.router,
    suites.router,
    runs.router,
    charts.router,
    export.router,
    sweeps.router,
    events.router,
    health.router,
    pages.router,
)
