"""`groktime locate`: one cell's crossing and onset to a precision, without a suite file."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from groktime.service.commands.sweep import ready_database, settings_for, tell
from groktime.service.commands.train import read_settings
from groktime.service.suites import Suite
from groktime.service.suites.loader import cell_suite
from groktime.service.suites.values import AXES


def locate(
    prime: Annotated[int, typer.Option(help="p of the cell.")],
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the cell, such as weight_decay=0.3."),
    ] = None,
    precision: Annotated[
        float, typer.Option(help="Standard deviation of each point that is enough, dex.")
    ] = 0.03,
    place: Annotated[
        list[str] | None, typer.Option(help="crossing or onset; default: both.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="At most this many seeds.")] = 10,
    widths: Annotated[
        str, typer.Option(help="Even widths that may be trained, FROM-TO.")
    ] = "16-256",
    max_epochs: Annotated[int, typer.Option(help="Runs are censored here.")] = 5000,
    max_runs: Annotated[int, typer.Option(help="Most runs of the cell.")] = 60,
    max_hours: Annotated[
        float | None, typer.Option(help="Most core-hours of the cell; default: no limit.")
    ] = None,
    seeds_apart: Annotated[
        bool, typer.Option("--seeds-apart", help="No seed for both the crossing and the onset.")
    ] = False,
    prior: Annotated[
        list[str] | None,
        typer.Option(help="A suite in the database whose cells tell where to begin."),
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
    """Choose and train runs until the crossing and the onset of one cell are placed.

    Started again it goes on where it was. Examples:

    groktime locate --prime 59 --set batch_size=128 --set positions=none

    groktime locate --prime 113 --set weight_decay=0.3 --precision 0.03
    """
    from groktime.service.sweep.driver import run_sweep, terminated_as_interrupt
    from groktime.service.sweep.selection import SweepOptions

    suite = located_cell(
        prime,
        setting or [],
        precision,
        place or ["crossing", "onset"],
        seeds,
        widths,
        max_epochs,
        max_runs,
        {
            **({"max_hours": max_hours} if max_hours is not None else {}),
            **({"seeds_apart": True} if seeds_apart else {}),
            **({"prior": prior} if prior else {}),
        },
    )
    settings = settings_for(device)
    url, engine = ready_database()
    console = Console(stderr=as_json, highlight=False)
    options = SweepOptions(workers=workers)
    with terminated_as_interrupt():
        prepared, report = run_sweep(
            suite, url, engine, settings, options, console, address=address
        )
    tell(prepared, report, console, as_json=False)
    if as_json:
        sys.stdout.write(json.dumps({"suite": suite.name, "runs": len(prepared.runs)}) + "\n")
    else:
        console.print(f"ask for it: /crossing?suite={suite.name}&prime={prime}")
    engine.dispose()
    if report.failed:
        raise typer.Exit(1)


def located_cell(
    prime: int,
    setting: list[str],
    precision: float,
    place: list[str],
    seeds: int,
    widths: str,
    max_epochs: int,
    max_runs: int,
    more: Mapping[str, Any],
) -> Suite:
    """The suite of one located cell; the same question has the same name.

    `more` are fields of its design that are not neutral.
    """
    from groktime.service.errors import InputError

    low, sign, high = widths.partition("-")
    if not sign or not low.isdigit() or not high.isdigit():
        raise InputError(f"--widths = {widths!r} is not accepted; accepted: FROM-TO, as 16-256")
    return cell_suite(
        prime,
        read_settings(setting, AXES),
        precision=precision,
        place=place,
        seeds=seeds,
        widths=(int(low), int(high)),
        max_epochs=max_epochs,
        max_runs=max_runs,
        **more,
    )
