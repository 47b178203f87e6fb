"""What decides the last bit of a result: engine, source, libraries, processor and threads."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from workers.devices import device_name

if TYPE_CHECKING:
    import torch

# What every engine computes with; an engine adds its own files.
_COMMON = ("model.py", "streams.py", "tasks.py")


@lru_cache(maxsize=8)
def source_hash(files: Sequence[str]) -> str:
    """A short hash of files of this package, given relative to it."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for name in (*_COMMON, *files):
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()[:12]


def fingerprint(engine: str, files: tuple[str, ...], device: torch.device, *extra: str) -> str:
    """One line; two attempts that share it give bitwise the same curves on a CPU."""
    import torch

    build = hashlib.sha256(torch.__config__.show().encode()).hexdigest()[:8]
    parts = [
        engine,
        f"source {source_hash(files)}",
        f"torch {torch.__version__} {build}",
        device_name(device),
    ]
    if device.type == "cpu":
        parts += [torch.backends.cpu.get_cpu_capability(), f"threads {torch.get_num_threads()}"]
    return "; ".join([*parts, *extra])
