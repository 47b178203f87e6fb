"""HEAD: the status and headers that GET would have, without its body."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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

        # The same scope, so that whoever is outside sees the route that was found.
        scope["method"], scope[_ONLY_HEAD] = "GET", True
        try:
            await self._app(scope, receive, without_body)
        finally:
            scope["method"] = "HEAD"
