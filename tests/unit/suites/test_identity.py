"""No change of the code may rename what has been recorded: keys of runs, hashes of suites."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groktime.db.export import MANIFEST, RUNS, opened
from groktime.service import spec
from groktime.service.spec import ModelSpec, OptimiserSpec, RunSpec
from groktime.service.suites import load_suite

RECORDINGS = sorted((Path(__file__).parents[3] / "recordings").glob("*.groktime"))


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_every_recorded_run_keeps_its_key(path: Path) -> None:
    with opened(path) as archive:
        runs = [json.loads(line)["run"] for line in archive.read(RUNS).splitlines()]
    assert runs
    for run in runs:
        content = {name: value for name, value in run["spec"].items() if name != "version"}
        assert RunSpec.model_validate(content).key == run["key"]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_every_recorded_suite_keeps_its_hash(path: Path) -> None:
    with opened(path) as archive:
        suite = json.loads(archive.read(MANIFEST))["suite"]
    assert load_suite(suite["name"]).digest == suite["hash"]


def test_a_field_added_later_is_no_part_of_a_key_at_its_neutral_value() -> None:
    assert "warmup" not in OptimiserSpec().canonical_json
    assert OptimiserSpec(warmup=0).canonical_json == OptimiserSpec().canonical_json
    warm: dict[str, Any] = json.loads(OptimiserSpec(warmup=10).canonical_json)
    assert warm.pop("warmup") == 10
    assert warm == json.loads(OptimiserSpec().canonical_json)


def test_settings_are_the_columns_of_data_model_and_optimiser() -> None:
    run = RunSpec.model_validate(
        {
            "kind": "grok",
            "data": {"task": "modular", "prime": 7},
            "model": {"width": 8},
            "stop": {"rule": "fixed", "max_epochs": 1},
            "seed": 0,
        }
    )
    assert set(spec.SETTING_COLUMNS) <= set(run.columns())
    assert set(spec.MODEL_COLUMNS) == set(ModelSpec.model_fields) - {"width"}
