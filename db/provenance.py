"""Where and with what code an attempt is made: stored beside it, so that a result can be traced."""

from __future__ import annotations

import platform
import socket
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("groktime", "torch", "numpy", "ray", "sqlalchemy", "psycopg2-binary")


@dataclass(frozen=True)
class Provenance:
    """The machine and the code of a worker."""

    host: str
    git_commit: str | None  # None: not run from a checkout
    git_dirty: bool | None
    versions: dict[str, str]


@dataclass(frozen=True)
class Trainer:
    """What will train the runs of a claim; an attempt that crashes has been made with it."""

    engine: str
    device: str
    fingerprint: str


@lru_cache(maxsize=1)
def provenance() -> Provenance:
    """This process's provenance, found out once."""
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no") if commit else None
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return Provenance(
        host=socket.gethostname(),
        git_commit=commit,
        git_dirty=None if changes is None else bool(changes),
        versions=versions,
    )


def _git(*arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
