"""The application: routes, middleware and what they share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import anyio.to_thread
from fastapi import Depends, FastAPI

from groktime.api import problems
from groktime.api.access import Exports, HeavyWork, Limits, WrongTokens
from groktime.api.ahead import Ahead
from groktime.api.database import Database
from groktime.api.middleware import BoundedRequests, HeadLikeGet, KnownHosts, Observed
from groktime.api.queries import given_once, show_examples
from groktime.api.responses import AnswerCache, WarmAnswers
from groktime.api.routes import ROUTERS
from groktime.api.routes.events import EventHub
from groktime.api.routes.suites import Summaries
from groktime.api.routes.sweeps import Sweeps
from groktime.api.stamps import Stamps
from groktime.service.settings import Settings, get_settings

DESCRIPTION = """
Ask a suite of tiny transformers where memorisation and generalisation cross, and whether
grokking starts there. Every answer says which runs it rests on: suite, revision, method, clock,
thresholds, seeds, and how many runs were censored.

Start with `GET /crossing?prime=113`. Every table has a CSV twin (`format=csv`); errors are
RFC 9457 documents that name the parameter and what would have been accepted.
"""

ERRORS: dict[int | str, dict[str, object]] = {
    status: problems.described(words)
    for status, words in {
        400: "The Host header is no name of this server.",
        401: "A bearer token is needed or not accepted.",
        404: "What was named does not exist; `accepted` lists what does.",
        409: "The runs this needs have not been trained yet.",
        422: "A parameter is refused; `accepted` says what would not be.",
        429: "Too many heavy questions, event streams or wrong tokens of one client.",
        503: "The database cannot be reached.",
    }.items()
}


def create_app(
    settings: Settings | None = None, limits: Limits | None = None, *, prepare: bool = True
) -> FastAPI:
    """The API for these settings; without a database it starts and answers 503.

    Unless `prepare` is false, what visitors ask first is computed before they do.
    """
    settings = settings or get_settings()
    limits = limits or Limits()
    database = Database(settings)
    stamps = Stamps(database)
    answers = AnswerCache()
    hub = EventHub(database, stamps, limits)
    ahead = Ahead(stamps, answers, settings)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        hub.start()
        if prepare:
            ahead.start()
        stamps.start()
        try:
            yield
        finally:
            await hub.stop()
            await ahead.stop()
            await anyio.to_thread.run_sync(stamps.stop)
            database.close()

    app = FastAPI(
        title="groktime",
        summary="When do neural networks grok?",
        description=DESCRIPTION,
        version=version("groktime"),
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses=ERRORS,
        dependencies=[Depends(given_once)],
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.settings = settings
    app.state.database = database
    app.state.stamps = stamps
    app.state.answers = answers
    app.state.heavy = HeavyWork(limits)
    app.state.wrong_tokens = WrongTokens(limits)
    app.state.exports = Exports(limits)
    app.state.events = hub
    app.state.ahead = ahead
    ahead.application = app
    app.state.sweeps = Sweeps(database, settings)
    app.state.summaries = Summaries(stamps)
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    app.add_middleware(BoundedRequests, limits=limits)
    app.add_middleware(HeadLikeGet)
    if settings.read_token is None:
        app.add_middleware(WarmAnswers, answers=answers, stamps=stamps)
    app.add_middleware(ahead.within)
    app.add_middleware(KnownHosts, allowed=settings.allowed_hosts.split(","))
    app.add_middleware(Observed)
    show_examples(app)
    return app
