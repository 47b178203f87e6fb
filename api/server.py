"""How the API is served: uvicorn on uvloop, and the application of each server process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from groktime.service.logs import configure_logging
from groktime.service.settings import get_settings

if TYPE_CHECKING:
    from fastapi import FastAPI

# How every server of the project is configured; where it listens is the caller's.
OPTIONS: dict[str, Any] = {
    "loop": "auto",  # uvloop where the platform has it
    # By name, which workers import after they can answer their supervisor.
    "http": "groktime.api.protocol:BoundedProtocol",
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
