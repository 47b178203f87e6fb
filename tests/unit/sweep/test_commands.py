"""The commands about suites: what they print, for people and for machines, and how they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from groktime.service.commands.suite import app
from groktime.service.errors import SuiteError


def test_showing_a_suite_gives_counts_cost_and_inherited_cells() -> None:
    result = CliRunner().invoke(app, ["show", "addition", "--json"])
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert shown["runs"] == {"capacity": 0, "speed": 300, "grok": 320}
    assert shown["cells"] == 5
    assert shown["inherited"] == [{"suite": "central", "cells": 5, "runs": 9406}]
    assert shown["cost"]["hours"] > 0
    assert shown["cost"]["model_epochs"] > 620
    assert shown["cost"]["flops"] > 1e12


def test_showing_depth_says_what_is_left_out() -> None:
    result = CliRunner().invoke(app, ["show", "depth"])
    assert result.exit_code == 0
    assert result.stdout.count("left out:") == 52


def test_every_shipped_suite_is_listed() -> None:
    listed = json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout)
    counts = {entry["suite"]: entry["runs"] for entry in listed}
    assert counts["central"] == {"capacity": 56, "speed": 4400, "grok": 14300}
    assert "demo" in counts


def test_checking_a_file_tells_its_runs_or_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("description: x\nprimes: [7]\nseeds: [1]\nspeed: {widths: [8]}\n")
    result = CliRunner().invoke(app, ["check", str(path)])
    assert result.stdout == "mine: 1 run, valid\n"
    path.write_text("description: x\nprimes: [8]\nseeds: [1]\nspeed: {widths: [8]}\n")
    refused = CliRunner().invoke(app, ["check", str(path)])
    assert isinstance(refused.exception, SuiteError)
    assert "8 is not a prime" in str(refused.exception)


def test_a_kind_that_does_not_exist_is_refused() -> None:
    from groktime.service.commands.sweep import checked_kinds
    from groktime.service.errors import InputError

    with pytest.raises(InputError, match="capacity, speed, grok"):
        checked_kinds(["fast"])
