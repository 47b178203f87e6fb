"""Small things of the command line that people meet first."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from groktime.service.cli import COMMANDS, app, load, main
from groktime.service.commands import complete_suite
from groktime.service.commands.serve import bound, shown_host
from groktime.service.commands.sweep import tell_cost
from groktime.service.commands.train import read_settings
from groktime.service.errors import ConfigurationError, InputError, SuiteError
from groktime.service.settings import get_settings
from groktime.service.suites import load_suite
from groktime.service.suites.loader import suite_index
from groktime.service.sweep.selection import SweepOptions


def test_the_version_is_told() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert re.fullmatch(r"groktime \d+\.\d+\S*\n", result.stdout)


def test_a_misspelt_suite_is_answered_with_the_nearest_and_with_all_there_are() -> None:
    with pytest.raises(SuiteError, match=r"did you mean mini\? accepted: .*central.*mini"):
        load_suite("minni")


def help_pages(command: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """The command's own path and those of all commands under it."""
    yield path
    for name, under in getattr(command, "commands", {}).items():
        yield from help_pages(under, *path, name)


@pytest.mark.parametrize(
    "path", [path for name in COMMANDS for path in help_pages(load(name, COMMANDS[name]), name)]
)
def test_help_shows_flags_without_a_value_and_optional_arguments_once(
    path: tuple[str, ...],
) -> None:
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "120"})
    assert result.exit_code == 0
    assert re.search(r"--help +Show this message", result.stdout)
    assert "<bool>" not in result.stdout
    assert "[[" not in result.stdout


def test_help_of_groktime_itself_shows_flags_without_a_value() -> None:
    result = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "120"})
    assert re.search(r"--version +Print the version", result.stdout)
    assert "<bool>" not in result.stdout


def test_the_list_of_suites_cuts_no_name_on_a_narrow_terminal() -> None:
    result = CliRunner().invoke(app, ["suite", "list"], env={"COLUMNS": "80"})
    for suite in suite_index():
        most = r"≤ " if "at_most" in suite else ""  # of a located suite's runs few are trained
        assert re.search(rf"^ {suite['suite']} +{most}[\d,]+ ", result.stdout, re.MULTILINE)
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_names_of_suites_complete_in_the_shell() -> None:
    assert complete_suite("min") == ["mini", "mini-released"]
    assert "central" in complete_suite("")
    assert complete_suite("nothing") == []


def test_a_busy_port_is_one_line_that_names_it() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with (
            pytest.raises(ConfigurationError, match=f"port = {port} cannot be used"),
            bound("127.0.0.1", port),
        ):
            pass


def test_a_free_port_is_bound_and_shown_as_a_browser_takes_it() -> None:
    with bound("127.0.0.1", 0) as found:
        assert found.getsockname()[1] > 0
    assert shown_host("0.0.0.0") == "localhost"
    assert shown_host("::1") == "[::1]"


@pytest.mark.parametrize("suite", [["mini"], []])
def test_a_forecast_needs_neither_the_word_make_nor_a_suite(suite: list[str]) -> None:
    result = CliRunner().invoke(app, ["forecast", *suite, "--fit", "a,b", "--predict", "127"])
    assert isinstance(result.exception, InputError)
    assert "--fit = 'a,b'" in str(result.exception)


def test_an_export_goes_to_one_place(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["export", "mini"])
    assert isinstance(result.exception, InputError)
    assert "--to FOLDER" in str(result.exception)


def test_settings_on_the_command_line_are_typed_and_checked() -> None:
    accepted = ("weight_decay", "positions")
    assert read_settings(["weight_decay=0.3", "positions=none"], accepted) == {
        "weight_decay": 0.3,
        "positions": "none",
    }
    with pytest.raises(InputError, match="one of weight_decay, positions"):
        read_settings(["decay=1"], accepted)


@pytest.mark.parametrize("sign", "+-*/")
def test_an_operation_may_be_given_by_its_sign(sign: str) -> None:
    assert read_settings([f"operation={sign}"], ["operation"]) == {"operation": sign}


def test_a_setting_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match="lr is given twice"):
        read_settings(["lr=0.1", "lr=0.2"], ["lr"])


def test_a_full_disk_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full() -> None:
        with open("/dev/full", "w") as file:
            file.write("x")

    monkeypatch.setattr("groktime.service.cli.app", full)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "groktime: No space left on device; what was begun is not whole\n"
    )


@pytest.fixture
def _empty_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A home without a database, whatever this machine has."""
    monkeypatch.setenv("GROKTIME_HOME", str(tmp_path))
    monkeypatch.delenv("GROKTIME_DATABASE_URL", raising=False)
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


@pytest.mark.usefixtures("_empty_home")
def test_a_long_sweep_says_what_it_takes_where_nobody_can_be_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell_cost(load_suite("demo"), SweepOptions(), None, asks=False)
    assert "to train" not in capsys.readouterr().err
    tell_cost(load_suite("central"), SweepOptions(), None, asks=False)
    told = capsys.readouterr().err
    assert re.fullmatch(
        r"18,756 runs to train: about \S+ \w+ on this machine's \d+ cores?\.\n", told
    )
