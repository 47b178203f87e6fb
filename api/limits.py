"""Bounds on what one client can ask of the server: body size, time, and heavy work per second."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import ApiError, document

MAX_CLIENTS = 10_000


@dataclass(frozen=True)
class Limits:
    """What one request and one client may use."""

    body_bytes: int = 64 * 1024
    seconds: float = 30.0
    report_seconds: float = 300.0
    heavy_burst: int = 120  # computations a client may ask for at once
    heavy_per_second: float = 20.0
    events_clients: int = 200
    exports: int = 4  # downloads at once: each holds a connection while its client reads


class TooLarge(HTTPException):
    """The body of a request went past the limit, announced or while it was read."""

    def __init__(self, limit: int) -> None:
        super().__init__(413, f"the body is larger than {limit} bytes")


class BoundedRequests:
    """ASGI middleware: refuses large bodies and ends requests that take too long.

    Streams (/events, /export) end when their client does and have no time limit.
    """

    STREAMS = ("/events", "/export/")

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def tracked(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            async with asyncio.timeout(self._seconds(scope)):
                await self._app(scope, self._counted(scope, receive), tracked)
        except (TooLarge, TimeoutError) as error:
            if started:
                raise
            await self._refuse(error, scope, receive, send)

    def _seconds(self, scope: Scope) -> float | None:
        path = str(scope["path"])
        if path.startswith(self.STREAMS):
            return None
        # A report puts every question to every cell and draws each figure.
        return self._limits.report_seconds if path.endswith("/report") else self._limits.seconds

    def _counted(self, scope: Scope, receive: Receive) -> Receive:
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self._limits.body_bytes:
            raise TooLarge(self._limits.body_bytes)
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._limits.body_bytes:
                raise TooLarge(self._limits.body_bytes)
            return message

        return counted

    async def _refuse(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        if isinstance(error, TooLarge):
            told = ApiError(413, error.detail)
        else:
            told = ApiError(504, f"the answer took longer than {self._seconds(scope):g} seconds")
        await document(Request(scope), told)(scope, receive, send)


class HeavyWork:
    """A token bucket per client for answers that have to be computed; cached ones are free."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst = float(limits.heavy_burst)
        self._rate = limits.heavy_per_second
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> None:
        """Count one computation; refuses with 429 when the client's bucket is empty."""
        now = self._clock()
        left, at = self._buckets.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        allowed = left >= 1.0
        self._buckets[client] = (left - 1.0 if allowed else left, now)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        if not allowed:
            wait = max(1, round((1.0 - left) / self._rate))
            raise ApiError(
                429,
                f"more than {self._rate:g} heavy questions a second; try again in {wait} s",
                headers={"Retry-After": str(wait)},
            )
