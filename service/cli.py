"""The `groktime` command: one line of error for the user, no traceback, honest exit codes."""

from __future__ import annotations

import errno
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from groktime.service.errors import GroktimeError
from groktime.service.logs import configure_logging, redact

if TYPE_CHECKING:
    from pydantic import ValidationError

# Of click, or of the copy that typer carries.
UsageError: type[Any] = typer.BadParameter.__bases__[0]
EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
# Of the machine, whatever the command was: no space, no place to write, no descriptors.
EXHAUSTED = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE)


class Place(NamedTuple):
    """Where a command is written, and the line that `groktime --help` says about it."""

    module: str
    name: str
    help: str


# In the order a user meets them. A module is imported when its command is used.
COMMANDS = {
    "demo": Place(
        "serve", "demo", "Train the demo suite on this machine, then serve API and dashboard."
    ),
    "sweep": Place(
        "sweep", "sweep", "Train the missing runs of a suite through Ray Tune, into the database."
    ),
    "submit": Place("sweep", "submit", "Submit a sweep as a Ray job and follow its log."),
    "locate": Place(
        "sweep",
        "locate",
        "Choose and train runs until crossing and onset of one cell are as precise as asked.",
    ),
    "status": Place(
        "status",
        "status",
        "Progress of a suite: runs done, running, stale, failed and censored, speed, time left.",
    ),
    "train": Place("train", "train", "Train one run here and print its first passages."),
    "serve": Place("serve", "serve", "Answer questions over HTTP and show the dashboard."),
    "export": Place(
        "export",
        "export",
        "Write runs (and curves) with a data dictionary: exact, unsampled, streamed.",
    ),
    "report": Place(
        "export",
        "report",
        "Write Markdown, one HTML page, LaTeX tables, exact numbers (JSON) and all figures.",
    ),
    "verify": Place(
        "train",
        "verify",
        "Check this machine against recorded runs; exit 1 when a number is outside its tolerance.",
    ),
    "forecast": Place(
        "forecast",
        "app",
        "Predict crossings and onsets of primes before their runs exist, and score it later.",
    ),
    "suite": Place("suite", "app", "List, check, show, freeze and delete suites."),
    "db": Place("db", "app", "Start, migrate, move, check and prune the results database."),
}


class LazyCommands(TyperGroup):
    """Imports a command when it is used; the list of all needs none of them."""

    _listing = False

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.commands = {
            name: TyperCommand(name, help=place.help) for name, place in COMMANDS.items()
        }

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if self._listing or cmd_name not in COMMANDS:
            return self.commands.get(cmd_name)
        return load(cmd_name, COMMANDS[cmd_name])

    def main(self, *args: Any, **more: Any) -> Any:
        """As typer runs it, with a mistake in the command line told in one line."""
        try:
            code = super().main(*args, **{**more, "standalone_mode": False})
        except typer.Abort:
            _fail("aborted", EXIT_FAILED)
        except UsageError as error:
            if not error.format_message():  # a group without a command: its help is printed
                raise SystemExit(EXIT_USAGE) from None
            _fail(_usage_message(error), EXIT_USAGE)
        raise SystemExit(code or 0)

    def get_params(self, ctx: Any) -> list[Any]:
        return plain_flags(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


def plain_flags(params: list[Any]) -> list[Any]:
    """Flags are shown without a type: typer would write `--json <bool>`."""
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


def show_plain_flags(command: Any) -> None:
    """The same of a command, its --help and all commands under it."""
    plain_flags(command.get_params(typer.Context(command)))
    for under in getattr(command, "commands", {}).values():
        show_plain_flags(under)


def load(name: str, place: Place) -> Any:
    """The command itself, or the group of commands."""
    found = getattr(import_module(f"groktime.service.commands.{place.module}"), place.name)
    holder = typer.Typer(**STYLE)
    holder.callback()(lambda: None)  # makes it a group, whatever it holds
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    group: Any = typer.main.get_command(holder)
    show_plain_flags(group.commands[name])
    return group.commands[name]


STYLE: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "markdown",
}
app = typer.Typer(
    name="groktime",
    cls=LazyCommands,
    help="Find out when neural networks grok.\n\n"
    "A suite of tiny transformers is trained through Ray Tune, every epoch goes to Postgres, "
    "and the API and dashboard answer where memorisation and generalisation cross.",
    epilog="Start with: groktime demo",
    no_args_is_help=True,
    **{**STYLE, "add_completion": True},
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"groktime {version('groktime')}")
        raise typer.Exit


@app.callback()
def _configure(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    from groktime.service.settings import get_settings

    settings = get_settings()
    configure_logging("debug" if verbose else settings.log_level, settings.log_format)


def _settings_message(error: ValidationError) -> str:
    """`GROKTIME_PORT: Input should be less than or equal to 65535 (got '99999')`."""
    first = error.errors(include_url=False)[0]
    if not first["loc"]:
        return str(first["msg"]).removeprefix("Value error, ")
    name = "GROKTIME_" + "_".join(str(part) for part in first["loc"]).upper()
    return f"{name}: {first['msg']} (got {first['input']!r})"


def _usage_message(error: Any) -> str:
    """`Missing argument 'SUITE'; see groktime sweep --help`."""
    said = error.format_message().rstrip(".")
    for pydantics in ("Value error, ", "Input "):
        said = said.replace(f": {pydantics}", ": ")
    context = error.ctx
    if said.startswith("No such command") and "Did you mean" not in said:
        said += f"; accepted: {', '.join(context.command.list_commands(context))}"
    return f"{said}; see {context.command_path} --help" if context else said


def _with_accepted(error: GroktimeError) -> str:
    """The message; a question's refusal keeps beside it what it would have accepted."""
    accepted = getattr(error, "accepted", None)
    said = str(error)
    if isinstance(accepted, dict):
        accepted = "; ".join(f"{k} {', '.join(map(str, v))}" for k, v in accepted.items())
    elif accepted and not isinstance(accepted, str):
        accepted = ", ".join(map(str, accepted))
    if accepted:
        said += f"; accepted: {accepted}"
    if getattr(error, "parameter", None) == "suite":
        said += "; groktime sweep NAME trains a suite, groktime db load FILE reads a recorded one"
    return said


def main() -> None:
    """Run the command; errors made for users end with exit code 2 and one line."""
    try:
        app()
    except ValueError as error:
        from pydantic import ValidationError

        if not isinstance(error, ValidationError) or error.title != "Settings":
            raise
        _fail(_settings_message(error), EXIT_USAGE)
    except GroktimeError as error:
        _fail(_with_accepted(error), EXIT_USAGE)
    except KeyboardInterrupt:
        _fail("interrupted", EXIT_INTERRUPTED)
    except OSError as error:
        if error.errno not in EXHAUSTED:
            raise
        where = f" ({error.filename})" if error.filename else ""
        _fail(f"{os.strerror(error.errno)}{where}; what was begun is not whole", EXIT_USAGE)


def _fail(message: str, code: int) -> None:
    sys.stderr.write(f"groktime: {redact(message)}\n")
    raise SystemExit(code)


if __name__ == "__main__":
    main()
