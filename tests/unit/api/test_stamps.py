"""What is known of the database without asking it."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from groktime.api.database import BEAT_SECONDS, LAG_SECONDS, Database, Stamps
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


class Cursor:
    """Suites and capacity runs as a database would tell them to a heartbeat."""

    def __init__(self, revision: int) -> None:
        self.revision = revision

    def execute(self, query: str) -> None:
        self._query = query

    def fetchall(self) -> list[tuple[object, ...]]:
        return [(1, "central", "hash", self.revision, None)] if "name" in self._query else [(0,)]


def test_what_a_heartbeat_has_verified_is_believed_for_one_second_and_no_longer() -> None:
    now = [100.0]
    settings = Settings(database_url=SecretStr("postgresql://nobody@127.0.0.1:9/absent"))
    known = Stamps(Database(settings), clock=lambda: now[0])
    known.beat(Cursor(7))
    verified = known.version()
    assert verified is not None
    now[0] += LAG_SECONDS - 0.001
    assert known.version() == verified
    now[0] += 0.001
    assert known.version() is None


def test_a_heartbeat_counts_a_commit_that_nobody_told_of() -> None:
    known = stamps()
    known.beat(Cursor(7))
    before = known.version()
    known.beat(Cursor(7))
    assert known.version() == before
    known.beat(Cursor(8))
    assert known.version() not in (before, None)


def test_heartbeats_come_often_enough_that_one_may_be_late() -> None:
    assert pytest.approx(LAG_SECONDS / 2) == BEAT_SECONDS
