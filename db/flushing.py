"""One flush: compare-and-set, COPY and closings in one transaction, exactly once.

`last_epoch` moves in the same transaction as the rows that it counts, and only from the value
this attempt left it at. So a flush that is repeated after an unknown outcome finds out from
`last_epoch` whether it happened, and an attempt that lost its run finds no row to move.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from db.closing import CLOSE_ATTEMPT, CLOSE_RUN, Closing
from db.curve_rows import COPY_STATEMENT, copy_stream
from db.notices import NOTIFY_PROGRESS, RAISE_REVISIONS

ADVANCE = """
UPDATE runs r SET last_epoch = t.reached,
    lease_until = clock_timestamp() + make_interval(secs => %(lease)s)
FROM unnest(%(ids)s::int[], %(attempts)s::int[], %(expected)s::int[], %(reached)s::int[])
    AS t(id, attempt, expected, reached)
WHERE r.id = t.id AND r.attempt = t.attempt AND r.state = 'running'
    AND r.last_epoch = t.expected
RETURNING r.id
"""

# Locks, and so waits for a commit of the lost connection that the server is still at: read past
# it, the flush would look undone, and doing it again would then look fenced.
READ_FENCES = """
SELECT id, attempt, state, last_epoch FROM runs WHERE id = ANY(%(ids)s) ORDER BY id FOR UPDATE
"""


@dataclass
class Part:
    """One run's share of a flush."""

    run_id: int
    attempt: int
    expected: int  # last_epoch before
    reached: int  # last_epoch after
    rows: list[NDArray[Any]] = field(default_factory=list)
    closing: Closing | None = None


class Fenced(Exception):
    """Some runs of the flush belong to another attempt; nothing was written."""

    def __init__(self, run_ids: set[int]) -> None:
        super().__init__(run_ids)
        self.run_ids = run_ids


def write(
    connection: Any, parts: Sequence[Part], lease_seconds: float, *, progress: bool = False
) -> None:
    """Write all parts and commit, or raise with nothing written.

    `connection` is psycopg2's. With `progress` listeners hear of the first run that moved.
    """
    with connection.cursor() as cursor:
        cursor.execute(ADVANCE, _fences(parts) | {"lease": lease_seconds})
        owned = {row[0] for row in cursor.fetchall()}
        lost = {part.run_id for part in parts} - owned
        if lost:
            connection.rollback()
            raise Fenced(lost)
        rows = [rows for part in parts for rows in part.rows]
        if rows:
            cursor.copy_expert(COPY_STATEMENT, io.BytesIO(copy_stream(rows)))
        closings = [part.closing for part in parts if part.closing is not None]
        for closing in closings:
            cursor.execute(CLOSE_RUN, closing.summary)
            cursor.execute(CLOSE_ATTEMPT, closing.summary)
        moving = next((p.run_id for p in parts if p.rows and p.closing is None), None)
        if progress and moving is not None:
            cursor.execute(NOTIFY_PROGRESS, {"run": moving})
        if closings:
            cursor.execute(RAISE_REVISIONS, {"runs": [c.claim.run_id for c in closings]})
    connection.commit()


def outcome(connection: Any, parts: Sequence[Part]) -> tuple[bool, set[int]]:
    """After a lost connection: whether the flush was committed, and which runs are fenced now."""
    with connection.cursor() as cursor:
        cursor.execute(READ_FENCES, {"ids": [part.run_id for part in parts]})
        found = {row[0]: row[1:] for row in cursor.fetchall()}
    connection.rollback()
    committed = False
    fenced: set[int] = set()
    for part in parts:
        attempt, state, last_epoch = found.get(part.run_id, (None, None, None))
        closed = part.closing is not None and state == part.closing.outcome.state
        if attempt != part.attempt or not (state == "running" or closed):
            fenced.add(part.run_id)
        elif closed or (last_epoch == part.reached != part.expected):
            committed = True
    return committed, fenced


def _fences(parts: Sequence[Part]) -> dict[str, list[int]]:
    return {
        "ids": [part.run_id for part in parts],
        "attempts": [part.attempt for part in parts],
        "expected": [part.expected for part in parts],
        "reached": [part.reached for part in parts],
    }
