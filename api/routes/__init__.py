"""The routes, one module each."""

from fastapi import APIRouter

from api.routes import docs, events, health, pages, questions, runs, suites

ROUTERS: tuple[APIRouter, ...] = (
    questions.router,
    suites.router,
    runs.router,
    events.router,
    health.router,
    docs.router,
    pages.router,
)
