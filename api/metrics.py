"""Numbers for Prometheus: requests, the answer cache, and the runs in the database."""

from __future__ import annotations

import os
from collections.abc import Iterator

from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from api.database import Database
from service.errors import DatabaseError

REQUESTS = Histogram(
    "groktime_http_request_seconds",
    "Time to answer a request",
    ["method", "route", "status"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
CACHE = Counter("groktime_answers", "Answers by where they came from", ["source"])
LISTENERS = Gauge("groktime_event_clients", "Clients of /events", multiprocess_mode="livesum")

RUNS = "SELECT kind, state, count(*), coalesce(sum(last_epoch), 0) FROM runs GROUP BY kind, state"
SIZE = "SELECT pg_database_size(current_database())"


class RunsCollector:
    """Runs by kind and state and the epochs they recorded, read when Prometheus asks."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def collect(self) -> Iterator[Metric]:
        runs = GaugeMetricFamily("groktime_runs", "Runs", labels=["kind", "state"])
        # Not a counter: a run that is claimed anew loses the epochs after its checkpoint.
        epochs = GaugeMetricFamily(
            "groktime_epochs_recorded", "Epochs in the database", labels=["kind"]
        )
        size = GaugeMetricFamily("groktime_database_bytes", "Size of the database")
        up = GaugeMetricFamily("groktime_database_up", "The database answers")
        try:
            with self._database.reading() as connection:
                rows = connection.execute(text(RUNS)).all()
                size.add_metric([], connection.scalar(text(SIZE)) or 0)
        except (DatabaseError, DBAPIError):
            up.add_metric([], 0)
            yield up
            return
        totals: dict[str, float] = {}
        for kind, state, count, recorded in rows:
            runs.add_metric([kind, state], count)
            totals[kind] = totals.get(kind, 0.0) + float(recorded)
        for kind, total in totals.items():
            epochs.add_metric([kind], total)
        up.add_metric([], 1)
        yield from (up, runs, epochs, size)


def exposition(database: Database) -> bytes:
    """All metrics as text; of every worker process when there are several."""
    own = CollectorRegistry()
    own.register(RunsCollector(database))
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return bytes(generate_latest(shared) + generate_latest(own))
    return bytes(generate_latest(REGISTRY) + generate_latest(own))
