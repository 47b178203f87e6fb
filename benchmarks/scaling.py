"""How two native workers share two cores: epochs of two processes against those of one.

    python -m benchmarks.scaling [--quick] [--json]

No Ray, no database: what is lost here, is lost to the machine. One, two and again one process
train the same run for as long; the ratio is of the two together against the mean of the others.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

WIDTHS = (32, 64, 128)
BLOCK = 5  # epochs between two looks at the clock


def work(width: int, seconds: float) -> float:
    """Epochs a second of one native run in this process."""
    from benchmarks.engine import make_spec
    from groktime.workers.engines import make_stack

    stack = make_stack([make_spec(113, width, "modular", "none")], engine="native", device="cpu")
    stack.advance(1)
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        stack.advance(BLOCK)
        done += BLOCK
    return done / (time.perf_counter() - start)


def together(processes: int, width: int, seconds: float) -> float:
    """Epochs a second of so many processes at once."""
    command = [sys.executable, __file__, "--work", str(width), "--seconds", str(seconds)]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    return sum(float(process.communicate()[0]) for process in started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a minute, rougher")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        print(work(given.work, given.seconds))
        return
    seconds = 4.0 if given.quick else 15.0
    ratios = {}
    for width in WIDTHS:
        before, both, after = (together(count, width, seconds) for count in (1, 2, 1))
        ratios[width] = 2 * both / (before + after)
        if not given.json:
            print(
                f"p=113 d={width:<4} one {before:6.1f} {after:6.1f}  two {both:6.1f} epochs/s  "
                f"{ratios[width]:.2f} x"
            )
    if given.json:
        print(json.dumps({"ratios": ratios}))


if __name__ == "__main__":
    main()
