"""The importable name: what `groktime` offers, and what it does not load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import groktime

ROOT = Path(__file__).parents[3]


def test_every_public_name_is_found() -> None:
    for name in groktime.__all__:
        assert getattr(groktime, name).__name__ == name
    assert set(groktime.__all__) <= set(dir(groktime))


def test_a_name_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(AttributeError, match=r"Nothing; it offers Client, RunSpec"):
        groktime.Nothing  # noqa: B018


def test_the_five_packages_are_links_to_the_folders_at_the_top() -> None:
    links = {
        path.name: path.readlink() for path in (ROOT / "groktime").iterdir() if path.is_symlink()
    }
    assert links == {
        name: Path("..") / name for name in ("api", "dashboard", "db", "service", "workers")
    }


def test_a_client_of_the_api_loads_neither_torch_nor_ray_nor_the_database() -> None:
    script = (
        "import sys; from groktime import Client; "
        "print([name for name in ('torch', 'ray', 'sqlalchemy', 'fastapi') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], text=True, capture_output=True, check=True
    )
    assert done.stdout.strip() == "[]"
