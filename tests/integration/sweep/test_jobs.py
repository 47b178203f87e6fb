"""Sweeps as Ray jobs on a real head node that asks for a token."""

from __future__ import annotations

import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fixtures.commands import Commands, settings_environment, wait_until
from fixtures.database import Database
from sqlalchemy import text

pytestmark = pytest.mark.slow

TINY = """\
description: tiny
positions: none
primes: [5, 7]
seeds: [1, 2]
settings: {batch_size: 16}
stop: {max_epochs: 10}
speed: {widths: [4, 8]}
grok: {widths: [4, 8]}
"""


@dataclass(frozen=True)
class Head:
    """A head node: its jobs address and the environment of its clients."""

    address: str
    environment: dict[str, str]


def free_ports(count: int) -> list[int]:
    listeners = [socket.socket() for _ in range(count)]
    for listener in listeners:
        listener.bind(("127.0.0.1", 0))
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


@pytest.fixture
def head(commands: Commands, database: Database, tmp_path: Path) -> Head:
    token = tmp_path / "token"
    client = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    token.write_text(secrets.token_hex(32))
    port, jobs, agent = free_ports(3)
    settings = settings_environment(
        database_url=database.url, checkpoints=tmp_path / "checkpoints", home=tmp_path
    )
    commands.start(
        *("start", "--head", "--block", "--num-cpus", "2", "--port", str(port)),
        *("--node-ip-address", "127.0.0.1", "--object-store-memory", "100000000"),
        *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(jobs)),
        *("--dashboard-agent-listen-port", str(agent)),
        program=("ray",),
        **client,
        **settings,
    )
    address = f"http://127.0.0.1:{jobs}"

    def up() -> bool:
        try:
            return httpx.get(f"{address}/api/version", timeout=5).status_code in (200, 401, 403)
        except httpx.HTTPError:
            return False

    wait_until(up)
    # The dashboard answers before the agent that starts jobs is there.
    nothing = ("job", "submit", "--address", address, "--", "true")
    wait_until(lambda: commands.run(*nothing, program=("ray",), **client)[0] == 0)
    return Head(address, client)


def scalar(database: Database, query: str) -> Any:
    with database.engine.connect() as connection:
        return connection.scalar(text(query))


def test_a_sweep_runs_as_a_ray_job_behind_a_token(
    head: Head, commands: Commands, database: Database, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    suite = work / "tiny.yaml"
    suite.write_text(TINY)
    submit = ("job", "submit", "--address", head.address, "--working-dir", str(work), "--")
    sweep = (*submit, "groktime", "sweep", "./tiny.yaml")

    wrong = tmp_path / "wrong-token"
    wrong.write_text("0" * 64)
    refused = {**head.environment, "RAY_AUTH_TOKEN_PATH": str(wrong)}
    code, output = commands.run(*sweep, program=("ray",), **refused)
    assert code != 0
    assert scalar(database, "SELECT count(*) FROM runs") == 0

    code, output = commands.run(*sweep, program=("ray",), **head.environment)
    assert code == 0, output
    assert "tiny: 16 runs trained" in output
    assert scalar(database, "SELECT count(*) FROM runs WHERE state = 'done'") == 16

    suite.write_text(TINY.replace("seeds: [1, 2]", "seeds: [1, 2, 3]"))
    code, output = commands.run(
        "submit", str(suite), "--address", head.address, "--kind", "speed", **head.environment
    )
    assert code == 0, output
    assert "tiny: 4 runs trained" in output
    assert "succeeded" in output
    assert scalar(database, "SELECT count(*) FROM runs WHERE state = 'done'") == 20
