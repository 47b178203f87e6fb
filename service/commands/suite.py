"""`groktime suite`: what suites there are, whether a file is one, what it asks for and costs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from service.spec import KINDS
from service.suites import Member, Suite, load_suite, shipped_suites

app = typer.Typer(
    help="List, check, show and freeze suites.",
    no_args_is_help=True,
    epilog="Example: groktime suite show central --json",
)

Name = Annotated[str, typer.Argument(metavar="SUITE", help="A suite's name or a .yaml file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@app.command("list")
def list_suites(as_json: Json = False) -> None:
    """All shipped suites with their run counts; each also exists as NAME-released."""
    suites = [load_suite(name) for name in shipped_suites()]
    if as_json:
        typer.echo(
            json.dumps(
                [
                    {"suite": s.name, "description": s.file.description, "runs": s.counts()}
                    for s in suites
                ]
            )
        )
        return
    table = Table("suite", *KINDS, "about", box=None)
    for suite in suites:
        counts = suite.counts()
        numbers = (f"{counts[kind]:,}" for kind in KINDS)
        table.add_row(suite.name, *numbers, suite.file.description)
    Console().print(table)


@app.command()
def check(suite: Name) -> None:
    """Validate a suite; a wrong one is refused with file, line, field and what is accepted."""
    loaded = load_suite(suite)
    typer.echo(f"{loaded.name}: {sum(loaded.counts().values()):,} runs, valid")


@app.command()
def show(suite: Name, as_json: Json = False) -> None:
    """Run counts by kind, inherited cells, and the estimated cost on this machine."""
    from service.sweep.rate import suite_cost

    loaded = load_suite(suite)
    cost = suite_cost(loaded.runs())
    cores = os.cpu_count() or 1
    shown: dict[str, Any] = {
        "suite": loaded.name,
        "description": loaded.file.description,
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
        },
    }
    if as_json:
        typer.echo(json.dumps(shown))
    else:
        _print(loaded, shown)


def cell_count(members: Iterable[Member]) -> int:
    """Number of primes × settings; capacity runs belong to a setting, not to a prime."""
    return len(
        {
            (member.prime, tuple(map(repr, member.setting.items())))
            for member in members
            if member.spec.kind != "capacity"
        }
    )


def _print(suite: Suite, shown: dict[str, Any]) -> None:
    console = Console(highlight=False)
    counts, cost = shown["runs"], shown["cost"]
    console.print(f"[bold]{suite.name}[/]  {shown['description']}")
    kinds = ", ".join(f"{counts[kind]:,} {kind}" for kind in KINDS)
    console.print(f"runs: {sum(counts.values()):,} ({kinds}) in {shown['cells']} cells")
    if suite.axes:
        console.print(f"swept: {', '.join(suite.axes)}")
    for donor in shown["inherited"]:
        console.print(
            f"inherited from {donor['suite']}: {donor['cells']} cells ({donor['runs']:,} runs)"
        )
    for left in shown["left_out"]:
        console.print(f"left out: {left}")
    console.print(
        f"cost: about {cost['model_epochs']:,} model-epochs, {cost['flops']:.2g} FLOPs, "
        f"{cost['hours']:.1f} hours on this machine's {cost['cores']} cores "
        f"({cost['engine']} engine, {cost['flops_per_second_and_core'] / 1e9:.1f} GFLOP/s each)"
    )
    console.print(f"hash: {shown['hash']}")


@app.command()
def freeze(suite: Name, as_json: Json = False) -> None:
    """Pre-register: store the suite's hash and the time; from then on it cannot change."""
    from db.registering import freeze_suite
    from service.commands.sweep import ready_database
    from service.sweep.job import register

    loaded = load_suite(suite)
    _, engine = ready_database()
    register(loaded, engine)
    digest = freeze_suite(engine, loaded.name)
    engine.dispose()
    if as_json:
        typer.echo(json.dumps({"suite": loaded.name, "hash": digest, "frozen": True}))
    else:
        typer.echo(f"{loaded.name} is frozen with hash {digest}")
