"""`groktime suite`: what suites there are, whether a file is one, what it asks for and costs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from groktime.service.commands import complete_suite
from groktime.service.errors import SuiteError
from groktime.service.spec import KINDS
from groktime.service.suites import Member, Suite, load_suite
from groktime.service.suites.loader import cell_count
from groktime.service.words import count, duration, size

if TYPE_CHECKING:
    from sqlalchemy import Engine

app = typer.Typer(
    help="List, check, show, freeze and delete suites.",
    no_args_is_help=True,
    epilog="Example: groktime suite show central --json",
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="SUITE", help="A suite's name or a .yaml file.", autocompletion=complete_suite
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Replace = Annotated[
    bool,
    typer.Option("--replace", help="Take a changed definition; earlier results stay as SUITE.v1."),
]


@app.command("list")
def list_suites(as_json: Json = False) -> None:
    """All shipped suites with their run counts; each also exists as NAME-released."""
    from groktime.service.suites.loader import suite_index

    suites = suite_index()
    if as_json:
        typer.echo(json.dumps(suites))
        return
    table = Table(box=None)
    table.add_column("suite", no_wrap=True)
    table.add_column("runs", justify="right", no_wrap=True)
    table.add_column("about")
    for suite in suites:
        most = suite.get("at_most")
        runs = f"{sum(suite['runs'].values()):,}" if most is None else f"≤ {most:,}"
        table.add_row(suite["suite"], runs, suite["description"])
    Console().print(table)


@app.command()
def check(suite: Name) -> None:
    """Validate a suite; a wrong one is refused with file, line, field and what is accepted."""
    loaded = load_suite(suite)
    chosen = "to choose from, " if loaded.file.design else ""
    typer.echo(f"{loaded.name}: {count(sum(loaded.counts().values()), 'run')}, {chosen}valid")


@app.command()
def show(suite: Name, as_json: Json = False) -> None:
    """Run counts by kind, inherited cells, and the estimated cost on this machine."""
    from groktime.service.sweep.cost import suite_cost
    from groktime.workers.checkpoints import checkpoint_bytes

    loaded = load_suite(suite)
    kept = [checkpoint_bytes(run) for run in loaded.runs()]
    cost = suite_cost(loaded.runs(), recorded_epochs(loaded))
    cores = os.cpu_count() or 1
    shown: dict[str, Any] = {
        "suite": loaded.name,
        "description": loaded.file.description,
        "notes": loaded.file.notes,
        "hash": loaded.digest,
        "runs": loaded.counts(),
        "cells": cell_count(loaded.members()),
        "axes": list(loaded.axes),
        "inherited": [
            {
                "suite": donor.suite,
                "cells": cell_count(donor.members),
                "runs": len({member.spec.key for member in donor.members}),
            }
            for donor in loaded.inherited
        ],
        "left_out": [str(left) for left in loaded.left_out],
        "analysis": loaded.analysis.model_dump(mode="json"),
        "cost": {
            "model_epochs": round(cost.model_epochs),
            "flops": cost.flops,
            "hours": cost.core_hours / cores,
            "core_hours": cost.core_hours,
            "cores": cores,
            "flops_per_second_and_core": cost.rate,
            "engine": cost.engine,
            "recorded_runs": cost.recorded,
        },
        "checkpoints": {"bytes_of_the_largest_run": max(kept), "bytes_of_all_runs": sum(kept)},
    }
    if as_json:
        typer.echo(json.dumps(shown))
    else:
        _print(loaded, shown)


RECORDED = "SELECT key, last_epoch FROM runs WHERE state = 'done' AND key = ANY(:keys)"


def recorded_epochs(suite: Suite) -> dict[str, int]:
    """Epochs of the suite's finished runs by key, where a results database is there to ask."""
    from sqlalchemy import text
    from sqlalchemy.exc import SQLAlchemyError

    from groktime.service.commands.sweep import existing_database
    from groktime.service.errors import DatabaseError

    try:
        engine = existing_database()
        if engine is None:
            return {}
        with engine.connect() as connection:
            keys = [run.key for run in suite.runs()]
            rows = connection.execute(text(RECORDED), {"keys": keys})
            return {row.key: row.last_epoch for row in rows}
    except (DatabaseError, SQLAlchemyError):
        return {}  # an estimate is no reason to fail


def _print(suite: Suite, shown: dict[str, Any]) -> None:
    console = Console(highlight=False)
    counts, cost = shown["runs"], shown["cost"]
    console.print(f"[bold]{suite.name}[/]  {shown['description']}")
    if shown["notes"]:
        console.print(shown["notes"])
    kinds = ", ".join(f"{counts[kind]:,} {kind}" for kind in KINDS)
    runs = f"{sum(counts.values()):,} ({kinds})"
    if suite.file.design is None:
        console.print(f"runs: {runs} in {count(shown['cells'], 'cell')}")
    else:
        console.print(f"{described_design(suite, suite.members())}, chosen from {runs}")
    if suite.axes:
        console.print(f"swept: {', '.join(suite.axes)}")
    for donor in shown["inherited"]:
        console.print(
            f"inherited from {donor['suite']}: {count(donor['cells'], 'cell')} "
            f"({count(donor['runs'], 'run')})"
        )
    for left in shown["left_out"]:
        console.print(f"left out: {left}")
    if suite.file.design is None:
        _print_cost(console, cost)
    largest, everything = shown["checkpoints"].values()
    console.print(
        f"checkpoints: at most {size(largest)} for each run in training, "
        f"{size(everything)} if all were trained at once"
    )
    console.print(f"hash: {shown['hash']}")


def described_design(suite: Suite, members: Iterable[Member]) -> str:
    """`locates crossing and onset of 10 cells to 0.03 dex, at most 60 runs each`."""
    design = suite.file.design
    assert design is not None, "the suite has a design"
    return (
        f"locates {' and '.join(design.place)} of {count(cell_count(members), 'cell')} to "
        f"{design.precision:g} dex with at most {count(design.max_runs, 'run')} each"
        + (f"; starts from the results of {', '.join(design.prior)}" if design.prior else "")
    )


def _print_cost(console: Console, cost: dict[str, Any]) -> None:
    console.print(
        f"cost: about {cost['model_epochs']:,} model-epochs, {cost['flops']:.2g} FLOPs, "
        f"{duration(3600 * cost['hours'])} on this machine's {count(cost['cores'], 'core')} "
        f"({cost['engine']} engine, {cost['flops_per_second_and_core'] / 1e9:.1f} GFLOP/s each)"
    )


@app.command()
def freeze(suite: Name, replace: Replace = False, as_json: Json = False) -> None:
    """Pre-register: store the suite's hash and the time; from then on it cannot change."""
    from groktime.db.suites import freeze_suite
    from groktime.service.commands.sweep import ready_database
    from groktime.service.sweep.selection import register

    loaded = load_suite(suite)
    _, engine = ready_database()
    settle_change(loaded, engine, replace=replace)
    register(loaded, engine)
    digest = freeze_suite(engine, loaded.name)
    engine.dispose()
    if as_json:
        typer.echo(json.dumps({"suite": loaded.name, "hash": digest, "frozen": True}))
    else:
        typer.echo(f"{loaded.name} is frozen with hash {digest}")


@app.command()
def delete(
    suite: Annotated[str, typer.Argument(metavar="SUITE", help="A suite in the database.")],
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    frozen: Annotated[bool, typer.Option("--frozen", help="Delete even a frozen suite.")] = False,
) -> None:
    """Delete a suite from the database; its runs stay, `groktime db prune` deletes those."""
    from groktime.db.engine import connect
    from groktime.db.suites import delete_suite, plan_deletion

    engine = connect()
    with engine.connect() as connection:
        plan = plan_deletion(connection, suite)
    name = ascii(suite)
    typer.echo(
        f"suite {name} has {count(plan.runs, 'run')}; {plan.alone:,} that no other suite has "
        f"({plan.closed:,} closed) stay in the database until `groktime db prune`"
    )
    if plan.frozen and not frozen:
        raise SuiteError(f"suite: {name} is frozen; deleting it needs --frozen")
    if not yes:
        typer.confirm("Delete the suite?", abort=True)
    with engine.begin() as connection:
        if delete_suite(connection, suite) != plan:
            raise SuiteError(f"suite: {name} has changed meanwhile: nothing is deleted")
    engine.dispose()
    typer.echo(f"deleted suite {name}")


def settle_change(suite: Suite, engine: Engine, *, replace: bool) -> None:
    """Show how the suite differs from the one in the database, and take it only when told to.

    Without `replace` a person at a terminal is asked; anything else is refused.
    """
    from groktime.db.suites import ChangedSuite, suite_change
    from groktime.service.sweep.cost import suite_cost
    from groktime.service.sweep.selection import register, stored, wanted_runs

    inherited = [member.spec for donor in suite.inherited for member in donor.members]
    runs = wanted_runs(suite, engine)
    change = suite_change(engine, suite.name, stored(suite), suite.digest, runs, inherited)
    if change is None:
        return
    typer.echo(str(change), err=True)
    missing = [run for run in runs if run.key in change.untrained]
    if missing:
        hours = suite_cost(missing).core_hours
        typer.echo(f"the new runs take about {hours:.1f} core-hours on this machine", err=True)
    if not replace and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ChangedSuite(change)
    if not replace:
        typer.confirm("Replace the definition? Earlier results stay.", abort=True, err=True)
    earlier = register(suite, engine, replace=True).earlier
    if earlier:
        typer.echo(f"the earlier definition and its results are now suite {earlier}", err=True)
