"""`groktime serve`: the API and the dashboard over HTTP."""

from __future__ import annotations

import os
import socket as socket_module
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated, Any

import typer

from groktime.service.errors import ConfigurationError
from groktime.service.settings import get_settings


def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to bind to; default: GROKTIME_HOST.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that answer.")] = 1,
) -> None:
    """Answer questions over HTTP and show the dashboard.

    Examples:

    groktime serve

    groktime serve --host 0.0.0.0 --port 80 --workers 4
    """
    import uvicorn

    from groktime.api.server import OPTIONS

    settings = get_settings()
    bind = host or settings.host
    if settings.embedded:
        _start_embedded()
    if workers > 1 and (port if port is not None else settings.port) == 0:
        raise ConfigurationError("port = 0 needs --workers 1: workers share one known port")
    trusted = settings.trusted_proxies
    proxies = {"proxy_headers": True, "forwarded_allow_ips": trusted} if trusted else {}
    with bound(bind, settings.port if port is None else port) as socket, metrics_folder(workers):
        address, chosen = socket.getsockname()[:2]
        if workers == 1:
            socket.listen()  # who comes as soon as the address is told waits, and is not refused
        typer.echo(
            f"groktime serves http://{shown_host(address)}:{chosen} (Ctrl-C ends it)", err=True
        )
        options: dict[str, Any] = {
            "factory": True,
            "timeout_graceful_shutdown": 5,
            "timeout_worker_healthcheck": 60,  # a worker of a busy machine is not taken for dead
            **OPTIONS | proxies,
        }
        app = "groktime.api.server:served_app"
        if workers == 1:
            uvicorn.Server(uvicorn.Config(app, **options)).run(sockets=[socket])
            return
        socket.close()  # the workers' supervisor binds the port itself
        uvicorn.run(app, host=bind, port=chosen, workers=workers, **options)


@contextmanager
def bound(host: str, port: int) -> Iterator[socket_module.socket]:
    """A socket on the address; one that cannot be used is refused before anything starts."""
    with ExitStack() as stack:
        try:
            family, kind, protocol, _, address = socket_module.getaddrinfo(
                host, port, type=socket_module.SOCK_STREAM, flags=socket_module.AI_PASSIVE
            )[0]
            found = stack.enter_context(socket_module.socket(family, kind, protocol))
            found.setsockopt(socket_module.SOL_SOCKET, socket_module.SO_REUSEADDR, 1)
            found.bind(address)
        except OSError as error:
            raise ConfigurationError(
                f"host = {host}, port = {port} cannot be used ({error.strerror}): choose another "
                "with --host or --port"
            ) from error
        yield found


def shown_host(address: str) -> str:
    """The address as a browser takes it: every address of the machine is reached as localhost."""
    if address in ("0.0.0.0", "::"):
        return "localhost"
    return f"[{address}]" if ":" in address else address


@contextmanager
def metrics_folder(workers: int) -> Iterator[None]:
    """Where several workers count together: read by prometheus_client in each of them."""
    if workers == 1:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="groktime-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        yield


def _start_embedded() -> None:
    """One machine: the embedded server is started and its schema brought up to date."""
    from groktime.db import embedded
    from groktime.db.engine import connect_migrated

    connect_migrated(embedded.start(get_settings().home)).dispose()
