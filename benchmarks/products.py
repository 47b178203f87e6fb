"""How close the native engine's matrix products come to the processor's multiply-adds.

    python -m benchmarks.products [--quick] [--json]

Compiles products.c with the engine's own headers and flags. A share is a product's rate over that
of bare multiply-adds in registers, timed in the same run; sgemm's, of a large square, is beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before the numerical libraries start
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks.engine import sgemm_peak
from groktime.workers.native.engine import FLAGS, SOURCES, find_compiler, native_flags


def measure() -> tuple[float, list[list[float]]]:
    """The bare rate in GFLOP/s, and width, W1 and W3, W2, and gradient of W1 and W3 by row."""
    compiler = find_compiler()
    assert compiler, "no C compiler on this machine"
    flags = [flag for flag in FLAGS if flag not in ("-shared", "-fPIC")]
    source = Path(__file__).with_suffix(".c")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "products"
        command = [compiler, *flags, *native_flags(), "-Wno-unused-function", f"-I{SOURCES}"]
        subprocess.run([*command, str(source), "-o", str(program), "-lm"], check=True)
        done = subprocess.run([program], capture_output=True, text=True, check=True)
    bare, *rows = done.stdout.splitlines()
    return float(bare), [[float(word) for word in row.split()] for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="sgemm in a moment")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    bare, rows = measure()
    sgemm = 2 * sgemm_peak(0.3 if options.quick else 3.0) / 1e9 / bare
    if options.json:
        print(json.dumps({"bare_gflops": bare, "sgemm_share": sgemm, "rows": rows}))
        return
    print(f"bare multiply-adds {bare:.1f} GFLOP/s; sgemm reaches {sgemm:.0%} of it")
    print("width  W1 and W3     W2  gradient of W1 and W3")
    for width, *shares in rows:
        print(f"{width:5.0f} {shares[0]:10.0%} {shares[1]:6.0%} {shares[2]:10.0%}")


if __name__ == "__main__":
    main()
