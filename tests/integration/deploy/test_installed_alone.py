"""A wheel installed alone, outside the clone, does the main job."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures.wheel import build_wheel

# Fetching torch takes as long as the network does.
pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def installed(root: Path) -> Iterator[Path]:
    """An environment that has the wheel and what it needs, and nothing else."""
    folder = Path(tempfile.mkdtemp(prefix="gtw"))
    try:
        venv.create(folder / "venv", with_pip=True)
        words = ["install", "--quiet", "--constraint", root / "constraints.txt"]
        subprocess.run(
            [folder / "venv/bin/python", "-m", "pip", *words, build_wheel(folder)], check=True
        )
        shutil.rmtree(folder / "source")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(folder: Path, *command: str) -> str:
    """The command's output, run where no clone is in sight."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GROKTIME_", "PYTHON", "RAY_"))
    }
    environment = {
        **kept,
        "PATH": f"{folder / 'venv/bin'}{os.pathsep}{os.environ['PATH']}",
        "GROKTIME_HOME": str(folder / "home"),
    }
    return subprocess.check_output(command, cwd=folder, env=environment, text=True)


def test_the_client_is_imported_without_torch(installed: Path) -> None:
    program = (
        "import sys; from groktime import Client; print(Client.__module__, 'torch' in sys.modules)"
    )
    assert run(installed, "python", "-c", program).split() == ["groktime.api.client", "False"]


def test_none_of_the_clones_folders_is_importable(installed: Path) -> None:
    program = (
        "from importlib.util import find_spec; "
        "print([n for n in ('api', 'db', 'service', 'workers', 'dashboard') if find_spec(n)])"
    )
    assert run(installed, "python", "-c", program).strip() == "[]"


def test_the_demo_trains_and_answers(installed: Path) -> None:
    answer = json.loads(run(installed, "groktime", "demo", "--check").splitlines()[-1])
    assert answer["suite"] == "demo"
    assert answer["p_cross"] > 0
