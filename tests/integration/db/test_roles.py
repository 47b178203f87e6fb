"""Readers cannot write, writers cannot change the schema, and secrets stay out of messages."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fixtures.curves import record_all
from fixtures.database import Database, Server
from fixtures.runs import claim_all, grok_spec, register
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import DBAPIError, InternalError, OperationalError, ProgrammingError

from groktime.db import embedded
from groktime.db.engine import connect, migrate
from groktime.db.records import read_suites
from groktime.service.errors import DatabaseError

PASSWORD = "hunter2"
WRITES = [
    "INSERT INTO suites (name, spec, hash) VALUES ('x', '{}', '')",
    "UPDATE runs SET state = 'done'",
    "DELETE FROM curve",
    "TRUNCATE suite_runs",
    "CREATE TABLE mine (id int)",
    "DROP TABLE curve",
]

MakeLogin = Callable[[str], str]


@pytest.fixture
def login_of(database: Database, database_server: Server) -> Iterator[MakeLogin]:
    """URL of a new login that is a member of a role, as an administrator would make it."""
    made = []

    def make(role: str) -> str:
        name = f"gt_login_{os.getpid()}_{len(made)}"
        database_server.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}' IN ROLE {role}")
        made.append(name)
        return (
            make_url(database.url)
            .set(username=name, password=PASSWORD)
            .render_as_string(hide_password=False)
        )

    yield make
    for name in made:
        database_server.execute(f"DROP ROLE {name}")


@pytest.mark.parametrize("statement", WRITES)
def test_a_login_of_the_reader_role_cannot_write_even_if_it_tries(
    login_of: MakeLogin, statement: str
) -> None:
    engine = connect(login_of("groktime_reader"), "owner")  # without our own precautions
    with engine.connect() as connection:
        connection.execute(text("SET default_transaction_read_only = off"))
        connection.commit()
        assert read_suites(connection) == []
        with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"):
            connection.execute(text(statement))
    engine.dispose()


@pytest.mark.parametrize("statement", WRITES)
def test_the_owners_url_used_as_reader_cannot_write(database: Database, statement: str) -> None:
    engine = database.reader()
    with (
        engine.connect() as connection,
        pytest.raises((InternalError, ProgrammingError), match=r"read-only|denied|must be owner"),
    ):
        connection.execute(text(statement))
    engine.dispose()


def test_a_login_of_the_writer_role_can_sweep_a_suite(login_of: MakeLogin) -> None:
    engine = connect(login_of("groktime_writer"), "writer")
    record_all(engine, claim_all(engine, [grok_spec()]))
    assert register(engine, [grok_spec()]).created == 0
    engine.dispose()


@pytest.mark.parametrize(
    "statement", ["DROP TABLE curve", "UPDATE alembic_version SET version_num = '0001'"]
)
def test_a_writer_cannot_change_the_schema(login_of: MakeLogin, statement: str) -> None:
    engine = connect(login_of("groktime_writer"), "writer")
    with engine.connect() as connection, pytest.raises(ProgrammingError):
        connection.execute(text(statement))
    engine.dispose()


def test_an_owner_that_may_grant_a_role_but_not_take_it_reads_as_itself(
    database: Database, database_server: Server, login_of: MakeLogin
) -> None:
    url = login_of("groktime_reader")
    name = make_url(url).username
    with database.engine.connect() as connection:
        version = connection.scalar(text("SELECT current_setting('server_version_num')::int"))
    if version is not None and version >= 160000:
        # What CREATE ROLE gives a creator that is no superuser, as on managed servers.
        database_server.execute(
            f"GRANT groktime_reader TO {name} WITH ADMIN TRUE, INHERIT TRUE, SET FALSE"
        )
    engine = connect(url, "reader")
    with engine.connect() as connection:
        assert read_suites(connection) == []
        with pytest.raises((InternalError, ProgrammingError), match=r"read-only|denied"):
            connection.execute(text("DELETE FROM curve"))
    engine.dispose()


def test_a_login_that_may_not_create_roles_migrates_without_them_until_they_exist(
    caplog: pytest.LogCaptureFixture,
) -> None:
    home = Path(tempfile.mkdtemp(prefix="gt-", dir="/tmp"))  # a server that never had the roles
    server = Server("fresh", create_engine(embedded.start(home), isolation_level="AUTOCOMMIT"))
    try:
        server.execute(f"CREATE ROLE plain LOGIN NOCREATEROLE PASSWORD '{PASSWORD}'")
        server.execute("CREATE DATABASE theirs OWNER plain")
        url = make_url(server.url("theirs")).set(username="plain", password=PASSWORD)
        owner = connect(url.render_as_string(hide_password=False), check_schema=False)
        migrate(owner)
        assert "groktime_reader, groktime_writer does not exist" in caplog.text
        reader = connect(url.render_as_string(hide_password=False), "reader")
        with reader.connect() as connection:
            assert read_suites(connection) == []
        server.execute("CREATE ROLE groktime_reader NOLOGIN")
        migrate(owner)
        with owner.connect() as connection:
            granted = "SELECT has_table_privilege('groktime_reader', 'curve', 'SELECT')"
            assert connection.scalar(text(granted))
        reader.dispose()
        owner.dispose()
    finally:
        server.admin.dispose()
        embedded.stop(home)
        shutil.rmtree(home)


def test_a_readers_statement_ends_in_time(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groktime.db.engine.READER_STATEMENT_SECONDS", 0.05)
    engine = database.reader()
    with engine.connect() as connection, pytest.raises(OperationalError, match="timeout"):
        connection.execute(text("SELECT pg_sleep(30)"))
    engine.dispose()


def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    with pytest.raises(DatabaseError, match=r"127.0.0.1.*cannot be reached") as refused:
        connect(f"postgresql://u:{PASSWORD}@127.0.0.1:1/d")
    assert PASSWORD not in "".join(traceback.format_exception(refused.value))


def test_tls_parameters_are_honoured() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def agree_to_tls() -> None:
            client, _ = server.accept()
            with client:
                client.recv(8)  # libpq asks for TLS
                client.sendall(b"S")
                client.recv(1)  # until it gives up: the certificate it must check against is away

        thread = threading.Thread(target=agree_to_tls)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(DatabaseError, match=r"root certificate .*/nowhere\.pem"):
            connect(f"postgresql://u@{address}/d?sslmode=verify-full&sslrootcert=/nowhere.pem")
        thread.join()


def test_errors_of_statements_show_no_parameters(database: Database) -> None:
    with database.engine.connect() as connection, pytest.raises(DBAPIError) as failed:
        connection.execute(text("SELECT 1 / :zero, :secret"), {"zero": 0, "secret": PASSWORD})
    assert PASSWORD not in str(failed.value)
