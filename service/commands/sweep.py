"""`groktime sweep`, `submit`, `locate`: train a suite here or on a cluster, or one cell alone."""

from __future__ import annotations

import getpass
import json
import os
import socket
import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from groktime.service.commands import complete_suite
from groktime.service.commands.suite import Replace, described_design, settle_change
from groktime.service.commands.train import read_settings
from groktime.service.errors import InputError
from groktime.service.settings import Settings, get_settings
from groktime.service.spec import KINDS, Kind
from groktime.service.suites import Suite, load_suite
from groktime.service.suites.loader import cell_count, cell_suite
from groktime.service.suites.values import AXES
from groktime.service.words import count

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from groktime.db.engine import Role
    from groktime.service.sweep.plan import Preview
    from groktime.service.sweep.selection import (
        PreparedSweep,
        Selection,
        SweepOptions,
        SweepReport,
    )

EXIT_RUNS_FAILED = 1
ASKED_SECONDS = 3600.0  # a longer sweep is asked for
SHOWN_FAILURES = 50
SWEEP_DEVICES = ("auto", "cpu", "cuda")

SuiteName = Annotated[
    str,
    typer.Argument(
        metavar="SUITE", help="A suite's name or a .yaml file.", autocompletion=complete_suite
    ),
]
Primes = Annotated[list[int] | None, typer.Option("--prime", help="Only these primes.")]
Kinds = Annotated[
    list[str] | None, typer.Option("--kind", help="Only these kinds: capacity, speed, grok.")
]
Widths = Annotated[list[int] | None, typer.Option("--width", help="Only these widths.")]
Seeds = Annotated[list[int] | None, typer.Option("--seed", help="Only these seeds.")]
SettingsKept = Annotated[
    list[str] | None,
    typer.Option("--set", help="Only cells at this setting, such as weight_decay=0.3."),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Train at most this many runs.")]
Gpus = Annotated[
    float | None,
    typer.Option(
        "--gpus-per-bundle",
        min=0.0,
        help="GPUs of one bundle, such as 0.25; default: chosen by what the cluster has.",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(help="auto (GPUs if the cluster has any), cpu or cuda. Default: GROKTIME_DEVICE."),
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
    setting: SettingsKept = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster to join; default: start one here.")
    ] = None,
    gpus_per_bundle: Gpus = None,
    device: Device = None,
    limit: Limit = None,
    workers: Workers = None,
    retry_failed: Retry = False,
    replace: Replace = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before a sweep of more than an hour.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train the missing runs of a suite through Ray Tune, into the database.

    Started again it goes on where it was. Examples:

    groktime sweep mini

    groktime sweep central --prime 113 --kind speed --limit 10 --dry-run

    groktime sweep dropout-two-cores --set dropout=0.1

    ray job submit --address http://127.0.0.1:8265 --working-dir . -- groktime sweep mini
    """
    from groktime.service.sweep.cluster import check_gpu_share, cluster_address
    from groktime.service.sweep.selection import SweepOptions, check_located

    loaded = load_suite(suite)
    selection = selected(prime, kind, width, seed, setting)
    options = SweepOptions(selection, limit, gpus_per_bundle, workers, retry_failed, replace)
    # Before a database is started: a mistake leaves nothing behind.
    members = selection.members(loaded)
    check_located(loaded, options)
    settings = settings_for(device)
    check_gpu_share(gpus_per_bundle, settings.device)
    if dry_run and loaded.file.design is not None:
        if as_json:
            design = loaded.file.design.model_dump(mode="json", exclude_none=True)
            typer.echo(json.dumps({"suite": loaded.name, "cells": cell_count(members), **design}))
        else:
            typer.echo(f"{loaded.name}: {described_design(loaded, members)}")
        return
    if dry_run:
        from groktime.service.sweep.cluster import expected_capacity
        from groktime.service.sweep.plan import preview

        engine = existing_database()
        with expected_capacity(
            options, settings, cluster_address(address, settings.ray_address)
        ) as capacity:
            plan = preview(loaded, engine, options, capacity)
        typer.echo(json.dumps(asdict(plan)) if as_json else str(plan))
        if engine is None:
            typer.echo("no database is running: planned as if nothing were trained", err=True)
        return
    from groktime.service.sweep.driver import run_sweep
    from groktime.service.sweep.interruption import interruptible
    from groktime.service.sweep.jobs import tracked

    if not yes:
        at_terminal = sys.stdin.isatty() and sys.stderr.isatty()
        cluster = cluster_address(address, get_settings().ray_address)
        tell_cost(loaded, options, cluster, asks=at_terminal)
    url, engine = ready_database()
    settle_change(loaded, engine, replace=replace)
    console = Console(stderr=as_json, highlight=False)
    run = partial(run_sweep, loaded, url, engine, settings, options, console, address=address)
    with interruptible():
        prepared, report = tracked(engine, run)
    tell(prepared, report, console, as_json=as_json)
    engine.dispose()
    if report.failed:
        raise typer.Exit(EXIT_RUNS_FAILED)


def settings_for(device: str | None) -> Settings:
    """The settings, with the device of the command line in place of theirs."""
    settings = get_settings()
    if device is None:
        return settings
    if device not in SWEEP_DEVICES:
        raise InputError(f"--device = {device!r} is not accepted; accepted: auto, cpu, cuda")
    return settings.model_copy(update={"device": device})


def cores(options: SweepOptions) -> int:
    """Bundles that this machine trains at once."""
    return options.workers or os.cpu_count() or 1


def planned(suite: Suite, engine: Engine | None, options: SweepOptions) -> Preview:
    """What a sweep on this machine's cores would train, and how long that takes."""
    from groktime.service.sweep.cluster import ClusterCapacity
    from groktime.service.sweep.plan import preview

    return preview(suite, engine, options, ClusterCapacity(cores(options), "cpu", lambda _: 64))


def tell_cost(suite: Suite, options: SweepOptions, address: str | None, *, asks: bool) -> None:
    """Tell what a long sweep will take before it begins; on a terminal, ask whether to begin."""
    from groktime.service.words import duration

    if address is not None or suite.file.design is not None:
        return  # the cluster's speed is not this machine's; what a design chooses is not known
    plan = planned(suite, existing_database(), options)
    seconds = plan.core_seconds / cores(options)
    if seconds < ASKED_SECONDS:
        return
    cost = (
        f"{count(plan.to_train, 'run')} to train: about {duration(seconds)} on this machine's "
        f"{count(cores(options), 'core')}."
    )
    if asks:
        typer.confirm(f"{cost} Begin?", default=True, abort=True, err=True)
    else:
        typer.echo(cost, err=True)


def selected(
    primes: list[int] | None,
    kinds: list[str] | None,
    widths: list[int] | None,
    seeds: list[int] | None,
    settings: list[str] | None,
) -> Selection:
    """The filters of the command line; an option that is not given lets everything pass."""
    from groktime.service.sweep.selection import Selection

    at = read_settings(settings or [], AXES)
    return Selection(primes or (), checked_kinds(kinds), widths or (), seeds or (), at)


def checked_kinds(kinds: list[str] | None) -> list[Kind]:
    """The kinds named on the command line; others than the three are refused."""
    known: dict[str, Kind] = {kind: kind for kind in KINDS}
    for kind in kinds or ():
        if kind not in known:
            raise InputError(f"--kind = {kind!r} is not accepted; accepted: {', '.join(known)}")
    return [known[kind] for kind in kinds or ()]


def ready_database() -> tuple[str, Engine]:
    """URL and engine of the results database; the embedded one is started and migrated."""
    from groktime.db import embedded
    from groktime.db.engine import connect, connect_migrated, database_url

    settings = get_settings()
    if settings.embedded:
        url = embedded.start(settings.home)
        return url, connect_migrated(url)
    url = database_url("writer", settings)
    return url, connect(url, "writer")


def existing_database(role: Role = "reader") -> Engine | None:
    """The results database if there is one; none is started, but an embedded one is migrated."""
    from groktime.db import embedded
    from groktime.db.engine import connect, connect_migrated

    settings = get_settings()
    if settings.embedded:
        if not embedded.is_running(settings.home):
            return None
        connect_migrated().dispose()
    return connect(role=role)


def tell(prepared: PreparedSweep, report: SweepReport, console: Console, *, as_json: bool) -> None:
    """The end of a sweep: what was trained, and a table of what failed and why."""
    if as_json:
        told = {
            "suite": prepared.suite.name,
            "selected": len(prepared.runs),
            "trained": report.trained,
            "failed": {str(run): reason for run, reason in report.failed.items()},
            "left_to_others": report.left_to_others,
        }
        sys.stdout.write(json.dumps(told) + "\n")
    if not prepared.open and report.failed:
        console.print(
            f"{prepared.suite.name}: nothing left to train; {len(report.failed):,} of "
            f"{count(len(prepared.runs), 'run')} failed, and --retry-failed tries again"
        )
    elif not prepared.open and not report.trained:
        are = "run is" if len(prepared.runs) == 1 else "runs are"
        console.print(f"{prepared.suite.name}: all {len(prepared.runs):,} {are} trained already")
    else:
        console.print(f"{prepared.suite.name}: {count(report.trained, 'run')} trained")
    if report.left_to_others:
        console.print(f"{count(report.left_to_others, 'run')} left to another sweep")
    if report.failed:
        table = Table("run", "kind", "prime", "width", "seed", "why", title="failed runs")
        for run_id, reason in list(report.failed.items())[:SHOWN_FAILURES]:
            spec = prepared.runs[run_id].spec
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
    setting: SettingsKept = None,
    address: Annotated[
        str | None, typer.Option(help="Jobs address of the cluster, http://HOST:8265.")
    ] = None,
    gpus_per_bundle: Gpus = None,
    device: Device = None,
    limit: Limit = None,
    workers: Workers = None,
    retry_failed: Retry = False,
    replace: Replace = False,
    follow: Annotated[bool, typer.Option(help="Show the job's log until it ends.")] = True,
    pass_database_url: Annotated[
        bool,
        typer.Option(
            "--pass-database-url",
            help="Send a database URL that has a password, in a file that no log of Ray's shows.",
        ),
    ] = False,
) -> None:
    """Submit a sweep as a Ray job and follow its log.

    Example: groktime submit central --address http://127.0.0.1:8265
    """
    from groktime.service.sweep.jobs import follow as follow_log
    from groktime.service.sweep.jobs import job_state, settle_sweeps, withheld_url
    from groktime.service.sweep.selection import SweepOptions

    settings = settings_for(device)
    where = address or settings.ray_jobs_address
    selection = selected(prime, kind, width, seed, setting)
    options = SweepOptions(selection, limit, gpus_per_bundle, workers, retry_failed, replace)
    if withheld_url(settings) and not pass_database_url:
        typer.echo(
            "GROKTIME_DATABASE_URL has a password and is not sent: the job needs the cluster's own "
            "GROKTIME_DATABASE_URL, and results go there; --pass-database-url sends this one",
            err=True,
        )
    job = submitted(suite, options, settings, where, pass_database_url)
    if not follow:
        return
    for part in follow_log(job, where):
        sys.stdout.write(part)
        sys.stdout.flush()
    state = job_state(job, where)
    engine = existing_database("writer")
    if engine is not None:
        settle_sweeps(engine, where)
        engine.dispose()
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
    """Submit the sweep, recording it where there is a results database; Ray's id of the job."""
    from groktime.service.sweep.jobs import settle_sweeps, submit_job, submit_sweep

    engine = existing_database("writer")
    if engine is None:
        job = submit_job(suite, options, settings, address, pass_database_url=pass_database_url)
        typer.echo(f"submitted {job}; not recorded here: no results database is running")
        return job
    settle_sweeps(engine, address)
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    number, job = submit_sweep(
        engine, suite, options, settings, address, by=by, pass_database_url=pass_database_url
    )
    engine.dispose()
    typer.echo(f"submitted {job} as sweep {number}")
    return job


def locate(
    prime: Annotated[int, typer.Option(help="p of the cell.")],
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the cell, such as weight_decay=0.3."),
    ] = None,
    precision: Annotated[
        float, typer.Option(help="Target standard deviation of each point, dex.")
    ] = 0.03,
    place: Annotated[
        list[str] | None, typer.Option(help="crossing or onset; default: both.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="At most this many seeds.")] = 10,
    widths: Annotated[
        str, typer.Option(help="Even widths that may be trained, FROM-TO.")
    ] = "16-256",
    max_epochs: Annotated[int, typer.Option(help="Cap: runs are censored here.")] = 5000,
    max_runs: Annotated[int, typer.Option(help="Most runs of the cell.")] = 60,
    max_hours: Annotated[
        float | None, typer.Option(help="Most core-hours of the cell; default: no limit.")
    ] = None,
    seeds_apart: Annotated[
        bool, typer.Option("--seeds-apart", help="Use no seed for both the crossing and the onset.")
    ] = False,
    prior: Annotated[
        list[str] | None,
        typer.Option(help="A suite in the database to start the search from."),
    ] = None,
    min_delay: Annotated[
        float | None,
        typer.Option(help="Least delay that counts, epochs; default: 1."),
    ] = None,
    min_delay_share: Annotated[
        float | None, typer.Option(help="Least delay that counts, share of E_train; default: 0.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs trained at once; default: all that fit.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster to join; default: start one here.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON line at the end.")
    ] = False,
) -> None:
    """Choose and train runs until crossing and onset of one cell are as precise as asked.

    Started again it goes on where it was. Examples:

    groktime locate --prime 59 --set batch_size=128 --set positions=none

    groktime locate --prime 113 --set weight_decay=0.3 --precision 0.03
    """
    from groktime.service.sweep.driver import run_sweep
    from groktime.service.sweep.interruption import interruptible
    from groktime.service.sweep.selection import SweepOptions

    suite = cell_suite(
        prime,
        read_settings(setting or [], AXES),
        precision=precision,
        place=place or ["crossing", "onset"],
        seeds=seeds,
        widths=read_widths(widths),
        max_epochs=max_epochs,
        max_runs=max_runs,
        max_hours=max_hours,
        seeds_apart=seeds_apart,
        prior=prior or (),
        min_delay=min_delay,
        min_delay_share=min_delay_share,
    )
    settings = settings_for(device)
    url, engine = ready_database()
    console = Console(stderr=as_json, highlight=False)
    options = SweepOptions(workers=workers)
    with interruptible():
        prepared, report = run_sweep(
            suite, url, engine, settings, options, console, address=address
        )
    tell(prepared, report, console, as_json=False)
    if as_json:
        sys.stdout.write(json.dumps({"suite": suite.name, "runs": len(prepared.runs)}) + "\n")
    else:
        console.print(f"its crossing: /crossing?suite={suite.name}&prime={prime}")
    engine.dispose()
    if report.failed:
        raise typer.Exit(1)


def read_widths(text: str) -> tuple[int, int]:
    """`16-256` as the narrowest and the widest width."""
    low, sign, high = text.partition("-")
    if not sign or not low.isdigit() or not high.isdigit():
        raise InputError(f"--widths = {text!r} is not accepted; accepted: FROM-TO, as 16-256")
    return int(low), int(high)
