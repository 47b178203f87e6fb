"""`groktime export`: a suite's results as files for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from groktime.db.engine import connect
from groktime.db.export import FORMATS, export_suite
from groktime.service.commands.completion import complete_suite
from groktime.service.commands.mlflow import export_mlflow
from groktime.service.errors import InputError
from groktime.service.words import count


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
