"""Where things are broken: a Postgres of its own and a Ray cluster of nodes that may be killed.

The server keeps the product's own settings: with the faster ones of other tests a crash would
lose commits that were answered.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
from fixtures.commands import Commands, wait_until
from fixtures.database import Server
from sqlalchemy import create_engine

from db import embedded
from db.engine import connect, parse_url
from db.migrating import migrate

TEMPLATE = "chaos_template"
SKEWED = Path(__file__).with_name("skewed")
WORKER_CPUS = 2  # one node each
STARTS = 3  # ports that a node chose may be taken before it binds them

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


class Postgres:
    """The server, which may be stopped in every way that it knows."""

    def __init__(self, home: Path) -> None:
        self.home = home
        url = parse_url(embedded.start(home)).set(database="postgres")
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

    @property
    def postmaster(self) -> psutil.Process:
        pid_file = embedded.data_directory(self.home) / "postmaster.pid"
        return psutil.Process(int(pid_file.read_text().split()[0]))

    def end(self, how: signal.Signals) -> None:
        """SIGINT: a fast shutdown. SIGQUIT: an immediate one, as after a crash."""
        postmaster = self.postmaster
        postmaster.send_signal(how)
        wait_until(lambda: not embedded.is_running(self.home))
        self.server.admin.dispose()

    def start(self) -> None:
        embedded.start(self.home)

    def close(self) -> None:
        self.server.admin.dispose()
        embedded.stop(self.home)


class Nodes:
    """A head without CPUs and workers of one CPU each, every one a process group to be killed."""

    def __init__(self, commands: Commands, folder: Path) -> None:
        self._commands = commands
        port, jobs = free_ports(2)
        self.address, self.jobs = f"127.0.0.1:{port}", f"http://127.0.0.1:{jobs}"
        self._head = self._start(
            *("--head", "--port", str(port), "--num-cpus", "0", "--temp-dir", str(folder)),
            *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(jobs)),
        )
        wait_until(self._answers)
        self.workers: list[subprocess.Popen[str]] = []
        for _ in range(WORKER_CPUS):
            self.join()

    def _start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start a node and wait until it says that it is up."""
        local = ("--node-ip-address", "127.0.0.1", "--object-store-memory", "100000000", "--block")
        said: list[str] = []
        for _ in range(STARTS):
            node = self._commands.start(*arguments, *local, program=("ray", "start"), **environment)
            assert node.stdout is not None
            for line in node.stdout:
                said.append(line)
                if "Ray runtime started" in line:
                    return node
            node.wait()
        raise AssertionError("a node did not start: " + "".join(said))

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.jobs}/api/version", timeout=5).status_code in (200, 401, 403)
        except httpx.HTTPError:
            return False

    def join(self, *, skew_seconds: int = 0) -> None:
        """Add a node; the clock of its processes may be wrong."""
        wrong = (
            {"PYTHONPATH": str(SKEWED), "CHAOS_CLOCK_SKEW": str(skew_seconds)}
            if skew_seconds
            else {}
        )
        self.workers.append(self._start("--address", self.address, "--num-cpus", "1", **wrong))

    def kill(self, node: subprocess.Popen[str]) -> None:
        """Kill the raylet and all that it started."""
        self.workers.remove(node)
        _kill_group(node)

    def close(self) -> None:
        for node in [*self.workers, self._head]:
            _kill_group(node)


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


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on."""
    listeners = [socket.socket() for _ in range(count)]
    for listener in listeners:
        listener.bind(("127.0.0.1", 0))
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


class Ground:
    """The server, the cluster, and everything started on them."""

    def __init__(self, home: Path, commands: Commands) -> None:
        self.home, self.commands = home, commands
        self.postgres = Postgres(home)
        self.postgres.make_template()
        self.nodes = Nodes(commands, home / "ray")

    def close(self) -> None:
        self.nodes.close()
        self.postgres.close()


@contextmanager
def ground() -> Iterator[Ground]:
    """Everything for a session of breaking; nothing of it is left afterwards."""
    # As root the server runs as another user, who must be able to reach its home.
    home = Path(tempfile.mkdtemp(prefix="gtc-", dir="/tmp"))
    home.chmod(0o755)
    token = home / "token"
    token.write_text(secrets.token_hex(32))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    commands = Commands(
        {
            **os.environ,
            "PATH": path,
            "OMP_NUM_THREADS": "1",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
        }
    )
    made = Ground(home, commands)
    try:
        yield made
    finally:
        made.close()
        for process in commands.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        wait_until(lambda: not commands.left_behind(), 60)
        shutil.rmtree(home)
