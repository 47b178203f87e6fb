"""The engine's memory: no leak over many epochs, and nothing out of bounds or undefined."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from worker_runs import make_run, random_labels

from groktime.service.spec import ModularData
from groktime.workers.native import NativeStack
from groktime.workers.native.engine import SOURCES, build, find_compiler

ROOT = SOURCES.parent.parent
PAGES = Path("/proc/self/statm")


def resident_bytes() -> int:
    return int(PAGES.read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.skipif(not PAGES.exists(), reason="needs /proc/self/statm")
@pytest.mark.parametrize("epochs", [1000, pytest.param(10_000, marks=pytest.mark.long)])
def test_memory_does_not_grow_with_epochs_or_stacks(epochs: int) -> None:
    runs = [make_run(width=8), make_run(width=12, data=random_labels(60), depth=3)]

    def train(rounds: int) -> None:
        for _ in range(rounds):
            stack = NativeStack(runs)
            stack.advance(10)
            stack.remove([0])
            stack.advance(10)
        gc.collect()

    train(10)
    before = resident_bytes()
    train(epochs // 20)
    # A leak of one workspace (about 1 MB) in every hundred stacks would show.
    assert resident_bytes() - before < epochs // 20 * 10_000 + 2_000_000


PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from groktime.service.spec import *
from groktime.workers.native import NativeStack
from groktime.workers.native.engine import Build
from groktime.workers.native.engine import Library

engine = Library(Build(Path(sys.argv[1]), "", ()))
for data in (ModularData(prime=23), RandomData(prime=19, n=70), PermutationData()):
    for depth in (1, 2, 3):
        for width, batch, dropout in ((2, 16, 0.2), (18, 512, 0.0), (34, 100, 0.2)):
            for variant in (
                {"positions": "none"},
                {"positions": "rope"},
                {"positions": "learned", "norm": "layer", "ffn": "plain"},
            ):
                spec = RunSpec(
                    kind="capacity",
                    data=data,
                    model=ModelSpec(width=width, depth=depth, dropout=dropout, **variant),
                    optimiser=OptimiserSpec(batch_size=batch),
                    stop=FixedStop(max_epochs=2),
                    seed=1,
                )
                curve = NativeStack([spec], engine=engine).advance(2)
                assert np.isfinite(curve["train_loss"]).all()
print("trained")
"""


def sanitizer_runtime(name: str) -> str:
    compiler = find_compiler()
    assert compiler is not None
    command = [compiler, f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.long
@pytest.mark.parametrize("extra", [["-march=native"], []], ids=["native", "portable"])
def test_address_and_undefined_behaviour_sanitizers_find_nothing(
    tmp_path: Path, extra: list[str]
) -> None:
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1"]
    made = build([*extra, *checks], tmp_path)
    environment = {
        **os.environ,
        "LD_PRELOAD": f"{sanitizer_runtime('libasan.so')} {sanitizer_runtime('libubsan.so')}",
        # The interpreter itself keeps memory until it exits.
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(made.path)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "trained\n"


def test_the_callers_rounding_of_small_numbers_is_left_alone() -> None:
    """Subnormal numbers are flushed inside a call only."""
    smallest = sys.float_info.min
    NativeStack([make_run(data=ModularData(prime=11))]).advance(1)
    assert smallest / 2 > 0
