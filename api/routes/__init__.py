"""The routes, one module each."""

from fastapi import APIRouter

from api.routes import (
    charts,
    docs,
    events,
    export,
    health,
    pages,
    questions,
    report,
    runs,
    suites,
    sweeps,
)

ROUTERS: tuple[APIRouter, ...] = (
    questions.router,
    suites.router,
    report.router,
    runs.router,
    charts.router,
    export.router,
    sweeps.router,
    events.router,
    health.router,
    docs.router,
    pages.router,
)
