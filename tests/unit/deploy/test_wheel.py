"""What a built wheel carries: the five packages under one name, with their data, and no more."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from zipfile import ZipFile

import pytest
from fixtures.wheel import build_wheel


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return ZipFile(build_wheel(tmp_path_factory.mktemp("wheel"))).namelist()


def test_all_five_packages_are_in_it(names: list[str]) -> None:
    counts = Counter(name.split("/")[1] for name in names if name.startswith("groktime/"))
    for package in ("service", "workers", "db", "api", "dashboard"):
        assert counts[package] > 10, package
    # A clone without symbolic links builds a wheel of eight files and says nothing.
    assert len(names) > 200


def test_every_tracked_module_and_data_file_is_in_it(root: Path, names: list[str]) -> None:
    for link in (root / "groktime").iterdir():
        if link.is_symlink():
            for path in link.resolve().rglob("*"):
                if path.suffix in (".py", ".sql", ".yaml", ".c", ".h", ".html", ".js", ".css"):
                    inside = f"groktime/{link.name}/{path.relative_to(link.resolve())}"
                    assert inside in names or "dashboard/bundle" in inside, inside


def test_nothing_is_installed_beside_the_package(names: list[str]) -> None:
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"groktime"}
    assert "groktime/py.typed" in names
    assert not [name for name in names if name.endswith((".groktime", ".so", ".pyc"))]
