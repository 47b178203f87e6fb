"""Images made here from the project's own Dockerfile, by buildah, on a base made by mmdebstrap.

No registry is asked for anything: the Python image and the Postgres image that the files name are
stood in for by Debian's packages of the same.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PROGRAMS = ("podman", "buildah", "runc", "mmdebstrap", "netavark", "iptables")
PACKAGES = "podman buildah runc mmdebstrap netavark aardvark-dns iptables"
RELEASE = "bookworm"
PYTHON = "localhost/groktime-debian:python"
GROKTIME = "localhost/groktime:cpu"
POSTGRES = "localhost/groktime-postgres:stand-in"
# Where a program without a PATH of its own lies on Debian.
LIBEXEC = "/usr/lib/podman:/usr/sbin:/sbin"


class ContainerError(Exception):
    """Containers cannot be made or run here, or one of them failed."""


class Engine:
    """podman and buildah with a storage of their own, told what works without systemd."""

    def __init__(self, storage: Path, say: Callable[[str], None]) -> None:
        self.say = say
        search = os.pathsep.join([os.environ["PATH"], LIBEXEC])
        missing = [name for name in PROGRAMS if shutil.which(name, path=search) is None]
        if os.geteuid() != 0:
            raise ContainerError("needs root")
        if missing:
            raise ContainerError(f"no {', '.join(missing)} here: apt-get install {PACKAGES}")
        self._storage = [
            f"--root={storage / 'storage'}",
            f"--runroot={storage / 'run'}",
            "--storage-driver=vfs",
        ]
        self._runtime = [
            "--runtime=runc",
            "--cgroup-manager=cgroupfs",
            "--network-backend=netavark",
        ]

    def podman(self, *words: str, stdin: str | None = None, check: bool = True) -> str:
        """What podman prints."""
        return _run(["podman", *self._storage, *self._runtime, *words], stdin, check)

    def succeeds(self, *words: str) -> bool:
        """Whether podman ends well."""
        command = ["podman", *self._storage, *self._runtime, *words]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def build(self, file: Path, context: Path, tag: str, *words: str) -> None:
        """An image from a Dockerfile; buildah's chroot needs no rights beyond root's."""
        started = time.monotonic()
        command = ["nice", "buildah", *self._storage, "bud", "--isolation=chroot", *words]
        _run([*command, f"--file={file}", f"--tag={tag}", str(context)], None, True)
        self.say(f"built {tag} from {file.name} in {time.monotonic() - started:.0f} s")

    def has(self, tag: str) -> bool:
        return self.succeeds("image", "exists", tag)

    def inspect(self, tag: str) -> dict[str, Any]:
        """The image's configuration as a container would get it."""
        (image,) = json.loads(self.podman("image", "inspect", tag))
        found: dict[str, Any] = image
        return found


def _run(command: list[str], stdin: str | None, check: bool) -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if check and done.returncode:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise ContainerError(f"{' '.join(command[:2])} … {' '.join(command[-3:])}:\n{tail}")
    return done.stdout


def make_base(engine: Engine) -> None:
    """Debian with its Python, as small as the tools make it; kept once made."""
    if engine.has(PYTHON):
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "base.tar"
        started = time.monotonic()
        include = "--include=ca-certificates,python3,python3-venv,python3-pip"
        _run(
            ["nice", "mmdebstrap", "--variant=minbase", include, RELEASE, str(archive)], None, True
        )
        engine.podman("import", str(archive), "localhost/groktime-debian:plain")
        engine.say(f"made the base by mmdebstrap in {time.monotonic() - started:.0f} s")
        shutil.copy("/etc/ssl/certs/ca-certificates.crt", folder)
        archive.unlink()
        engine.build(HERE / "Base", Path(folder), PYTHON)


def make_groktime(engine: Engine) -> None:
    """The project's image from all stages of its Dockerfile.

    torch is the one that pip finds on this machine, unless TORCH_INDEX_ARGS names another; it is
    handed to the build as a folder, as deploy/README.md describes.
    """
    with tempfile.TemporaryDirectory() as folder:
        index = os.environ.get("TORCH_INDEX_ARGS")
        if index is None:
            words = ["--quiet", "--no-deps", "--dest", folder, "--constraint"]
            pip = [sys.executable, "-m", "pip", "download", *words, str(ROOT / "constraints.txt")]
            _run([*pip, "torch"], None, True)
            index = "--no-index --find-links /wheels"
        engine.build(
            ROOT / "deploy/Dockerfile",
            ROOT,
            GROKTIME,
            f"--ignorefile={ROOT / '.dockerignore'}",
            f"--volume={folder}:/wheels:ro",
            f"--build-arg=PYTHON_IMAGE={PYTHON}",
            f"--build-arg=TORCH_INDEX_ARGS={index}",
            f"--build-arg=INDEX_ARGS={os.environ.get('INDEX_ARGS', '')}",
        )


def make_postgres(engine: Engine) -> None:
    """The stand-in for the pinned Postgres image; kept once made."""
    if not engine.has(POSTGRES):
        engine.build(HERE / "Postgres", HERE, POSTGRES)
