"""The routes."""

from fastapi import APIRouter

from groktime.api.routes import (
    charts,
    events,
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
    sweeps.router,
    events.router,
    pages.service,
    pages.router,
)
