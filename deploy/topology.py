"""The topology of docker-compose.yml without containers: same commands, variables and order.

Every service gets a loopback address and a folder of its own in place of a container's network
and file system. Names, ports and paths in its command, environment and secrets are translated to
these; nothing else is changed, except that Ray is told its address, which it would find out by
itself in a container. A suite is then trained by `ray job submit` and /crossing is asked for it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pwd
import random
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from compose_file import container_ports, in_start_order, load, mount_points, without_profile

ROOT = Path(__file__).resolve().parent.parent
POSTGRES_VERSIONS = range(18, 14, -1)
PATIENCE_SECONDS = 240
MOST_RESTARTS = 3
# Marks every process of a topology, whatever started it, so that all of them can be ended.
MARK = "GROKTIME_TOPOLOGY"
# Below the ports that Linux gives to clients and above those that Ray gives to its workers.
FREE_PORTS = range(20_000, 32_000)


class TopologyError(Exception):
    """The topology cannot be started here, or one of its services failed."""


def postgres_binaries() -> Path:
    """The folder of the system's PostgreSQL."""
    for version in POSTGRES_VERSIONS:
        folder = Path(f"/usr/lib/postgresql/{version}/bin")
        if (folder / "initdb").exists():
            return folder
    raise TopologyError("no system PostgreSQL (15 or later) under /usr/lib/postgresql")


@dataclass(frozen=True)
class Place:
    """Where a service lives on this machine."""

    name: str
    service: Mapping[str, Any]
    address: str
    ports: Mapping[int, int]  # container's port to this machine's
    paths: Mapping[str, Path]  # container's path to this machine's
    folder: Path
    user: str | None  # None: ours


class Topology:
    """The services of a compose file as processes of this machine."""

    def __init__(self, compose: Path, folder: Path) -> None:
        self.folder = folder
        self.mark = secrets.token_hex(8)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.restarts: dict[str, int] = {}
        (folder / "secrets").mkdir()
        subprocess.run(
            [ROOT / "deploy/make-secrets", folder / "secrets"], check=True, capture_output=True
        )
        variables = {"SECRETS_DIR": str(folder / "secrets"), "WORKER_CPUS": "1"}
        self.content = load(compose, variables)
        self.services = without_profile(self.content["services"])
        network = random.SystemRandom().randrange(1, 255)
        self.places = {
            name: self._place(name, f"127.77.{network}.{number}")
            for number, name in enumerate(self.services, start=2)
        }
        for place in self.places.values():
            self._deliver_secrets(place)

    def _place(self, name: str, address: str) -> Place:
        service, own = self.services[name], self.folder / name
        own.mkdir()
        # Postgres refuses to run as root.
        user = "postgres" if name == "postgres" and os.geteuid() == 0 else None
        paths = {"/run/secrets": own / "secrets"}
        for source, target in mount_points(service):
            if source is not None and source.startswith("./"):
                paths[target] = self._copied(ROOT / source, own)
            elif source is not None:
                paths[target] = self.folder / "volumes" / source
            else:
                # Ray's sockets lie under /tmp, and a socket's path is short.
                paths[target] = own / Path(target).name
        for path in paths.values():
            if not path.exists():
                path.mkdir(parents=True)
            _give(path, user)
        _give(own, user)
        ports = dict(zip(container_ports(service), _free_ports(), strict=False))
        return Place(name, service, address, ports, paths, own, user)

    def _copied(self, source: Path, folder: Path) -> Path:
        """What a container mounts read-only; a copy, since its user may not reach the original."""
        target = folder / source.name
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
        return target

    def _deliver_secrets(self, place: Place) -> None:
        """Give the service the secrets it declares and no others."""
        for name in place.service.get("secrets", ()):
            value = Path(self.content["secrets"][name]["file"]).read_text()
            target = place.paths["/run/secrets"] / name
            target.write_text(self.translated(value, place))
            _give(target, place.user)

    def translated(self, text: str, place: Place) -> str:
        """The text with containers' names, ports and paths replaced by this machine's."""
        for other in self.places.values() if hasattr(self, "places") else ():
            for port, here in other.ports.items():
                # `@postgres:5432` and `http://ray-head:8265`, wherever they stand.
                pattern = rf"(?<![\w.-]){other.name}:{port}(?!\d)"
                text = re.sub(pattern, f"{other.address}:{here}", text)
        for port, here in place.ports.items():
            text = re.sub(rf"(?<=[=:]){port}(?!\d)|^{port}$", str(here), text)
        text = re.sub(r"\b(0\.0\.0\.0|127\.0\.0\.1)\b", place.address, text)
        # All paths in one pass, the longest first: a path of this machine is not translated again.
        paths = "|".join(map(re.escape, sorted(place.paths, key=len, reverse=True)))
        return re.sub(
            rf"(?<![\w/])({paths})(?![\w-])", lambda match: str(place.paths[match[1]]), text
        )

    def command(self, name: str) -> list[str]:
        """The service's command as it runs here."""
        place = self.places[name]
        words = [self.translated(word, place) for word in place.service["command"]]
        if words[:2] == ["ray", "start"]:
            words.append(f"--node-ip-address={place.address}")
        return words

    def environment(self, name: str) -> dict[str, str]:
        """The service's environment, with nothing of ours but the search path."""
        place = self.places[name]
        given = {
            key: self.translated(str(value), place)
            for key, value in place.service.get("environment", {}).items()
        }
        search = [str(ROOT / "deploy"), str(Path(sys.executable).parent), os.environ["PATH"]]
        return {
            "PATH": os.pathsep.join(search),
            "HOME": str(place.folder),
            "GROKTIME_HOME": str(place.folder),
            MARK: f"{self.mark}/{name}",
            **given,
        }

    def start(self) -> None:
        """Start everything in the order of depends_on, waiting for its conditions."""
        for name in in_start_order(self.services):
            for other, wanted in self.services[name].get("depends_on", {}).items():
                if wanted["condition"] == "service_healthy":
                    self.wait_healthy(other)
                else:
                    self.wait_completed(other)
            if name == "postgres":
                self._start_postgres()
            else:
                self._start(name)
        for name, service in self.services.items():
            if not service.get("healthcheck", {}).get("disable"):
                self.wait_healthy(name)

    def _start(self, name: str) -> None:
        self._spawn(name, [str(ROOT / "deploy/entrypoint"), *self.command(name)])

    def _spawn(self, name: str, command: Sequence[str]) -> None:
        place = self.places[name]
        with open(self.log(name), "ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                env=self.environment(name),
                cwd=place.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **_as(place.user),
            )

    def _start_postgres(self) -> None:
        """What the image's entrypoint does: make the cluster, run the first scripts on a server
        that listens on its socket alone, and start the real one."""
        place = self.places["postgres"]
        binaries = postgres_binaries()
        environment = self.environment("postgres")
        data = place.paths["/var/lib/postgresql/data"]
        sockets = place.paths["/var/run/postgresql"]

        def run(*command: str, **options: Any) -> None:
            done = subprocess.run(
                command,
                env=self._postgres_environment(),
                cwd=place.folder,
                capture_output=True,
                text=True,
                check=False,
                **_as(place.user),
                **options,
            )
            if done.returncode:
                raise TopologyError(f"{Path(command[0]).name} failed: {done.stderr.strip()}")

        run(
            str(binaries / "initdb"),
            *environment["POSTGRES_INITDB_ARGS"].split(),
            f"--username={environment['POSTGRES_USER']}",
            f"--pwfile={environment['POSTGRES_PASSWORD_FILE']}",
            f"--pgdata={data}",
        )
        program, *arguments = self.command("postgres")
        own = [f"unix_socket_directories={sockets}", f"port={place.ports[5432]}"]
        overrides = [word for setting in own for word in ("-c", setting)]
        first = shlex.join([*arguments, *overrides, "-c", "listen_addresses="])
        control = (str(binaries / "pg_ctl"), f"--pgdata={data}", "--wait", "--silent")
        run(*control, f"--log={place.folder / 'first.log'}", f"--options={first}", "start")
        superuser = ("--username", environment["POSTGRES_USER"])
        run(str(binaries / "createdb"), *superuser, environment["POSTGRES_DB"])
        for target, script in place.paths.items():
            if target.startswith("/docker-entrypoint-initdb.d/"):
                run(
                    str(binaries / "psql"),
                    *superuser,
                    f"--dbname={environment['POSTGRES_DB']}",
                    f"--file={script}",
                )
        run(*control, "--mode=fast", "stop")
        overrides += ["-c", f"listen_addresses={place.address}"]
        self._spawn("postgres", [str(binaries / program), "-D", str(data), *arguments, *overrides])

    def _postgres_environment(self) -> dict[str, str]:
        place = self.places["postgres"]
        return {
            **self.environment("postgres"),
            "PGHOST": str(place.paths["/var/run/postgresql"]),
            "PGPORT": str(place.ports[5432]),
        }

    def wait_healthy(self, name: str) -> None:
        """Run the service's health check until it succeeds."""
        place = self.places[name]
        _, *check = (self.translated(word, place) for word in place.service["healthcheck"]["test"])
        environment = self.environment(name)
        if name == "postgres":
            environment = self._postgres_environment()
            check[0] = str(postgres_binaries() / check[0])

        def healthy() -> bool:
            self._require_alive(name)
            done = subprocess.run(
                check, env=environment, cwd="/", capture_output=True, check=False, timeout=30
            )
            return done.returncode == 0

        self.wait(healthy, f"{name} to be healthy")

    def wait_completed(self, name: str) -> None:
        """Wait for a one-shot service to end well."""
        code = self.processes[name].wait(PATIENCE_SECONDS)
        if code:
            raise TopologyError(f"{name} ended with {code}:\n{self.tail(name)}")

    def _require_alive(self, name: str) -> None:
        """Start a service again that ended, as its restart policy says, but not for ever."""
        code = self.processes[name].poll()
        if code is None:
            return
        self.restarts[name] = self.restarts.get(name, 0) + 1
        if name == "postgres" or self.restarts[name] > MOST_RESTARTS:
            raise TopologyError(f"{name} ended with {code}:\n{self.tail(name)}")
        self._end(name)  # what a container would take with it
        self._start(name)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                tails = "\n".join(f"{name}:\n{self.tail(name)}" for name in self.processes)
                raise TopologyError(f"waited {PATIENCE_SECONDS} s for {what}\n{tails}")
            time.sleep(0.2)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def tail(self, name: str) -> str:
        return "\n".join(self.log(name).read_text(errors="replace").splitlines()[-15:])

    def url(self, name: str, port: int, path: str = "") -> str:
        place = self.places[name]
        return f"http://{place.address}:{place.ports[port]}{path}"

    def get(self, name: str, port: int, path: str) -> tuple[int, str]:
        """Status and body of a GET, without any token."""
        try:
            with urllib.request.urlopen(self.url(name, port, path), timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def submit(self, *entrypoint: str, token: bool = True) -> subprocess.CompletedProcess[str]:
        """`ray job submit` as somebody who has the token would run it, or who has not."""
        environment = self.environment("ray-head")
        if not token:
            wrong = self.folder / "wrong_token"
            wrong.write_text("0" * 64)
            environment["RAY_AUTH_TOKEN_PATH"] = str(wrong)
        return subprocess.run(
            ["ray", "job", "submit", "--address", self.url("ray-head", 8265), "--", *entrypoint],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def stop(self) -> None:
        """End every process that bears the mark: asked first, then made to."""
        self._end("")

    def _end(self, name: str) -> None:
        """End the processes of one service, or of all."""
        for wanted in (signal.SIGTERM, signal.SIGKILL):
            for pid in list(self._marked(name)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, wanted)
            deadline = time.monotonic() + 15
            while any(self._marked(name)) and time.monotonic() < deadline:
                for process in self.processes.values():
                    process.poll()
                time.sleep(0.1)
        for started, process in self.processes.items():
            if name in ("", started):
                process.wait()

    def _marked(self, name: str) -> Iterator[int]:
        wanted = f"{MARK}={self.mark}/{name}".encode()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and wanted in (entry / "environ").read_bytes():
                    yield int(entry.name)


def _free_ports() -> Iterator[int]:
    """Ports that nobody listens on, at any address."""
    candidates = list(FREE_PORTS)
    random.SystemRandom().shuffle(candidates)
    for port in candidates:
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        yield port


def _give(path: Path, user: str | None) -> None:
    if user is not None:
        record = pwd.getpwnam(user)
        os.chown(path, record.pw_uid, record.pw_gid)


def _as(user: str | None) -> dict[str, Any]:
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


@contextlib.contextmanager
def running(compose: Path = ROOT / "docker-compose.yml") -> Iterator[Topology]:
    """The topology, started; ended and forgotten afterwards."""
    if not sys.platform.startswith("linux"):
        raise TopologyError("needs Linux, where all of 127.0.0.0/8 is the loopback")
    postgres_binaries()
    folder = Path(tempfile.mkdtemp(prefix="gt", dir="/tmp"))
    folder.chmod(0o755)
    topology = Topology(compose, folder)
    try:
        topology.start()
        yield topology
    finally:
        topology.stop()
        shutil.rmtree(folder, ignore_errors=True)


def say(text: str, stream: IO[str] = sys.stderr) -> None:
    stream.write(f"{text}\n")
    stream.flush()


def main() -> None:
    """Train a suite in the topology and print what /crossing says of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", help="name or .yaml file")
    parser.add_argument("--prime", type=int, required=True)
    options = parser.parse_args()
    # Ended from outside, it still ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    suite = Path(options.suite)
    named = str(suite.resolve()) if suite.suffix == ".yaml" else options.suite
    try:
        with running() as topology:
            for name, place in topology.places.items():
                say(f"{name}: {place.address} {' '.join(map(str, place.ports.values()))}")
            done = topology.submit("groktime", "sweep", named)
            say(done.stdout)
            if done.returncode:
                raise TopologyError(f"the job failed: {done.stderr}")
            question = urllib.parse.urlencode({"suite": suite.stem, "prime": options.prime})
            status, body = topology.get("api", 8000, f"/crossing?{question}")
            if status != 200:
                raise TopologyError(f"/crossing answered {status}: {body}")
            say(json.dumps(json.loads(body)), sys.stdout)
    except TopologyError as error:
        say(f"topology: {error}")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
