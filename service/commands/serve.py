"""`groktime serve`: the API and the dashboard over HTTP."""

from __future__ import annotations

import os
import tempfile
from typing import Annotated

import typer

from service.errors import ConfigurationError
from service.settings import get_settings


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

    settings = get_settings()
    bind = host or settings.host
    if settings.embedded:
        _start_embedded()
    if workers > 1 and (port if port is not None else settings.port) == 0:
        raise ConfigurationError("port = 0 needs --workers 1: workers share one known port")
    with tempfile.TemporaryDirectory(prefix="groktime-metrics-") as folder:
        if workers > 1:
            # Read by prometheus_client in every worker, so that /metrics counts them together.
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        uvicorn.run(
            "api.asgi:app",
            host=bind,
            port=settings.port if port is None else port,
            workers=workers,
            log_config=None,
            access_log=False,  # the API writes its own line, with the request's id
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=5,
            h11_max_incomplete_event_size=32 * 1024,
        )


def _start_embedded() -> None:
    """One machine: the embedded server is started and its schema brought up to date."""
    from db import embedded
    from db.engine import connect_migrated

    connect_migrated(embedded.start(get_settings().home)).dispose()
