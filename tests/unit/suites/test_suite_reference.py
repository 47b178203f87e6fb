"""The reference of the suite file says what the schema accepts."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path

import pytest

from groktime.service.suites import load_suite, shipped_suites

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "suites.md"
WRITER = run_path(str(ROOT / "scripts" / "suite-reference"))


def test_the_page_is_the_one_that_the_schema_writes() -> None:
    assert PAGE.read_text() == WRITER["suite_reference"](), (
        "write it again: scripts/suite-reference > docs/suites.md"
    )


def test_every_field_says_what_it_means() -> None:
    silent = [
        f"{model.__name__}.{name}"
        for model in WRITER["SECTIONS"].values()
        for name, field in model.model_fields.items()
        if not field.description
    ]
    assert silent == []


def test_the_example_is_a_suite(tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(WRITER["EXAMPLE"])
    suite = load_suite(path)
    assert {run.data.task for run in suite.runs()} == {"random", "modular"}
    assert {getattr(run.data, "operation", "+") for run in suite.runs()} == {"+"}


@pytest.mark.parametrize("name", shipped_suites())
def test_a_shipped_suite_is_described_in_one_line(name: str) -> None:
    described = load_suite(name).file.description
    assert len(described) <= 80
    assert "\n" not in described
