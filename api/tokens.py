"""Bearer tokens: one that may start and stop sweeps, and optionally one that may read."""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import SecretStr

from api.problems import ApiError
from service.settings import Settings

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


def may_read(request: Request, credentials: Credentials) -> None:
    """Reading is open unless a read token is configured; the writing token reads, too."""
    settings = _settings(request)
    if settings.read_token is None:
        return
    if credentials is None:
        raise ApiError(401, "reading needs a bearer token here", headers=CHALLENGE)
    given = credentials.credentials
    if not (_matches(given, settings.read_token) or _matches(given, settings.api_token)):
        raise ApiError(401, "the bearer token is not accepted", headers=CHALLENGE)


def may_write(request: Request, credentials: Credentials) -> None:
    """Writing needs the API token; without a configured one it is off."""
    settings = _settings(request)
    if settings.api_token is None or not settings.api_token.get_secret_value():
        raise ApiError(403, "sweeps cannot be started here: GROKTIME_API_TOKEN is not set")
    if credentials is None:
        raise ApiError(401, "starting and stopping sweeps needs a bearer token", headers=CHALLENGE)
    if not _matches(credentials.credentials, settings.api_token):
        raise ApiError(401, "the bearer token is not accepted", headers=CHALLENGE)


MayRead = Depends(may_read)
MayWrite = Depends(may_write)
