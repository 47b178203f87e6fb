"""Ending leases of workers known to be gone, and runs that no worker could finish.

Only whoever started a worker and saw it end may abandon for it. Should it live on after all,
behind a broken network, its next write is fenced like any other late one.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Engine, text

from db.claims import FAIL, LEAVE, end_attempts, raise_revisions

LOCK_OF_OWNER = """
SELECT id FROM runs WHERE state = 'running' AND starts_with(owner, :prefix)
ORDER BY id FOR UPDATE
"""

LOCK_FREE = """
SELECT id FROM runs WHERE id = ANY(:ids) AND state IN ('pending', 'stale')
ORDER BY id FOR UPDATE
"""


def abandon(engine: Engine, owner_prefix: str) -> list[int]:
    """Make the runs held by owners whose names begin so stale at once; returns their ids."""
    with engine.begin() as connection:
        ids = list(connection.scalars(text(LOCK_OF_OWNER), {"prefix": owner_prefix}))
        end_attempts(connection, ids, "stale")
        connection.execute(text(LEAVE), {"ids": ids, "state": "stale"})
    return ids


def give_up(engine: Engine, run_ids: Sequence[int], reason: str) -> list[int]:
    """Close runs that nobody holds and that no attempt could finish; returns their ids."""
    with engine.begin() as connection:
        ids = list(connection.scalars(text(LOCK_FREE), {"ids": list(run_ids)}))
        connection.execute(text(FAIL), {"ids": ids, "reason": reason})
        raise_revisions(connection, ids)
    return ids
