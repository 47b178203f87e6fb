"""`groktime report`: what a suite found, as documents to read, print and cite."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from groktime.service.settings import get_settings

if TYPE_CHECKING:
    from sqlalchemy import Connection


PAPER = "paper"


def report(
    suites: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SUITE",
            help="Suites, one chapter each, or paper: pages of all; default: the fullest one.",
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
    from groktime.service.answers.question import Question
    from groktime.service.answers.records import reading
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
