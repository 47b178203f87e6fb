"""What processes leave behind when they end: ports, shared memory, other processes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil
from fixtures.commands import Commands


class Footprint:
    """Ports and shared memory that processes were seen to hold, to be looked for afterwards.

    Only what was seen in the hands of these processes counts: others work on the machine, too.
    """

    def __init__(self) -> None:
        self.ports: set[int] = set()
        self.segments: set[str] = set()

    def note(self, pids: Iterable[int]) -> None:
        """Look at what these processes hold now."""
        known = set(pids)
        self.ports |= listened_on(known)
        self.segments |= _mapped(known) | _system_v(known)

    def left(self) -> list[str]:
        """What is still there although its processes have gone."""
        there = {str(path) for path in Path("/dev/shm").iterdir()} | _system_v(None)
        ports = self.ports & listened_on({None})
        return sorted(self.segments & there) + [f"port {port}" for port in sorted(ports)]


def with_variable(commands: Commands, variable: str) -> list[int]:
    """Living processes started by these commands that have NAME=VALUE in their environment."""
    found = []
    for pid in commands.left_behind():
        with suppress(OSError):
            environment = Path(f"/proc/{pid}/environ").read_text(errors="replace")
            if variable in environment.split("\0"):
                found.append(pid)
    return found


def listened_on(pids: set[int] | set[None]) -> set[int]:
    """Ports that these processes listen on; {None}: those whose process cannot be found."""
    return {
        connection.laddr.port
        for connection in psutil.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN and connection.pid in pids
    }


def _mapped(pids: set[int]) -> set[str]:
    """Files in shared memory that the processes have mapped, removed ones left out."""
    found = set()
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()
        except OSError:
            continue
        paths = (line.partition("/dev/shm/")[2] for line in lines)
        found |= {f"/dev/shm/{path}" for path in paths if path and not path.endswith(" (deleted)")}
    return found


def _system_v(creators: set[int] | None) -> set[str]:
    """System V segments made by these processes; None: by any."""
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()
    names = lines[0].split()
    rows = [dict(zip(names, line.split(), strict=False)) for line in lines[1:]]
    return {
        f"System V segment {row['shmid']}"
        for row in rows
        if creators is None or int(row["cpid"]) in creators
    }
