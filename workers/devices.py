"""Devices: what was asked for, whether it is there, and how many models fit.

What a model needs is arithmetic: planning takes neither torch nor a device.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from groktime.service.errors import ConfigurationError
from groktime.service.spec import TOKENS, RandomData, RunSpec

if TYPE_CHECKING:
    import torch

ACCEPTED = "auto, cpu, cuda, cuda:N or mps"

# Share of the free memory a stack may take; the rest is for the allocator and other processes.
_MEMORY_SHARE = 0.6

# What the examples evaluated at once may take of a GPU: the fewer times, the fewer kernels.
EVALUATION_BYTES = 2**30


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
                f"{_why_no_cuda() if count == 0 else ''}"
            )
    if kind == "mps" and not torch.backends.mps.is_available():
        raise ConfigurationError("device = 'mps' is not there: no Metal device on this machine")
    return torch.device(name)


def _why_no_cuda() -> str:
    """What torch says of itself or of the driver; an old driver looks like no device otherwise."""
    import torch

    if torch.version.cuda is None:
        return f" (torch {torch.__version__} is a build without CUDA)"
    try:
        torch.zeros(1, device="cuda")
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        return f" (torch {torch.__version__}, built for CUDA {torch.version.cuda}, says: {first})"
    return ""


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


def device_family(device: torch.device) -> str:
    """What fingerprints say of a device: a GPU's generation, the model of everything else."""
    if device.type == "cuda":
        import torch

        major, minor = torch.cuda.get_device_capability(device)
        return f"CUDA {major}.{minor}"
    return device_name(device)


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
    free = free_memory(resolve_device(device), share)
    return max(0, int(_MEMORY_SHARE * free) - EVALUATION_BYTES)


def model_bytes(spec: RunSpec, device: str) -> int:
    """Memory one model of a stack takes on a device of this kind (cpu, cuda), rounded up.

    Weights, both moments and a gradient; the data; and the activations that the backward pass
    keeps, which only stacked models hold at the same time: on a CPU one model trains at a time.
    """
    persistent = 4 * 4 * spec.params + 8 * 5 * (spec.data.n_train + spec.data.n_val)
    if device == "cpu":
        return persistent
    model, batch = spec.model, min(spec.optimiser.batch_size, spec.data.n_train)
    per_position = 8 * model.hidden + 16 * model.width
    activations = batch * (TOKENS * model.depth * per_position + 4 * spec.vocabulary)
    return persistent + 4 * activations


def evaluation_bytes(spec: RunSpec) -> int:
    """Memory that the evaluation of one example by one model takes on a GPU, rounded up.

    Positions that follow from the first token alone are evaluated once for all examples: the
    first one, and the second where an operator stands there.
    """
    model, own = spec.model, TOKENS - (1 if isinstance(spec.data, RandomData) else 2)
    return 4 * (own * (4 * model.hidden + 10 * model.width) + 4 * spec.vocabulary)


def max_stack(spec: RunSpec, device: str = "auto", share: float = 1.0) -> int:
    """How many models of this shape one stack on the device may hold now; at least one."""
    kind = resolve_name(device).partition(":")[0]
    return max(1, stack_bytes(device, share) // model_bytes(spec, kind))
