"""What was fixed and predicted of a suite before its first run, and how the predictions fared."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field
from sqlalchemy import Connection, text

from groktime.db.forecasts import CLAIMED, ForecastRow, list_forecasts
from groktime.db.queries.suites import SuiteRecord
from groktime.service.analysis.forecast import ForecastScore
from groktime.service.answers.forecast import score_of

# A run that is shared with another suite was trained for that one where it is older.
BEGUN = """
SELECT s.frozen_at, s.recorded ->> 'frozen' AS claimed,
       (SELECT min(a.started_at) FROM suite_runs sr JOIN attempts a ON a.run_id = sr.run_id
        WHERE sr.suite_id = s.id AND NOT sr.inherited) AS first_run
FROM suites s WHERE s.id = :suite
"""

When = Literal["before", "after", "never", "untrained"]


@dataclass(frozen=True, kw_only=True)
class ScoredForecast:
    """A forecast of the suite beside what has been measured of it by now."""

    id: int
    created_at: datetime
    before_first_run: bool
    claimed: Annotated[bool, Field(description="its time is the word of a dump")]
    fitted_suite: Annotated[str | None, Field(description="whose laws it rests on; null: stated")]
    score: ForecastScore


@dataclass(frozen=True, kw_only=True)
class Registration:
    """When a suite was frozen, when its first run began, and its forecasts, oldest first.

    `frozen`: before or after the first run, never, or before any (`untrained`).
    """

    frozen: When
    frozen_at: datetime | None
    claimed: bool
    first_run: datetime | None
    forecasts: tuple[ScoredForecast, ...]


def registration(connection: Connection, suite: SuiteRecord) -> Registration:
    """What was fixed beforehand, with every forecast scored as of now."""
    row = connection.execute(text(BEGUN), {"suite": suite.id}).one()
    return Registration(
        frozen=_when(row.frozen_at, row.first_run),
        frozen_at=row.frozen_at,
        claimed=row.claimed is not None,
        first_run=row.first_run,
        forecasts=tuple(
            _scored(connection, stored, row.first_run)
            for stored in reversed(list_forecasts(connection, suite.id))
        ),
    )


def _when(frozen_at: datetime | None, first_run: datetime | None) -> When:
    if frozen_at is None:
        return "never"
    if first_run is None:
        return "untrained"
    return "before" if frozen_at <= first_run else "after"


def _scored(
    connection: Connection, stored: ForecastRow, first_run: datetime | None
) -> ScoredForecast:
    fitted = stored.spec.get("fitted_suite") or stored.suite
    return ScoredForecast(
        id=stored.id,
        created_at=stored.created_at,
        before_first_run=first_run is None or stored.created_at <= first_run,
        claimed=CLAIMED in stored.spec,
        fitted_suite=fitted if stored.spec.get("fitted_primes") else None,
        score=score_of(connection, stored)[0],
    )
