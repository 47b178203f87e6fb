"""Which published table stands beside a suite, and what is said about its runs."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from groktime.service.answers.verdicts import PUBLISHED_RUNS, find_reference

FIVE = (97, 107, 113, 127, 139)
TEN = (97, 101, 103, 107, 109, 113, 127, 131, 137, 139)


def runs(primes: tuple[int, ...] = TEN, **settings: Any) -> pd.DataFrame:
    """Grok runs as published, but for the settings named; a list sweeps one."""
    rows: list[dict[str, Any]] = [dict(PUBLISHED_RUNS, kind="grok", prime=p) for p in primes]
    for name, values in settings.items():
        several = values if isinstance(values, list) else [values]
        rows = [row | {name: value} for row in rows for value in several]
    return pd.DataFrame(rows)


def test_the_released_model_at_the_papers_primes_differs_in_nothing() -> None:
    found = find_reference(runs(), ())
    assert found is not None
    assert (found.suite, found.same_model, found.differences) == ("central", True, ())
    assert found.column == "paper"
    assert found.note.endswith("Our runs have the same settings and primes.")
    assert found.tests["spearman"].statistic == 0.976
    assert found.residuals == {97: -0.17, 107: -0.15, 113: -0.14, 127: -0.18, 139: -0.13}


def test_rope_results_have_another_models_values_beside_them() -> None:
    found = find_reference(runs(positions="rope"), ())
    assert found is not None
    assert not found.same_model
    assert found.column == "paper (another model)"
    assert found.differences == ("positions rope (published: none)",)


def test_other_primes_and_batches_are_named_but_are_the_same_model() -> None:
    found = find_reference(runs((43, 47), batch_size=128), ())
    assert found is not None
    assert found.same_model
    assert found.differences[0] == "batch_size 128 (published: 512)"
    assert found.differences[1].startswith("primes 43, 47 (published: 97, 101,")


def test_a_swept_axis_finds_its_own_table_and_rows() -> None:
    found = find_reference(runs(weight_decay=[0.1, 1.0]), ("weight_decay",))
    assert found is not None
    assert found.suite == "weight_decay"
    row = found.setting("weight_decay", 0.0)
    assert row is not None
    assert row.median_residual == -0.535
    assert found.setting("weight_decay", 7.0) is None


def test_beside_further_operations_stand_the_printed_rows_but_no_pooled_tests() -> None:
    found = find_reference(runs(FIVE, operation=["+", "-", "*", "/"]), ("operation",))
    assert found is not None
    row = found.setting("operation", "+")
    assert row is not None
    assert row.median_residual == -0.394
    assert found.setting("operation", "-") is None
    assert found.tests == {}
    assert "operations *, +, -, / (published: +, /" in found.note
    both = find_reference(runs(FIVE, operation=["+", "/"]), ("operation",))
    assert both is not None
    assert both.tests["spearman"].statistic == 0.801
    assert "pooled" not in both.note


@pytest.mark.parametrize(
    ("settings", "axes"),
    [
        ({"operation": "*"}, ()),
        ({"task": "permutation"}, ()),
        ({"operation": ["*", "/"]}, ("operation",)),
        ({"heads": [1, 2]}, ("heads",)),
    ],
)
def test_suites_the_paper_did_not_print_have_no_reference(
    settings: dict[str, Any], axes: tuple[str, ...]
) -> None:
    assert find_reference(runs(**settings), axes) is None
