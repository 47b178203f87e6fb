"""`groktime export`: a suite's results as files for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from db.engine import connect
from db.export import FORMATS, export_suite
from service.errors import InputError


def export(
    suite: Annotated[str, typer.Argument(help="Name of the suite.")],
    to: Annotated[Path, typer.Option("--to", help="Folder of this export alone.")],
    file_format: Annotated[
        str, typer.Option("--format", help=f"{' or '.join(FORMATS)}.")
    ] = "parquet",
    curves: Annotated[
        bool, typer.Option("--curves", help="Every epoch of every run, too.")
    ] = False,
) -> None:
    """Write runs (and curves) with a data dictionary: exact, unsampled, streamed.

    Example: groktime export central --to results --format parquet --curves
    """
    chosen = next((known for known in FORMATS if known == file_format), None)
    if chosen is None:
        raise InputError(f"format: {file_format!r} is not accepted; {' or '.join(FORMATS)}")
    # One snapshot for all tables, so that they agree while a sweep goes on.
    engine = connect(role="reader").execution_options(isolation_level="REPEATABLE READ")
    with engine.connect() as connection:
        # Large exports take longer than the limit for questions.
        connection.exec_driver_sql("SET statement_timeout = 0")
        for path in export_suite(connection, suite, to, file_format=chosen, curves=curves):
            typer.echo(str(path))
