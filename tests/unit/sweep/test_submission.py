"""What a submitted sweep is told, and how large its stacks and Tuners may be."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from service.commands.sweep import sweep
from service.suites import load_suite
from service.sweep.job import SweepOptions
from service.sweep.noting import as_asked
from service.sweep.room import room_on
from service.sweep.selection import Selection
from service.sweep.submit import arguments
from service.sweep.tuner import most_bundles

PART = SweepOptions(
    Selection(primes=(59,), kinds=("speed",), widths=(20, 24), seeds=(42,)), limit=3, workers=2
)


def test_a_job_gets_the_options_it_was_asked_for() -> None:
    words = "--prime 59 --kind speed --width 20 --width 24 --seed 42 --limit 3 --workers 2"
    assert arguments(PART) == words.split()
    assert arguments(SweepOptions(gpus_per_bundle=0.25, retry_failed=True)) == [
        *("--gpus-per-bundle", "0.25"),
        "--retry-failed",
    ]
    assert arguments(SweepOptions()) == []


def test_the_command_understands_every_option_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.commands.sweep.existing_database", lambda: None)
    app = typer.Typer()
    app.command()(sweep)
    result = CliRunner().invoke(app, ["mini", "--dry-run", *arguments(PART)])
    assert result.exit_code == 0, result.output
    assert "mini: 2 runs selected" in result.output


def test_what_was_asked_is_noted_without_what_was_not() -> None:
    assert as_asked(PART) == {
        "filters": {"prime": [59], "kind": ["speed"], "width": [20, 24], "seed": [42]},
        "resources": {"workers": 2, "limit": 3},
    }
    assert as_asked(SweepOptions(retry_failed=True)) == {"retry_failed": True}
    assert as_asked(SweepOptions()) == {}


def test_a_stack_has_less_room_for_larger_models() -> None:
    small, *_, large = sorted(load_suite("mini").runs(), key=lambda run: run.params)
    room = room_on("cpu", 0.0)
    assert room(small) > room(large) > 1


@pytest.mark.parametrize(("workers", "bundles"), [(1, 500), (10, 1000), (1000, 2000)])
def test_a_tuner_has_more_bundles_where_more_workers_would_wait_for_its_end(
    workers: int, bundles: int
) -> None:
    assert most_bundles(workers) == bundles
