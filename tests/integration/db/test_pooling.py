"""Many workers on few connections: transactions leave nothing behind, and a shortage waits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from fixtures.commands import Commands, settings_environment, wait_until
from fixtures.curves import Ended, curve
from fixtures.database import Database, Server
from fixtures.pgbouncer import pooled
from fixtures.runs import grok_spec, register
from sqlalchemy import Engine, make_url, text
from sqlalchemy.exc import DBAPIError

from groktime.db.claims import claim
from groktime.db.engine import connect, is_shortage, retrying
from groktime.db.export import dump_suite
from groktime.db.maintenance import check
from groktime.db.recorder import Recorder
from groktime.db.suites import open_runs
from groktime.service.errors import DatabaseError

STATE = "SELECT current_user, current_setting('transaction_read_only')"
EPOCHS = 30


def work(url: str, run_id: int, give_up_seconds: float = 600.0) -> None:
    """What a worker does to the database with one run, epoch by epoch."""
    engine = connect(url, "writer", pool_size=0, check_schema=False)
    (held,) = retrying(lambda: claim(engine, [run_id], "worker", 60), give_up_seconds)
    recorder = Recorder(engine, [held], lease_seconds=60, give_up_seconds=give_up_seconds)
    with recorder:
        rows = curve(held.spec, EPOCHS)
        for first in range(0, EPOCHS, 10):
            assert recorder.record(0, first + 1, rows[first : first + 10])
            recorder.flush()
        recorder.finish(0, Ended(EPOCHS))


def pending(engine: Engine, count: int) -> list[int]:
    """Ids of so many new runs."""
    runs = [grok_spec(seed=seed) for seed in range(1, count + 1)]
    return list(open_runs(engine, register(engine, runs).suite_id).values())


def assert_all_recorded(database: Database, count: int) -> None:
    assert database.scalar("SELECT count(*) FROM runs WHERE state = 'done'") == count
    assert database.scalar("SELECT count(*) FROM curve") == EPOCHS * count
    with database.engine.connect() as connection:
        assert check(connection).findings == []


FEW = 3
SMALL = """\
description: two runs
positions: none
primes: [7]
seeds: [1, 2]
stop: {max_epochs: 20}
speed: {widths: [8]}
"""
LOCATED = """\
description: one cell
positions: none
primes: [11]
seeds: [42, 43]
stop: {max_epochs: 40}
design: {place: [crossing], widths: [8, 12, 16], precision: 0.1, max_runs: 4}
"""


@pytest.fixture
def few_connections(database: Database, database_server: Server) -> Iterator[str]:
    """The URL of a login that may have so few connections."""
    name = f"few_{os.getpid()}"
    database_server.execute(f"CREATE ROLE {name} LOGIN CONNECTION LIMIT {FEW} PASSWORD 'few'")
    database_server.execute(f"GRANT groktime_writer TO {name}")
    url = make_url(database.url).set(username=name, password="few")
    yield url.render_as_string(hide_password=False)
    database_server.execute(f"DROP ROLE {name}")


def taken(url: str) -> list[Any]:
    """All connections that the login may have."""
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    return [psycopg2.connect(address) for _ in range(FEW)]


def test_a_shortage_of_connections_is_told_from_a_server_that_is_away(few_connections: str) -> None:
    address = few_connections.replace("+psycopg2", "")
    held = taken(few_connections)
    with pytest.raises(psycopg2.OperationalError) as refused:
        psycopg2.connect(address)
    assert is_shortage(refused.value)
    for connection in held:
        connection.close()
    with pytest.raises(psycopg2.OperationalError) as away:
        psycopg2.connect("postgresql://u@127.0.0.1:1/d")
    assert not is_shortage(away.value)


def test_workers_wait_for_a_connection_as_long_as_it_takes(
    database: Database, few_connections: str
) -> None:
    ids = pending(database.engine, 8)
    with ThreadPoolExecutor(8) as pool:
        # Each would give up at once if the server were away.
        list(pool.map(lambda run: work(few_connections, run, give_up_seconds=0.0), ids))
    assert_all_recorded(database, 8)


@pytest.mark.slow
@pytest.mark.parametrize("design", ["grid", pytest.param("located", marks=pytest.mark.long)])
def test_a_sweep_that_finds_no_connection_begins_when_there_is_one(
    database: Database, few_connections: str, commands: Commands, tmp_path: Path, design: str
) -> None:
    """Its driver and its worker share the few there are, from the first look to the last."""
    (tmp_path / "small.yaml").write_text(SMALL if design == "grid" else LOCATED)
    held = taken(few_connections)
    settings = settings_environment(
        database_url=few_connections, home=tmp_path / "home", checkpoints=tmp_path / "checkpoints"
    )
    swept = commands.start("sweep", str(tmp_path / "small.yaml"), "--workers", "1", **settings)
    assert swept.stdout is not None
    waiting = next(line for line in swept.stdout if "connections" in line)
    assert "trying again" in waiting
    for connection in held:
        connection.close()
    told = swept.stdout.read()
    assert swept.wait() == 0, told
    assert "on cpu: 1 bundle at once" in told
    trained = database.scalar("SELECT count(*) FROM runs WHERE state = 'done'")
    assert (trained == 2) if design == "grid" else (trained >= 4), told


def test_a_worker_that_rarely_writes_holds_no_connection(database: Database) -> None:
    (run_id,) = pending(database.engine, 1)
    engine = connect(database.url, "writer", pool_size=0)
    (held,) = claim(engine, [run_id], "worker", 60)
    others = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND application_name = 'groktime writer'"
    )
    with Recorder(engine, [held], lease_seconds=60) as recorder:
        recorder.record(0, 1, curve(held.spec, EPOCHS)[:10])
        recorder.flush()
        wait_until(lambda: database.scalar(others) == 0)  # its backend ends a moment later


@pytest.mark.parametrize("role", ["reader", "writer"])
def test_limits_of_a_role_hold_in_every_transaction_and_end_with_it(
    database: Database, role: str
) -> None:
    engine = connect(database.url, role, pool_size=1)  # type: ignore[arg-type]
    expected = (f"groktime_{role}", "on" if role == "reader" else "off")
    with engine.connect() as connection:
        for _ in range(2):
            assert connection.execute(text(STATE)).one() == expected
            connection.rollback()
    held = engine.raw_connection()
    driver = held.driver_connection
    assert driver is not None
    with driver.cursor() as cursor:
        cursor.execute(STATE)
        assert cursor.fetchone() == expected
    driver.rollback()
    driver.autocommit = True
    with driver.cursor() as cursor:  # the session itself is as it was
        cursor.execute(STATE)
        assert cursor.fetchone() == (database.scalar("SELECT current_user"), "off")
    driver.autocommit = False
    held.close()
    engine.dispose()


@pytest.mark.long
class TestPgBouncer:
    """In transaction mode: each transaction may run in another session than the one before."""

    def test_roles_do_not_leak_from_one_client_to_the_next(
        self, database: Database, short_home: Path, tmp_path: Path
    ) -> None:
        with pooled(short_home, database.url, servers=1, clients=20) as url:
            reader, writer, owner = (
                connect(url, role)  # type: ignore[arg-type]
                for role in ("reader", "writer", "owner")
            )
            (run_id,) = pending(writer, 1)
            for _ in range(3):
                with reader.connect() as connection:
                    assert connection.execute(text(STATE)).one() == ("groktime_reader", "on")
                    with pytest.raises(DBAPIError, match="read-only"):
                        connection.execute(text("DELETE FROM curve"))
                with writer.connect() as connection:
                    assert connection.execute(text(STATE)).one() == ("groktime_writer", "off")
                with owner.connect() as connection:
                    assert connection.execute(text(STATE)).one() == ("groktime", "off")
            work(url, run_id)
            snapshot = owner.execution_options(isolation_level="REPEATABLE READ")
            with snapshot.connect() as connection:
                assert dump_suite(connection, "little", tmp_path / "little.dump").closed == 1
            for engine in (reader, writer, owner):
                engine.dispose()
        assert_all_recorded(database, 1)

    def test_three_hundred_workers_share_fifty_server_connections(
        self, database: Database, short_home: Path
    ) -> None:
        ids = pending(database.engine, 300)
        with (
            pooled(short_home, database.url, servers=50, clients=400) as url,
            ThreadPoolExecutor(300) as pool,
        ):
            list(pool.map(lambda run: work(url, run), ids))
        assert_all_recorded(database, 300)

    def test_a_worker_passes_by_its_password_only(
        self, database: Database, short_home: Path, few_connections: str
    ) -> None:
        login = make_url(few_connections)
        (run_id,) = pending(database.engine, 1)
        known = {str(login.username): "few"}
        with pooled(short_home, database.url, servers=FEW, clients=20, passwords=known) as through:
            url = make_url(through).set(username=login.username, password="few")
            work(url.render_as_string(hide_password=False), run_id)
            for wrong in (url.set(password="many"), url.set(username="groktime_owner")):
                with pytest.raises(DatabaseError, match="authentication failed"):
                    connect(wrong.render_as_string(hide_password=False), "writer")
        assert_all_recorded(database, 1)

    def test_clients_that_it_refuses_wait(self, database: Database, short_home: Path) -> None:
        ids = pending(database.engine, 12)
        with (
            pooled(short_home, database.url, servers=2, clients=3) as url,
            ThreadPoolExecutor(12) as pool,
        ):
            list(pool.map(lambda run: work(url, run, give_up_seconds=0.0), ids))
        assert_all_recorded(database, 12)

    def test_a_sweep_trains_through_it(
        self, database: Database, short_home: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "small.yaml").write_text(SMALL)
        with pooled(short_home, database.url, servers=2, clients=50) as url:
            swept = subprocess.run(
                [
                    *(sys.executable, "-m", "groktime.service.cli"),
                    *("sweep", str(tmp_path / "small.yaml")),
                ],
                env=os.environ
                | {"GROKTIME_DATABASE_URL": url, "GROKTIME_HOME": str(tmp_path / "home")},
                capture_output=True,
                text=True,
                check=False,
            )
        assert swept.returncode == 0, swept.stdout + swept.stderr
        assert database.scalar("SELECT count(*) FROM runs WHERE state = 'done'") == 2
