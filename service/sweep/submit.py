"""Sweeps as Ray jobs: submitted to a cluster, followed, asked about and stopped."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from db.engine import parse_url
from service.errors import SweepError
from service.settings import Settings
from service.suites import Suite, load_suite
from service.suites.loader import chain
from service.sweep.cluster import check_gpu_share, settle_authentication
from service.sweep.job import SweepOptions

JobState = Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]

# Settings that a job needs to work on the same data; secrets are passed on request only.
PASSED = (
    *("home", "checkpoints", "checkpoint_seconds", "lease_seconds"),
    *("device", "engine", "gpu_step"),
)


@contextmanager
def _asking(address: str) -> Iterator[Any]:
    """A client of the cluster's jobs; what Ray or the network refuses is told in one line."""
    if not address.startswith(("http://", "https://")):
        raise SweepError(
            f"Ray jobs at {address}: is not an address of jobs; accepted: http://HOST:PORT, "
            "such as http://127.0.0.1:8265"
        )
    settle_authentication(local=False)
    from ray.job_submission import JobSubmissionClient

    try:
        yield JobSubmissionClient(address)
    except (OSError, RuntimeError, ValueError) as problem:
        said = str(problem).strip().splitlines()
        raise SweepError(f"Ray jobs at {address}: {said[0] if said else problem}") from problem


def submit_sweep(
    suite: str,
    options: SweepOptions,
    settings: Settings,
    address: str,
    *,
    pass_database_url: bool = False,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Start `groktime sweep` on the cluster; returns Ray's submission id.

    A suite file travels with the job, and so do the files it inherits from. The database URL is
    the cluster's own unless it is passed on purpose: Ray shows the environment of a job to
    everybody who may see its jobs.
    """
    loaded = load_suite(suite)
    # Refuse here what the job would refuse there.
    options.selection.chosen(loaded.runs())
    check_gpu_share(options.gpus_per_bundle, settings.device)
    variables = {**_environment(settings, pass_database_url), **(environment or {})}
    runtime: dict[str, Any] = {"env_vars": variables}
    with tempfile.TemporaryDirectory(prefix="groktime-job-") as folder:
        named = suite
        if not loaded.is_shipped:
            named = f"./{take_along(loaded, Path(folder))}"
            runtime["working_dir"] = folder
        entrypoint = shlex.join(["groktime", "sweep", named, *arguments(options)])
        with _asking(address) as client:
            job: str = client.submit_job(
                entrypoint=entrypoint, runtime_env=runtime, metadata={"suite": loaded.name}
            )
    return job


def take_along(suite: Suite, folder: Path) -> Path:
    """Copy a suite's file and those of its donors, placed to each other as they are here.

    Returns where the suite's own file is in the folder. A donor that its path would not lead to
    on another machine is refused.
    """
    files = [one for one in chain(suite) if not one.is_shipped]
    root = Path(os.path.commonpath([one.path.parent for one in files]))
    for one in files:
        copy = folder / one.path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(one.path, copy)
        for index, (entry, donor) in enumerate(zip(one.file.inherits, one.donors, strict=True)):
            if donor.is_shipped:
                continue
            there = copy.parent / entry.suite
            if Path(os.path.normpath(there)) != folder / donor.path.relative_to(root):
                raise one.document.error(
                    ("inherits", index, "suite"),
                    f"{entry.suite!r} would lead elsewhere on the cluster; accepted in a job: "
                    "a path relative to the file that goes through no link, or a shipped suite",
                )
            there.parent.mkdir(parents=True, exist_ok=True)  # folders that it goes through
    return suite.path.relative_to(root)


def arguments(options: SweepOptions) -> list[str]:
    """The options as `groktime sweep` takes them."""
    selection = options.selection
    given: list[tuple[str, object]] = [
        *(("--prime", prime) for prime in selection.primes),
        *(("--kind", kind) for kind in selection.kinds),
        *(("--width", width) for width in selection.widths),
        *(("--seed", seed) for seed in selection.seeds),
    ]
    if options.gpus_per_bundle:
        given.append(("--gpus-per-bundle", f"{options.gpus_per_bundle:g}"))
    if options.limit is not None:
        given.append(("--limit", options.limit))
    if options.workers is not None:
        given.append(("--workers", options.workers))
    words = [str(word) for pair in given for word in pair]
    return [*words, "--retry-failed"] if options.retry_failed else words


def _environment(settings: Settings, pass_database_url: bool) -> dict[str, str]:
    named = {
        f"GROKTIME_{name.upper()}": str(getattr(settings, name))
        for name in PASSED
        if name in settings.model_fields_set and getattr(settings, name) is not None
    }
    url = settings.database_url.get_secret_value() if settings.database_url else None
    if url is not None and (pass_database_url or parse_url(url).password is None):
        named["GROKTIME_DATABASE_URL"] = url
    return named


def job_state(job: str, address: str) -> JobState:
    """How the job stands, in Ray's words."""
    with _asking(address) as client:
        return _known(job, client).value  # type: ignore[no-any-return]


def _known(job: str, client: Any) -> Any:
    try:
        return client.get_job_status(job)
    except RuntimeError as problem:
        raise SweepError(f"job = {job!r} is not known to the cluster") from problem


def stop_job(job: str, address: str) -> bool:
    """Ask Ray to end the job; False: it had ended. The next sweep goes on from what it recorded."""
    with _asking(address) as client:
        _known(job, client)
        return bool(client.stop_job(job))


def follow(job: str, address: str, poll_seconds: float = 0.5) -> Iterator[str]:
    """The job's log as it grows, until the job has ended."""
    seen = 0
    while True:
        with _asking(address) as client:
            ended = _known(job, client).is_terminal()
            text: str = client.get_job_logs(job)
        if len(text) > seen:
            yield text[seen:]
            seen = len(text)
        if ended:
            return
        time.sleep(poll_seconds)


def job_states(address: str) -> dict[str, JobState]:
    """State of every job the cluster remembers, by submission id."""
    with _asking(address) as client:
        jobs = client.list_jobs()
    return {job.submission_id: job.status.value for job in jobs if job.submission_id}


def job_log(job: str, address: str) -> str:
    """What the job has written so far."""
    with _asking(address) as client:
        _known(job, client)
        text: str = client.get_job_logs(job)
    return text
