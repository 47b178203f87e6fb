"""The embedded server is shared by processes, outlives them, and survives a kill."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures.commands import Commands
from fixtures.curves import Ended, curve
from fixtures.runs import claim_all, grok_spec
from sqlalchemy import create_engine, text

from groktime.db import embedded
from groktime.db.engine import connect, grant, migrate
from groktime.db.maintenance import check
from groktime.db.recorder import Recorder
from groktime.service.errors import ConfigurationError, DatabaseError


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="gt-own-", dir="/tmp"))
    yield folder
    embedded.stop(folder)
    shutil.rmtree(folder)


def postmaster(home: Path) -> int:
    return int((embedded.data_directory(home) / "postmaster.pid").read_text().splitlines()[0])


def _start(home: Path) -> None:
    embedded.start(home)


def test_processes_that_start_it_at_once_share_one_server(home: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_start, args=(home,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    assert embedded.is_running(home)  # though those who started it are gone
    with create_engine(embedded.url(home)).connect() as connection:
        assert connection.scalar(text("SELECT current_database()")) == "groktime"


def test_a_sweep_is_planned_on_a_server_that_has_no_tables_yet(
    home: Path, commands: Commands
) -> None:
    embedded.start(home)
    code, output = commands.run("sweep", "demo", "--dry-run", GROKTIME_HOME=str(home))
    assert code == 0, output
    assert "no database is running" not in output


def test_nobody_but_its_owner_can_reach_the_socket(home: Path) -> None:
    embedded.start(home)
    directory = embedded.data_directory(home)
    assert directory.stat().st_mode & 0o077 == 0
    assert (directory / embedded.SOCKET_NAME).exists()
    with create_engine(embedded.url(home)).connect() as connection:
        assert connection.scalar(text("SHOW listen_addresses")) == ""


def test_a_killed_server_starts_again_with_what_was_committed(home: Path) -> None:
    engine = connect(embedded.start(home), check_schema=False)
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE kept AS SELECT 42 AS answer"))
    engine.dispose()
    os.kill(postmaster(home), signal.SIGKILL)
    embedded.start(home)
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT answer FROM kept")) == 42
    engine.dispose()


def test_a_stopped_server_is_named_with_the_command_that_starts_it(home: Path) -> None:
    embedded.start(home)
    assert embedded.stop(home)
    assert not embedded.stop(home)
    with pytest.raises(DatabaseError, match="groktime db up"):
        connect(embedded.url(home))


@pytest.mark.parametrize("kill", [False, True])
def test_recording_goes_on_over_a_restart(home: Path, kill: bool) -> None:
    engine = connect(embedded.start(home), check_schema=False)
    migrate(engine)
    (mine,) = claim_all(engine, [grok_spec(seed=int(kill))], name=f"restart-{kill}")
    rows = curve(mine.spec, 100)
    with Recorder(engine, [mine], lease_seconds=60, flush_rows=10) as recorder:
        recorder.record(0, 1, rows[:50])
        if kill:
            os.kill(postmaster(home), signal.SIGKILL)
        else:
            embedded.stop(home)
        recorder.record(0, 51, rows[50:])
        embedded.start(home)
        recorder.finish(0, Ended(100))
    with engine.connect() as connection:
        found = check(connection)
        done = connection.scalar(
            text("SELECT last_epoch FROM runs WHERE id = :id AND state = 'done'"),
            {"id": mine.run_id},
        )
    engine.dispose()
    assert done == 100
    assert found.findings == []


def test_a_login_that_may_not_create_roles_can_still_migrate(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    admin = create_engine(embedded.start(home), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        for role in ("groktime_reader", "groktime_writer"):
            connection.execute(text(f"DROP OWNED BY {role}"))
            connection.execute(text(f"DROP ROLE {role}"))
        connection.execute(text("CREATE ROLE plain LOGIN"))
        connection.execute(text("CREATE DATABASE plain OWNER plain"))
    engine = connect(
        admin.url.set(username="plain", database="plain").render_as_string(), check_schema=False
    )
    migrate(engine)
    assert "may not create roles" in caplog.text
    connect(engine.url.render_as_string(), "reader").dispose()
    with admin.connect() as connection:
        connection.execute(text("CREATE ROLE groktime_reader"))
        connection.execute(text("CREATE ROLE groktime_writer"))
    with engine.begin() as connection:
        assert grant(connection) == []
    migrate(engine)
    engine.dispose()
    admin.dispose()


def test_nobody_else_can_hold_the_lock(home: Path) -> None:
    embedded.start(home)
    lock = home / "pg.lock"
    lock.chmod(0o644)
    embedded.start(home)
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600


def test_a_home_that_is_made_is_its_owners_alone() -> None:
    home = Path(tempfile.mkdtemp(prefix="gt-", dir="/tmp")) / "home"
    embedded.start(home)
    try:
        # As root another user runs the server, which may pass through but not look.
        assert stat.S_IMODE(home.stat().st_mode) & 0o066 == 0
    finally:
        embedded.stop(home)
        shutil.rmtree(home.parent)


def test_a_lock_that_is_held_is_waited_for_with_a_message_and_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "pg").mkdir()
    monkeypatch.setattr(embedded, "LOCK_SECONDS", 1.5)
    with open(tmp_path / "pg.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(DatabaseError, match="held by another process"):
            embedded.stop(tmp_path)
    assert "waiting for another process" in caplog.text
    assert embedded.stop(tmp_path) is False


def test_a_lock_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pg").mkdir()
    (tmp_path / "elsewhere").write_text("precious")
    (tmp_path / "pg.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DatabaseError, match="cannot be locked"):
        embedded.stop(tmp_path)


def test_a_home_that_everybody_can_write_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "h"
    home.mkdir()
    home.chmod(0o777)
    with pytest.raises(ConfigurationError, match="can be written by others"):
        embedded.start(home)
    assert list(home.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user")
@pytest.mark.parametrize("linked", [False, True])
def test_a_home_of_another_user_is_refused(tmp_path: Path, linked: bool) -> None:
    home = tmp_path / "h"
    if linked:
        (tmp_path / "elsewhere").mkdir()
        home.symlink_to(tmp_path / "elsewhere")
    else:
        home.mkdir()
    os.chown(home, 65534, 65534, follow_symlinks=False)
    with pytest.raises(ConfigurationError, match="belongs to another user"):
        embedded.start(home)
    assert list(home.iterdir()) == []


def test_a_group_loses_its_right_to_write_and_a_planted_cluster_is_not_overwritten() -> None:
    folder = Path(tempfile.mkdtemp(prefix="gt-", dir="/tmp"))
    try:
        folder.chmod(0o770)
        (folder / "pg").mkdir()
        (folder / "pg" / "planted").touch()
        with pytest.raises(DatabaseError, match="no database of groktime"):
            embedded.start(folder)
        assert not stat.S_IMODE(folder.stat().st_mode) & 0o022
        assert (folder / "pg" / "planted").exists()
    finally:
        shutil.rmtree(folder)
