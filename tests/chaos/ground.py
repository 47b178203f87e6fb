"""Where things are broken: a Postgres behind PgBouncer, and a Ray cluster of nodes to be killed.

The server keeps the product's own settings: with the faster ones of other tests a crash would
lose commits that were answered.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import psutil
from chaos.leftovers import Footprint, with_variable
from fixtures.commands import Commands, free_ports, wait_until
from fixtures.database import Server
from fixtures.pgbouncer import pooled
from sqlalchemy import create_engine

from groktime.db import embedded
from groktime.db.engine import connect, migrate, parse_url
from groktime.service.errors import DatabaseError
from groktime.workers.native.engine import find_compiler

TEMPLATE = "chaos_template"
TABLESPACE = "small_disk"
DISK_BYTES = 256 * 1024 * 1024
SKEWED = Path(__file__).with_name("skewed")
STARVING = Path(__file__).with_name("starving.c")
WORKER_CPUS = 2  # one node each
# Ports may be taken before a node binds them, and Ray waits half a minute for it, a server's start
# one minute: on a crowded machine that is often too short.
STARTS = 20
# A node that is told its agents' ports does not wait for them to say which they took, which again
# would be for half a minute at most.
PORTS = (
    "dashboard-agent-grpc-port",
    "dashboard-agent-listen-port",
    "metrics-export-port",
    "runtime-env-agent-port",
)
PATIENCE_SECONDS = 900.0  # with processes that are to go
# A node that is slow to answer is not dead; one whose process has gone refuses at once.
SLOW_NODES = {"RAY_health_check_timeout_ms": "60000"}

# Test-only: what every claim took over, and from where it went on.
WATCH_TAKEOVERS = """
CREATE TABLE takeovers (run_id int, attempt int, reached int, resumed int, at timestamptz);
CREATE FUNCTION note_takeover() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    INSERT INTO public.takeovers
        VALUES (NEW.id, OLD.attempt, OLD.last_epoch, NEW.last_epoch, clock_timestamp());
    RETURN NULL;
END $$;
CREATE TRIGGER takeover AFTER UPDATE OF attempt ON runs FOR EACH ROW
    WHEN (OLD.attempt > 0 AND NEW.attempt > OLD.attempt) EXECUTE FUNCTION note_takeover();
"""


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own that can be filled; only root can make one."""
    folder.mkdir()
    options = f"size={DISK_BYTES},mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


class Postgres:
    """The server, which may be stopped in every way that it knows."""

    def __init__(self, home: Path) -> None:
        self.home = home
        url = parse_url(embedded.start(home)).set(database="postgres")
        self.url = url.render_as_string(hide_password=False)
        self.server = Server(
            "embedded", create_engine(url, isolation_level="AUTOCOMMIT", pool_pre_ping=True)
        )

    def make_template(self) -> None:
        """A migrated database in which takeovers are noted."""
        owner = connect(self.server.create(TEMPLATE), check_schema=False)
        migrate(owner)
        with owner.begin() as connection:
            connection.exec_driver_sql(WATCH_TAKEOVERS)
        owner.dispose()

    def use_disk(self, disk: Path) -> None:
        """Databases may be put there."""
        user = pwd.getpwnam(embedded.SYSTEM_USER)
        os.chown(disk, user.pw_uid, user.pw_gid)
        self.server.execute(f"CREATE TABLESPACE {TABLESPACE} LOCATION '{disk}'")

    @property
    def log(self) -> Path:
        return embedded.data_directory(self.home) / "server.log"

    @property
    def postmaster(self) -> psutil.Process:
        pid_file = embedded.data_directory(self.home) / "postmaster.pid"
        return psutil.Process(int(pid_file.read_text().split()[0]))

    def end(self, how: signal.Signals) -> None:
        """SIGINT: a fast shutdown. SIGQUIT: an immediate one, as after a crash."""
        postmaster = self.postmaster
        postmaster.send_signal(how)
        wait_until(lambda: not embedded.is_running(self.home), PATIENCE_SECONDS)
        self.server.admin.dispose()

    def start(self) -> None:
        """Up again; recovering may take a slow machine longer than one start waits for it."""
        for last in (False,) * (STARTS - 1) + (True,):
            try:
                embedded.start(self.home)
                return
            except DatabaseError:
                if last:
                    raise

    def close(self) -> None:
        self.server.admin.dispose()
        embedded.stop(self.home)


class Nodes:
    """A head without CPUs and workers of one CPU each, every one a process group to be killed."""

    def __init__(self, commands: Commands, folder: Path) -> None:
        self._commands, self._folder, self._joined = commands, folder, 0
        self._starving = _starving_library(folder.parent)
        self._starved = folder.parent / "starved"
        self._starved.mkdir()
        self.replaced = 0  # nodes that ended by themselves or never came
        port, jobs = free_ports(2)
        self.address, self.jobs = f"127.0.0.1:{port}", f"http://127.0.0.1:{jobs}"
        self._head = self._start(
            *("--head", "--port", str(port), "--num-cpus", "0", "--temp-dir", str(folder)),
            *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(jobs)),
        )
        wait_until(self._answers, PATIENCE_SECONDS)
        self.workers: list[subprocess.Popen[str]] = []
        for _ in range(WORKER_CPUS):
            self.join()

    def _start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a node and wait until it says that it is up."""
        local = ("--node-ip-address", "127.0.0.1", "--object-store-memory", "100000000", "--block")
        said: list[str] = []
        for _ in range(STARTS):
            mark = secrets.token_hex(8)
            ports = (f"--{name}={port}" for name, port in zip(PORTS, free_ports(4), strict=True))
            node = self._commands.start(
                *(*arguments, *local, *ports),
                program=("ray", "start"),
                CHAOS_NODE=mark,
                **environment,
            )
            assert node.stdout is not None
            for line in node.stdout:
                said.append(line)
                if "Ray runtime started" in line:
                    return node
            node.wait()
            for pid in with_variable(self._commands, f"CHAOS_NODE={mark}"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        raise AssertionError("a node did not start: " + "".join(said))

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.jobs}/api/version", timeout=5).status_code in (200, 401, 403)
        except httpx.HTTPError:
            return False

    def join(self, *, skew_seconds: int = 0) -> None:
        """Add a node; the clock of its processes may be wrong."""
        special = {}
        if skew_seconds:
            paths = [str(SKEWED), *filter(None, [os.environ.get("PYTHONPATH")])]
            special["PYTHONPATH"] = os.pathsep.join(paths)
            special["CHAOS_CLOCK_SKEW"] = str(skew_seconds)
        if self._starving is not None:
            special["LD_PRELOAD"] = str(self._starving)
            special["CHAOS_STARVED"] = str(self._starved)
        # A folder each: on one machine nodes would take each other's working directories away.
        self._joined += 1
        folder = self._folder.with_name(f"node-{self._joined}")
        joining = ("--address", self.address, "--num-cpus", "1", "--temp-dir", str(folder))
        self.workers.append(self._start(*joining, **special))

    def replace_ended(self) -> None:
        """Let others join for nodes that ended by themselves or never came."""
        assert self._head.poll() is None, "the head of the cluster ended by itself"
        for node in [node for node in self.workers if node.poll() is not None]:
            self.kill(node)
        while len(self.workers) < WORKER_CPUS:
            self.join()
            self.replaced += 1

    def of(self, pid: int) -> subprocess.Popen[str] | None:
        """The node that a worker's process belongs to."""
        try:
            above = {parent.pid for parent in psutil.Process(pid).parents()}
        except psutil.NoSuchProcess:
            return None
        return next((node for node in self.workers if node.pid in above), None)

    @property
    def can_starve(self) -> bool:
        """Only with a C compiler."""
        return self._starving is not None

    @contextmanager
    def starved(self, pid: int, size: int) -> Iterator[None]:
        """Refuse this worker every request for so much memory or more."""
        assert self._starving is not None, "a C compiler is needed to starve a worker"
        mark = self._starved / str(pid)
        mark.symlink_to(str(size))
        try:
            yield
        finally:
            mark.unlink()

    def kill(self, node: subprocess.Popen[str]) -> None:
        """Kill the raylet and all that it started."""
        self.workers.remove(node)
        _kill_group(node)

    def close(self) -> None:
        for node in [*self.workers, self._head]:
            _kill_group(node)


def _starving_library(folder: Path) -> Path | None:
    """What refuses memory to a process, compiled; None without a compiler."""
    compiler = find_compiler()
    if compiler is None:
        return None
    made = folder / "starving.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", made, STARVING], check=True)
    return made


def _kill_group(node: subprocess.Popen[str]) -> None:
    children = []
    if node.poll() is None:
        children = psutil.Process(node.pid).children(recursive=True)
    for process in [node, *children]:
        try:
            process.kill()
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    node.wait()


class Ground:
    """The server, the cluster, and everything started on them."""

    def __init__(self, home: Path, commands: Commands, held: ExitStack) -> None:
        self.home, self.commands = home, commands
        self.footprint = Footprint()
        self.disk: Path | None = None
        if os.geteuid() == 0:
            self.disk = held.enter_context(small_disk(home / "disk"))
        self.postgres = Postgres(home)
        held.callback(self.postgres.close)
        self.postgres.make_template()
        if self.disk is not None:
            self.postgres.use_disk(self.disk)
        # Workers write through it; the pool's connections go soon after theirs.
        self.pool = held.enter_context(
            pooled(home, self.postgres.url, servers=8, clients=100, idle_seconds=1)
        )
        self.nodes = Nodes(commands, home / "ray")
        held.callback(self.nodes.close)

    def processes(self) -> set[int]:
        """All that was started here and lives, the server's processes among them."""
        server = self.postgres.postmaster
        return {server.pid, *(child.pid for child in server.children())} | set(
            self.commands.left_behind()
        )


@contextmanager
def ground() -> Iterator[Ground]:
    """Everything for a session of breaking; nothing of it is left afterwards."""
    # As root the server runs as another user, who must be able to reach its home.
    home = Path(tempfile.mkdtemp(prefix="gtc-", dir="/tmp"))
    home.chmod(0o755)
    scratch = home / "tmp"
    scratch.mkdir()
    token = home / "token"
    token.write_text(secrets.token_hex(32))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    commands = Commands(
        {
            **os.environ,
            "PATH": path,
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(scratch),  # what killed drivers leave there goes with the home
            "RAY_worker_niceness": "0",  # workers that give way to everything would never be hit
            **SLOW_NODES,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
        }
    )
    with ExitStack() as held:
        held.callback(shutil.rmtree, home)
        held.callback(_end_all, commands)
        made = Ground(home, commands, held)
        yield made
        made.footprint.note(made.processes())
    assert made.footprint.left() == []


def _end_all(commands: Commands) -> None:
    for process in commands.started:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
    wait_until(lambda: not commands.left_behind(), PATIENCE_SECONDS)
