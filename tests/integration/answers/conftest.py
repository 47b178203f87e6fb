"""What the tests of answers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fixtures.database import Database
from sqlalchemy import Connection

from groktime.service.answers.question import reading


@pytest.fixture(scope="module")
def connection(shared_seeded: Database) -> Iterator[Connection]:
    """A reader's connection to the seeded database, at one moment of it."""
    engine = shared_seeded.reader()
    with reading(engine) as opened:
        yield opened
    engine.dispose()
