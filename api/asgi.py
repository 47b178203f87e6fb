"""The application that a server process imports, made from the environment's settings."""

from __future__ import annotations

from api.app import create_app
from service.logs import configure_logging
from service.settings import get_settings

_settings = get_settings()
configure_logging(_settings.log_level, _settings.log_format)
app = create_app(_settings)
