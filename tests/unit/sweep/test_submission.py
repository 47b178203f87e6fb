"""What a submitted or planned sweep is told, and how large its stacks and Tuners may be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import typer
from typer.testing import CliRunner

from groktime.service.commands.sweep import sweep
from groktime.service.commands.train import read_settings
from groktime.service.errors import InputError
from groktime.service.settings import Settings
from groktime.service.suites import load_suite
from groktime.service.suites.values import AXES
from groktime.service.sweep.cluster import ClusterCapacity, expected_capacity, stack_limit
from groktime.service.sweep.cost import suite_cost
from groktime.service.sweep.jobs import arguments, requested
from groktime.service.sweep.plan import Preview, preview
from groktime.service.sweep.selection import Selection, SweepOptions

PART = SweepOptions(
    Selection((59,), ("speed",), (20, 24), (42,), {"dropout": 0.2}), limit=3, workers=2
)


def test_a_job_gets_the_options_it_was_asked_for() -> None:
    words = "--prime 59 --kind speed --width 20 --width 24 --seed 42"
    words += " --set dropout=0.2 --limit 3 --workers 2"
    assert arguments(PART) == words.split()
    assert arguments(SweepOptions(gpus_per_bundle=0.25, retry_failed=True)) == [
        *("--gpus-per-bundle", "0.25"),
        "--retry-failed",
    ]
    assert arguments(SweepOptions()) == []
    assert arguments(SweepOptions(gpus_per_bundle=0.0)) == ["--gpus-per-bundle", "0"]


def test_the_command_understands_every_option_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groktime.service.commands.sweep.existing_database", lambda: None)
    app = typer.Typer()
    app.command()(sweep)
    result = CliRunner().invoke(app, ["mini", "--dry-run", *arguments(PART)])
    assert result.exit_code == 0, result.output
    assert "mini: 2 runs selected" in result.stdout


@pytest.mark.parametrize(
    "settings",
    [
        *({"operation": sign} for sign in "+-*/"),
        {"eval_train": False, "positions": "none"},
        {"batch_size": {"steps": 12.36}, "lr": 1e-5},
        {"batch_size": "full"},
    ],
)
def test_a_job_reads_the_settings_that_it_was_given(settings: dict[str, object]) -> None:
    words = arguments(SweepOptions(Selection(settings=settings)))
    assert read_settings(words[1::2], AXES) == settings


def test_what_was_asked_is_noted_without_what_was_not() -> None:
    assert requested(PART) == {
        "filters": {
            **{"prime": [59], "kind": ["speed"], "width": [20, 24], "seed": [42]},
            "settings": {"dropout": 0.2},
        },
        "resources": {"workers": 2, "limit": 3},
    }
    assert requested(SweepOptions(retry_failed=True)) == {"retry_failed": True}
    assert requested(SweepOptions()) == {}


def test_cells_are_chosen_by_a_setting_whether_it_is_swept_or_not() -> None:
    suite = load_suite("dropout")
    of_tenth = Selection(settings={"dropout": 0.1}).chosen(suite)
    assert of_tenth
    assert {run.model.dropout for run in of_tenth} == {0.1}
    assert Selection(settings={"operation": "/"}).chosen(suite) == suite.runs()


def test_of_very_many_values_the_nearest_are_named() -> None:
    with pytest.raises(InputError, match=r"the suite has \d+ others, the nearest 32 and 34$"):
        Selection(widths=(33,)).chosen(load_suite("central"))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"dropout": 0.3}, r"--set dropout = 0\.3: the suite has 0\.0, 0\.1, 0\.2, 0\.4"),
        ({"dropout": "much"}, "setting dropout: 'much' is not accepted: should be a valid number"),
        ({"operation": "+"}, r"--set operation = \+: the suite has /"),
        ({"droput": 0.1}, "setting droput: unknown key; did you mean dropout"),
    ],
)
def test_a_setting_that_no_cell_has_is_refused_with_those_there_are(
    settings: dict[str, object], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        Selection(settings=settings).chosen(load_suite("dropout"))


def counted_plan(
    monkeypatch: pytest.MonkeyPatch, options: SweepOptions, rate: float, capacity: ClusterCapacity
) -> Preview:
    monkeypatch.setattr("groktime.service.sweep.cost.measured_rate", lambda spec: (rate, "native"))
    return preview(load_suite("mini"), None, options, capacity)


def test_a_dry_run_counts_hours_at_the_measured_rate_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    capacity = ClusterCapacity(2, "cpu", stack_limit("cpu", 0.0))
    for rate in (1e9, 3e10):
        plan = counted_plan(monkeypatch, PART, rate, capacity)
        assert plan.core_seconds == pytest.approx(plan.flops / rate)
        shown = suite_cost(PART.selection.chosen(load_suite("mini")))
        assert (shown.rate, shown.flops) == (rate, plan.flops)


def test_a_dry_run_plans_within_the_memory_and_by_the_device_of_the_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = SweepOptions(Selection(primes=(59,), kinds=("speed",)))
    runs = len(options.selection.chosen(load_suite("mini")))
    widths = runs // 5  # of five seeds each
    roomy, narrow = (
        ClusterCapacity(1, "cuda", lambda _: 100),
        ClusterCapacity(1, "cuda", lambda _: 1),
    )
    assert counted_plan(monkeypatch, options, 1e20, roomy).stacks == widths
    assert counted_plan(monkeypatch, options, 1e20, narrow).stacks == runs
    here = ClusterCapacity(1, "cpu", lambda _: 100)
    assert counted_plan(monkeypatch, options, 1e20, here).stacks == runs  # a seed at a time


@pytest.mark.parametrize(
    ("options", "address", "joins"),
    [
        (SweepOptions(workers=3), None, False),
        (SweepOptions(workers=3), "head:6379", True),
        (SweepOptions(gpus_per_bundle=0.5, workers=3), None, True),
    ],
)
def test_a_dry_run_joins_a_cluster_only_where_that_decides_the_plan(
    options: SweepOptions, address: str | None, joins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[object] = []

    @contextmanager
    def join(*asked: object) -> Iterator[None]:
        joined.append(asked)
        yield

    monkeypatch.setattr("groktime.service.sweep.cluster.cluster", join)
    monkeypatch.setattr(
        "groktime.service.sweep.cluster.members", lambda: ({"CPU": 64.0, "GPU": 2.0}, [])
    )
    monkeypatch.setattr(
        "groktime.service.sweep.cluster.free_stack_bytes", lambda device, gpus: 1 << 30
    )
    with expected_capacity(options, Settings(), address) as capacity:
        assert capacity.slots == (options.workers or 4)
        assert capacity.on_gpu == joins  # where there are GPUs, they are used
        assert capacity.stack_limit(load_suite("demo").runs()[0]) > 1
    assert joined == ([(address, options.workers)] if joins else [])


def test_a_stack_has_less_room_for_larger_models() -> None:
    small, *_, large = sorted(load_suite("mini").runs(), key=lambda run: run.params)
    room = stack_limit("cpu", 0.0)
    assert room(small) > room(large) > 1
