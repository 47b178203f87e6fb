"""What is known of the database without asking it."""

from __future__ import annotations

from pydantic import SecretStr

from groktime.api.database import Database
from groktime.api.stamps import Stamps
from groktime.service.settings import Settings


def stamps() -> Stamps:
    """Of a database that nobody listens to."""
    settings = Settings(database_url=SecretStr("postgresql://nobody@127.0.0.1:9/absent"))
    return Stamps(Database(settings))


def test_nothing_is_known_before_the_database_was_heard() -> None:
    assert stamps().version() is None


def test_a_newer_revision_makes_what_was_read_before_old() -> None:
    known = stamps()
    known.seen("central", 4)
    before = known.counted()
    known.seen("central", 5)
    assert known.counted() > before


def test_a_revision_that_is_not_newer_changes_nothing() -> None:
    known = stamps()
    known.seen("central", 5)
    before = known.counted()
    known.seen("central", 5)
    known.seen("central", 4)
    assert known.counted() == before
