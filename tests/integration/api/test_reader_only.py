"""The API reads as reader: it cannot write, and no statement runs for ever."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fixtures.database import Database
from fixtures.http import settings_for
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from groktime.api.database import Database as ApiDatabase
from groktime.api.problems import translate


@pytest.fixture
def reader(seeded: Database) -> Iterator[ApiDatabase]:
    opened = ApiDatabase(settings_for(seeded.url), statement_seconds=0.2)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE suites SET revision = 0",
        "DELETE FROM runs",
        "INSERT INTO sweeps (suite, submitted_by) VALUES ('a', 'b')",
        "CREATE TABLE mine (a integer)",
        "SET TRANSACTION READ WRITE; DELETE FROM curve",
    ],
)
def test_its_connections_cannot_write(reader: ApiDatabase, statement: str) -> None:
    with reader.reading() as connection:
        assert connection.scalar(text("SELECT current_user")) == "groktime_reader"
        with pytest.raises(DBAPIError, match=r"read-only|permission denied|must be set before"):
            connection.execute(text(statement))


def test_a_statement_that_takes_too_long_is_ended_and_told(reader: ApiDatabase) -> None:
    with reader.reading() as connection, pytest.raises(DBAPIError) as ended:
        connection.execute(text("SELECT pg_sleep(30)"))
    told = translate(ended.value)
    assert told.status == 503
    assert "took too long" in told.detail
