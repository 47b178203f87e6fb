"""Write constraints.txt: every package of this environment, `.[dev]`, at its version."""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version

TARGET = Path(__file__).resolve().parent.parent / "constraints.txt"
HEADER = """\
# The versions that were tested; scripts/setup and the image install these. For newer ones run
# scripts/setup --newest, then the tests, then .venv/bin/python deploy/pin.py, which writes this.
"""
LEFT_OUT = ("groktime", "pip")


def installed() -> dict[str, str]:
    """Version by name of all packages here. A local version (+cpu) says which build this is, and
    another machine may want another one."""
    found = {canonicalize_name(d.metadata["Name"]): d.version for d in distributions()}
    return {name: Version(found[name]).public for name in sorted(found) if name not in LEFT_OUT}


if __name__ == "__main__":
    lines = (f"{name}=={version}\n" for name, version in installed().items())
    TARGET.write_text(HEADER + "".join(lines))
