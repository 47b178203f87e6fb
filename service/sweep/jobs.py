"""Sweeps as Ray jobs: submitted to a cluster, followed, stopped, and tracked in the database."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Engine

from groktime.db.engine import parse_url, retrying
from groktime.db.sweeps import (
    SweepRow,
    SweepState,
    get_sweep,
    insert_sweep,
    list_sweeps,
    update_sweep,
)
from groktime.service.errors import GroktimeError, SweepError
from groktime.service.settings import Settings
from groktime.service.suites import Suite, load_suite
from groktime.service.suites.loader import chain
from groktime.service.sweep.cluster import check_gpu_share, settle_authentication
from groktime.service.sweep.selection import (
    PreparedSweep,
    SweepOptions,
    SweepReport,
    check_located,
)

JobState = Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]

SWEEP_VARIABLE = "GROKTIME_SWEEP"  # how a job knows which row of which database it is
URL_FILE = "groktime-database-url"  # in the job's working directory
ENDED: dict[str, SweepState] = {"SUCCEEDED": "done", "FAILED": "failed", "STOPPED": "stopped"}

# Settings that a job needs to work on the same data; secrets are passed on request only.
PASSED = (
    *("home", "checkpoints", "checkpoint_seconds", "lease_seconds"),
    *("device", "engine", "gpu_step"),
)


@contextmanager
def jobs_client(address: str) -> Iterator[Any]:
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


def submit_job(
    suite: str | Suite,
    options: SweepOptions,
    settings: Settings,
    address: str,
    *,
    pass_database_url: bool = False,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Start `groktime sweep` on the cluster; returns Ray's submission id.

    A suite file travels with the job, and so do the files it inherits from. A URL with a password
    is passed on request only, in a file of the job's working directory: Ray shows the environment
    of a job to everybody who may see its jobs, and writes it to its logs. Where a URL is withheld
    the job must have the cluster's own; it never falls back to an embedded server.
    """
    loaded = suite if isinstance(suite, Suite) else load_suite(suite)
    # Refuse here what the job would refuse there.
    options.selection.chosen(loaded)
    check_located(loaded, options)
    check_gpu_share(options.gpus_per_bundle, settings.device)
    variables = {**job_environment(settings), **(environment or {})}
    runtime: dict[str, Any] = {"env_vars": variables}
    secret = withheld_url(settings)
    # For the driver alone, which runs in the job's working directory; workers get the URL from it.
    driver = {} if settings.embedded else {"GROKTIME_REQUIRE_SERVER": "1"}
    with tempfile.TemporaryDirectory(prefix="groktime-job-") as folder:
        named = loaded.name
        if not loaded.is_shipped:
            named = f"./{copy_suite_files(loaded, Path(folder))}"
            runtime["working_dir"] = folder
        if secret is not None and pass_database_url:
            _write_private(Path(folder) / URL_FILE, secret)
            driver["GROKTIME_DATABASE_URL_FILE"] = URL_FILE
            runtime["working_dir"] = folder
        before = ["env", *(f"{name}={value}" for name, value in driver.items())] if driver else []
        entrypoint = shlex.join([*before, "groktime", "sweep", named, *arguments(options)])
        with jobs_client(address) as client:
            job: str = client.submit_job(
                entrypoint=entrypoint, runtime_env=runtime, metadata={"suite": loaded.name}
            )
    return job


def copy_suite_files(suite: Suite, folder: Path) -> Path:
    """Copy a suite's file and those of its donors, placed to each other as they are here.

    Returns where the suite's own file is in the folder. A donor that its path would not lead to
    on another machine is refused. A suite that was made from a question gets a file of its own.
    """
    if suite.is_made:
        written = folder / f"{suite.name}.yaml"
        written.write_text(json.dumps(suite.document.content), "utf-8")
        return written.relative_to(folder)
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
        # As YAML reads it back: it takes a bare * or - for something else, and True for a word.
        *(("--set", f"{name}={json.dumps(value)}") for name, value in selection.settings.items()),
    ]
    if options.gpus_per_bundle is not None:
        given.append(("--gpus-per-bundle", f"{options.gpus_per_bundle:g}"))
    if options.limit is not None:
        given.append(("--limit", options.limit))
    if options.workers is not None:
        given.append(("--workers", options.workers))
    words = [str(word) for pair in given for word in pair]
    flags = (("--retry-failed", options.retry_failed), ("--replace", options.replace))
    return [*words, *(flag for flag, given in flags if given)]


def job_environment(settings: Settings) -> dict[str, str]:
    """Settings that a job needs to work on the same data; no password among them."""
    named = {
        f"GROKTIME_{name.upper()}": str(getattr(settings, name))
        for name in PASSED
        if name in settings.model_fields_set and getattr(settings, name) is not None
    }
    url = settings.database_url
    if url is not None and withheld_url(settings) is None:
        named["GROKTIME_DATABASE_URL"] = url.get_secret_value()
    return named


def withheld_url(settings: Settings) -> str | None:
    """The database URL if it has a password, which goes with a job on request only."""
    url = settings.database_url.get_secret_value() if settings.database_url else None
    return url if url is not None and parse_url(url).password is not None else None


def _write_private(path: Path, content: str) -> None:
    """A file that nobody else can read, from its first byte on."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(content)


def job_state(job: str, address: str) -> JobState:
    """How the job stands, in Ray's words."""
    with jobs_client(address) as client:
        return _known(job, client).value  # type: ignore[no-any-return]


def _known(job: str, client: Any) -> Any:
    try:
        return client.get_job_status(job)
    except RuntimeError as problem:
        raise SweepError(f"job = {job!r} is not known to the cluster") from problem


def stop_job(job: str, address: str) -> bool:
    """Ask Ray to end the job; False: it had ended. The next sweep goes on from what it recorded."""
    with jobs_client(address) as client:
        _known(job, client)
        return bool(client.stop_job(job))


def follow(job: str, address: str, poll_seconds: float = 0.5) -> Iterator[str]:
    """The job's log as it grows, until the job has ended."""
    seen = 0
    while True:
        with jobs_client(address) as client:
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
    with jobs_client(address) as client:
        jobs = client.list_jobs()
    return {job.submission_id: job.status.value for job in jobs if job.submission_id}


def job_log(job: str, address: str) -> str:
    """What the job has written so far."""
    with jobs_client(address) as client:
        _known(job, client)
        text: str = client.get_job_logs(job)
    return text


def submit_sweep(
    engine: Engine,
    suite: str | Suite,
    options: SweepOptions,
    settings: Settings,
    address: str,
    *,
    by: str,
    pass_database_url: bool = False,
) -> tuple[int, str]:
    """Record the sweep, then submit it; returns its number and Ray's id of the job.

    A refusal by Ray is recorded too, but not filters that the suite has no runs for or chooses by
    itself. `engine` may write.
    """
    loaded = suite if isinstance(suite, Suite) else load_suite(suite)
    options.selection.chosen(loaded)
    check_located(loaded, options)
    name = loaded.name
    with engine.begin() as connection:
        number = insert_sweep(connection, name, submitted_by=by, filters=requested(options))
        row = get_sweep(connection, number)
    assert row is not None
    try:
        job = submit_job(
            suite,
            options,
            settings,
            address,
            pass_database_url=pass_database_url,
            environment={SWEEP_VARIABLE: sweep_label(row)},
        )
    except GroktimeError as refused:
        set_state(engine, number, "failed", str(refused))
        raise
    with engine.begin() as connection:
        # Not its state: the job may have begun, and then has told it.
        update_sweep(connection, number, job_id=job)
    return number, job


def requested(options: SweepOptions) -> dict[str, Any]:
    """What differs from a sweep of the whole suite, in the words of `POST /sweeps`."""
    selection = options.selection
    filters: dict[str, Any] = {
        "prime": list(selection.primes),
        "kind": list(selection.kinds),
        "width": list(selection.widths),
        "seed": list(selection.seeds),
    }
    resources = {
        "gpus_per_bundle": options.gpus_per_bundle,
        "workers": options.workers,
        "limit": options.limit,
    }
    if selection.settings:
        filters["settings"] = dict(selection.settings)
    asked = {
        "filters": {name: values for name, values in filters.items() if values},
        "resources": {name: value for name, value in resources.items() if value is not None},
        "retry_failed": options.retry_failed,
    }
    return {name: value for name, value in asked.items() if value}


def tracked(
    engine: Engine, sweep: Callable[[], tuple[PreparedSweep, SweepReport]]
) -> tuple[PreparedSweep, SweepReport]:
    """Run the sweep; where this process is a recorded sweep's job, record how it goes and ends."""
    number = _own_row(engine, os.environ.get(SWEEP_VARIABLE, ""))
    if number is None:
        return sweep()
    set_state(engine, number, "running")
    try:
        prepared, report = sweep()
    except GroktimeError as problem:
        set_state(engine, number, "failed", str(problem))
        raise
    except KeyboardInterrupt:
        set_state(engine, number, "stopped")
        raise
    if report.failed:
        set_state(engine, number, "failed", f"{len(report.failed)} runs failed")
    else:
        set_state(engine, number, "done")
    return prepared, report


def sweep_label(row: SweepRow) -> str:
    """Names a recorded sweep so that no row of another database is taken for it."""
    identity = f"{row.suite} {row.submitted_by} {row.created_at.timestamp():.6f}"
    return f"{row.id}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def _own_row(engine: Engine, label: str) -> int | None:
    """The number of the row that the label names, if it is in this database."""
    number, _, identity = label.partition("-")
    if not number.isdigit() or not identity:
        return None
    with engine.connect() as connection:
        row = get_sweep(connection, int(number))
    return int(number) if row is not None and sweep_label(row) == label else None


def settle_sweeps(engine: Engine, address: str) -> None:
    """Close recorded sweeps whose jobs have ended without a word in this database.

    A job that was killed, could not start, or writes to a database of its own leaves its row
    open.
    """
    with engine.connect() as connection:
        rows = [row for row in list_sweeps(connection) if row.state in ("submitted", "running")]
    if not rows:
        return
    states = job_states(address)
    for row in rows:
        ray_state = states.get(row.job_id or "")
        if ray_state in ENDED:
            state = ENDED[ray_state]
            unseen = row.state == "submitted" and state == "done"
            message = "the job wrote to another database than this one" if unseen else None
            set_state(engine, row.id, state, message or f"Ray: the job {ray_state.lower()}")


def set_state(engine: Engine, number: int, state: SweepState, message: str | None = None) -> None:
    """Update the state of a recorded sweep."""

    def write() -> None:
        with engine.begin() as connection:
            update_sweep(connection, number, state=state, message=message)

    retrying(write)
