"""One claimed run while it is recorded: what is buffered, what is known to be in the database."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from db.claims import Claim
from db.closing import Closing
from db.curve_rows import COLUMNS, COUNTS, METRICS, absent_columns, encode
from db.flushing import Part
from db.passages import RunProgress
from service.errors import DatabaseError

READ_CURVE = f"""
SELECT epoch, {", ".join(COLUMNS)} FROM curve
WHERE run_id = %(run)s AND epoch <= %(last)s ORDER BY epoch
"""


class Recording:
    """The state of one run in a recorder."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.progress = RunProgress(claim.spec)
        self.received = claim.resume_epoch  # last epoch given by training
        self.written = claim.resume_epoch  # last epoch in the database
        self.buffer: list[tuple[int, NDArray[Any]]] = []
        self.closing: Closing | None = None
        self.fenced = False
        self.closed = False
        self._absent = absent_columns(claim.spec)

    @property
    def open(self) -> bool:
        """Whether this attempt may still write."""
        return not (self.fenced or self.closed)

    def take(self) -> tuple[int, Part | None]:
        """Number of rows taken out of the buffer, and what is to be written of them."""
        buffer, self.buffer = self.buffer, []
        taken = sum(len(rows) for _, rows in buffer)
        if not self.open or not (buffer or self.closing):
            return taken, None
        claim = self.claim
        rows = [encode(claim.run_id, first, rows, self._absent) for first, rows in buffer]
        reached = self.written + taken
        return taken, Part(claim.run_id, claim.attempt, self.written, reached, rows, self.closing)

    def settle(self, part: Part) -> None:
        """The part is durable, unless the run turned out to be another's."""
        if not self.fenced:
            self.written = part.reached
            self.closed = part.closing is not None

    def reread(self, connection: Any) -> None:
        """Bring a resumed run's progress up to its resume epoch, from what is recorded."""
        claim = self.claim
        with connection.cursor() as cursor:
            cursor.execute(READ_CURVE, {"run": claim.run_id, "last": claim.resume_epoch})
            rows = cursor.fetchall()
        connection.rollback()
        if [row[0] for row in rows] != list(range(1, claim.resume_epoch + 1)):
            raise DatabaseError(
                f"run {claim.run_id} cannot resume from epoch {claim.resume_epoch}: its curve has "
                f"{len(rows)} rows up to there; see `groktime db check`"
            )
        missing = tuple(-1 if name in COUNTS else np.nan for name in COLUMNS)
        filled = [
            tuple(m if v is None else v for v, m in zip(row[1:], missing, strict=True))
            for row in rows
        ]
        self.progress = RunProgress(claim.spec)
        self.progress.add(1, np.array(filled, dtype=METRICS))
