"""`groktime train`: one run with a live progress bar, without a database or a cluster; `groktime
verify`: replay golden files here and say how far the numbers are off.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, get_args

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from groktime.service.errors import InputError
from groktime.service.spec import MODEL_COLUMNS, OPTIMISER_COLUMNS, Operation, RunSpec
from groktime.service.suites.document import parse
from groktime.service.suites.values import readable

if TYPE_CHECKING:
    from groktime.workers.replay import Check

# (what it is called, the clock it is read from, its threshold)
_PASSAGES = [
    ("E_train, online clock", "train_correct", 0.99),
    ("E_train, eval clock", "train_correct_eval", 0.99),
    ("E_val", "val_correct", 0.98),
    ("T_gen", "val_correct", 0.99),
]

_ENDED = {
    "threshold": "threshold reached",
    "patience": "no longer improving",
    "cap": "cap on epochs",
    "fixed": "as many as asked",
    "diverged": "diverged",
}


def train(
    prime: Annotated[int, typer.Option(help="p of the task; V = p + 2.")],
    width: Annotated[int, typer.Option(help="Width d of the model.")],
    seed: Annotated[int, typer.Option(help="Seed of split, weights, shuffles and dropout.")] = 42,
    kind: Annotated[
        Literal["grok", "speed", "capacity"],
        typer.Option(help="The task itself, or random labels: speed and capacity."),
    ] = "grok",
    # Without a plus sign in front: the help is Markdown, where that begins a list.
    operation: Annotated[
        str, typer.Option(help="addition, subtraction, multiplication, division, or its sign.")
    ] = "/",
    train_fraction: Annotated[
        float, typer.Option(help="Share of the table that is trained on.")
    ] = 0.5,
    split: Annotated[
        Literal["random", "sequential", "alternating"],
        typer.Option(help="Which part of the table that is."),
    ] = "random",
    n: Annotated[
        int | None,
        typer.Option(help="Random-label examples; default: the size of the training set."),
    ] = None,
    depth: Annotated[int | None, typer.Option(help="Layers; default 2.")] = None,
    heads: Annotated[int | None, typer.Option(help="Attention heads; default 1.")] = None,
    positions: Annotated[
        Literal["rope", "none", "learned"] | None, typer.Option(help="Default rope.")
    ] = None,
    norm: Annotated[Literal["rms", "layer"] | None, typer.Option(help="Default rms.")] = None,
    ffn: Annotated[Literal["gated", "plain"] | None, typer.Option(help="Default gated.")] = None,
    architecture: Annotated[
        Literal["transformer", "mlp"] | None, typer.Option(help="Default transformer.")
    ] = None,
    dropout: Annotated[float | None, typer.Option(help="Default 0.2; 0 for capacity runs.")] = None,
    init_scale: Annotated[float | None, typer.Option(help="Default 1.")] = None,
    lr: Annotated[float | None, typer.Option(help="Default 1e-3.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Default 1.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Default 512.")] = None,
    max_epochs: Annotated[int, typer.Option(help="The run is censored here.")] = 5000,
    epochs: Annotated[
        int | None, typer.Option(help="Train exactly this many epochs, whatever is reached.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other model or optimiser setting, such as beta2=0.999."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")] = "auto",
    engine: Annotated[Literal["auto", "native", "torch"], typer.Option()] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Train one run here and print its first passages.

    Examples:

        groktime train --prime 59 --width 48 --seed 42 --batch-size 128

        groktime train --prime 113 --width 32 --kind speed --json
    """
    data: dict[str, Any] = {"task": "modular", "prime": prime, "operation": operation}
    data |= {"train_fraction": train_fraction, "split": split}
    model: dict[str, Any] = {
        "width": width,
        "depth": depth,
        "heads": heads,
        "positions": positions,
        "norm": norm,
        "ffn": ffn,
        "architecture": architecture,
        "dropout": 0.0 if dropout is None and kind == "capacity" else dropout,
        "init_scale": init_scale,
    }
    if architecture == "mlp":
        model = {"depth": 1, "positions": "none", "ffn": "plain", **_given(model)}
    optimiser: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay, "batch_size": batch_size}
    for name, value in read_settings(setting or (), (*MODEL_COLUMNS, *OPTIMISER_COLUMNS)).items():
        (model if name in MODEL_COLUMNS else optimiser)[name] = value
    spec = _spec(
        kind=kind,
        data=data if kind == "grok" else _random_labels(data, n),
        model=_given(model),
        optimiser=_given(optimiser),
        stop=_stop(kind, max_epochs, epochs),
        seed=seed,
    )
    _train(spec, device, engine, as_json)


def read_settings(given: Sequence[str], accepted: Sequence[str]) -> dict[str, Any]:
    """`weight_decay=0.1` as a column and its value, typed as YAML would type it."""
    found: dict[str, Any] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or name not in accepted:
            raise InputError(
                f"--set = {text!r} is not accepted: NAME=VALUE with one of {', '.join(accepted)}"
            )
        if name in found:
            raise InputError(f"--set = {text!r} is not accepted: {name} is given twice")
        if value in get_args(Operation):  # some of which YAML takes for its own signs
            found[name] = value
        else:
            found[name] = parse(f"value: {value}", f"--set {name}").content["value"]
    return found


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """What was asked for; the rest is the spec's default."""
    return {name: value for name, value in values.items() if value is not None}


def _random_labels(table: dict[str, Any], n: int | None) -> dict[str, Any]:
    if n is None:
        n = _spec(
            kind="capacity", data=table, model={"width": 2}, stop=_stop("", 1, 1)
        ).data.n_train
    return {"task": "random", "prime": table["prime"], "n": n}


def _stop(kind: str, max_epochs: int, epochs: int | None) -> dict[str, Any]:
    if epochs is not None:
        return {"rule": "fixed", "max_epochs": epochs}
    if kind == "capacity":
        return {"rule": "patience", "max_epochs": max_epochs}
    val = 0.99 if kind == "grok" else None
    return {"rule": "threshold", "val": val, "max_epochs": max_epochs}


def _spec(**fields: Any) -> RunSpec:
    """The run, or one line naming the option that cannot be."""
    try:
        return RunSpec.model_validate({"seed": 0, **fields})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        # A rule about several fields stands at the part of the run that holds them.
        if isinstance(first["input"], Mapping):
            raise InputError(first["msg"].removeprefix("Value error, ")) from error
        option = str(first["loc"][-1]).replace("_", "-")
        raise InputError(f"--{option}: {readable(first)}") from error


def _train(
    spec: RunSpec, device: str, engine: Literal["auto", "native", "torch"], as_json: bool
) -> None:
    # Imported late: PyTorch takes a second that `groktime --help` need not wait for.
    from groktime.workers import training
    from groktime.workers.training import CurveSink, first_passage

    sink = CurveSink(1)
    sizes = {"train": spec.data.n_train, "val": spec.data.n_val}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("epoch {task.completed}/{task.total} {task.fields[accuracy]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=as_json) as bar:
        task = bar.add_task(
            f"p={spec.data.prime} d={spec.model.width} seed={spec.seed}",
            total=spec.stop.max_epochs,
            accuracy="",
        )

        def show(_: int, epoch: int, row: Any) -> None:
            text = f"train {row['train_correct'] / sizes['train']:.1%}"
            if sizes["val"]:
                text += f" val {row['val_correct'] / sizes['val']:.1%}"
            bar.update(task, completed=epoch, accuracy=text)

        (outcome,) = training.train([spec], sink, device=device, engine=engine, progress=show)
    assert outcome is not None, "nobody can take a run away from this command"
    curve = sink.curve(0)
    passages: list[tuple[str, float, int | None]] = []
    for name, clock, threshold in _PASSAGES:
        if curve[clock][0] >= 0:  # recorded at all
            size = sizes["val" if clock == "val_correct" else "train"]
            passages.append((name, threshold, first_passage(curve[clock], threshold, size)))
    summary = {
        "key": spec.key,
        "params": spec.params,
        "k_mem": spec.k_mem,
        "state": outcome.state,
        "stopped_by": outcome.stopped_by,
        "epochs": outcome.epochs,
        "seconds": outcome.seconds,
        "engine": outcome.engine,
        "device": outcome.device,
        "bits": float(curve["bits"][-1]) if spec.records_bits else None,
    }
    if as_json:
        first = [{"name": a, "threshold": b, "epoch": c} for a, b, c in passages]
        typer.echo(json.dumps({**summary, "spec": spec.model_dump(), "first_passages": first}))
        return
    table = Table("", "", box=None, show_header=False)
    table.add_row("parameters P", f"{spec.params:,}")
    table.add_row("ended", f"epoch {outcome.epochs}: {_ENDED[outcome.stopped_by]}")
    table.add_row("took", f"{outcome.seconds:.1f} s, {outcome.engine} engine on {outcome.device}")
    if spec.records_bits:
        table.add_row("M_T", f"{curve['bits'][-1]:,.0f} of {spec.k_mem:,.0f} bits")
    for name, threshold, epoch in passages:
        reached = f"epoch {epoch}" if epoch else f"not by epoch {outcome.epochs} (censored)"
        table.add_row(f"{name} ≥ {threshold:.0%}", reached)
    Console().print(table)


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
    from groktime.workers.replay import check_device, rates

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
