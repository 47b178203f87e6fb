"""Forecasts: predictions written down before their runs are trained, and scored afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, text

CLAIMED = "claimed"  # in a spec: its time is the word of whoever dumped it

SELECT = """
SELECT f.id, s.name AS suite, f.created_at, f.spec, f.predictions, f.score
FROM forecasts f JOIN suites s ON s.id = f.suite_id
"""


@dataclass(frozen=True)
class ForecastRow:
    """What was fitted, what it predicts, and (once measured) how it fared."""

    id: int
    suite: str
    created_at: datetime
    spec: dict[str, Any]
    predictions: dict[str, Any]
    score: dict[str, Any] | None


def insert_forecast(
    connection: Connection, suite_id: int, spec: Mapping[str, Any], predictions: Mapping[str, Any]
) -> int:
    """Write a forecast down; it is never changed but for its score."""
    found = connection.scalar(
        text(
            "INSERT INTO forecasts (suite_id, spec, predictions) "
            "VALUES (:suite, CAST(:spec AS jsonb), CAST(:predictions AS jsonb)) RETURNING id"
        ),
        {"suite": suite_id, "spec": json.dumps(spec), "predictions": json.dumps(predictions)},
    )
    assert isinstance(found, int)
    return found


def load_forecasts(
    connection: Connection, suite_id: int, forecasts: Iterable[tuple[datetime, dict[str, Any]]]
) -> None:
    """Take a dump's forecasts as (when it was made, spec, predictions and score); each once."""
    for created_at, document in forecasts:
        spec = {**document["spec"], CLAIMED: "by the dump"}
        connection.execute(
            text(
                "INSERT INTO forecasts (suite_id, created_at, spec, predictions, score) "
                "SELECT :suite, :at, CAST(:spec AS jsonb), CAST(:predictions AS jsonb), "
                "CAST(:score AS jsonb) WHERE NOT EXISTS (SELECT FROM forecasts "
                "WHERE suite_id = :suite AND created_at = :at "
                "AND predictions = CAST(:predictions AS jsonb))"
            ),
            {
                "suite": suite_id,
                "at": created_at,
                "spec": json.dumps(spec),
                "predictions": json.dumps(document["predictions"]),
                "score": None if document["score"] is None else json.dumps(document["score"]),
            },
        )


def score_forecast(connection: Connection, forecast_id: int, score: Mapping[str, Any]) -> bool:
    """Set how the predictions compare with what was measured; False: no such forecast."""
    return bool(
        connection.execute(
            text("UPDATE forecasts SET score = CAST(:score AS jsonb) WHERE id = :id"),
            {"id": forecast_id, "score": json.dumps(score)},
        ).rowcount
    )


def get_forecast(connection: Connection, forecast_id: int) -> ForecastRow | None:
    """One forecast, or None."""
    row = connection.execute(text(f"{SELECT} WHERE f.id = :id"), {"id": forecast_id}).one_or_none()
    return None if row is None else _forecast(row)


def list_forecasts(connection: Connection, suite_id: int) -> list[ForecastRow]:
    """Forecasts of a suite, newest first."""
    query = f"{SELECT} WHERE f.suite_id = :suite ORDER BY f.id DESC"
    return [_forecast(row) for row in connection.execute(text(query), {"suite": suite_id})]


def _forecast(row: Row[Any]) -> ForecastRow:
    return ForecastRow(**row._mapping)
