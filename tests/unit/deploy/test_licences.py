"""What is shipped has a licence that is told, and no advisory that is known."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LOCK = ROOT / "constraints.txt"
ROW = re.compile(r"^\| (\S+) \| (\S+) \| (.+) \|$", re.MULTILINE)
PIN = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?==([^\s;#]+)", re.MULTILINE)
STALE = "run .venv/bin/python scripts/licences"


def test_every_pinned_package_is_listed_with_its_licence() -> None:
    listed = {
        (name, version): terms
        for name, version, terms in ROW.findall((ROOT / "docs" / "licences.md").read_text("utf-8"))
        if name not in ("package", "what")
    }
    pinned = PIN.findall(LOCK.read_text("utf-8"))
    assert set(pinned) <= set(listed), STALE
    assert [pin for pin in pinned if listed[pin] in ("not installed here", "not said")] == [], STALE


def test_what_the_wheel_carries_has_its_licence_beside_it() -> None:
    page = (ROOT / "docs" / "licences.md").read_text("utf-8")
    carried = [
        *(ROOT / "dashboard" / "static" / "vendor").iterdir(),
        ROOT / "api" / "static" / "swagger_ui",
    ]
    for folder in carried:
        assert f"`{folder.relative_to(ROOT)}`" in page, STALE
        assert (folder / "LICENSE").is_file()


@pytest.mark.long
def test_no_pinned_package_has_a_known_advisory() -> None:
    if importlib.util.find_spec("pip_audit") is None:
        pytest.skip("advisories NOT CHECKED: pip-audit is not installed")
    command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "-r", str(LOCK)]
    audit = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    said = audit.stdout + audit.stderr
    if "known vulnerabilit" not in said:  # it says so either way once it has asked
        pytest.skip(f"advisories NOT CHECKED: {said.strip().splitlines()[-1:]}")
    assert audit.returncode == 0, said
