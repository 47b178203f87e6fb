"""`groktime serve` with two workers while a sweep writes: no error, no torn answer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from fixtures.commands import free_ports, wait_until
from fixtures.database import Database
from fixtures.seeded import record
from sqlalchemy import text

from groktime.db.claims import claim

STOP_SECONDS = 120  # on a machine with other work


@contextmanager
def command(database: Database, *options: str) -> Iterator[httpx.Client]:
    """The real command as a process, stopped by the signal a terminal sends."""
    (port,) = free_ports(1)
    environment = os.environ | {
        "GROKTIME_DATABASE_URL": database.url,
        "GROKTIME_DEFAULT_SUITE": "tiny",
        "GROKTIME_LOG_FORMAT": "json",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "groktime.service.cli", "serve", "--port", str(port), *options],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    errors: list[str] = []
    assert process.stderr is not None
    reader = threading.Thread(target=lambda: errors.extend(process.stderr or []), daemon=True)
    reader.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            wait_until(lambda: is_ready(client, process))
            yield client
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(STOP_SECONDS)
        reader.join(10)
        process.stderr.close()
    assert not [line for line in errors if "Traceback" in line], errors


def is_ready(client: httpx.Client, process: subprocess.Popen[str]) -> bool:
    assert process.poll() is None, "the server ended"
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def reopen_grok_runs(database: Database, prime: int) -> list[int]:
    """Runs of the default suite at one prime, as a sweep finds them before it begins."""
    with database.engine.begin() as connection:
        ids = list(
            connection.scalars(
                text(
                    "SELECT r.id FROM runs r JOIN suite_runs sr ON sr.run_id = r.id "
                    "JOIN suites s ON s.id = sr.suite_id WHERE s.name = 'tiny' "
                    "AND r.kind = 'grok' AND r.prime = :prime ORDER BY r.id"
                ),
                {"prime": prime},
            )
        )
        connection.execute(
            text(
                "UPDATE runs SET state = 'pending', closed_at = NULL, reason = NULL, "
                "first_online = NULL, first_eval = NULL, first_val = NULL WHERE id = ANY(:ids)"
            ),
            {"ids": ids},
        )
        connection.execute(text("UPDATE suites SET revision = revision + 1"))
    return ids


@pytest.mark.slow
def test_two_workers_answer_while_a_sweep_writes(seeded: Database) -> None:
    ids = reopen_grok_runs(seeded, 29)
    finished = threading.Event()
    seen: list[tuple[int, int]] = []

    def sweep() -> None:
        """Each part is recorded when the clients have seen the one before."""
        try:
            wait_until(lambda: seen)
            for start in range(0, len(ids), 6):
                before, _ = max(seen)
                record(seeded.engine, claim(seeded.engine, ids[start : start + 6], "sweep", 60))
                wait_until(lambda known=before: max(seen)[0] > known)
        finally:
            finished.set()

    with command(seeded, "--workers", "2") as api:
        writer = threading.Thread(target=sweep)
        writer.start()

        def ask(_: int) -> None:
            while not finished.is_set():
                for path in ("/crossing?prime=29", "/runs?limit=5", "/suites/tiny/coverage"):
                    response = api.get(path)
                    assert response.status_code == 200, response.text
                    if path.startswith("/crossing"):
                        answer = response.json()
                        seen.append((answer["revision"], answer["missing"]["grok"]))

        with ThreadPoolExecutor(4) as clients:
            list(clients.map(ask, range(4)))
        writer.join()
        # One revision has one answer, whichever worker gave it.
        assert min(missing for _, missing in seen) == 0
        assert len({revision for revision, _ in seen}) == len(set(seen))
        metrics = api.get("/metrics").text
    counted = re.findall(r'groktime_answers_total\{source="(\w+)"\} ([\d.]+)', metrics)
    assert dict(counted).keys() >= {"computed"}


def test_the_command_serves_and_stops_cleanly(seeded: Database) -> None:
    with command(seeded) as api:
        assert api.get("/crossing?prime=29").json()["suite"] == "tiny"
        assert api.get("/crossing?prime=29").headers["x-request-id"]


def test_the_address_is_told_when_it_can_be_reached() -> None:
    environment = os.environ | {"GROKTIME_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}
    with subprocess.Popen(
        [sys.executable, "-m", "groktime.service.cli", "serve", "--port", "0"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stderr is not None
            address = server.stderr.readline().split()[2]
            assert httpx.get(f"{address}/health", timeout=60).status_code == 503
        finally:
            server.terminate()
