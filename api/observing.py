"""Around every request: an id, a line in the log, a time for Prometheus, safe headers."""

from __future__ import annotations

import logging
import re
import time
import uuid

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.metrics import REQUESTS

log = logging.getLogger("api.requests")

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
    """ASGI middleware; pages set their own content policy, everything else gets the strictest."""

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

        async def with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                headers.setdefault("Content-Security-Policy", API_CSP)
                headers.setdefault("Cache-Control", "no-store")
                for name, value in SAFE_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, with_headers)
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
