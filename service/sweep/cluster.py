"""The Ray cluster a sweep runs on: joined or started, and what it offers to the sweep."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from groktime.db.engine import is_local, shown
from groktime.service.errors import ConfigurationError, SweepError
from groktime.service.settings import Settings
from groktime.service.spec import RunSpec
from groktime.service.sweep.selection import SweepOptions
from groktime.workers.devices import model_bytes

log = logging.getLogger(__name__)

REACH_SECONDS = 10.0  # for a cluster's head to answer at all
STARTS = 3  # tries to start a cluster on this machine
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
BUNDLES_PER_GPU = 4  # where nobody says how many
CPU_STACK_BYTES = 1 << 30  # on a CPU a bundle's length bounds a stack long before memory does
FEWEST_WAITING, MOST_WAITING = 16, 256  # bundles; each that waits is a request to Ray
OBJECT_STORE_BYTES = 100 * 1024 * 1024  # bundles are a few numbers; results go to Postgres
NVIDIA = Path("/proc/driver/nvidia/gpus")  # a folder for each GPU that the driver knows

StackLimit = Callable[[RunSpec], int]  # most models of a run's shape in one stack

# Of a cluster started here, how often its helpers look around: nobody reads what they would tell.
# The reporter keeps Ray's interval: with a longer one a head takes no jobs for minutes.
# Ray's own values let the log monitor search its folder ten times a second.
IDLE = {
    "RAY_LOG_MONITOR_MANY_FILES_THRESHOLD": "0",
    "LOG_NAME_UPDATE_INTERVAL_S": "3600",
}

# Unless told not to, Ray takes the loopback for the machine's own address, where others can reach
# it. The name is of the systems where that is not the default.
MANY_MACHINES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"

# Before Ray is imported. Loggers that Tune adds by itself keep some 300 KB a trial in the driver.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # the newer output talks even when told to be silent
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_prestart_worker_first_driver": "0",  # Tune's workers have an environment of their own
    **IDLE,
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C ends the sweep, not one Tuner of it
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # the sweep tells what failed, once
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # Postgres knows what is done
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


@contextmanager
def cluster(address: str | None, workers: int | None) -> Iterator[None]:
    """Connect to Ray for the time of a sweep.

    Without an address a cluster of this machine alone is started, reachable from this machine
    and with a token only, and ended afterwards. A process that is connected already stays so.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    settle_authentication(local=address is None)
    if address is None:
        _import_for_this_machine()
    import ray

    if ray.is_initialized():
        yield
        return
    if address is not None:
        check_address(address)
    try:
        if address is not None:
            ray.init(address=address, **QUIET)
        else:
            _start_here(workers)
    except Exception as problem:  # Ray raises bare ones when a node is too slow to start
        where = address or "this machine"
        said = str(problem).strip().splitlines()
        raise SweepError(f"Ray at {where}: {said[0] if said else problem!r}") from problem
    try:
        yield
    finally:
        ray.shutdown()


def _import_for_this_machine() -> None:
    """Import Ray so that a cluster started here is bound to the loopback.

    Ray reads this once, and nodes that join other clusters would refuse to if they inherited it.
    """
    if MANY_MACHINES in os.environ:
        return
    os.environ[MANY_MACHINES] = "0"
    try:
        import ray  # noqa: F401
    finally:
        del os.environ[MANY_MACHINES]


def check_address(address: str) -> None:
    """Refuse an address that no cluster answers at; Ray itself would try for minutes."""
    if address.startswith(("http://", "https://")):
        raise SweepError(
            f"Ray at {address}: is where jobs are submitted, with groktime submit; a sweep joins "
            "HOST:PORT of the head, such as 127.0.0.1:6379"
        )
    if address in ("auto", "local") or "://" in address:
        return  # Ray finds out by itself where these are
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise SweepError(
            f"Ray at {address}: is not an address; accepted: HOST:PORT of the head, such as "
            "127.0.0.1:6379, or auto"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
    except (OSError, UnicodeError) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        raise SweepError(f"Ray at {address}: cannot be reached: {why}") from problem


def _start_here(workers: int | None) -> None:
    """Start a cluster of this machine alone; again where it was too busy to do so in time.

    Ray waits half a minute for a node and its agent, no longer, and leaves what it has started
    to the end of this process.
    """
    import ray

    this = psutil.Process()
    for start in range(1, STARTS + 1):
        before = set(this.children())
        try:
            ray.init(
                address="local",
                num_cpus=workers or os.cpu_count(),
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                _node_ip_address="127.0.0.1",
                **QUIET,
            )
            return
        except Exception as problem:
            if start == STARTS:
                raise
            log.warning("Ray did not start, trying again: %s", problem)
            for process in set(this.children()) - before:
                process.kill()


def members() -> tuple[dict[str, float], list[dict[str, Any]]]:
    """What the connected cluster has in all, and its nodes."""
    import ray

    return ray.cluster_resources(), ray.nodes()  # type: ignore[no-untyped-call]


def cluster_address(given: str | None, configured: str | None) -> str | None:
    """The cluster to join: as given, as configured, or the one whose job this process is."""
    return given or configured or os.environ.get("RAY_ADDRESS") or None


def settle_authentication(*, local: bool) -> None:
    """Always say how clusters are authenticated, since Ray's own default may change.

    What the environment says is kept. Otherwise a token is used where there is one, and a
    cluster started here gets a fresh one that only this process and its children know. Ray
    reads this when it is imported: a process that did so before stays without.
    """
    if os.environ.get("RAY_AUTH_MODE"):
        return
    if "ray" in sys.modules:
        os.environ["RAY_AUTH_MODE"] = "disabled"
        return
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", Path.home() / ".ray" / "auth_token"))
    if os.environ.get("RAY_AUTH_TOKEN") or path.exists():
        os.environ["RAY_AUTH_MODE"] = "token"
    elif local:
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        os.environ["RAY_AUTH_MODE"] = "token"
    else:
        os.environ["RAY_AUTH_MODE"] = "disabled"


def check_gpu_share(asked: float | None, device: str) -> None:
    """Refuse a share of GPUs that no cluster could give, and workers without one.

    Ray hides every GPU from a worker whose bundle was given none.
    """
    if asked is None:
        return
    if device.startswith("cuda") and not asked:
        raise SweepError(
            f"GROKTIME_DEVICE = {device!r} needs --gpus-per-bundle, a share of a GPU such as 0.25"
        )
    if asked < 0:
        raise SweepError(f"--gpus-per-bundle = {asked} is negative")
    if asked > 1 and asked != int(asked):
        raise SweepError(f"--gpus-per-bundle = {asked}: above one only whole GPUs can be given")


def gpu_share(asked: float | None, device: str, resources: Mapping[str, float]) -> float:
    """GPUs of one bundle: as asked, or chosen where nothing was; refuses GPUs that are not there.

    Chosen are all GPUs that the cluster has, unless the device is another one. A bundle's kernels
    are small, so up to four bundles share a GPU, but no more than there are CPUs beside it.
    """
    check_gpu_share(asked, device)
    there, cpus = resources.get("GPU", 0.0), resources.get("CPU", 0.0)
    has = f"the cluster has {there:g} GPUs and {cpus:g} CPUs"
    if asked is None:
        if device.startswith("cuda") and not there:
            raise SweepError(f"device = {device!r}, but {has}")
        if not there or not (device == "auto" or device.startswith("cuda")):
            return 0.0
        return 1 / min(BUNDLES_PER_GPU, max(1, int(cpus / there)))
    if asked > there:
        raise SweepError(f"--gpus-per-bundle = {asked:g}, but {has}")
    return asked


def check_database_reaches(url: str, nodes: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a database that only this machine can reach when others would train, too."""
    hosts = {node["NodeManagerHostname"] for node in nodes if node["Alive"]}
    if len(hosts) > 1 and is_local(url):
        raise SweepError(
            f"the cluster has {len(hosts)} machines, but the database {shown(url)} can be reached "
            "from this one only: set GROKTIME_DATABASE_URL to a server all of them reach"
        )


def bundle_device(configured: str, gpus: float) -> str:
    """The device bundles train on: `auto` is a GPU where each is given one."""
    if configured != "auto":
        return configured
    return "cuda" if gpus > 0 else "cpu"


def stack_limit(device: str, gpus: float) -> StackLimit:
    """The bound for stacks on this device; for a GPU, what a worker that has it answers."""
    if device == "cpu":
        return lambda spec: CPU_STACK_BYTES // model_bytes(spec, "cpu")
    there = free_stack_bytes(device, gpus)
    return lambda spec: there // model_bytes(spec, device.partition(":")[0])


def free_stack_bytes(device: str, gpus: float) -> int:
    """Bytes that one stack may take on the device, by a worker with a bundle's resources."""
    import ray

    def answer(device: str, share: float) -> int:
        from groktime.workers.devices import stack_bytes

        return stack_bytes(device, share)

    share = min(1.0, gpus) if gpus else 1.0
    try:
        found: int = ray.get(ray.remote(num_cpus=1, num_gpus=gpus)(answer).remote(device, share))
    except ray.exceptions.RayTaskError as failed:
        if isinstance(failed.cause, ConfigurationError):
            raise SweepError(str(failed.cause)) from failed
        raise
    return found


@dataclass(frozen=True)
class ClusterCapacity:
    """Bundles trained at once, their device, how many models one of its stacks holds, the GPUs of
    a bundle, and a sentence for people."""

    slots: int
    device: str
    stack_limit: StackLimit
    gpus: float = 0.0
    description: str = ""

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"


@contextmanager
def joined_cluster(
    options: SweepOptions, settings: Settings, address: str | None
) -> Iterator[ClusterCapacity]:
    """Connect to the cluster, or start one here, and find out what it offers to this sweep."""
    with cluster(address, options.workers):
        resources, _ = members()
        yield cluster_capacity(options, settings.device, resources)


def cluster_capacity(
    options: SweepOptions, configured: str, resources: Mapping[str, float]
) -> ClusterCapacity:
    """What the connected cluster offers.

    GPUs that nobody asked for and that its workers cannot use (a torch without CUDA, an old
    driver) leave the sweep on CPUs, and the sentence says why.
    """
    asked = options.gpus_per_bundle
    gpus = gpu_share(asked, configured, resources)
    device = bundle_device(configured, gpus)
    unused = ""
    try:
        limit = stack_limit(device, gpus)
    except SweepError as problem:
        if asked is not None or configured != "auto":
            raise
        unused = f"; its GPUs are not used: {problem}"
        gpus, device = 0.0, "cpu"
        limit = stack_limit(device, gpus)
    slots = bundles_at_once(gpus, options.workers, resources)
    if gpus:
        there = resources["GPU"]
        where = f"{device}: {slots} bundles at once on {there:g} GPU{'s' * (there != 1)}"
        return ClusterCapacity(slots, device, limit, gpus, f"{where}, {gpus:g} of a GPU each")
    where = f"{device}: {slots} bundle{'s' * (slots != 1)} at once"
    return ClusterCapacity(slots, device, limit, gpus, where + unused)


def bundles_at_once(gpus: float, most: int | None, resources: Mapping[str, float]) -> int:
    """How many bundles fit on the cluster: one CPU each, and their share of a GPU."""
    cpus = max(1, int(resources.get("CPU", 1)))
    slots = min(cpus, max(1, int(resources.get("GPU", 0.0) / gpus))) if gpus else cpus
    return min(slots, most or slots)


def slots_now(gpus: float, most: int | None) -> int:
    """Bundles that fit at once on the cluster as it is: nodes come and go."""
    resources, _ = members()
    return bundles_at_once(gpus, most, resources)


def slots_to_plan_for(gpus: float, most: int | None, settings: Settings) -> int:
    """Bundles that fit at once on the cluster as it is, or as large as its autoscaler makes it.

    Only settings tell how large that is: Ray's autoscalers keep it to themselves.
    """
    grown = settings.most_gpus if gpus else settings.most_cpus
    slots = int((grown or 0) / (gpus or 1.0))
    return max(slots_now(gpus, most), min(slots, most or slots))


def slots_to_ask_for(gpus: float, most: int | None, settings: Settings) -> int:
    """Bundles that are chosen now: as many as fit, twice as many where the cluster may grow.

    An autoscaler adds nodes for what waits, and later choices know more.
    """
    return min(2 * slots_now(gpus, most), slots_to_plan_for(gpus, most, settings))


def waiting_bundles(slots: int) -> int:
    """Bundles that may wait for a node or be starting at once: an autoscaler sees no more."""
    return min(MOST_WAITING, max(FEWEST_WAITING, slots))


@contextmanager
def expected_capacity(
    options: SweepOptions, settings: Settings, address: str | None
) -> Iterator[ClusterCapacity]:
    """The capacity for a sweep that is only planned: CPUs of this machine are known without Ray."""
    device = bundle_device(settings.device, options.gpus_per_bundle or 0.0)
    gpus_here = settings.device == "auto" and options.gpus_per_bundle is None and NVIDIA.is_dir()
    if address is None and device == "cpu" and not options.gpus_per_bundle and not gpus_here:
        yield ClusterCapacity(
            options.workers or os.cpu_count() or 1, device, stack_limit(device, 0.0)
        )
        return
    with joined_cluster(options, settings, address) as capacity:
        yield capacity
