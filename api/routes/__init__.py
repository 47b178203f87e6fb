"""The routes, one module each."""

from fastapi import APIRouter

from api.routes import charts, docs, events, health, pages, questions, runs, suites

ROUTERS: tuple[APIRouter, ...] = (
    questions.router,
    suites.router,
    runs.router,
    charts.router,
    events.router,
    health.router,
    docs.router,
    pages.router,
)
