"""Ending leases of workers that are known to be gone, instead of waiting for them to run out.

Only whoever started a worker and saw it end may abandon for it. Should it live on after all,
behind a broken network, its next write is fenced like any other late one.
"""

from __future__ import annotations

from sqlalchemy import Engine, text

from db.claims import END_ATTEMPTS, LEAVE

LOCK_OF_OWNER = """
SELECT id FROM runs WHERE state = 'running' AND starts_with(owner, :prefix)
ORDER BY id FOR UPDATE
"""


def abandon(engine: Engine, owner_prefix: str) -> list[int]:
    """Make the runs held by owners whose names begin so stale at once; returns their ids."""
    with engine.begin() as connection:
        ids = list(connection.scalars(text(LOCK_OF_OWNER), {"prefix": owner_prefix}))
        connection.execute(text(END_ATTEMPTS), {"ids": ids, "state": "stale"})
        connection.execute(text(LEAVE), {"ids": ids, "state": "stale"})
    return ids
