"""A connection that outlives the server's restarts: work on it is tried until it succeeds."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg2
import psycopg2.errors
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from service.errors import DatabaseError

log = logging.getLogger(__name__)

FIRST_WAIT, LONGEST_WAIT = 0.05, 5.0  # seconds between tries
GIVE_UP_SECONDS = 600.0

Found = TypeVar("Found")


class LastingConnection:
    """One psycopg2 connection of an engine, made again whenever it was lost."""

    def __init__(
        self, engine: Engine, give_up_seconds: float, wait: Callable[[float], None]
    ) -> None:
        """`wait` passes the seconds between tries, and raises when there is to be no other."""
        self._engine = engine
        self._give_up_seconds = give_up_seconds
        self._wait = wait
        self._connection: Any = None

    def persist(self, work: Callable[[Any], None]) -> None:
        """Do the work, again after each failure that may pass; raise the error of the last."""
        pause = FIRST_WAIT
        deadline = time.monotonic() + self._give_up_seconds
        while True:
            try:
                work(self._connected())
                return
            except (psycopg2.Error, DBAPIError) as error:
                cause = error.orig if isinstance(error, DBAPIError) else error
                self.drop()
                if is_starved(cause):
                    raise MemoryError(first_line(cause)) from error
                if not may_pass(cause) or time.monotonic() > deadline:
                    raise
                log.warning("database: %s; trying again in %.2f s", first_line(cause), pause)
            self._wait(pause)
            pause = min(2 * pause, LONGEST_WAIT)

    def _connected(self) -> Any:
        if self._connection is None:
            self._connection = self._engine.raw_connection()
        return self._connection.driver_connection

    def drop(self) -> None:
        """Close it; the next work gets a new one."""
        if self._connection is not None:
            self._connection.invalidate()
            self._connection = None


def lasting(work: Callable[[], Found], give_up_seconds: float = GIVE_UP_SECONDS) -> Found:
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
            if not may_pass(error.orig):
                raise
            said = first_line(error.orig)
            if time.monotonic() > deadline:
                raise DatabaseError(
                    f"the database has been away for {give_up_seconds:g} s: {said}"
                ) from error
            log.warning("database: %s; trying again in %.2f s", said, pause)
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_WAIT)


def may_pass(error: BaseException | None) -> bool:
    """Whether waiting may help: connection, restart, read-only, disk full, deadlock, timeout."""
    return isinstance(
        error,
        psycopg2.OperationalError
        | psycopg2.InterfaceError
        | psycopg2.errors.ReadOnlySqlTransaction,
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
