"""The services of docker-compose.yml as containers of this machine, confined as the file says."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from containers.images import GROKTIME, POSTGRES, ROOT, ContainerError, Engine
from fixtures.compose_file import in_start_order, load, without_profile

PATIENCE_SECONDS = 1800  # with a service, on a machine with other work
# What podman wants to be told where the machine's own limits are lower than its defaults.
ULIMITS = ("--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096")


def options(
    service: Mapping[str, Any], secrets: Mapping[str, str], volume: str, folder: Path
) -> list[str]:
    """The words of `podman run` that say what the compose file says of a service.

    podman of Debian 12 refuses a tmpfs that belongs to somebody: a folder of this machine, under
    `folder`, stands in for it.
    """
    words = [f"--user={service['user']}", f"--pids-limit={service['pids_limit']}"]
    words.append(f"--restart={service['restart']}")
    words += ["--read-only", "--read-only-tmpfs=false"] if service.get("read_only") else []
    words += [f"--cap-drop={name}" for name in service.get("cap_drop", ())]
    words += [
        f"--security-opt={entry.removesuffix(':true')}" for entry in service.get("security_opt", ())
    ]
    words += [f"--env={key}={value}" for key, value in service.get("environment", {}).items()]
    words += [
        f"--volume={secrets[name]}:/run/secrets/{name}:ro" for name in service.get("secrets", ())
    ]
    for entry in service.get("volumes", ()):
        source, rest = entry.split(":", 1)
        here = str(ROOT / source) if source.startswith("./") else f"{volume}-{source}"
        words.append(f"--volume={here}:{rest}")
    for entry in service.get("tmpfs", ()):
        path, _, given = entry.partition(":")
        owner = dict(word.split("=", 1) for word in given.split(",") if "=" in word)
        if "uid" in owner:
            own = folder / Path(path).name
            own.mkdir(parents=True)
            own.chmod(int(owner["mode"], 8))
            os.chown(own, int(owner["uid"]), int(owner["gid"]))
            words.append(f"--volume={own}:{path}")
        else:
            words.append(f"--tmpfs={entry}")
    if "shm_size" in service:
        words.append(f"--shm-size={service['shm_size']}")
    limits = service.get("deploy", {}).get("resources", {}).get("limits", {})
    words += [f"--cpus={limits['cpus']}"] if "cpus" in limits else []
    words += [f"--memory={limits['memory']}"] if "memory" in limits else []
    return words + [f"--publish={entry}" for entry in service.get("ports", ())]


class Services:
    """Containers of one start of the compose file, in a network of their own."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine, self.folder = engine, folder
        self.name = f"gt{random.SystemRandom().randrange(16**6):06x}"
        subprocess.run(
            [ROOT / "deploy/make-secrets", folder / "secrets"], check=True, capture_output=True
        )
        ports = {name: str(_free_port()) for name in ("API_PORT", "RAY_PORT")}
        self.content = load(
            ROOT / "docker-compose.yml",
            {
                "SECRETS_DIR": str(folder / "secrets"),
                "IMAGE": GROKTIME,
                "POSTGRES_IMAGE": POSTGRES,
                "WORKER_CPUS": "1",
                **ports,
            },
        )
        self.api = f"http://127.0.0.1:{ports['API_PORT']}"
        self.services: dict[str, Any] = without_profile(self.content["services"])

    def container(self, service: str) -> str:
        return f"{self.name}-{service}"

    def start(self) -> None:
        """Start everything in the order of depends_on, waiting for its conditions."""
        self.engine.podman("network", "create", self.name)
        for name in in_start_order(self.services):
            service = self.services[name]
            for other, wanted in service.get("depends_on", {}).items():
                if wanted["condition"] == "service_healthy":
                    self.wait_healthy(other)
                else:
                    self.wait_completed(other)
            secrets = {key: entry["file"] for key, entry in self.content["secrets"].items()}
            self.engine.podman(
                "run",
                "--detach",
                f"--name={self.container(name)}",
                f"--network={self.name}",
                f"--network-alias={name}",
                "--log-driver=k8s-file",
                *ULIMITS,
                *options(service, secrets, self.name, self.folder / name),
                service["image"],
                *service.get("command", ()),
            )
        for name, service in self.services.items():
            if not service["healthcheck"].get("disable"):
                self.wait_healthy(name)

    def stop(self) -> None:
        names = [self.container(name) for name in self.services]
        self.engine.podman("rm", "--force", "--time=3", "--ignore", *names, check=False)
        self.engine.podman("network", "rm", "--force", self.name, check=False)
        for volume in self.content["volumes"]:
            self.engine.podman("volume", "rm", "--force", f"{self.name}-{volume}", check=False)

    def state(self, service: str) -> dict[str, Any]:
        """What podman says of the container."""
        (found,) = json.loads(self.engine.podman("container", "inspect", self.container(service)))
        return dict(found)

    def execute(self, service: str, *command: str, stdin: str | None = None) -> str:
        """The output of a command run in the service's container."""
        words = ["exec", *(["--interactive"] if stdin is not None else [])]
        return self.engine.podman(*words, self.container(service), *command, stdin=stdin)

    def log(self, service: str) -> str:
        return self.engine.podman("logs", "--tail=20", self.container(service), check=False)

    def wait_healthy(self, service: str) -> None:
        _, *check = self.services[service]["healthcheck"]["test"]

        def healthy() -> bool:
            ended = self.state(service)["State"]["Status"] == "exited"
            if ended and self.services[service]["restart"] == "no":
                raise ContainerError(f"{service} ended:\n{self.log(service)}")
            return self.engine.succeeds("exec", self.container(service), *check)

        self.wait(healthy, f"{service} to be healthy", service)

    def wait_completed(self, service: str) -> None:
        self.wait(
            lambda: self.state(service)["State"]["Status"] == "exited",
            f"{service} to end",
            service,
        )
        code = self.state(service)["State"]["ExitCode"]
        if code:
            raise ContainerError(f"{service} ended with {code}:\n{self.log(service)}")

    def wait(self, condition: Callable[[], bool], what: str, service: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise ContainerError(
                    f"waited {PATIENCE_SECONDS} s for {what}:\n{self.log(service)}"
                )
            time.sleep(0.5)

    def submit(self, suite: Path) -> str:
        """Train a suite's file by `ray job submit` on the head; what the job printed."""
        there = f"/tmp/{suite.name}"
        self.execute("ray-head", "sh", "-c", f"cat > {there}", stdin=suite.read_text())
        words = ("ray", "job", "submit", "--address", "http://127.0.0.1:8265", "--")
        return self.execute("ray-head", *words, "groktime", "sweep", there)

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a GET of the API at its published port."""
        try:
            with urllib.request.urlopen(self.api + path, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def running(engine: Engine) -> Iterator[Services]:
    """The services, started; removed with their volumes afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="groktime-containers-", dir="/tmp"))
    services = Services(engine, folder)
    try:
        services.start()
        yield services
    finally:
        services.stop()
        shutil.rmtree(folder, ignore_errors=True)
