"""Finding cells among a suite's runs."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from groktime.service.answers.cell import Cell, cells, swept_axes
from groktime.service.answers.choice import baseline_cells
from groktime.service.answers.question import Ambiguous, Labels, QuestionError, SettingValue
from groktime.service.spec import (
    ModelSpec,
    ModularData,
    OptimiserSpec,
    RandomData,
    RunSpec,
    ShuffledData,
    ThresholdStop,
)


def run(
    kind: str, *, operation: str = "/", task: str = "random", batch: int = 512, lr: float = 1e-3
) -> RunSpec:
    table = ModularData(prime=11, operation=operation)  # type: ignore[arg-type]
    data: Any = table
    if kind == "speed" and task == "random":
        data = RandomData(prime=11, n=table.n_train)
    elif kind == "speed":
        data = ShuffledData(prime=11, operation=operation)  # type: ignore[arg-type]
    return RunSpec(
        kind=kind,  # type: ignore[arg-type]
        data=data,
        model=ModelSpec(width=8),
        optimiser=OptimiserSpec(batch_size=batch, lr=lr),
        stop=ThresholdStop(val=0.99 if kind == "grok" else None),
        seed=1,
    )


def frame(*specs: RunSpec) -> pd.DataFrame:
    return pd.DataFrame([spec.columns() for spec in specs])


def one_cell(runs: pd.DataFrame, filters: dict[str, SettingValue], labels: Labels | None) -> Cell:
    return baseline_cells(list(cells(runs, filters, labels)))[0][0]


def test_columns_with_several_values_at_one_prime_are_the_axes() -> None:
    runs = frame(run("grok"), run("grok", lr=1e-2), run("speed"))
    assert swept_axes(runs) == ("lr",)


def test_a_random_label_run_serves_every_operation_of_equal_size() -> None:
    runs = frame(
        run("grok", operation="+"), run("grok", operation="*"), run("speed", operation="+")
    )
    found = list(cells(runs, {}, None))
    assert [cell.setting for cell in found] == [{"operation": "*"}, {"operation": "+"}]
    assert [len(cell.speed) for cell in found] == [1, 1]


def test_a_random_label_run_of_another_size_is_no_match() -> None:
    runs = frame(run("grok", operation="+"), run("speed", operation="/"))
    assert len(one_cell(runs, {}, None).speed) == 0


def test_shuffled_labels_are_asked_for_by_name() -> None:
    runs = frame(run("grok"), run("speed"), run("speed", task="shuffled"))
    assert one_cell(runs, {}, None).speed["task"].tolist() == ["random"]
    assert one_cell(runs, {}, "shuffled").speed["task"].tolist() == ["shuffled"]


def test_speed_runs_share_network_and_optimiser_with_their_cell() -> None:
    runs = frame(run("grok"), run("grok", lr=1e-2), run("speed"), run("speed", lr=1e-2))
    cell = one_cell(runs, {"lr": 1e-2}, None)
    assert cell.speed["lr"].tolist() == [1e-2]


def test_a_batch_of_the_whole_set_is_called_full() -> None:
    runs = frame(run("grok", batch=16), run("grok", batch=4096))
    assert [c.setting for c in cells(runs, {}, None)] == [
        {"batch_size": 16},
        {"batch_size": "full"},
    ]
    assert one_cell(runs, {"batch_size": "full"}, None).values["batch_size"] == 4096


def test_of_several_settings_the_baseline_is_taken_and_the_others_are_named() -> None:
    runs = frame(run("grok"), run("grok", lr=1e-2), run("grok", batch=16))
    (cell,), choice = baseline_cells(list(cells(runs, {}, None)))
    assert cell.setting == {"lr": 1e-3, "batch_size": "full"}
    assert choice.setting is not None
    assert list(choice.other_settings) == [
        {"lr": 1e-3, "batch_size": 16},
        {"lr": 1e-2, "batch_size": "full"},
    ]


def test_several_settings_without_a_baseline_are_refused_with_their_axes() -> None:
    runs = frame(run("grok", lr=1e-2), run("grok", lr=1e-1))
    with pytest.raises(Ambiguous) as refused:
        one_cell(runs, {}, None)
    assert refused.value.accepted == {"lr": [1e-2, 1e-1]}


def test_a_value_nobody_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(QuestionError) as refused:
        one_cell(frame(run("grok"), run("grok", lr=1e-2)), {"lr": 5.0}, None)
    assert refused.value.accepted == [1e-3, 1e-2]


@pytest.mark.parametrize(
    ("batch", "steps", "last"), [(10, 6, 5), (11, 5, 11), (54, 2, 1), (55, 1, 55), (512, 1, 55)]
)
def test_the_last_batch_is_what_full_ones_leave(batch: int, steps: int, last: int) -> None:
    cell = one_cell(frame(run("grok", batch=batch)), {}, None)
    assert cell.n_train == 55
    assert (cell.steps_per_epoch, cell.last_batch) == (steps, last)
    assert cell.batch_size == min(batch, 55)
