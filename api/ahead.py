"""What a visitor asks first is answered before it is asked: again after every change.

The first page's questions are put to the application itself, one after the other, when the
database has changed and somebody was here lately. A newer change begins anew, a request that has
to be computed goes first, and rounds take at most SHARE of the time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groktime.api.responses import HOLD_SECONDS, AnswerCache
from groktime.api.stamps import Stamps
from groktime.service.settings import Settings

GATHER_SECONDS = 0.1  # notices of one moment are one change
SHARE = 0.05
VISITED_SECONDS = 600.0  # nobody came for so long: nothing is prepared
MONITORS = ("/health", "/metrics")  # asked by machines all the time

log = logging.getLogger("groktime.api.ahead")


class Ahead:
    """Puts the first page's questions when their answers have become old."""

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
        stamps.on_notice(self._notice)

    def start(self) -> None:
        """Begin; called on the event loop."""
        self._changed = asyncio.Event()
        self._changed.set()
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _notice(self, _payload: str | None) -> None:
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
            began = self._clock()
            try:
                await self._put_questions()
            except Exception:
                log.exception("answers could not be prepared")
            taken = self._clock() - began
            await asyncio.sleep(max(HOLD_SECONDS, taken * (1 - SHARE) / SHARE))

    async def _put_questions(self) -> None:
        """The questions of the first page in its order; each needs what the one before found."""
        assert self._changed is not None
        found = await self._ask("/start", {"of": "cell"})
        if found is None:
            return
        cell = {"suite": found["suite"], "prime": found["prime"], **found["setting"]}
        for path, query in (("/charts/delay", cell), ("/crossing", {}), ("/suites", {})):
            while self._answers.busy:
                await asyncio.sleep(GATHER_SECONDS)
            if self._changed.is_set():
                return  # a newer change: what is old already is not computed
            await self._ask(path, query)
        self.rounds += 1

    async def _ask(self, path: str, query: Mapping[str, Any]) -> Any:
        """The answer of the application; None where it refuses."""
        assert self._app is not None
        headers = [(b"host", b"localhost"), (b"accept", b"application/json")]
        if self._token is not None:
            token = f"Bearer {self._token.get_secret_value()}"
            headers.append((b"authorization", token.encode()))
        scope: Scope = {
            **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1"},
            **{"method": "GET", "scheme": "http", "path": path, "raw_path": path.encode()},
            **{"query_string": urlencode(query).encode(), "root_path": "", "headers": headers},
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
