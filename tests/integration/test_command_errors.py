"""Whatever is wrong, the command says it in one line and ends with code 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def groktime(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "groktime.service.cli", *arguments],
        env={**os.environ, **variables},
        text=True,
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "variables", "says"),
    [
        (["suite", "show", "nowhere"], {}, "nowhere"),
        (["sweep", "demo", "--kind", "fast"], {}, "capacity, speed, grok"),
        (
            ["sweep", "demo", "--address", "127.0.0.1:1", "--dry-run"],
            {"GROKTIME_HOME": "/tmp/gt-no-database"},
            "cannot be reached",
        ),
        (
            ["submit", "demo", "--address", "127.0.0.1:1"],
            {"GROKTIME_HOME": "/tmp/gt-no-database"},
            "http://HOST:PORT",
        ),
        (["suite", "check", "/dev/zero"], {}, "is not a file"),
        (["db", "url"], {"GROKTIME_HOME": "relative"}, "GROKTIME_HOME"),
        (["db", "url"], {"GROKTIME_PORT": "99999"}, "GROKTIME_PORT"),
        (
            ["status"],
            {"GROKTIME_DATABASE_URL": "postgresql://u:hunter2@127.0.0.1:1/x"},
            "cannot be reached",
        ),
        (
            ["db", "migrate"],
            {"GROKTIME_DATABASE_URL": "postgresql://u:hunter2@127.0.0.1:1/x"},
            "cannot be reached",
        ),
        (["status"], {"GROKTIME_DATABASE_URL": "postgresql://u:p@ss:hunter2@h:x/d"}, "%40"),
        (["status"], {"GROKTIME_DATABASE_URL": "mysql://u:hunter2@h/x"}, "postgresql://"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    arguments: list[str], variables: dict[str, str], says: str
) -> None:
    result = groktime(*arguments, **variables)
    assert result.returncode == 2
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert "hunter2" not in result.stderr
    assert result.stderr.startswith("groktime: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--prime", "999"], "--prime = 999: the suite has 59"),
        (["--width", "7"], "--width = 7: the suite has 24, 28"),
        (["--seed", "7"], "--seed = 7: the suite has"),
        (["--kind", "grk"], "accepted: capacity, speed, grok"),
        (["--foo"], "No such option: --foo; see"),
        (["--gpus-per-bundle", "1.5"], "only whole GPUs"),
        (["--workers", "-1"], "--workers"),
        (["--limit", "0"], "--limit"),
    ],
)
def test_a_sweep_of_what_is_not_there_leaves_nothing_behind(options: list[str], says: str) -> None:
    home = Path(f"/tmp/gt-mistake-{os.getpid()}")  # a short path that does not exist
    result = groktime("sweep", "demo", *options, GROKTIME_HOME=str(home))
    assert result.returncode == 2
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.count("\n") == 1
    assert not home.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--kind", "cap"], "Invalid value for '--kind': 'cap' is not one of 'grok', 'speed'"),
        (["--prime", "60"], "groktime: --prime: 60 is not a prime"),
        (["--width", "17"], "groktime: width = 17 is odd; widths are even"),
        (["--set", "beta2=4"], "--beta2: 4 is not accepted: should be less than 1"),
    ],
)
def test_a_run_that_cannot_be_is_refused_by_the_option_that_says_so(
    arguments: list[str], says: str
) -> None:
    result = groktime("train", "--prime", "59", "--width", "16", *arguments)
    assert result.returncode == 2
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_command_that_is_not_there_is_answered_with_those_that_are() -> None:
    result = groktime("nosuch")
    assert result.returncode == 2
    assert result.stderr.startswith("groktime: No such command 'nosuch'; accepted: demo, sweep")
    assert groktime("suite").returncode == 2


def test_a_dry_run_of_a_located_suite_counts_the_cells_that_pass() -> None:
    arguments = ("sweep", "dropout-two-cores", "--set", "dropout=0.1", "--dry-run")
    assert "of 3 cells to 0.03 dex" in groktime(*arguments).stdout
    assert json.loads(groktime(*arguments, "--json").stdout)["cells"] == 3


def test_every_command_explains_itself() -> None:
    for command in ("sweep", "submit", "status", "train", "serve", "report", "verify", "demo"):
        shown = groktime(command, "--help")
        assert shown.returncode == 0
        assert f"groktime {command}" in shown.stdout.replace("\n", " ")
