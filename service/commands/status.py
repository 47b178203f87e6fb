"""`groktime status`: how far the suites are."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from groktime.service.commands import complete_suite
from groktime.service.words import duration

if TYPE_CHECKING:
    from groktime.service.answers.suites import CoverageAnswer, PlacedPoint, PlacementAnswer

REMARKABLE = ("running", "stale", "failed", "set_aside")  # states shown where there are any


def status(
    suite: Annotated[
        str | None,
        typer.Argument(
            metavar="SUITE",
            help="A suite; default: all of them.",
            autocompletion=complete_suite,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Progress of a suite: runs done, running, stale, failed and censored, speed, time left.

    Of a located suite also both points of every cell, what they took and what comes next.

    Example: groktime status mini
    """
    from groktime.db.engine import connect
    from groktime.db.records import read_suites
    from groktime.service.answers.question import known_suite, reading
    from groktime.service.answers.suites import coverage

    engine = connect(role="reader")
    with reading(engine) as connection:
        records = [known_suite(connection, suite)] if suite else read_suites(connection)
        answers = [coverage(connection, record) for record in records]
        placed: dict[str, PlacementAnswer] = {}
        for record in records if suite else ():
            if record.is_located:
                from groktime.service.sweep.locator import placement

                placed[record.name] = placement(connection, record)
    engine.dispose()
    if as_json:
        told = [
            asdict(answer)
            | ({"placement": asdict(placed[answer.suite])} if answer.suite in placed else {})
            for answer in answers
        ]
        typer.echo(json.dumps(told))
        return
    console = Console(highlight=False)
    if not answers:
        console.print("no suite has been swept yet; start with: groktime sweep demo")
    elif suite:
        print_cells(answers[0], console, is_located=suite in placed)
        if suite in placed:
            print_placement(placed[suite], console)
    else:
        print_suites(answers, console)


def print_suites(answers: list[CoverageAnswer], console: Console) -> None:
    """One line a suite; what no suite has gets no column."""
    from groktime.service.answers.suites import STATES

    rows = []
    for answer in answers:
        counts = asdict(answer.states)
        runs = sum(counts[state] for state in STATES)
        shown = {name: f"{counts[name]:,}" if counts[name] else "" for name in REMARKABLE}
        left = _left(answer) if answer.states.running else ""
        rows.append(
            {"suite": answer.suite, "runs": f"{runs:,}", "done": f"{counts['done']:,}"}
            | shown
            | {"left": left}
        )
    console.print(_table(rows, to_the_left=("suite", "left")))


def print_cells(answer: CoverageAnswer, console: Console, *, is_located: bool = False) -> None:
    """One line a cell and kind; `done 57/60` counts its widths and seeds.

    How much a located suite will still choose is not known, so it has no time left.
    """
    from groktime.service.answers.suites import STATES

    cells: dict[tuple[str, int, str], dict[str, int]] = {}
    for part in answer.cells:
        setting = ", ".join(f"{name} {value}" for name, value in part.setting.items())
        sums = cells.setdefault((part.kind, part.prime, setting), {})
        counts = {**asdict(part.states), "censored": part.censored}
        for name, number in counts.items():
            sums[name] = sums.get(name, 0) + number
    rows = []
    for (kind, prime, setting), sums in cells.items():
        total = sum(sums[state] for state in STATES)
        rows.append(
            {"kind": kind, "prime": str(prime), "setting": setting}
            | {"done": f"{sums['done']}/{total}"}
            | {name: str(sums[name] or "") for name in (*REMARKABLE, "censored")}
        )
    console.print(_table(rows, to_the_left=("kind", "setting")))
    if answer.runs_per_minute and answer.states.running:
        left = "" if is_located else f", {_left(answer)} left"
        console.print(f"{answer.runs_per_minute:.1f} runs per minute{left}")
    elif answer.states.stale or answer.states.pending:
        console.print(f"nothing is being trained; continue with: groktime sweep {answer.suite}")
    for failure in answer.failures:
        console.print(f"{failure.runs} failed: {failure.reason} (such as run {failure.example})")
    if answer.inherited:
        console.print(f"{answer.inherited:,} inherited runs are counted by their own suites")


def print_placement(answer: PlacementAnswer, console: Console) -> None:
    """One line per cell of a located suite: both points as far as known, and what comes next."""
    names = {"crossing": "P_cross", "onset": "P_onset"}
    points = [name for name in names if name in answer.place]
    table = Table("cell", *(names[name] for name in points), "runs", "core time", "next")
    for cell in answer.cells:
        setting = "".join(f", {name} {value}" for name, value in cell.setting.items())
        coming = cell.next[0] if cell.next else None
        table.add_row(
            f"p = {cell.prime}{setting}",
            *(_point(getattr(cell, name)) for name in points),
            f"{cell.runs}" + (f" + {cell.open} open" if cell.open else ""),
            duration(cell.core_seconds),
            cell.ended or "waits for open runs"
            if coming is None
            else f"{coming.kind} d={coming.width} seed {coming.seed}: {coming.why}",
        )
    console.print(table)
    console.print(
        f"located to {answer.precision:g} dex (standard deviation), at most {answer.max_runs} runs "
        "per cell; ± is the 95 % interval of the model that chooses runs"
    )


def _point(point: PlacedPoint | None) -> str:
    """`41,200 ± 0.020 dex in 36,832–46,044`, as far as it is known."""
    if point is None or point.estimate is None:
        return "–" if point is None else point.status
    half = "" if point.half_width is None else f" ± {point.half_width:.3f} dex"
    sides = ""
    if point.bracket is not None:
        low, high = point.bracket
        words = "in" if low < high else "seeds differ in"
        sides = f"\n{words} {min(low, high):,.0f}–{max(low, high):,.0f}"
    return f"{point.estimate:,.0f}{half}{sides}"


def _table(rows: list[dict[str, str]], to_the_left: Collection[str]) -> Table:
    """The rows without columns that are empty in all of them, so that they fit a terminal."""
    table = Table(box=None)
    shown = [name for name in rows[0] if any(row[name] for row in rows)] if rows else []
    for name in shown:
        justify: Literal["left", "right"] = "left" if name in to_the_left else "right"
        table.add_column(name.replace("_", " "), justify=justify, no_wrap=name == "suite")
    for row in rows:
        table.add_row(*(row[name] for name in shown))
    return table


def _left(answer: CoverageAnswer) -> str:
    if answer.seconds_left is None or not answer.states.running:
        return "–"
    return duration(answer.seconds_left)
