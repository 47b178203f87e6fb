"""The API's connections, and whether the database has changed, known without asking it.

It reads as reader, with a statement timeout, and is patient with an absent server.

One LISTEN connection a process hears of changes: writers notify when a run closes. Each half second
the same connection looks at every suite's revision, so that a change whose notice was lost is
noticed too. An answer that was read from the database is therefore known to be current while
`version` stays the same, and what is served from memory is at most LAG_SECONDS behind a commit.
Without the connection nothing is known, and answers ask the database each time.

It connects to the server itself: LISTEN through a pooler hears nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
from psycopg2.extensions import ISOLATION_LEVEL_AUTOCOMMIT
from sqlalchemy import Connection, Engine, make_url

from groktime.db.engine import connect, database_url
from groktime.db.suites import CHANNEL
from groktime.service.answers.question import reading
from groktime.service.errors import DatabaseError
from groktime.service.settings import Settings

STATEMENT_SECONDS = 15
POOL_SIZE = 8


class Database:
    """Connects when first asked, so that the API starts and answers 503 without a server."""

    def __init__(self, settings: Settings, statement_seconds: float = STATEMENT_SECONDS) -> None:
        self._settings = settings
        self._seconds = statement_seconds
        self._lock = threading.Lock()
        self._engine: Engine | None = None

    @property
    def url(self) -> str:
        """The reader's URL; holds a password, so it is never logged."""
        return database_url("reader", self._settings)

    def engine(self) -> Engine:
        """The reader's engine, connected and with its schema checked once."""
        with self._lock:
            if self._engine is None:
                self._engine = connect(
                    self.url, "reader", pool_size=POOL_SIZE, statement_seconds=self._seconds
                )
            return self._engine

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One moment of the database, for all statements of one answer."""
        with reading(self.engine()) as connection:
            yield connection

    def close(self) -> None:
        with self._lock:
            if self._engine is not None:
                self._engine.dispose()
                self._engine = None


LAG_SECONDS = 1.0
BEAT_SECONDS = 0.5
IDLE_SECONDS = 60.0  # nobody asked for so long: nobody needs to know
RETRY_SECONDS = 1.0
LOOK_SECONDS = 10

# C_model may come from another suite's capacity runs, so their state is part of every stamp, and
# how many suites there are that may have trained them.
CAPACITY = """
SELECT count(*), max(closed_at), (SELECT count(*) FROM suites)
FROM runs WHERE kind = 'capacity' AND state IN ('done', 'failed')
"""
SUITES = "SELECT id, name, hash, revision, frozen_at FROM suites ORDER BY id"

log = logging.getLogger("groktime.api.database")

Listener = Callable[[str | None], None]


class Stamps:
    """Counts the changes of the database; `version` is another number after each of them."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._lock = threading.Lock()
        self._version = 0
        self._revisions: dict[str, int] = {}
        self._world: object = None
        self._verified_at = float("-inf")
        self._asked_at = float("-inf")
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: list[Listener] = []

    def on_notice(self, listener: Listener) -> None:
        """Call it on the event loop with each notice's payload; with None after a gap."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Begin to listen; called on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._stopping.clear()
        self._thread = threading.Thread(target=self._listen, name="groktime-listen", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let the connection go; may take half a second."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def version(self) -> int | None:
        """The number of the database's present state; None where that is not known."""
        now = self._clock()
        self._asked_at = now
        return self._version if now - self._verified_at < LAG_SECONDS else None

    def counted(self) -> int:
        """The number of changes so far, current or not; taken before the database is read."""
        return self._version

    def seen(self, suite: str, revision: int) -> None:
        """Somebody read this revision: nothing older is served from now on."""
        if revision > self._revisions.get(suite, -1):
            with self._lock:
                if revision > self._revisions.get(suite, -1):
                    self._revisions[suite] = revision
                    self._version += 1

    def _listen(self) -> None:
        """In a thread: hold one connection for ever."""
        while not self._stopping.is_set():
            try:
                self._listen_once()
            except (psycopg2.Error, DatabaseError, OSError) as error:
                log.info("not listening: %s", str(error).strip().splitlines()[:1])
            self._verified_at = float("-inf")
            self._stopping.wait(RETRY_SECONDS)

    def _listen_once(self) -> None:
        url = make_url(self._database.url).set(drivername="postgresql")
        connection = psycopg2.connect(
            url.render_as_string(hide_password=False),
            application_name="groktime events",
        )
        try:
            connection.set_isolation_level(ISOLATION_LEVEL_AUTOCOMMIT)
            with connection.cursor() as cursor:
                cursor.execute("SET default_transaction_read_only = on")
                cursor.execute(f"SET statement_timeout = '{LOOK_SECONDS}s'")
                cursor.execute(f"LISTEN {CHANNEL}")
                self._tell(None)
                next_beat = self._clock()
                while not self._stopping.is_set():
                    # Notices wake it at once.
                    ready, _, _ = select.select(
                        [connection], [], [], max(0.0, next_beat - self._clock())
                    )
                    if ready:
                        connection.poll()
                    if self._clock() >= next_beat:
                        next_beat = self._clock() + BEAT_SECONDS
                        if self._clock() - self._asked_at < IDLE_SECONDS:
                            self.beat(cursor)
                    while connection.notifies:
                        self._notice(connection.notifies.pop(0).payload)
        finally:
            connection.close()

    def beat(self, cursor: Any) -> None:
        """Look at what stamps are made of; what is read shows at least all until `began`."""
        began = self._clock()
        cursor.execute(SUITES)
        suites = cursor.fetchall()
        cursor.execute(CAPACITY)
        world = (suites, cursor.fetchall())
        if world != self._world:
            self._world = world
            with self._lock:
                self._version += 1
        self._verified_at = began

    def _notice(self, payload: str) -> None:
        try:
            notice = json.loads(payload)
            self.seen(str(notice["suite"]), int(notice["revision"]))
        except (ValueError, KeyError, TypeError):
            log.warning("a notice that is not ours was ignored")
            return
        self._tell(payload)

    def _tell(self, payload: str | None) -> None:
        assert self._loop is not None
        for listener in self._listeners:
            self._loop.call_soon_threadsafe(listener, payload)
