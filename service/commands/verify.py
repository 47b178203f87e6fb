"""`groktime verify`: replay golden files here and say how far the numbers are off."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from groktime.service.errors import InputError

if TYPE_CHECKING:
    from groktime.workers.replay import Check

_SHIPPED = (
    ("groktime.workers", ".npz"),
    ("groktime.workers", ".json"),
    ("groktime.service.analysis", "statistics.json"),
)

MOST_ROWS = 20  # of one file's checks in a table


def verify(
    golden: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Golden files; default: all that are shipped."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    engine: Annotated[Literal["auto", "native", "torch"], typer.Option()] = "auto",
    seeds: Annotated[
        int, typer.Option(min=2, help="Runs trained for each first-passage file.")
    ] = 20,
    gpu: Annotated[
        bool,
        typer.Option("--gpu", help="Check this machine's GPU against its CPU, in ten minutes."),
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="List every check, also of files that have many.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Check this machine against recorded runs; exit 1 when a number is outside its tolerance.

    `.npz` files are replayed exactly, `speed_*.json` and `grok_*.json` are compared as
    distributions of first passages, `statistics.json` checks the analysis.

    Examples:

        groktime verify

        groktime verify division_p23_d16.npz --engine torch --device cuda --json

        groktime verify --gpu
    """
    if gpu:
        _verify_gpu("cuda" if device == "auto" else device, as_json)
    paths = [find(path) for path in golden or shipped_files()]
    rows: list[Row] = []
    for path in paths:
        checked = check_file(path, engine, device, seeds)
        rows += checked
        if not as_json:
            _print(path.name, checked, every)
    failed = sum(not row.passed for row in rows)
    if as_json:
        typer.echo(json.dumps({"checks": [asdict(row) for row in rows], "failed": failed}))
    else:
        typer.echo(f"{len(rows) - failed} of {len(rows)} checks passed")
    raise typer.Exit(1 if failed else 0)


def _verify_gpu(device: str, as_json: bool) -> NoReturn:
    """Random words, epochs, graph and memory against the CPU, then a table of rates."""
    from groktime.workers.devices import device_name, resolve_device
    from groktime.workers.gpu_check import check_device, rates

    chosen = resolve_device(device)
    rows = [
        Row(c.file, c.quantity, _finite(c.deviation), c.tolerance, c.passed, c.note)
        for c in check_device(chosen)
    ]
    failed = sum(not row.passed for row in rows)
    if not as_json:
        _print(device_name(chosen), rows, True)
        typer.echo(f"{len(rows) - failed} of {len(rows)} checks passed")
        typer.echo("epochs of models a second at p = 113")
        typer.echo(f"{'width':>6} {'models':>7} {'plain':>14} {'graph':>14}")
    measured = []
    for rate in rates(chosen):
        measured.append(asdict(rate))
        if not as_json:
            typer.echo(str(rate))
    if as_json:
        checks = [asdict(row) for row in rows]
        typer.echo(json.dumps({"checks": checks, "failed": failed, "rates": measured}))
    raise typer.Exit(1 if failed else 0)


@dataclass(frozen=True)
class Row:
    """One line of the answer; a deviation that is no number is None."""

    file: str
    quantity: str
    deviation: float | None
    tolerance: float
    passed: bool
    note: str


def check_file(
    path: Path, engine: Literal["auto", "native", "torch"], device: str, seeds: int
) -> list[Row]:
    """All checks of one golden file; what it is follows from its name."""
    if path.name == "statistics.json":
        return _statistics(path)
    if path.suffix == ".npz":
        from groktime.workers.replay import replay

        checks = replay(path, engine=engine, device=device)
    elif path.suffix == ".json":
        checks = _passages(path, engine, device, range(42, 42 + seeds))
    else:
        raise InputError(f"{path} is no golden file: accepted are .npz and .json")
    return [
        Row(c.file, c.quantity, _finite(c.deviation), c.tolerance, c.passed, c.note) for c in checks
    ]


def _passages(
    path: Path, engine: Literal["auto", "native", "torch"], device: str, seeds: range
) -> list[Check]:
    """Train the recorded run for the seeds, which takes minutes, and compare."""
    from groktime.workers.replay import compare_passages, load_passages

    recorded = load_passages(path).passages.values()
    last = max(sum(epochs) / len(epochs) for epochs in recorded)
    reached = dict.fromkeys(range(len(seeds)), 0)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    # On a terminal only; whoever reads a log wants the answers.
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{path.name}: training {len(seeds)} runs", total=last * len(seeds))

        def show(run: int, epoch: int, _: object) -> None:
            reached[run] = epoch
            bar.update(task, completed=sum(reached.values()))

        return compare_passages(path, seeds=seeds, engine=engine, device=device, progress=show)


def _statistics(path: Path) -> list[Row]:
    from groktime.service.analysis.published import verify_statistics

    rows = []
    for check in verify_statistics(path):
        expected, got = check.expected, check.got
        numbers = isinstance(expected, int | float) and isinstance(got, int | float)
        deviation = _finite(abs(got - expected)) if numbers else None  # type: ignore[operator]
        note = f"{got}, recorded {expected}"
        rows.append(Row(path.name, check.name, deviation, check.tolerance, check.ok, note))
    return rows


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def shipped_files() -> list[Path]:
    """Every golden file of the installation that can be verified."""
    found = []
    for package, ending in _SHIPPED:
        folder = Path(str(files(package))) / "golden"
        found += sorted(path for path in folder.iterdir() if path.name.endswith(ending))
    return found


def find(path: Path) -> Path:
    """A file as given, or a shipped one of that name."""
    if path.exists():
        return path
    shipped = [candidate for candidate in shipped_files() if candidate.name == path.name]
    if not shipped:
        names = ", ".join(candidate.name for candidate in shipped_files())
        raise InputError(f"{path} does not exist; shipped golden files: {names}")
    return shipped[0]


def _print(name: str, rows: list[Row], every: bool) -> None:
    """The checks of one file; those of a long list that passed are counted instead."""
    fold = len(rows) > MOST_ROWS and not every
    shown = [row for row in rows if not (fold and row.passed)]
    table = Table("quantity", "deviation", "tolerance", "", "note", box=None)
    for row in shown:
        table.add_row(
            row.quantity,
            "–" if row.deviation is None else f"{row.deviation:.3g}",
            f"{row.tolerance:.3g}",
            "ok" if row.passed else "FAILED",
            row.note,
        )
    console = Console()
    console.print(name, style="bold", highlight=False)
    if shown:
        console.print(table)
    if fold:
        passed = [row for row in rows if row.passed]
        shares = [
            row.deviation / row.tolerance for row in passed if row.deviation and row.tolerance
        ]
        worst = max(shares, default=0.0)
        typer.echo(f" {len(passed)} checks ok, none off by more than {worst:.1%} of its tolerance")
    typer.echo()
