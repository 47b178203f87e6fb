"""`groktime sweep`, `submit` and `status`: train a suite here or on a cluster, and look at it."""

from __future__ import annotations

import getpass
import json
import socket
import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from service.errors import InputError
from service.settings import Settings, get_settings
from service.spec import KINDS, Kind
from service.suites import load_suite
from service.sweep.interruption import terminated_as_interrupt

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from db.engine import Role
    from service.answers.coverage import CoverageAnswer
    from service.sweep.job import Job, SweepOptions, SweepReport

EXIT_RUNS_FAILED = 1
SHOWN_FAILURES = 50

SuiteName = Annotated[str, typer.Argument(metavar="SUITE", help="A suite's name or a .yaml file.")]
Primes = Annotated[list[int] | None, typer.Option("--prime", help="Only these primes.")]
Kinds = Annotated[
    list[str] | None, typer.Option("--kind", help="Only these kinds: capacity, speed, grok.")
]
Widths = Annotated[list[int] | None, typer.Option("--width", help="Only these widths.")]
Seeds = Annotated[list[int] | None, typer.Option("--seed", help="Only these seeds.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Train at most this many runs.")]
Gpus = Annotated[
    float, typer.Option("--gpus-per-bundle", min=0.0, help="GPUs of one bundle, such as 0.25.")
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Bundles trained at once; default: all that fit.")
]
Retry = Annotated[bool, typer.Option("--retry-failed", help="Try failed runs again.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON line at the end.")]


def sweep(
    suite: SuiteName,
    prime: Primes = None,
    kind: Kinds = None,
    width: Widths = None,
    seed: Seeds = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster to join; default: start one here.")
    ] = None,
    gpus_per_bundle: Gpus = 0.0,
    limit: Limit = None,
    workers: Workers = None,
    retry_failed: Retry = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan; write and train nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train what is missing of a suite, through Ray Tune, into the database.

    Started again it goes on where it was. Examples:

    groktime sweep mini

    groktime sweep central --prime 113 --kind speed --limit 10 --dry-run

    ray job submit --address http://127.0.0.1:8265 --working-dir . -- groktime sweep mini
    """
    from service.sweep.cluster import check_gpu_share, cluster_address
    from service.sweep.job import SweepOptions
    from service.sweep.selection import Selection

    loaded = load_suite(suite)
    selection = Selection(prime or (), checked_kinds(kind), width or (), seed or ())
    options = SweepOptions(selection, limit, gpus_per_bundle, workers, retry_failed)
    # Before a database is started: a mistake leaves nothing behind.
    selection.chosen(loaded.runs())
    check_gpu_share(gpus_per_bundle, get_settings().device)
    if dry_run:
        from service.sweep.means import expected
        from service.sweep.preview import preview

        engine = existing_database()
        settings = get_settings()
        with expected(options, settings, cluster_address(address, settings.ray_address)) as means:
            plan = preview(loaded, engine, options, means)
        typer.echo(json.dumps(asdict(plan)) if as_json else str(plan))
        if engine is None:
            typer.echo("no database is running: planned as if nothing were trained", err=True)
        return
    from service.sweep.noting import noting
    from service.sweep.running import run_sweep

    url, engine = ready_database()
    console = Console(stderr=as_json, highlight=False)
    run = partial(run_sweep, loaded, url, engine, get_settings(), options, console, address=address)
    with terminated_as_interrupt():
        job, report = noting(engine, run)
    tell(job, report, console, as_json=as_json)
    engine.dispose()
    if report.failed:
        raise typer.Exit(EXIT_RUNS_FAILED)


def checked_kinds(kinds: list[str] | None) -> list[Kind]:
    """The kinds named on the command line; others than the three are refused."""
    known: dict[str, Kind] = {kind: kind for kind in KINDS}
    for kind in kinds or ():
        if kind not in known:
            raise InputError(f"--kind = {kind!r} is not accepted; accepted: {', '.join(known)}")
    return [known[kind] for kind in kinds or ()]


def ready_database() -> tuple[str, Engine]:
    """URL and engine of the results database; the embedded one is started and migrated."""
    from db import embedded
    from db.engine import connect, connect_migrated, database_url

    settings = get_settings()
    if settings.embedded:
        url = embedded.start(settings.home)
        return url, connect_migrated(url)
    url = database_url("writer", settings)
    return url, connect(url, "writer")


def existing_database(role: Role = "reader") -> Engine | None:
    """The results database if there is one; none is started."""
    from db import embedded
    from db.engine import connect

    settings = get_settings()
    if settings.embedded and not embedded.is_running(settings.home):
        return None
    return connect(role=role)


def tell(job: Job, report: SweepReport, console: Console, *, as_json: bool) -> None:
    """The end of a sweep: what was trained, and a table of what failed and why."""
    if as_json:
        told = {
            "suite": job.suite.name,
            "selected": len(job.runs),
            "trained": report.trained,
            "failed": {str(run): reason for run, reason in report.failed.items()},
            "left_to_others": report.left_to_others,
        }
        sys.stdout.write(json.dumps(told) + "\n")
    if not job.open and report.failed:
        console.print(
            f"{job.suite.name}: nothing left to train; {len(report.failed):,} of "
            f"{len(job.runs):,} runs failed, and --retry-failed tries them again"
        )
    elif not job.open:
        console.print(f"{job.suite.name}: all {len(job.runs):,} runs are trained already")
    else:
        console.print(f"{job.suite.name}: {report.trained:,} runs trained")
    if report.left_to_others:
        console.print(f"{report.left_to_others} runs are being trained by another sweep")
    if report.failed:
        table = Table("run", "kind", "prime", "width", "seed", "why", title="failed runs")
        for run_id, reason in list(report.failed.items())[:SHOWN_FAILURES]:
            spec = job.runs[run_id].spec
            cells = (run_id, spec.kind, spec.data.prime, spec.model.width, spec.seed, reason)
            table.add_row(*map(str, cells))
        console.print(table)
        hidden = len(report.failed) - SHOWN_FAILURES
        if hidden > 0:
            console.print(f"and {hidden} more")


def submit(
    suite: SuiteName,
    prime: Primes = None,
    kind: Kinds = None,
    width: Widths = None,
    seed: Seeds = None,
    address: Annotated[
        str | None, typer.Option(help="Jobs address of the cluster, http://HOST:8265.")
    ] = None,
    gpus_per_bundle: Gpus = 0.0,
    limit: Limit = None,
    workers: Workers = None,
    retry_failed: Retry = False,
    follow: Annotated[bool, typer.Option(help="Show the job's log until it ends.")] = True,
    pass_database_url: Annotated[
        bool,
        typer.Option(
            "--pass-database-url",
            help="Send the database URL, password and all; the cluster's jobs page shows it.",
        ),
    ] = False,
) -> None:
    """Submit a sweep as a Ray job and follow its log.

    Example: groktime submit central --address http://127.0.0.1:8265
    """
    from service.sweep.job import SweepOptions
    from service.sweep.selection import Selection
    from service.sweep.submit import follow as follow_log
    from service.sweep.submit import job_state

    settings = get_settings()
    where = address or settings.ray_jobs_address
    selection = Selection(prime or (), checked_kinds(kind), width or (), seed or ())
    options = SweepOptions(selection, limit, gpus_per_bundle, workers, retry_failed)
    job = submitted(suite, options, settings, where, pass_database_url)
    if not follow:
        return
    for part in follow_log(job, where):
        sys.stdout.write(part)
        sys.stdout.flush()
    state = job_state(job, where)
    typer.echo(f"{job}: {state.lower()}")
    if state != "SUCCEEDED":
        raise typer.Exit(EXIT_RUNS_FAILED)


def submitted(
    suite: str,
    options: SweepOptions,
    settings: Settings,
    address: str,
    pass_database_url: bool,
) -> str:
    """Submit the sweep, noting it where there is a results database; Ray's id of the job."""
    from service.sweep.noting import submit_noted
    from service.sweep.submit import submit_sweep

    engine = existing_database("writer")
    if engine is None:
        job = submit_sweep(suite, options, settings, address, pass_database_url=pass_database_url)
        typer.echo(f"submitted {job}; not noted, since no results database runs here")
        return job
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    number, job = submit_noted(
        engine, suite, options, settings, address, by=by, pass_database_url=pass_database_url
    )
    engine.dispose()
    typer.echo(f"submitted {job}, noted as sweep {number}")
    return job


def status(
    suite: Annotated[
        str | None, typer.Argument(metavar="[SUITE]", help="A suite; default: all of them.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Cells × seeds of a suite: done, running, stale, failed, censored; speed and time left.

    Example: groktime status mini
    """
    from db.engine import connect
    from service.answers.coverage import coverage
    from service.answers.reading import read_suite, read_suites, reading

    engine = connect(role="reader")
    with reading(engine) as connection:
        records = [read_suite(connection, suite)] if suite else read_suites(connection)
        answers = [coverage(connection, record) for record in records]
    engine.dispose()
    if as_json:
        typer.echo(json.dumps([asdict(answer) for answer in answers]))
        return
    console = Console(highlight=False)
    if not answers:
        console.print("no suite has been swept yet; start with: groktime sweep demo")
    elif suite:
        print_cells(answers[0], console)
    else:
        print_suites(answers, console)


def print_suites(answers: list[CoverageAnswer], console: Console) -> None:
    """One line a suite."""
    table = Table("suite", "runs", "done", "running", "stale", "failed", "left", box=None)
    for answer in answers:
        states = answer.states
        total = states.pending + states.running + states.stale + states.done + states.failed
        numbers = (total, states.done, states.running, states.stale, states.failed)
        table.add_row(answer.suite, *(f"{number:,}" for number in numbers), _left(answer))
    console.print(table)


def print_cells(answer: CoverageAnswer, console: Console) -> None:
    """One line a cell and kind; `done 57/60` counts its widths and seeds."""
    from db.schema import RUN_STATES

    cells: dict[tuple[str, int, str], dict[str, int]] = {}
    for part in answer.cells:
        setting = ", ".join(f"{name} {value}" for name, value in part.setting.items())
        sums = cells.setdefault((part.kind, part.prime, setting), {})
        counts = {**asdict(part.states), "censored": part.censored}
        for name, count in counts.items():
            sums[name] = sums.get(name, 0) + count
    table = Table("kind", "prime", "setting", "done", "running", "stale", "failed", "censored")
    for (kind, prime, setting), sums in cells.items():
        total = sum(sums[state] for state in RUN_STATES)
        shown = [str(sums[name] or "") for name in ("running", "stale", "failed", "censored")]
        table.add_row(kind, str(prime), setting, f"{sums['done']}/{total}", *shown)
    console.print(table)
    if answer.runs_per_minute:
        console.print(f"{answer.runs_per_minute:.1f} runs a minute, {_left(answer)} left")
    for failure in answer.failures:
        console.print(f"{failure.runs} failed: {failure.reason} (such as run {failure.example})")
    if answer.inherited:
        console.print(f"{answer.inherited:,} inherited runs are counted by their own suites")


def _left(answer: CoverageAnswer) -> str:
    from service.sweep.progress import duration

    return "–" if answer.seconds_left is None else duration(answer.seconds_left)
