"""How a request has to arrive: whole and soon, with a head of reasonable size."""

from __future__ import annotations

import http.client
import socket
import threading

import httpx
import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from groktime.api.server import HEAD_BYTES, BoundedProtocol

HALF_SENT = (
    b"",
    b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
    b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nhalf",
    b"POST /sweeps HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nhalf",
)


def connected(api: httpx.Client) -> socket.socket:
    return socket.create_connection((api.base_url.host, api.base_url.port or 80), timeout=60)


def all_of(connection: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""
    received = b""
    while part := connection.recv(65536):
        received += part
    return received


@pytest.mark.parametrize("sent", HALF_SENT)
def test_a_half_sent_request_is_closed(
    api: httpx.Client, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(BoundedProtocol, "arrival_seconds", 0.3)
    with connected(api) as connection:
        connection.sendall(sent)
        answer = all_of(connection)  # ends, because the server closes it
    assert answer.startswith((b"HTTP/1.1 408", b"HTTP/1.1 200", b"HTTP/1.1 403"))


def test_a_request_that_keeps_trickling_is_closed_too(
    api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedProtocol, "arrival_seconds", 0.3)
    with connected(api) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        connection.settimeout(0.05)
        while True:
            try:
                connection.sendall(b"X-A: b\r\n")
                if answer := connection.recv(100):
                    break
            except TimeoutError:
                continue
    assert answer.startswith(b"HTTP/1.1 408")


def test_who_asks_and_does_not_read_is_closed(
    api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = threading.Event()
    with connected(api) as connection:
        here = connection.getsockname()

        def lost(self: BoundedProtocol, why: Exception | None) -> None:
            if self.client == here:
                closed.set()
            HttpToolsProtocol.connection_lost(self, why)

        monkeypatch.setattr(BoundedProtocol, "stalled_seconds", 0.3)
        monkeypatch.setattr(BoundedProtocol, "connection_lost", lost)
        # Far more than the buffers between the two can hold.
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 200)
        assert closed.wait(60)


def opened_once(api: httpx.Client) -> http.client.HTTPConnection:
    """A connection on which answers are read whole, and which fails where the server closed it."""
    connection = http.client.HTTPConnection(str(api.base_url.host), api.base_url.port, timeout=60)
    connection.connect()
    connection.auto_open = 0
    return connection


def test_connections_are_reused_for_requests_that_arrive(api: httpx.Client) -> None:
    connection = opened_once(api)
    for _ in range(3):
        connection.request("GET", "/nothing")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 404
    connection.close()


@pytest.mark.parametrize("ending", [b"", b"\r\n\r\n"])
def test_a_huge_head_is_refused(api: httpx.Client, ending: bytes) -> None:
    with connected(api) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"x" * HEAD_BYTES * 2)
        try:
            connection.sendall(ending)
            answer = all_of(connection)
        except ConnectionError:  # closed while we still sent
            return
    assert answer.startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))


def test_a_connection_goes_on_after_an_unexpected_error(
    api: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_connection: object) -> None:
        raise ValueError("a mistake of the server's")

    monkeypatch.setattr("groktime.api.routes.suites.read_suites", failing)
    connection = opened_once(api)
    for path, status in (("/suites", 500), ("/suites", 500), ("/health", 200)):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
        assert answer.headers["x-content-type-options"] == "nosniff"
    connection.close()
    told = [record for record in caplog.records if record.exc_info]
    assert {record.name for record in told} == {"groktime.api.problems"}
    assert len(told) == 2
