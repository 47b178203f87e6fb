"""Exports and dumps stream: a suite of a million epochs takes no more memory than a small one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures.database import Database
from fixtures.runs import grok_spec, register
from sqlalchemy import text

EPOCHS = 1_000_000
ALLOWED_MEGABYTES = 48  # blocks, row groups and what the allocator keeps; all rows are twice that
GROW = """
INSERT INTO curve SELECT r.id, e, 1.0 / e, e % 49, e % 49, random(), e % 49, random(), random()
FROM runs r, generate_series(1, :epochs) e
"""


def peak_megabytes(database: Database, *arguments: str | Path) -> float:
    """The most memory that the command had at once."""
    child = subprocess.Popen(
        [sys.executable, "-m", "groktime.service.cli", *map(str, arguments)],
        env={**os.environ, "GROKTIME_DATABASE_URL": database.url},
        stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return usage.ru_maxrss / 1024


@pytest.mark.slow
def test_memory_does_not_grow_with_the_curves(database: Database, tmp_path: Path) -> None:
    register(database.engine, [grok_spec()])
    commands = {
        "csv": ("export", "little", "--curves", "--format", "csv", "--to"),
        "parquet": ("export", "little", "--curves", "--format", "parquet", "--to"),
        "dump": ("db", "dump", "little"),
    }
    small = {n: peak_megabytes(database, *c, tmp_path / f"small-{n}") for n, c in commands.items()}
    with database.engine.begin() as connection:
        connection.execute(text(GROW), {"epochs": EPOCHS})
    for name, command in commands.items():
        grown = peak_megabytes(database, *command, tmp_path / f"large-{name}") - small[name]
        assert grown < ALLOWED_MEGABYTES, name
    assert (tmp_path / "large-csv" / "curves.csv").stat().st_size > 2**20 * ALLOWED_MEGABYTES
