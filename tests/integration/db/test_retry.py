"""Work on the database outlives the server's absence."""

from __future__ import annotations

import threading

import psycopg2
import pytest
from fixtures.database import Database, Server
from sqlalchemy import text
from sqlalchemy.exc import OperationalError, ProgrammingError

from groktime.db.engine import RetryingConnection, retrying
from groktime.service.errors import DatabaseError


def one(database: Database) -> int | None:
    with database.engine.connect() as connection:
        return connection.scalar(text("SELECT 1"))


def away(database: Database, server: Server) -> None:
    """Nobody gets a connection any more, and nobody keeps one."""
    database.engine.dispose()
    server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS false")
    server.execute(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database.name}'"
    )


def test_work_is_done_when_the_server_is_back(
    database: Database, database_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    away(database, database_server)
    found: list[int | None] = []
    working = threading.Thread(target=lambda: found.append(retrying(lambda: one(database))))
    working.start()
    working.join(0.5)
    assert not found
    assert "trying again" in caplog.text
    database_server.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS true")
    working.join(60)
    assert found == [1]


def test_a_server_that_stays_away_is_named_as_the_reason(
    database: Database, database_server: Server
) -> None:
    away(database, database_server)
    with pytest.raises(DatabaseError, match=r"away for 0.1 s: .*not currently accepting"):
        retrying(lambda: one(database), give_up_seconds=0.1)


def test_a_mistake_is_raised_at_once(database: Database) -> None:
    def wrong() -> None:
        with database.engine.connect() as connection:
            connection.execute(text("SELECT nothing"))

    with pytest.raises(ProgrammingError):
        retrying(wrong)


def test_memory_that_ran_out_on_this_side_is_not_waited_for(database: Database) -> None:
    def starved() -> None:
        raise OperationalError("SELECT 1", {}, psycopg2.OperationalError("out of memory\n"))

    with pytest.raises(MemoryError, match="out of memory"):
        retrying(starved)

    def no_wait(_: float) -> None:
        raise AssertionError("waited")

    connection = RetryingConnection(database.engine, 60, no_wait)
    with pytest.raises(MemoryError, match="out of memory"):
        connection.persist(lambda _: starved())
