"""Whether another tree of this project computes the same curves, bit for bit.

    python -m benchmarks.same_curves ../other-tree [--epochs 6] [--json]

Twelve recorded runs of all kinds (capacity, speed and grok; with and without positions; narrow
and wide; small and large primes) are trained for some epochs by both trees, each in a process of
its own, by the native and the PyTorch engine. The native one is built twice: for this processor
and for one without AVX-512. This is the proof behind the table in workers/engines.py that says
which sources compute what earlier ones did. Exits 1 when a single bit differs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent.parent

# Recording, kind, prime, width.
CHOSEN = (
    ("central-two-cores-released", "capacity", 113, 14),
    ("central-two-cores-released", "speed", 113, 64),
    ("central-two-cores-released", "grok", 139, 40),
    ("central-two-cores", "capacity", 113, 10),
    ("central-two-cores", "speed", 97, 48),
    ("central-two-cores", "grok", 101, 80),
    ("mini-released", "capacity", 59, 8),
    ("mini-released", "speed", 47, 32),
    ("mini", "speed", 73, 24),
    ("mini", "grok", 59, 20),
    ("last_batch-released", "grok", 61, 36),
    ("weight_decay-two-cores-released", "grok", 97, 128),
)

# What is asked of a tree: the folder, the engine, flags of the compiler, epochs, where to write.
PROGRAM = """
import json, sys
from pathlib import Path
tree, engine, flags, epochs, target = sys.argv[1:]
sys.path.insert(0, tree)
prefix = "groktime." if Path(tree, "groktime", "__init__.py").exists() else ""
from importlib import import_module
import numpy as np
RunSpec = import_module(prefix + "service.spec").RunSpec
specs = [RunSpec.model_validate_json(line) for line in sys.stdin]
if engine == "native":
    whole = Path(tree, "workers", "native", "build.py").exists()
    build = import_module(prefix + "workers.native." + ("build" if whole else "engine")).build
    stack = import_module(prefix + "workers.native").NativeStack
    where = sys.modules[stack.__module__]
    made = build(flags.split() or None, Path(target).parent / "built")
    library = where.Library(made)
    stacks = [stack([spec], engine=library) for spec in specs]
else:
    import torch
    torch.set_num_threads(1)
    stack = import_module(prefix + "workers.torch_engine").TorchStack
    stacks = [stack([spec], device="cpu") for spec in specs]
assert Path(sys.modules[stack.__module__].__file__).resolve().is_relative_to(Path(tree).resolve())
curves = [stack.advance(int(epochs))[0] for stack in stacks]
weights = [np.concatenate([v.ravel() for v in stack.state(0).values()]) for stack in stacks]
np.savez(target, **{f"curve{i}": c.view(np.uint8) for i, c in enumerate(curves)},
         **{f"state{i}": w.view(np.uint32) for i, w in enumerate(weights)})
"""


def recorded_specs() -> list[str]:
    """The chosen runs' specs as JSON, the first of each description in its recording."""
    found = []
    for name, *wanted in CHOSEN:
        with zipfile.ZipFile(HERE / "recordings" / f"{name}.groktime") as archive:
            specs = [json.loads(line)["run"]["spec"] for line in archive.open("runs.jsonl")]
        spec = next(
            spec
            for spec in specs
            if [spec["kind"], spec["data"]["prime"], spec["model"]["width"]] == wanted
        )
        del spec["version"]  # of the canonical form, not of the run
        found.append(json.dumps(spec))
    return found


def trained_by(
    tree: Path, engine: str, flags: Sequence[str], epochs: int, specs: Sequence[str]
) -> dict[str, Any]:
    """Every epoch's metrics and the state after the last, as bytes, by a process of that tree."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "curves.npz"
        command = [sys.executable, "-c", PROGRAM, str(tree), engine, " ".join(flags), str(epochs)]
        subprocess.run(
            [*command, str(target)],
            input="\n".join(specs),
            text=True,
            check=True,
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        with np.load(target) as archive:
            return {name: archive[name] for name in archive.files}


def builds() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Engine and compiler flags by what the table calls them."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {
        "torch": ("torch", ()),
        "native, this processor": ("native", ()),
    }
    if platform.machine() in ("x86_64", "AMD64"):
        found["native, AVX2"] = ("native", ("-mavx2", "-mfma"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("tree", type=Path, help="root of the other tree")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args()
    specs = recorded_specs()
    different: dict[str, list[int]] = {}
    for name, (engine, flags) in builds().items():
        ours, theirs = (
            trained_by(tree.resolve(), engine, flags, options.epochs, specs)
            for tree in (HERE, options.tree)
        )
        different[name] = [
            run
            for run in range(len(specs))
            if any(
                ours[part + str(run)].tobytes() != theirs[part + str(run)].tobytes()
                for part in ("curve", "state")
            )
        ]
    if options.json:
        print(json.dumps({"runs": len(specs), "epochs": options.epochs, "different": different}))
    else:
        for name, runs in different.items():
            said = f"differ: {[CHOSEN[run] for run in runs]}" if runs else "equal bit for bit"
            print(f"{name:24} {len(specs)} runs, {options.epochs} epochs and the state: {said}")
    sys.exit(1 if any(different.values()) else 0)


if __name__ == "__main__":
    main()
