"""The statistics are the same on other processors, as far as this one can play them.

Numpy picks its kernels, and BLAS its own, by what the processor offers; both can be told to pick
as on an older one, which rounds differently.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fixtures.environment import numpy_features

ROOT = Path(__file__).parents[2]
TESTS = (
    "tests/unit/analysis",
    "tests/integration/test_recordings.py::test_a_recording_gives_the_numbers_of_the_report",
)


def modes() -> dict[str, dict[str, str]]:
    """Settings under which the same processor computes as others would."""
    features = numpy_features()
    return {
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


@pytest.mark.long
@pytest.mark.timeout(7200)  # a busy machine is no reason to fail
@pytest.mark.parametrize("mode", modes())
def test_statistics_and_recordings_give_the_same_numbers(mode: str) -> None:
    settings = {name: value for name, value in modes()[mode].items() if value}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not long and not slow", *TESTS],
        cwd=ROOT,
        env=os.environ | settings,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]
