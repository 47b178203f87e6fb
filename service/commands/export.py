"""`groktime export`, `report`: a suite's results as files for other tools, and as documents.

With `--mlflow` one experiment holds the suite and one MLflow run each of its runs: settings as
parameters, every epoch as metrics, in the layout of MLflow's file store
(`MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri DIR`).
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.console import Console
from sqlalchemy import Connection, text

from groktime.db.engine import connect
from groktime.db.export import FORMATS, export_suite
from groktime.db.records import get_suite
from groktime.service.commands import complete_suite
from groktime.service.errors import InputError
from groktime.service.settings import get_settings
from groktime.service.spec import COUNTS, METRICS, RunSpec
from groktime.service.words import count

if TYPE_CHECKING:
    from sqlalchemy import Connection


def export(
    suite: Annotated[
        str,
        typer.Argument(metavar="SUITE", help="Name of the suite.", autocompletion=complete_suite),
    ],
    to: Annotated[Path | None, typer.Option("--to", help="Folder of this export alone.")] = None,
    file_format: Annotated[
        str, typer.Option("--format", help=f"{' or '.join(FORMATS)}.")
    ] = "parquet",
    curves: Annotated[
        bool, typer.Option("--curves", help="Every epoch of every run, too.")
    ] = False,
    mlflow: Annotated[
        Path | None,
        typer.Option("--mlflow", help="Folder for MLflow's viewer: runs and curves."),
    ] = None,
) -> None:
    """Write runs (and curves) with a data dictionary: exact, unsampled, streamed.

    Examples:

    groktime export mini --to results --format parquet --curves

    groktime export mini --mlflow mlruns
    """
    chosen = next((known for known in FORMATS if known == file_format), None)
    if chosen is None:
        raise InputError(f"format: {file_format!r} is not accepted; {' or '.join(FORMATS)}")
    if (to is None) == (mlflow is None):
        raise InputError("give --to FOLDER for tables or --mlflow FOLDER for MLflow's viewer")
    # One snapshot for all tables, so that they agree while a sweep goes on.
    engine = connect(role="reader").execution_options(isolation_level="REPEATABLE READ")
    with engine.connect() as connection:
        # Large exports take longer than the limit for questions.
        connection.exec_driver_sql("SET statement_timeout = 0")
        if mlflow is not None:
            written = export_mlflow(connection, suite, mlflow)
            typer.echo(f"{count(written, 'run')} written; look at them with:")
            # Newer MLflow opens a store of files only when told so.
            typer.echo(f"MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {mlflow}")
        if to is not None:
            for path in export_suite(connection, suite, to, file_format=chosen, curves=curves):
                typer.echo(str(path))


RUNS = """
SELECT r.id, r.key, r.spec, r.state, r.reason, r.seconds, r.n_train, r.n_val, r.last_epoch,
    r.created_at, r.closed_at FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = :suite AND r.last_epoch > 0 ORDER BY r.id
"""
CURVE = f"""
SELECT epoch, {", ".join(name for name, _ in METRICS)} FROM curve
WHERE run_id = :run ORDER BY epoch
"""
STATUS = {"done": 3, "failed": 4, "running": 1}  # as MLflow numbers them; else 2, scheduled
ACCURACIES = {name: name.replace("correct", "accuracy") for name in COUNTS}


def export_mlflow(connection: Connection, name: str, directory: Path) -> int:
    """Write the suite's runs that have begun into a new folder of the store; how many they are.

    The experiment appears when it is complete; an earlier export of the suite is refused.
    """
    suite = get_suite(connection, name)
    experiment = str(int(hashlib.sha256(name.encode()).hexdigest()[:15], 16))
    target = directory / experiment
    if target.exists():
        raise InputError(f"--mlflow {directory}: holds {name} already; accepted: another folder")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        stage = tempfile.TemporaryDirectory(dir=directory, prefix=".export-")
    except OSError as problem:
        raise InputError(f"--mlflow {directory}: {problem.strerror}; accepted: a folder") from None
    runs = connection.execute(text(RUNS), {"suite": suite.id}).all()
    with stage as folder:
        root = Path(folder) / experiment
        root.mkdir()
        now = _milliseconds(max((run.created_at for run in runs), default=None))
        about = {
            "artifact_location": target.resolve().as_uri(),
            "creation_time": now,
            "experiment_id": experiment,
            "last_update_time": now,
            "lifecycle_stage": "active",
            "name": name,
        }
        (root / "meta.yaml").write_text(yaml.safe_dump(about))
        for run in runs:
            _write_run(connection, run, root, experiment, target)
        root.replace(target)
    return len(runs)


def _write_run(connection: Connection, run: Any, root: Path, experiment: str, target: Path) -> None:
    identity = run.key[:32]
    spec = RunSpec.model_validate({k: v for k, v in run.spec.items() if k != "version"})
    columns = spec.columns()
    folder = root / identity
    for part in ("metrics", "params", "tags", "artifacts"):
        (folder / part).mkdir(parents=True)
    begin, end = _milliseconds(run.created_at), _milliseconds(run.closed_at)
    about = {
        "artifact_uri": (target / identity / "artifacts").resolve().as_uri(),
        "end_time": end or None,
        "entry_point_name": "",
        "experiment_id": experiment,
        "lifecycle_stage": "active",
        "run_id": identity,
        "run_name": f"{spec.kind} p={spec.data.prime} d={spec.model.width} seed={spec.seed}",
        "run_uuid": identity,
        "source_name": "",
        "source_type": 4,
        "source_version": "",
        "start_time": begin,
        "status": STATUS.get(run.state, 2),
        "tags": [],
        "user_id": "groktime",
    }
    (folder / "meta.yaml").write_text(yaml.safe_dump(about))
    for name, value in columns.items():
        if value is not None:
            (folder / "params" / name).write_text(str(value))
    tags = {"mlflow.runName": about["run_name"], "groktime.key": run.key, "groktime.run": run.id}
    if run.reason:
        tags["groktime.reason"] = run.reason
    for name, value in tags.items():
        (folder / "tags" / name).write_text(str(value))
    lines: dict[str, list[str]] = {}
    for name, epoch, value in _measured(connection, run):
        lines.setdefault(name, []).append(f"{begin} {value!r} {epoch}\n")
    for name, content in lines.items():
        (folder / "metrics" / name).write_text("".join(content))


def _measured(connection: Connection, run: Any) -> Iterator[tuple[str, int, float]]:
    """Metric, epoch and value; counts of correct answers as accuracies."""
    sizes = {"train_correct": run.n_train, "train_correct_eval": run.n_train}
    for row in connection.execute(text(CURVE), {"run": run.id}).mappings():
        for name, _ in METRICS:
            value = row[name]
            if value is None or not math.isfinite(value):
                continue
            if name in ACCURACIES:
                yield ACCURACIES[name], row["epoch"], value / sizes.get(name, run.n_val)
            else:
                yield name, row["epoch"], float(value)


def _milliseconds(moment: datetime | None) -> int:
    return 0 if moment is None else int(moment.timestamp() * 1000)


PAPER = "paper"


def report(
    suites: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SUITE",
            help="Suites, one chapter each; paper: pages of all. Default: the one that can "
            "answer most.",
        ),
    ] = None,
    *,
    to: Annotated[Path, typer.Option("--to", help="Folder to write into; made if need be.")],
    compare: Annotated[
        list[str] | None,
        typer.Option(help="A suite to set beside these without a chapter; may be repeated."),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the files, without an ending.")] = "report",
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
) -> None:
    """Write Markdown, one HTML page, LaTeX tables, exact numbers (JSON) and all figures.

    Scope, verdict, figures, cells, pooled tests, within-setting table, capacity, laws and
    provenance, with the paper's values beside ours. Examples:

    groktime report --to reports/best

    groktime report mini-released --compare mini --to docs --name results

    groktime report paper --to pages
    """
    from groktime.db.engine import connect
    from groktime.service.answers.choice import choose
    from groktime.service.answers.question import Question, reading
    from groktime.service.report.assembly import ReportOrder, write_report

    engine = connect(role="reader")
    # One moment of the database for all questions, so that the numbers agree with each other.
    with reading(engine) as connection:
        connection.exec_driver_sql("SET statement_timeout = 0")
        if suites == [PAPER]:
            _write_pages(connection, to, force=force)
            return
        if not suites:
            question = choose(
                connection, Question(default_suite=get_settings().default_suite), "suite"
            )
            suites = [str(question.suite)]
            typer.echo(f"{question.suite}: {question.choice.suite}", err=True)
        order = ReportOrder(suites, compare or (), to, name)
        # On a terminal only; whoever reads a log wants the paths.
        with Console(stderr=True).status("") as shown:
            written = write_report(connection, order, force=force, step=shown.update)
        for path in written:
            typer.echo(str(path))
    engine.dispose()


def _write_pages(connection: Connection, folder: Path, *, force: bool) -> None:
    """A front page, one page a suite and one of all of them."""
    from groktime.service.errors import InputError
    from groktime.service.report.assembly import put_file
    from groktime.service.report.results import result_files

    front = folder / "results.md"
    if front.exists() and not force:
        raise InputError(f"--to: {front} exists; choose another folder, or --force to replace it")
    files, _ = result_files(connection)
    for path, content in files.items():
        typer.echo(str(put_file(folder / path, content)))
