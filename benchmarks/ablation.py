"""What each step of the native engine is worth: its time with one step taken back.

    python -m benchmarks.ablation [--quick] [--json]

Copies the C sources, undoes one thing, compiles, and lets all variants and the plain loop take
turns on one run, one thread. A factor is the variant's time over the whole engine's.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

# Before the numerical libraries start: one thread for everyone.
os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks.baseline import train_plain
from benchmarks.engine import make_spec, take_turns
from groktime.workers.engines import make_stack
from groktime.workers.native.engine import (
    FLAGS,
    SOURCES,
    Build,
    Library,
    NativeStack,
    find_compiler,
    native_flags,
    source_files,
)

CASES = [(113, 20), (113, 32), (113, 64), (113, 128), (59, 24)]


@dataclass(frozen=True)
class Variant:
    """The engine without one of its steps."""

    name: str
    edits: Sequence[tuple[str, str, str]] = ()  # file, what it says, what it says instead
    without: Sequence[str] = ()  # flags left out
    more: Sequence[str] = ()  # flags added
    native: bool = True
    x86: bool = False  # means something on such a processor only


@dataclass(frozen=True)
class Row:
    """One case: the whole engine's time, and every other's over it."""

    prime: int
    width: int
    whole_ms: float
    factors: dict[str, float]


WHOLE = Variant("whole engine")
VARIANTS = (
    Variant("no instructions beyond SSE2", native=False, x86=True),
    Variant(
        "vectors of AVX2, no fused multiply-add", more=("-ffp-contract=off", "-mno-fma"), x86=True
    ),
    Variant("-O2 instead of -O3", without=("-O3",), more=("-O2",)),
    Variant(
        "first positions for each example",
        edits=[("engine.c", "net->L > 1 && net->V < examples", "net->V < 0 && examples")],
    ),
    Variant(
        "whole batches instead of chunks of 128",
        edits=[("engine.c", "const int columns = 128;", "const int columns = 512;")],
    ),
    Variant(
        "chunks of 32",
        edits=[("engine.c", "const int columns = 128;", "const int columns = 32;")],
    ),
    Variant("subnormal numbers kept", edits=[("engine.c", "before | 0x8040", "before")], x86=True),
)


def compiled(variant: Variant, folder: Path) -> Library:
    """The library of a variant, made in a folder of its own."""
    place = folder / variant.name.replace(" ", "-")
    place.mkdir()
    for path in source_files():
        shutil.copy(path, place)
    for name, old, new in variant.edits:
        text = (SOURCES / name).read_text()
        assert text.count(old) >= 1, f"{name} no longer says {old!r}"
        (place / name).write_text(text.replace(old, new))
    flags = [flag for flag in FLAGS if flag not in variant.without] + list(variant.more)
    if variant.native:
        flags = [*native_flags(), *flags]
    compiler = find_compiler()
    assert compiler, "no C compiler on this machine"
    target = place / "engine.so"
    command = [compiler, *flags, str(place / "engine.c"), "-o", str(target), "-lm"]
    subprocess.run(command, check=True)
    return Library(Build(target, compiler, tuple(flags)))


def measure(libraries: dict[str, Library], seconds: float) -> Iterator[Row]:
    """For each case the times of the plain loop, the torch engine and every variant."""
    for prime, width in CASES:
        spec = make_spec(prime, width, "modular", "none")
        torch_stack = make_stack([spec], engine="torch", device="cpu")
        works: dict[str, Callable[[], object]] = {
            "plain loop": partial(next, train_plain(spec)),
            "torch engine": partial(torch_stack.advance, 1),
        }
        for name, library in libraries.items():
            works[name] = partial(NativeStack([spec], engine=library).advance, 1)
        take_turns(list(works.values()), 0, 1)  # the first epoch of a process is not typical
        times = dict(zip(works, take_turns(list(works.values()), seconds, 3), strict=True))
        whole = times[WHOLE.name]
        factors = {name: taken / whole for name, taken in times.items()}
        yield Row(prime, width, 1e3 * whole, factors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="two minutes, rougher")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        # Other processors have neither these instructions nor this word for subnormal numbers.
        here = [v for v in VARIANTS if not v.x86 or platform.machine() in ("x86_64", "AMD64")]
        libraries = {v.name: compiled(v, Path(folder)) for v in (WHOLE, *here)}
        rows = list(measure(libraries, 1.0 if options.quick else 20.0))
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in rows]}))
        return
    print(f"{'time against the whole engine, p, d =':40}", end="")
    print("".join(f"{row.prime:>6},{row.width:<4}" for row in rows))
    for name in rows[0].factors:
        print(f"{name:40}" + "".join(f"{row.factors[name]:8.2f}   " for row in rows))


if __name__ == "__main__":
    main()
