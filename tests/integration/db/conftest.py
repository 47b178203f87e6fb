"""What several tests of the database share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fixtures.database import Database, Server, scratch_database


@pytest.fixture
def other(database_server: Server, template_database: str) -> Iterator[Database]:
    """A second migrated database, beside that of the test."""
    with scratch_database(database_server, template_database) as found:
        yield found
