"""The API's connections: as reader, with a statement timeout, and patient with an absent server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine

from groktime.db.engine import connect, database_url
from groktime.service.answers.question import reading
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
