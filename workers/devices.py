"""Devices: what was asked for, whether it is there, and how many models fit."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from service.errors import ConfigurationError
from service.spec import RunSpec
from workers.memory import model_bytes

if TYPE_CHECKING:
    import torch

ACCEPTED = "auto, cpu, cuda, cuda:N or mps"

# Share of the free memory a stack may take; the rest is for the allocator and other processes.
_MEMORY_SHARE = 0.6


def resolve_device(name: str) -> torch.device:
    """The device of that name; auto takes a GPU when there is one. Missing is an error."""
    import torch

    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (index and (kind != "cuda" or not index.isdigit())):
        raise ConfigurationError(f"device = {name!r} is not a device; accepted: {ACCEPTED}")
    if kind == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(index or 0) >= count:
            raise ConfigurationError(
                f"device = {name!r} is not there: this machine offers {count} CUDA devices"
            )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigurationError("device = 'mps' is not there: no Metal device on this machine")
    return torch.device(name)


def resolve_name(name: str) -> str:
    """The resolved device as torch writes it; a CPU is known without importing torch."""
    return name if name == "cpu" else str(resolve_device(name))


def device_name(device: torch.device) -> str:
    """What the device is, for people and fingerprints."""
    if device.type == "cuda":
        import torch

        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return f"Metal {platform.machine()}"
    return cpu_name()


def cpu_name() -> str:
    """The processor's model name, as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def free_memory(device: torch.device, share: float = 1.0) -> int:
    """Bytes that could be allocated on the device now by one who may have that share of it."""
    import torch

    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return min(free, int(share * total))
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    return free_host_memory()


def free_host_memory() -> int:
    """Bytes that could be allocated on this machine now."""
    info = Path("/proc/meminfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
    return 2**31


def stack_bytes(device: str = "auto", share: float = 1.0) -> int:
    """Memory one stack may take on the device now.

    Bundles that share a GPU start at once and each see it free, so each counts its share only.
    """
    if device == "cpu":
        return int(_MEMORY_SHARE * free_host_memory())
    return int(_MEMORY_SHARE * free_memory(resolve_device(device), share))


def max_stack(spec: RunSpec, device: str = "auto", share: float = 1.0) -> int:
    """How many models of this shape one stack on the device may hold now; at least one."""
    kind = resolve_name(device).partition(":")[0]
    return max(1, stack_bytes(device, share) // model_bytes(spec, kind))
