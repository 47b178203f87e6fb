"""Shared-memory segments that nobody uses any more."""

from __future__ import annotations

from pathlib import Path


def shared_memory() -> set[str]:
    """Names of POSIX segments and ids of System V segments without a user."""
    return _posix() | _system_v()


def left_in_shared_memory(before: set[str]) -> set[str]:
    """Segments that are new since and that no living process has mapped."""
    return {name for name in shared_memory() - before if name not in _mapped()}


def _posix() -> set[str]:
    return {str(path) for path in Path("/dev/shm").iterdir()}


def _system_v() -> set[str]:
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()
    names = lines[0].split()
    rows = [dict(zip(names, line.split(), strict=False)) for line in lines[1:]]
    return {f"System V {row['shmid']}" for row in rows if row["nattch"] == "0"}


def _mapped() -> set[str]:
    """Files in shared memory that some process of this machine has mapped."""
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                lines = (process / "maps").read_text(errors="replace").splitlines()
            except OSError:
                continue
            found |= {line.split()[-1] for line in lines if "/dev/shm/" in line}
    return found
