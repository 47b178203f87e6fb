"""How many models of a shape one stack may hold, counted as the workers will count."""

from __future__ import annotations

from collections.abc import Callable

from service.errors import ConfigurationError, SweepError
from service.spec import RunSpec
from workers.memory import model_bytes

Room = Callable[[RunSpec], int]

# On a CPU the length of a bundle bounds a stack long before memory does.
CPU_STACK_BYTES = 1 << 30


def bundle_device(configured: str, gpus: float) -> str:
    """The device bundles train on: `auto` is a GPU where each is given one."""
    if configured != "auto":
        return configured
    return "cuda" if gpus > 0 else "cpu"


def room_on(device: str, gpus: float) -> Room:
    """The bound for stacks on this device; for a GPU, what a worker that has it answers."""
    if device == "cpu":
        return lambda spec: CPU_STACK_BYTES // model_bytes(spec, "cpu")
    there = ask_a_worker(device, gpus)
    return lambda spec: there // model_bytes(spec, device.partition(":")[0])


def ask_a_worker(device: str, gpus: float) -> int:
    """Bytes that one stack may take on the device, by a worker with a bundle's resources."""
    import ray

    def answer(device: str, share: float) -> int:
        from workers.devices import stack_bytes

        return stack_bytes(device, share)

    share = min(1.0, gpus) if gpus else 1.0
    try:
        found: int = ray.get(ray.remote(num_cpus=1, num_gpus=gpus)(answer).remote(device, share))
    except ray.exceptions.RayTaskError as failed:
        if isinstance(failed.cause, ConfigurationError):
            raise SweepError(str(failed.cause)) from failed
        raise
    return found
