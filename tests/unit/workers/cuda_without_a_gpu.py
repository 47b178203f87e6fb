"""A CUDA device made of shapes alone: what an epoch would start on a GPU, counted without one.

Tensors are torch's fake ones, which know device and shape and hold no numbers. Reading a number
on the host, or using tensors of two devices together, raises. The CPU build of torch lacks a
guard for CUDA devices: one that does nothing is compiled and loaded.
"""

from __future__ import annotations

import ctypes
import subprocess
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
using Guard = c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA>;
namespace c10::impl { C10_REGISTER_GUARD_IMPL(CUDA, Guard) }
"""

# Operators that start nothing on the device, beside those that return views.
NOTHING = {"_unsafe_view", "detach", "lift_fresh", "device", "_reshape_alias", "is_pinned"}


def load_guard(folder: Path, compiler: str) -> None:
    """Compile and register the guard for this process."""
    source, library = folder / "guard.cpp", folder / "guard.so"
    source.write_text(GUARD)
    base = Path(torch.__file__).parent
    command = [compiler, "-std=c++20", "-fPIC", "-shared", f"-I{base / 'include'}", str(source)]
    subprocess.run([*command, "-o", str(library), f"-L{base / 'lib'}", "-lc10"], check=True)
    ctypes.CDLL(str(library))


class Launches(TorchDispatchMode):
    """Counts operators that start at least one kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = function.overloadpacket._qualified_op_name.split("::")[1]
        returned = [value.alias_info for value in function._schema.returns]
        view = any(alias is not None and not alias.is_write for alias in returned)
        if not view and name not in NOTHING and "empty" not in name:
            self.by_name[name] += 1
        return function(*args, **(kwargs or {}))

    @property
    def count(self) -> int:
        return self.by_name.total()


class Memory(TorchDispatchMode):
    """Adds up what is allocated on the device and not yet freed; `peak` is the most of it."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self._live: dict[int, int] = {}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cuda":
                storage = tensor.untyped_storage()
                if storage._cdata not in self._live:
                    self._live[storage._cdata] = storage.nbytes()
                    self.peak = max(self.peak, sum(self._live.values()))
                    weakref.finalize(storage, self._live.pop, storage._cdata, 0)
        return result
