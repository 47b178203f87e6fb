"""Around every request: who may ask, and how much (bearer tokens, bounds for one request and one
client); an id, a log line, a time, safe headers, and HEAD as GET.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import secrets
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from prometheus_client import Histogram
from pydantic import SecretStr
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groktime.api.problems import ApiError, document, on_error
from groktime.service.settings import Settings

MAX_CLIENTS = 10_000
SOON = {"Retry-After": "5"}


@dataclass(frozen=True)
class Limits:
    """What one request and one client may use."""

    body_bytes: int = 64 * 1024
    seconds: float = 30.0
    report_seconds: float = 300.0
    heavy_burst: int = 120  # computations a client may ask for at once
    heavy_per_second: float = 20.0
    events_clients: int = 200
    events_per_client: int = 20
    wrong_tokens: int = 10  # a client may give at once, then one every
    wrong_token_seconds: float = 2.0
    exports: int = 4  # downloads at once: each holds a connection while its client reads
    exports_per_client: int = 2


def client_of(request: Request) -> str:
    """The address that a client's limits are counted by."""
    return request.client.host if request.client else ""


class Buckets:
    """A token bucket per client: `burst` at once, then `rate` a second."""

    def __init__(self, burst: float, rate: float, clock: Callable[[], float]) -> None:
        self._burst, self._rate, self._clock = float(burst), rate, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def seconds_to_wait(self, client: str) -> float:
        """0 when the client may go on."""
        return max(0.0, (1.0 - self._now(client)) / self._rate)

    def take(self, client: str) -> None:
        left = self._now(client)
        self._left.pop(client, None)
        self._left[client] = (left - 1.0, self._clock())
        if len(self._left) > MAX_CLIENTS:
            self._left.popitem(last=False)

    def _now(self, client: str) -> float:
        now = self._clock()
        left, at = self._left.get(client, (self._burst, now))
        return min(self._burst, left + (now - at) * self._rate)


def _refuse_for(seconds: float, why: str) -> None:
    """Refuse with 429 while there is something to wait for."""
    if seconds > 0:
        wait = max(1, math.ceil(seconds))
        raise ApiError(429, f"{why}; try again in {wait} s", headers={"Retry-After": str(wait)})


class HeavyWork:
    """Bounds the answers that have to be computed for one client; cached ones are free."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = limits.heavy_per_second
        self._buckets = Buckets(limits.heavy_burst, self._rate, clock)

    def take(self, client: str) -> None:
        """Count one computation; refuses with 429 when the client's bucket is empty."""
        wait = self._buckets.seconds_to_wait(client)
        _refuse_for(wait, f"more than {self._rate:g} heavy questions a second")
        self._buckets.take(client)


class Exports:
    """Places for downloads: so many at once, and fewer of one client."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._taken: Counter[str] = Counter()

    def take(self, client: str) -> None:
        """A place until `leave`; refuses where there is none."""
        if self._taken[client] >= self._limits.exports_per_client:
            most = self._limits.exports_per_client
            raise ApiError(429, f"{most} exports of one client are under way", headers=SOON)
        if self._taken.total() >= self._limits.exports:
            told = "as many exports as this server allows are under way"
            raise ApiError(503, told, headers=SOON)
        self._taken[client] += 1

    def leave(self, client: str) -> None:
        self._taken[client] -= 1
        self._taken += Counter()  # forgets clients without a place


class WrongTokens:
    """Bounds how many tokens a client can try: beyond it even the right one is not looked at."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._buckets = Buckets(limits.wrong_tokens, 1 / limits.wrong_token_seconds, clock)

    def check(self, client: str, *, given: str, accepted: Sequence[SecretStr | None]) -> None:
        """Refuse a token that is none of those accepted, and whoever has tried too many."""
        _refuse_for(self._buckets.seconds_to_wait(client), "too many wrong tokens")
        # Every comparison is made, so that time tells nothing about which one matched.
        if not any([_matches(given, token) for token in accepted]):
            self._buckets.take(client)
            raise ApiError(401, "the bearer token is not accepted", headers=CHALLENGE)


_scheme = HTTPBearer(auto_error=False, description="GROKTIME_API_TOKEN or GROKTIME_READ_TOKEN")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_scheme)]

CHALLENGE = {"WWW-Authenticate": 'Bearer realm="groktime"'}


def _matches(given: str, expected: SecretStr | None) -> bool:
    """Compared in constant time, as bytes: a header may hold any character."""
    if expected is None or not expected.get_secret_value():
        return False
    wanted = expected.get_secret_value().encode()
    return secrets.compare_digest(given.encode("utf-8", "surrogateescape"), wanted)


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


async def may_read(request: Request, credentials: Credentials) -> None:
    """Reading is open unless a read token is configured; the writing token reads, too."""
    settings = _settings(request)
    if settings.read_token is None:
        return
    if credentials is None:
        raise ApiError(401, "reading needs a bearer token here", headers=CHALLENGE)
    _check(request, credentials, settings.read_token, settings.api_token)


async def may_write(request: Request, credentials: Credentials) -> None:
    """Writing needs the API token; without a configured one it is off."""
    settings = _settings(request)
    if settings.api_token is None or not settings.api_token.get_secret_value():
        raise ApiError(403, "sweeps cannot be started here: GROKTIME_API_TOKEN is not set")
    if credentials is None:
        raise ApiError(401, "starting and stopping sweeps needs a bearer token", headers=CHALLENGE)
    _check(request, credentials, settings.api_token)


def _check(
    request: Request, credentials: HTTPAuthorizationCredentials, *accepted: SecretStr | None
) -> None:
    wrong: WrongTokens = request.app.state.wrong_tokens
    wrong.check(client_of(request), given=credentials.credentials, accepted=accepted)


MayRead = Depends(may_read)
MayWrite = Depends(may_write)


REQUESTS = Histogram(
    "groktime_http_request_seconds",
    "Time to answer a request",
    ["method", "route", "status"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)

log = logging.getLogger("groktime.api.requests")

REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
API_CSP = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'"

SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Observed:
    """ASGI middleware; pages set their own content policy, everything else gets the strictest.

    An error that nothing below expected is answered here: one that went on to the server would
    have the connection closed after the answer.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope["request_id"] = request_id
        started = time.perf_counter()
        status = 500
        answering = False

        async def with_headers(message: Message) -> None:
            nonlocal status, answering
            if message["type"] == "http.response.start":
                status, answering = message["status"], True
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                headers.setdefault("Content-Security-Policy", API_CSP)
                headers.setdefault("Cache-Control", "no-store")
                for name, value in SAFE_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, with_headers)
        except Exception as error:
            if answering:  # what was sent is not whole, and closing says so
                raise
            told = await on_error(Request(scope), error)
            await told(scope, receive, with_headers)
        finally:
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", "unknown")
            method = scope["method"] if scope["method"] in METHODS else "other"
            REQUESTS.labels(method, route, str(status)).observe(seconds)
            log.info(
                "%s %s %s",
                scope["method"],
                _printable(scope["path"]),
                status,
                extra={"request_id": request_id, "ms": round(1000 * seconds, 1)},
            )


METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def _request_id(scope: Scope) -> str:
    """The client's id where it is harmless, else a new one."""
    given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
    return given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _printable(path: str) -> str:
    """No line breaks or control characters from a client reach the log."""
    return "".join(c if c.isprintable() else "?" for c in path[:200])


LOOPBACK = ("localhost", "127.0.0.1", "::1")
HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[^:\[\]/?#@\s]+))(?::[0-9]{0,5})?")


class KnownHosts:
    """ASGI middleware: answers only to names of this server.

    A page of another site that has its own name resolve to this address (DNS rebinding) would
    else read from here as if it were this site's. Accepted are the loopback names, the address the
    connection came in at, and `allowed`; `*` is any name and `*.b` every name that ends in `.b`.
    """

    def __init__(self, app: ASGIApp, allowed: Iterable[str]) -> None:
        self._app = app
        names = {name.strip().lower() for name in allowed} - {""}
        self._any = "*" in names
        self._names = names.union(LOOPBACK)
        self._endings = tuple(name[1:] for name in names if name.startswith("*."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._any or self._known(scope):
            await self._app(scope, receive, send)
            return
        told = ApiError(
            400,
            "Host: this is no name of this server; GROKTIME_ALLOWED_HOSTS sets more",
            parameter="Host",
            accepted="localhost, the server's address, or a name in GROKTIME_ALLOWED_HOSTS",
        )
        await document(Request(scope), told)(scope, receive, send)

    def _known(self, scope: Scope) -> bool:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            return False
        written = HOST.fullmatch(hosts[0].decode("latin-1").lower())
        if written is None:
            return False
        name = written["address"] or written["name"]
        if name in self._names or name.endswith(self._endings or ("\n",)):
            return True
        here = scope.get("server")
        return here is not None and name == here[0]


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


_ONLY_HEAD = "groktime.only_head"


def only_head(request: Request) -> bool:
    """Whether the body will be kept back, so that a stream need not begin."""
    return bool(request.scope.get(_ONLY_HEAD, False))


async def no_stream() -> AsyncIterator[bytes]:
    """A stream that ends at once."""
    chunks: tuple[bytes, ...] = ()
    for chunk in chunks:
        yield chunk


class HeadLikeGet:
    """ASGI middleware: asks the routes for GET and keeps the body back."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                if message.get("more_body", False):
                    return
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        # A scope of its own: the server still has to know that no body follows.
        asked = {**scope, "method": "GET", _ONLY_HEAD: True}
        try:
            await self._app(asked, receive, without_body)
        finally:
            if "route" in asked:  # for whoever is outside and notes which it was
                scope["route"] = asked["route"]
