"""The Ray cluster a sweep runs on: joined when there is one, else started on this machine."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from db.engine import is_local, shown
from service.errors import SweepError

log = logging.getLogger(__name__)

REACH_SECONDS = 10.0  # for a cluster's head to answer at all
STARTS = 3  # tries to start a cluster on this machine
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
OBJECT_STORE_BYTES = 100 * 1024 * 1024  # bundles are a few numbers; results go to Postgres

# Before Ray is imported. Loggers that Tune adds by itself keep some 300 KB a trial in the driver.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",  # the newer output talks even when told to be silent
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_prestart_worker_first_driver": "0",  # Tune's workers have an environment of their own
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


def check_gpu_share(asked: float, device: str) -> None:
    """Refuse a share of GPUs that no cluster could give, and workers without one.

    Ray hides every GPU from a worker whose bundle was given none.
    """
    if device.startswith("cuda") and not asked:
        raise SweepError(
            f"GROKTIME_DEVICE = {device!r} needs --gpus-per-bundle, a share of a GPU such as 0.25"
        )
    if asked < 0:
        raise SweepError(f"--gpus-per-bundle = {asked} is negative")
    if asked > 1 and asked != int(asked):
        raise SweepError(f"--gpus-per-bundle = {asked}: above one only whole GPUs can be given")


def check_gpus(asked: float, device: str, resources: Mapping[str, float]) -> None:
    """Refuse GPUs that the cluster does not have, naming what it has."""
    check_gpu_share(asked, device)
    there = resources.get("GPU", 0.0)
    if asked > there:
        raise SweepError(
            f"--gpus-per-bundle = {asked:g}, but the cluster has {there:g} GPUs and "
            f"{resources.get('CPU', 0.0):g} CPUs"
        )


def check_database_reaches(url: str, nodes: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a database that only this machine can reach when others would train, too."""
    hosts = {node["NodeManagerHostname"] for node in nodes if node["Alive"]}
    if len(hosts) > 1 and is_local(url):
        raise SweepError(
            f"the cluster has {len(hosts)} machines, but the database {shown(url)} can be reached "
            "from this one only: set GROKTIME_DATABASE_URL to a server all of them reach"
        )
