"""`groktime db`: the results database, from starting it to moving suites between databases."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from groktime.db import embedded
from groktime.db.engine import connect, connect_migrated, database_url, head, parse_url, shown
from groktime.db.export import dump_suite
from groktime.db.load import lacking, load_dump
from groktime.db.maintenance import PrunePlan, plan_prune
from groktime.db.maintenance import check as check_database
from groktime.db.maintenance import prune as prune_runs
from groktime.db.records import get_suite
from groktime.service.commands import complete_suite
from groktime.service.commands.sweep import ready_database
from groktime.service.errors import ConfigurationError, DatabaseError
from groktime.service.settings import get_settings
from groktime.service.suites.loader import check_stored
from groktime.service.words import count

app = typer.Typer(
    help="Start, migrate, move, check and prune the results database.",
    no_args_is_help=True,
    epilog="Example: groktime db load recordings/*.groktime",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@app.command()
def up() -> None:
    """Start the embedded Postgres (unless GROKTIME_DATABASE_URL names one) and migrate it."""
    settings = get_settings()
    if settings.database_url is None:
        embedded.start(settings.home)
    connect_migrated().dispose()
    typer.echo(shown(database_url()))


@app.command()
def down() -> None:
    """Stop the embedded Postgres; nothing that was committed is lost."""
    settings = get_settings()
    if settings.database_url is not None:
        raise ConfigurationError(
            "GROKTIME_DATABASE_URL names a server that groktime did not start: stop it yourself"
        )
    typer.echo("stopped" if embedded.stop(settings.home) else "it was not running")


@app.command()
def url(
    password: Annotated[
        bool, typer.Option("--show-password", help="Print the password, too.")
    ] = False,
) -> None:
    """Print the database's URL, for psql and others; a password is hidden unless asked for."""
    found = parse_url(database_url()).set(drivername="postgresql")
    typer.echo(found.render_as_string(hide_password=False) if password else shown(found))


@app.command()
def migrate() -> None:
    """Bring the database's schema to this version's and grant the roles their rights."""
    connect_migrated().dispose()
    typer.echo(f"schema {head()}")


@app.command()
def dump(
    suite: Annotated[
        str,
        typer.Argument(metavar="SUITE", help="Name of the suite.", autocompletion=complete_suite),
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write.")],
    thin: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Keep all epochs up to N, then ever fewer, and all first passages.",
        ),
    ] = None,
    own: Annotated[
        bool,
        typer.Option(
            "--own", help="Leave out results of inherited runs: their suites' dumps have them."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    as_json: Json = False,
) -> None:
    """Write a suite with its runs and curves into one compressed, checksummed file."""
    engine = connect().execution_options(isolation_level="REPEATABLE READ")
    with engine.connect() as connection:
        dumped = dump_suite(connection, suite, file, dense=thin, own=own, overwrite=force)
    if as_json:
        typer.echo(json.dumps({**asdict(dumped), "path": str(file)}))
        return
    typer.echo(
        f"{file}: {dumped.closed:,} of {dumped.runs:,} runs closed, {dumped.curve_rows:,} epochs, "
        f"{dumped.size / 1e6:.1f} MB"
    )


@app.command()
def load(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Files that `groktime db dump` wrote.")
    ],
    as_json: Json = False,
) -> None:
    """Merge dumps by run key; loading one again changes nothing.

    Example: groktime db load recordings/*.groktime
    """
    engine = ready_database()[1] if get_settings().embedded else connect()
    names = []
    for file in files:
        loaded = load_dump(engine, file, check_stored)
        names.append(loaded.suite)
        if as_json:
            typer.echo(json.dumps(asdict(loaded)))
            continue
        if not loaded.taken and not loaded.created:
            typer.echo(f"suite {loaded.suite}: nothing new")
            continue
        typer.echo(
            f"suite {loaded.suite}: results of {count(loaded.taken, 'run')} taken, "
            f"{count(loaded.curve_rows, 'epoch')}; {count(loaded.created, 'run')} not known before"
        )
    with engine.connect() as connection:
        for name, runs in lacking(connection, names):
            donors = ", ".join(
                donor["suite"] for donor in get_suite(connection, name).spec["inherits"]
            )
            typer.echo(
                f"suite {name}: {count(runs, 'inherited run')} without results; load {donors}, too",
                err=True,
            )


@app.command()
def check(as_json: Json = False) -> None:
    """Look for orphans, gaps, repeats, rows beyond last_epoch and wrong summaries."""
    with connect().connect() as connection:
        report = check_database(connection)
    if as_json:
        typer.echo(json.dumps(asdict(report)))
    else:
        for finding in report.findings:
            some = ", ".join(map(str, finding.runs))
            typer.echo(f"{finding.check}: {finding.count:,} {finding.meaning}: {some}")
        found = len(report.findings)
        verdict = f"{count(found, 'kind')} of damage" if found else "sound"
        typer.echo(
            f"{count(report.runs, 'run')}, {count(report.curve_rows, 'epoch')}: {verdict}; "
            f"{count(report.expired, 'lease')} over, {count(report.unlinked, 'run')} of no suite"
        )
    if report.findings:
        raise typer.Exit(1)


@app.command()
def prune(
    suite: Annotated[
        str | None,
        typer.Argument(metavar="SUITE", help="Suite whose own runs go; none: runs of no suite."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    frozen: Annotated[
        bool, typer.Option("--frozen", help="Delete even what a frozen suite found.")
    ] = False,
) -> None:
    """Delete a suite's runs that no other suite uses, after showing what would go."""
    engine = connect()
    with engine.connect() as connection:
        plan = plan_prune(connection, suite)
    typer.echo(_described(plan))
    if not plan.runs:
        return
    if plan.frozen and not frozen:
        raise DatabaseError(f"suite {suite} is frozen: deleting its results needs --frozen")
    if not yes:
        typer.confirm("Delete them?", abort=True)
    with engine.begin() as connection:
        gone = prune_runs(connection, suite)
        if gone != plan:
            raise DatabaseError("the suite has changed since that was counted: nothing is deleted")
    typer.echo(f"deleted {count(gone.runs, 'run')}")


def _described(plan: PrunePlan) -> str:
    of = f"only suite {plan.suite} has" if plan.suite else "no suite has"
    shared = f"; what other suites have stays: {count(plan.shared, 'run')}" if plan.suite else ""
    runs, epochs = count(plan.runs, "run"), count(plan.epochs, "epoch")
    return f"{runs} that {of} ({plan.done:,} done) with {epochs}{shared}"
