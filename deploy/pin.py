"""Write deploy/constraints.txt: the run-time packages at the versions of this environment."""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

HEADER = "# The versions that were tested; images install these. Written by deploy/pin.py\n"
TARGET = Path(__file__).parent / "constraints.txt"


def closure(start: Requirement) -> dict[str, str]:
    """Version by name of the package and everything it needs, extras included."""
    versions: dict[str, str] = {}
    waiting, seen = [start], set()
    while waiting:
        wanted = waiting.pop()
        key = canonicalize_name(wanted.name)
        if (key, frozenset(wanted.extras)) in seen:
            continue
        seen.add((key, frozenset(wanted.extras)))
        package = distribution(wanted.name)
        # A local version (+cpu) says which build this is; an image may want another one.
        versions[key] = Version(package.version).public
        for needed in map(Requirement, package.requires or []):
            chosen = wanted.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in chosen):
                waiting.append(needed)
    return versions


if __name__ == "__main__":
    versions = closure(Requirement("groktime[gpu]"))
    del versions["groktime"]
    versions["setuptools"] = distribution("setuptools").version
    lines = (f"{name}=={version}\n" for name, version in sorted(versions.items()))
    TARGET.write_text(HEADER + "".join(lines))
