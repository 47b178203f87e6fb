"""After a change primes keep what was read and computed where their rows are the same as before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fixtures.database import Database
from sqlalchemy import text

from groktime.service.answers.cell import CellResults, prime_cells
from groktime.service.answers.question import Question, keep_primes, put, reading

Read = Callable[[], dict[int, CellResults]]
TINY = "SELECT id FROM suites WHERE name = 'tiny'"
LINKED = f"SELECT run_id FROM suite_runs WHERE suite_id = ({TINY})"


@pytest.fixture
def read(seeded: Database) -> Read:
    """The cells of all primes, as the charts of all primes read them."""

    def once() -> dict[int, CellResults]:
        with reading(seeded.engine) as connection:
            suite, convention = put(connection, Question(suite="tiny"))
            primes = keep_primes(connection, suite, convention)
            return {
                prime: prime_cells(connection, suite, convention, prime, {})[0] for prime in primes
            }

    return once


def change(database: Database, statement: str) -> None:
    """One change, and the revision that tells of it."""
    with database.engine.begin() as connection:
        assert connection.execute(text(statement)).rowcount >= 1
        connection.execute(text("UPDATE suites SET revision = revision + 1"))


def changed(read: Read, before: dict[int, CellResults]) -> list[int]:
    after = read()
    assert list(after) == list(before)
    return [prime for prime in after if after[prime] is not before[prime]]


def test_a_revision_alone_changes_no_prime(seeded: Database, read: Read) -> None:
    before = read()
    change(seeded, "UPDATE suites SET updated_at = now()")
    assert changed(read, before) == []


@pytest.mark.parametrize("column", ["closed_at = now()", "first_val = first_val", "seconds = 2.5"])
def test_a_run_that_was_written_changes_its_prime(
    seeded: Database, read: Read, column: str
) -> None:
    before = read()
    one = f"SELECT min(id) FROM runs WHERE kind = 'grok' AND prime = 29 AND id IN ({LINKED})"
    change(seeded, f"UPDATE runs SET {column} WHERE id = ({one})")
    assert changed(read, before) == [29]
    assert changed(read, read()) == []


def test_a_run_that_left_the_suite_changes_its_prime(seeded: Database, read: Read) -> None:
    before = read()
    one = f"SELECT max(id) FROM runs WHERE kind = 'speed' AND prime = 23 AND id IN ({LINKED})"
    change(seeded, f"DELETE FROM suite_runs WHERE suite_id = ({TINY}) AND run_id = ({one})")
    assert changed(read, before) == [23]


def test_a_run_that_is_inherited_now_changes_its_prime(seeded: Database, read: Read) -> None:
    before = read()
    one = f"SELECT min(id) FROM runs WHERE kind = 'grok' AND prime = 31 AND id IN ({LINKED})"
    change(seeded, f"UPDATE suite_runs SET inherited = NOT inherited WHERE run_id = ({one})")
    assert changed(read, before) == [31]


def test_capacity_runs_belong_to_every_prime(seeded: Database, read: Read) -> None:
    before = read()
    one = f"SELECT min(id) FROM runs WHERE kind = 'capacity' AND id IN ({LINKED})"
    change(seeded, f"UPDATE runs SET bits = bits * 1.1 WHERE id = ({one})")
    assert changed(read, before) == [23, 29, 31]
