"""Who may ask, and how much: bearer tokens, and bounds for one request and one client."""

from __future__ import annotations

import math
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import SecretStr

from groktime.api.problems import ApiError
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
