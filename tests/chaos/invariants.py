"""What must hold after everything that was broken, checked against an undisturbed run."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chaos.ground import PATIENCE_SECONDS, Ground
from chaos.trial import PRIME, Trial
from fixtures.commands import wait_until
from fixtures.database import Database
from sqlalchemy import Connection, text

from groktime.db.curve import COLUMNS
from groktime.db.maintenance import check
from groktime.service.answers.crossing import crossing
from groktime.service.answers.question import Question

# Of a run's row: everything but who trained it, when and for how long.
SUMMARY = """
SELECT id, key, state, reason, stopped_by, last_epoch, first_online, first_eval, first_val,
    float4send(final_train_loss) AS a, final_train_correct, final_train_correct_eval,
    float4send(final_val_loss) AS b, final_val_correct, float4send(final_weight_norm) AS c,
    float4send(best_train_loss) AS d, float4send(bits) AS e, fingerprint
FROM runs ORDER BY key
"""

# Repeated training of each worker that lost runs, in seconds of its own pace.
REPEATED = """
SELECT a.owner, sum((t.reached - t.resumed) * r.seconds / greatest(r.last_epoch, 1)) AS seconds
FROM takeovers t JOIN runs r ON r.id = t.run_id
JOIN attempts a ON a.run_id = t.run_id AND a.attempt = t.attempt
GROUP BY a.owner
"""

LONGEST_REPEAT_SECONDS = 60.0

WRITERS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
    AND application_name LIKE 'groktime writer%'
"""
TEMPORARY = "SELECT count(*) FROM pg_class WHERE relpersistence = 't'"


@dataclass(frozen=True)
class Result:
    """A run's summary, its epochs, and its curve bit for bit."""

    run: int
    summary: tuple[Any, ...]
    epochs: tuple[int, ...]
    curve: bytes


@dataclass(frozen=True)
class Results:
    """All that a trained suite says."""

    runs: Mapping[str, Result]  # by key
    crossing: dict[str, Any]

    @property
    def done(self) -> dict[str, Result]:
        return {key: run for key, run in self.runs.items() if "done" in run.summary}


@dataclass(frozen=True)
class Damage:
    """Epochs of one run that are missing, there twice, or not what they should be."""

    lost: int
    duplicated: int
    differing: int

    def __bool__(self) -> bool:
        return bool(self.lost or self.duplicated or self.differing)


def results(database: Database, question: Question | None = None) -> Results:
    """Read everything that training wrote and the answer that it leads to."""
    question = question or Question(suite="chaos", prime=PRIME, filters={"lr": 1e-3})
    with database.engine.connect() as connection:
        found = {}
        for row in connection.execute(text(SUMMARY)).all():
            summary = tuple(
                bytes(value) if isinstance(value, memoryview) else value for value in row[1:]
            )
            found[row.key] = Result(
                row.id, summary, _epochs(connection, row.id), _curve(connection, row.id)
            )
        answer = asdict(crossing(connection, question))
    # Revision and provenance tell when and how often, not what.
    return Results(found, {k: v for k, v in answer.items() if k not in ("revision", "provenance")})


def _epochs(connection: Connection, run: int) -> tuple[int, ...]:
    query = text("SELECT epoch FROM curve WHERE run_id = :run ORDER BY epoch")
    return tuple(connection.scalars(query, {"run": run}))


def _curve(connection: Connection, run: int) -> bytes:
    """The rows as the server stores them: equal bytes are equal bits."""
    buffer = io.BytesIO()
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor:
        cursor.copy_expert(
            f"COPY (SELECT epoch, {', '.join(COLUMNS)} FROM curve WHERE run_id = {run} "
            "ORDER BY epoch) TO STDOUT (FORMAT binary)",
            buffer,
        )
    return buffer.getvalue()


def damage(found: Results, reference: Results) -> dict[int, Damage]:
    """By run: what differs from the undisturbed one; only runs at fault."""
    damages = {}
    for key, wanted in reference.runs.items():
        result = found.runs.get(key)
        if result is None:
            damages[-1] = Damage(len(wanted.epochs), 0, 0)
            continue
        there = set(result.epochs)
        lost = len(set(wanted.epochs) - there)
        duplicated = len(result.epochs) - len(there)
        differing = int(result.summary != wanted.summary or result.curve != wanted.curve)
        if lost or duplicated or differing:
            damages[result.run] = Damage(lost, duplicated, differing)
    return damages


def check_clean(trial: Trial) -> None:
    """Nothing is left: in the database, of checkpoints, of processes and the ports they hold.

    Shared memory is looked for when the server and the nodes have gone, too.
    """
    _check_database(trial.database)
    assert trial.left_checkpoints() == set()
    # Workers are told to go when their driver has gone.
    ground = trial.ground
    wait_until(lambda: not trial.processes() and not _workers(ground), PATIENCE_SECONDS)
    ground.footprint.note(ground.processes())


def _workers(ground: Ground) -> list[int]:
    """Processes that hold or held a trainable."""
    found = []
    for pid in ground.commands.left_behind():
        with contextlib.suppress(OSError):
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
            if title.startswith(b"ray::") and b"Trainable" in title:
                found.append(pid)
    return found


def _check_database(database: Database) -> None:
    """No lease, writer's connection or temporary table is left, and `db check` finds nothing."""
    with database.engine.begin() as connection:
        report = check(connection)
    assert report.findings == []
    assert report.expired == 0

    assert database.scalar("SELECT count(*) FROM runs WHERE lease_until IS NOT NULL") == 0
    assert database.scalar("SELECT count(*) FROM attempts WHERE ended_at IS NULL") == 0
    # Backends notice a little later that their clients have gone.
    wait_until(lambda: database.scalar(WRITERS) == 0, PATIENCE_SECONDS)
    wait_until(lambda: database.scalar(TEMPORARY) == 0, PATIENCE_SECONDS)


def check_repeats(database: Database) -> float:
    """The most seconds of training that one worker's end made others repeat; at most a minute."""
    with database.engine.connect() as connection:
        repeated = {
            row.owner: float(row.seconds or 0) for row in connection.execute(text(REPEATED))
        }
    most = max(repeated.values(), default=0.0)
    assert most <= LONGEST_REPEAT_SECONDS, repeated
    return most


def check_same(found: Results, reference: Results) -> None:
    """Every run done or failed as undisturbed, with the same bits and the same crossing."""
    assert damage(found, reference) == {}
    assert found.runs.keys() == reference.runs.keys()
    assert found.crossing == reference.crossing


def common_damage(found: Results, reference: Results) -> dict[int, Damage]:
    """By run of a located suite: what differs; timing decides which it trains to the end."""
    common = {key: run for key, run in reference.done.items() if key in found.done}
    return damage(found, Results(common, reference.crossing))


def check_located(found: Results, reference: Results) -> None:
    """A crossing was placed, and every run that both trained to the end has the same bits."""
    assert common_damage(found, reference) == {}
    assert found.crossing["status"] == reference.crossing["status"]
