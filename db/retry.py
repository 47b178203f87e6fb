"""Database work that outlives the server's restarts: it is tried until it succeeds.

A server that is away for GIVE_UP_SECONDS ends the work. One that has no connection left never
does: others are at work on it, and will be done.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg2
import psycopg2.errors
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from groktime.service.errors import DatabaseError

log = logging.getLogger(__name__)

FIRST_WAIT, LONGEST_WAIT = 0.05, 5.0  # seconds between tries
GIVE_UP_SECONDS = 600.0
IDLE_SECONDS = 5.0  # a connection that is used less often than this is not held

# What PostgreSQL and PgBouncer say when they have none left; libpq gives no code with it.
SHORTAGES = (
    "too many clients",
    "too many connections",
    "remaining connection slots",
    "no more connections allowed",
    "query_wait_timeout",
)

Found = TypeVar("Found")


class RetryingConnection:
    """One psycopg2 connection of an engine, made again whenever it was lost.

    It is kept from one work to the next only while they follow each other closely, so that many
    workers that rarely write do not take all connections of a server.
    """

    def __init__(
        self, engine: Engine, give_up_seconds: float, wait: Callable[[float], None]
    ) -> None:
        """`wait` passes the seconds between tries, and raises when there is to be no other."""
        self._engine = engine
        self._give_up_seconds = give_up_seconds
        self._wait = wait
        self._connection: Any = None
        self._used_at = -IDLE_SECONDS

    def persist(self, work: Callable[[Any], None]) -> None:
        """Do the work, again after each failure that may pass; raise the error of the last."""
        pause = FIRST_WAIT
        deadline = time.monotonic() + self._give_up_seconds
        while True:
            try:
                work(self._connected())
                self._let_go()
                return
            except (psycopg2.Error, DBAPIError) as error:
                cause = error.orig if isinstance(error, DBAPIError) else error
                self.drop()
                if is_starved(cause):
                    raise MemoryError(first_line(cause)) from error
                if is_shortage(cause):
                    deadline = time.monotonic() + self._give_up_seconds
                elif not is_transient(cause) or time.monotonic() > deadline:
                    raise
                log.warning("database: %s; trying again in %.2f s", first_line(cause), pause)
            self._wait(spread(pause))
            pause = min(2 * pause, LONGEST_WAIT)

    def _let_go(self) -> None:
        rare = time.monotonic() - self._used_at > IDLE_SECONDS
        self._used_at = time.monotonic()
        if rare and self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Any:
        if self._connection is None:
            self._connection = self._engine.raw_connection()
        return self._connection.driver_connection

    def drop(self) -> None:
        """Close it; the next work gets a new one."""
        if self._connection is not None:
            self._connection.invalidate()
            self._connection = None


def retrying(work: Callable[[], Found], give_up_seconds: float = GIVE_UP_SECONDS) -> Found:
    """What the work on an engine returns; it is done again while the server may come back.

    Work may be done twice when only its answer was lost, so it must bear that.
    """
    pause = FIRST_WAIT
    deadline = time.monotonic() + give_up_seconds
    while True:
        try:
            return work()
        except DBAPIError as error:
            if is_starved(error.orig):
                raise MemoryError(first_line(error.orig)) from error
            if not is_transient(error.orig):
                raise
            said = first_line(error.orig)
            if is_shortage(error.orig):
                deadline = time.monotonic() + give_up_seconds
            elif time.monotonic() > deadline:
                raise DatabaseError(
                    f"the database has been away for {give_up_seconds:g} s: {said}"
                ) from error
            log.warning("database: %s; trying again in %.2f s", said, pause)
        time.sleep(spread(pause))
        pause = min(2 * pause, LONGEST_WAIT)


def spread(pause: float) -> float:
    """About the pause: workers refused together do not come back together."""
    return pause * random.uniform(0.5, 1.5)


def is_transient(error: BaseException | None) -> bool:
    """Whether waiting may help: connection, restart, read-only, disk full, deadlock, timeout."""
    return isinstance(
        error,
        psycopg2.OperationalError
        | psycopg2.InterfaceError
        | psycopg2.errors.ReadOnlySqlTransaction,
    )


def is_shortage(error: BaseException | None) -> bool:
    """Whether the server is there and has no connection left for us."""
    return isinstance(error, psycopg2.OperationalError) and any(
        words in str(error) for words in SHORTAGES
    )


def is_starved(error: BaseException | None) -> bool:
    """Whether this process, not the server, had no memory left: waiting would be in vain."""
    return (
        isinstance(error, psycopg2.OperationalError)
        and error.pgcode is None
        and "out of memory" in str(error)
    )


def first_line(error: BaseException | None) -> str:
    """What to show of an error whose text may have many lines."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
