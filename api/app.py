"""The application: routes, middleware, what they share, and first answers.

What a visitor asks first is answered before it is asked: the questions of the first page and of the
delay view, of all primes too, are put to the application itself, one after the other, when the
database has changed and somebody was here lately.
A newer change begins anew, a request that has to be computed goes first, and rounds take at most
SHARE of a core; what they wait for on a machine that others use does not count.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any
from urllib.parse import urlencode

import anyio.to_thread
from fastapi import Depends, FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groktime.api import problems
from groktime.api.database import Database, Stamps
from groktime.api.middleware import (
    BoundedRequests,
    Exports,
    HeadLikeGet,
    HeavyWork,
    KnownHosts,
    Limits,
    Observed,
    WrongTokens,
)
from groktime.api.queries import given_once, show_examples
from groktime.api.responses import HOLD_SECONDS, AnswerCache, WarmAnswers
from groktime.api.routes import ROUTERS
from groktime.api.routes.events import EventHub
from groktime.api.routes.suites import Summaries
from groktime.api.routes.sweeps import Sweeps
from groktime.dashboard.page import static_files
from groktime.service.settings import Settings, get_settings

GATHER_SECONDS = 0.1  # notices of one moment are one change
SHARE = 0.1
VISITED_SECONDS = 600.0  # nobody came for so long: nothing is prepared
MONITORS = ("/health", "/metrics")  # asked by machines all the time

log = logging.getLogger("groktime.api.app")


class Ahead:
    """Puts the questions of the first views when their answers have become old."""

    def __init__(
        self,
        stamps: Stamps,
        answers: AnswerCache,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stamps = stamps
        self._answers = answers
        self._token = settings.read_token
        self._clock = clock
        self._app: ASGIApp | None = None
        self.application: Any = None  # that routes find their state in
        self._visited_at = clock()  # the first visitor finds answers, too
        self._changed: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self.rounds = 0  # that were finished
        stamps.on_notice(self.notice)

    def start(self) -> None:
        """Begin; called on the event loop."""
        self._changed = asyncio.Event()
        self._changed.set()
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def notice(self, _payload: str | None) -> None:
        """Something was recorded: what was prepared is computed anew."""
        if self._changed is not None:
            self._changed.set()

    async def _work(self) -> None:
        assert self._changed is not None
        while True:
            await self._changed.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._changed.clear()
            if self._app is None or self._clock() - self._visited_at > VISITED_SECONDS:
                continue
            began = time.process_time()
            try:
                await self._put_questions()
            except Exception:
                log.exception("answers could not be prepared")
            taken = time.process_time() - began
            await asyncio.sleep(max(HOLD_SECONDS, taken * (1 - SHARE) / SHARE))

    async def _put_questions(self) -> None:
        """The questions of the first page in its order, then those of the delay view; each needs
        what an earlier one found."""
        found = await self._ask("/start", {"of": "cell"})
        if found is None:
            return
        one = {"suite": found["suite"], **found["setting"]}
        cell = {**one, "prime": found["prime"]}
        for path, query in (("/charts/delay", cell), ("/crossing", {})):
            if not await self._may_go_on():
                return
            await self._ask(path, query)
        if not await self._may_go_on():
            return
        suites = await self._ask("/suites", {})
        if suites is None:
            return
        own = next(suite["analysis"] for suite in suites["items"] if suite["name"] == one["suite"])
        named = {"method": own.get("method", "robust"), "clock": own.get("clock", "online")}
        for path, query in (("/charts/delay", cell), ("/charts/delay/primes", one)):
            if not await self._may_go_on():
                return
            await self._ask(path, {**query, **named})
        self.rounds += 1

    async def _may_go_on(self) -> bool:
        """After who waits for an answer; not where a newer change has made this round old."""
        assert self._changed is not None
        while self._answers.busy:
            await asyncio.sleep(GATHER_SECONDS)
        return not self._changed.is_set()

    async def _ask(self, path: str, query: Mapping[str, Any]) -> Any:
        """The answer of the application; None where it refuses."""
        assert self._app is not None
        headers = [(b"host", b"localhost"), (b"accept", b"application/json")]
        if self._token is not None:
            token = f"Bearer {self._token.get_secret_value()}"
            headers.append((b"authorization", token.encode()))
        asked = {name: value for name, value in query.items() if value is not None}
        scope: Scope = {
            **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1"},
            **{"method": "GET", "scheme": "http", "path": path, "raw_path": path.encode()},
            **{"query_string": urlencode(asked).encode(), "root_path": "", "headers": headers},
            **{"client": None, "server": None, "state": {}, "app": self.application},
        }
        status, body = 500, b""

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status, body
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                body += message.get("body", b"")

        await self._app(scope, receive, send)
        return json.loads(body) if status == 200 else None

    def within(self, app: ASGIApp) -> ASGIApp:
        """ASGI middleware: notes that somebody is here; what is inside answers the questions."""
        self._app = app

        async def noted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and not scope["path"].startswith(MONITORS):
                self._visited_at = self._clock()
            await app(scope, receive, send)

        return noted


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
        await anyio.to_thread.run_sync(static_files)  # read before anyone asks for the page
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
