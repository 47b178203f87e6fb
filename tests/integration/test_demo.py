"""The demo does the main job from a clean clone, once, and leaves nothing running."""

from __future__ import annotations

import json
import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

ROOT = Path(__file__).parents[2]
TRAINING_SECONDS = 840
ANSWER_SECONDS = 120  # for a first answer on a busy machine


@pytest.fixture(scope="module")
def clone() -> Iterator[dict[str, str]]:
    """Environment of a fresh clone with an environment and a home of its own.

    The new environment sees the packages of this one, so that nothing is fetched again.
    """
    folder = Path(tempfile.mkdtemp(prefix="gtd"))
    try:
        subprocess.run(["git", "clone", "--quiet", ROOT, folder / "clone"], check=True)
        venv.create(folder / "venv", with_pip=True)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        packages = folder / "venv" / "lib" / version / "site-packages"
        (packages / "shared.pth").write_text("\n".join(site.getsitepackages()) + "\n")
        kept = {name: value for name, value in os.environ.items() if name[:9] != "GROKTIME_"}
        yield {
            **kept,
            "CLONE": str(folder / "clone"),
            "GROKTIME_VENV": str(folder / "venv"),
            "GROKTIME_HOME": str(folder / "home"),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def processes_of(clone: dict[str, str]) -> list[str]:
    """Command lines of all processes that were started with the clone's home."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("GROKTIME_HOME") == clone["GROKTIME_HOME"]:
                found.append(" ".join(process.cmdline()))
        except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found


def demo(clone: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [f"{clone['CLONE']}/scripts/demo", "--check"],
        env=clone,
        cwd="/",
        text=True,
        capture_output=True,
        timeout=TRAINING_SECONDS,
        check=False,
    )


@pytest.mark.slow
def test_demo_interrupted_at_once_leaves_no_process_behind(clone: dict[str, str]) -> None:
    command = [f"{clone['CLONE']}/scripts/demo", "--check"]
    with subprocess.Popen(
        command, env=clone, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as started:
        assert started.stderr is not None
        for line in started.stderr:
            if line.startswith("demo: "):  # the sweep has begun
                break
        os.killpg(started.pid, signal.SIGINT)
        started.stderr.read()
    assert started.returncode == 130
    assert processes_of(clone) == []


@pytest.mark.slow
def test_demo_finds_a_crossing_inside_the_swept_range_and_trains_only_once(
    clone: dict[str, str],
) -> None:
    first = demo(clone)
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout.splitlines()[-1])
    assert found["suite"] == "demo"
    assert 20_000 < found["p_cross"] < 82_000
    assert found["ci"][0] <= found["p_cross"] <= found["ci"][1]
    assert found["p_onset"] is not None
    second = demo(clone)
    assert second.returncode == 0, second.stderr
    assert "all 36 runs are trained already" in second.stderr
    assert json.loads(second.stdout.splitlines()[-1]) == found
    assert processes_of(clone) == []


@pytest.mark.slow
def test_demo_serves_what_it_trained_until_it_is_interrupted(clone: dict[str, str]) -> None:
    command = [f"{clone['CLONE']}/scripts/demo", "--port", "0"]
    with subprocess.Popen(
        command, env=clone, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as started:
        assert started.stdout is not None
        address = next(
            line.split()[1] for line in started.stdout if line.lstrip().startswith("dashboard ")
        )
        with httpx.Client(
            base_url=address, follow_redirects=True, timeout=ANSWER_SECONDS
        ) as visitor:
            assert "<title>groktime</title>" in visitor.get("").text
            crossing = visitor.get("crossing", params={"suite": "demo", "prime": 59})
            assert crossing.json()["p_cross"]["estimate"] > 0
            recorded = {s["name"]: s for s in visitor.get("suites").json()["items"]}
        assert recorded["mini-released"]["recorded"]
        os.killpg(started.pid, signal.SIGINT)
        started.stdout.read()
    assert started.returncode == 130
    assert processes_of(clone) == []
