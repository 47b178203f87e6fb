"""The `groktime` command: one line of error for the user, no traceback, honest exit codes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from pydantic import ValidationError

from service.errors import GroktimeError
from service.logs import configure_logging, redact
from service.settings import get_settings

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name="groktime",
    help="Find out when neural networks grok.\n\n"
    "A suite of tiny transformers is trained through Ray Tune, every epoch goes to Postgres, "
    "and the API and dashboard answer where memorisation and generalisation cross.",
    epilog="Start with: groktime demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.callback()
def _configure(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    settings = get_settings()
    configure_logging("debug" if verbose else settings.log_level, settings.log_format)


def _mount() -> None:
    """Put every room's commands on the app, in the order a user meets them."""
    from service.commands import (
        db,
        demo,
        export,
        forecast,
        report,
        serve,
        suite,
        sweep,
        train,
        verify,
    )

    app.command()(demo.demo)
    app.command()(sweep.sweep)
    app.command()(sweep.submit)
    app.command()(sweep.status)
    app.command()(train.train)
    app.command()(serve.serve)
    app.command()(export.export)
    app.command()(report.report)
    app.command()(verify.verify)
    app.add_typer(forecast.app, name="forecast")
    app.add_typer(suite.app, name="suite")
    app.add_typer(db.app, name="db")


def _settings_message(error: ValidationError) -> str:
    """`GROKTIME_PORT: Input should be less than or equal to 65535 (got '99999')`."""
    first = error.errors(include_url=False)[0]
    name = "GROKTIME_" + "_".join(str(part) for part in first["loc"]).upper()
    return f"{name}: {first['msg']} (got {first['input']!r})"


def main() -> None:
    """Run the command; errors made for users end with exit code 2 and one line."""
    _mount()
    try:
        app()
    except ValidationError as error:
        if error.title != "Settings":
            raise
        _fail(_settings_message(error), EXIT_USAGE)
    except GroktimeError as error:
        _fail(str(error), EXIT_USAGE)
    except KeyboardInterrupt:
        _fail("interrupted", EXIT_INTERRUPTED)


def _fail(message: str, code: int) -> None:
    sys.stderr.write(f"groktime: {redact(message)}\n")
    raise SystemExit(code)


if __name__ == "__main__":
    main()
