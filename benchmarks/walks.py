"""Through how many files of the project a question and a sweep pass, and how large it is.

    python -m benchmarks.walks [crossing] [sweep] [size] [--json]

A file counts when a function of it is called, by a profile; importing it does not count. The
crossing is one that nothing has been kept for; the sweep trains two runs of a new suite for two
epochs by `groktime sweep`, and all its processes count; `size` counts modules and lines.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("api", "dashboard", "db", "service", "workers")

# Loaded by every Python process of a walk. Each file of the project is noted when one of its
# functions is called first, at once: a worker may be killed.
NOTE_CALLS = """
import os, sys, threading
ROOT, FOLDER = {root!r}, {folder!r}
PACKAGES = tuple(os.path.join(ROOT, name) + os.sep for name in {packages!r})
seen, noting = set(), "WALK_WHOLE" in os.environ

def note(frame, event, argument):
    code = frame.f_code
    if not noting or event != "call" or code.co_filename in seen or code.co_name.startswith("<"):
        return
    above = frame.f_back
    while above is not None:  # what a module does while it is imported does not count
        if above.f_code.co_filename.startswith("<frozen importlib"):
            return
        above = above.f_back
    seen.add(code.co_filename)
    path = os.path.realpath(code.co_filename)
    if path.startswith(PACKAGES):
        with open(os.path.join(FOLDER, str(os.getpid())), "a") as sink:
            sink.write(path[len(ROOT) + 1 :] + "\\n")

def start():
    global noting
    noting = True

threading.setprofile(note)
sys.setprofile(note)
"""

CROSSING = """
import sitecustomize
from fastapi.testclient import TestClient
from groktime.api.app import create_app
with TestClient(create_app(), base_url="http://localhost") as client:
    asked = "/crossing?suite=mini-released&prime="
    client.get(asked + "47").raise_for_status()  # what is imported late is there
    sitecustomize.start()
    client.get(asked + "59").raise_for_status()
"""

SUITE = """
description: Two runs that a sweep trains.
primes: [7]
seeds: [42]
stop: {max_epochs: 2}
speed: {widths: [8]}
grok: {widths: [8]}
"""


def main() -> None:
    """Walk and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("walks", nargs="*", help="crossing, sweep, size; default: all")
    parser.add_argument("--json", action="store_true", help="print JSON, with the files")
    asked = parser.parse_args()
    walks = asked.walks or ["size", "crossing", "sweep"]
    found: dict[str, object] = {}
    if "size" in walks:
        found["size"] = size()
    if "crossing" in walks:
        found["crossing"] = crossing()
    if "sweep" in walks:
        found["sweep"] = sweep()
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        shown = f"{len(value)} files" if isinstance(value, list) else value
        print(f"{name}: {shown}")


def size() -> dict[str, int]:
    """Modules of the five packages, and their lines."""
    modules = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    return {"modules": len(modules), "lines": sum(len(p.read_text().splitlines()) for p in modules)}


def crossing() -> list[str]:
    """Files that one `GET /crossing` passes through."""
    recording = ROOT / "recordings" / "mini-released.groktime"
    return _walked([["groktime", "db", "load", str(recording)], [sys.executable, "-c", CROSSING]])


def sweep() -> list[str]:
    """Files that `groktime sweep` passes through, its workers included."""
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder, "walk.yaml")
        suite.write_text(SUITE)
        return _walked([["groktime", "sweep", str(suite), "--yes"]], whole=True)


def _walked(commands: list[list[str]], *, whole: bool = False) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="walk") as home:
        notes, hook = Path(home, "notes"), Path(home, "hook")
        notes.mkdir()
        hook.mkdir()
        text = NOTE_CALLS.format(root=str(ROOT), folder=str(notes), packages=PACKAGES)
        (hook / "sitecustomize.py").write_text(text)
        environment = os.environ | {
            "GROKTIME_HOME": str(Path(home, "h")),
            "PYTHONPATH": f"{hook}{os.pathsep}{ROOT}",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        try:
            subprocess.run(
                ["groktime", "db", "up"], env=environment, check=True, capture_output=True
            )
            noted = environment | ({"WALK_WHOLE": "1"} if whole else {})
            for command in commands:
                subprocess.run(command, env=noted, check=True, stdout=sys.stderr)
        finally:
            subprocess.run(["groktime", "db", "down"], env=environment, capture_output=True)
        return sorted(
            {line for file in notes.iterdir() for line in file.read_text().split("\n")} - {""}
        )


if __name__ == "__main__":
    main()
