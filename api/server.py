"""How the API is served: uvicorn on uvloop, the application of each server process, and HTTP/1.1 by
httptools with bounds on how requests arrive and answers leave.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from groktime.service.logs import configure_logging
from groktime.service.settings import get_settings

if TYPE_CHECKING:
    from fastapi import FastAPI

# How every server of the project is configured; where it listens is the caller's.
OPTIONS: dict[str, Any] = {
    "loop": "auto",  # uvloop where the platform has it
    # By name, which workers import after they can answer their supervisor.
    "http": "groktime.api.server:BoundedProtocol",
    "ws": "none",
    "log_config": None,
    "access_log": False,  # the API writes its own line, with the request's id
    "server_header": False,
    "proxy_headers": False,
}


def served_app() -> FastAPI:
    """The application of a server process, with the environment's settings and logging."""
    from groktime.api.app import create_app

    settings = get_settings()
    configure_logging(settings.log_level, settings.log_format)
    return create_app(settings)


ARRIVAL_SECONDS = 10.0  # a whole request, head and body, arrives within this time
HEAD_BYTES = 32 * 1024
STALLED_SECONDS = 60.0  # a client that takes nothing of its answer for so long is gone


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 that closes connections whose request does not arrive, or has a huge head.

    A connection whose client does not read is closed as well: a download holds a place and a
    connection of the database.
    """

    arrival_seconds = ARRIVAL_SECONDS
    stalled_seconds = STALLED_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._in_head = False
        self._head_bytes = 0
        self._arrival: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._await_arrival()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        self._goes_on()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        # Not close(): that would wait for what is written to be read.
        self._stalled = self.loop.call_later(self.stalled_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._goes_on()
        super().resume_writing()

    def _goes_on(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._await_arrival()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        if len(self.url) + sum(len(n) + len(v) for n, v in self.headers) > HEAD_BYTES:
            # The parser answers an error in a callback with 400.
            raise ValueError("the head is too large")
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._arrived()
        super().on_message_complete()

    def _await_arrival(self) -> None:
        if self._arrival is None:
            self._arrival = self.loop.call_later(
                self.arrival_seconds, self._refuse, b"408 Request Timeout"
            )

    def _arrived(self) -> None:
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None

    def _refuse(self, status: bytes) -> None:
        """Say why, unless an answer is being sent, and close."""
        self._arrived()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(
                b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
        self.transport.close()
