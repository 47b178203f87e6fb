"""Numbers and engines are the same on other processors, as far as this one can play them.

Numpy picks its kernels, BLAS and torch their own, by what the processor offers; all can be told to
pick as on an older one, which rounds differently. The native engine is compiled for this
processor; a compiler that is told another one makes the library that would be used there.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures.environment import numpy_features

from groktime.workers.native.engine import find_compiler

ROOT = Path(__file__).parents[2]
RECORDINGS = "tests/integration/test_recordings.py"
NUMBERS = ("tests/unit/analysis", "tests/unit/answers", RECORDINGS)
ENGINES = (
    "tests/unit/native",
    "tests/unit/workers/test_replay.py",
    "tests/unit/workers/test_independence.py",
    f"{RECORDINGS}::test_a_recorded_run_trains_again_to_the_same_curve",
)


def modes() -> dict[str, dict[str, str]]:
    """Settings under which the same processor computes as others would."""
    features = numpy_features()
    newer = {"BLAS as on Skylake-X": {"OPENBLAS_CORETYPE": "SkylakeX"}}  # where it can be run
    return (newer if {"X86_V4", "AVX512_SKX"} & {*features} else {}) | {
        "BLAS as on Nehalem": {"OPENBLAS_CORETYPE": "Nehalem"},
        "BLAS as on Sandy Bridge": {"OPENBLAS_CORETYPE": "Sandybridge"},
        "BLAS as on Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
        "numpy with its baseline only": {
            "OPENBLAS_CORETYPE": "Haswell",
            "NPY_DISABLE_CPU_FEATURES": " ".join(features),
        },
        "numpy without the newest instructions": {
            "NPY_DISABLE_CPU_FEATURES": " ".join(features[1:]),
        },
    }


def passes(tests: tuple[str, ...], settings: dict[str, str]) -> None:
    """Run these tests in a process that computes as on another processor."""
    command = [sys.executable, "-m", "pytest", "-m", "not long and not slow", *tests]
    told = {name: value for name, value in settings.items() if value}
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | told, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    environment = next((line for line in lines if line.startswith("numbers:")), "no header")
    assert done.returncode == 0, f"{environment}\n{done.stdout[-5000:]}"


@pytest.mark.long
@pytest.mark.timeout(7200)  # a busy machine is no reason to fail
@pytest.mark.parametrize("mode", modes())
def test_statistics_and_recordings_give_the_same_numbers(mode: str) -> None:
    passes(NUMBERS, modes()[mode])


@pytest.fixture
def compiler_for(tmp_path: Path) -> str:
    """A compiler for the processor that OTHER_PROCESSOR names; its version names it, too, so that
    nobody takes what it makes for a library of this processor."""
    compiler = find_compiler()
    if compiler is None or platform.machine() != "x86_64":
        pytest.skip("needs a C compiler for x86-64")
    path = tmp_path / "cc"
    path.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = --version ] && echo "{compiler} for $OTHER_PROCESSOR" && exit\n'
        f'exec {compiler} "$@" -march=$OTHER_PROCESSOR\n'
    )
    path.chmod(0o755)
    return str(path)


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("processor", "capability"), [("haswell", "avx2"), ("nehalem", "default")])
def test_engines_of_other_processors_train_as_recorded(
    compiler_for: str, tmp_path: Path, processor: str, capability: str
) -> None:
    settings = {
        "CC": compiler_for,
        "OTHER_PROCESSOR": processor,
        "ATEN_CPU_CAPABILITY": capability,
        "GROKTIME_HOME": str(tmp_path / "home"),
    }
    passes(ENGINES, settings)
