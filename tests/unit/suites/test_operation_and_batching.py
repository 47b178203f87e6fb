"""What the top of a suite file sets for all its runs: operation and batching."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groktime.service.errors import SuiteError
from groktime.service.spec import ModularData, RunSpec
from groktime.service.suites import load_suite
from groktime.service.suites.expansion import balanced_batch_size

SUITE = """\
description: made for a test
primes: [59]
seeds: [1]
speed: {widths: [24]}
grok: {widths: [24]}
"""


def runs(folder: Path, more: str) -> list[RunSpec]:
    path = folder / "mine.yaml"
    path.write_text(SUITE + more)
    return load_suite(path).runs()


@pytest.mark.parametrize("written", ['"+"', "addition"])
def test_an_operation_is_given_by_its_symbol_or_its_name(tmp_path: Path, written: str) -> None:
    speed, grok = runs(tmp_path, f"operation: {written}\n")
    assert isinstance(grok.data, ModularData)
    assert grok.data.operation == "+"
    assert speed.data.n_train == grok.data.n_train == 59 * 59 // 2
    assert [run.key for run in (speed, grok)] == [
        run.key for run in runs(tmp_path, "settings: {operation: addition}\n")
    ]


def test_an_operation_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"line 6: operation: is given twice"):
        runs(tmp_path, "operation: addition\nsettings: {operation: division}\n")


def test_an_unknown_operation_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match=r"line 6: operation: 'plus' is not accepted"):
        runs(tmp_path, "operation: plus\n")


@given(n=st.integers(1, 1_000_000), batch=st.integers(1, 5_000))
def test_balanced_batches_are_as_many_and_nearly_equal(n: int, batch: int) -> None:
    size = balanced_batch_size(n, batch)
    k = -(-n // batch)
    assert size <= batch
    assert -(-n // size) == k
    last = n - (k - 1) * size
    assert last >= size - k + 1
    assert last >= 1


def test_balanced_is_a_word_of_the_suite_and_a_batch_size_of_the_run(tmp_path: Path) -> None:
    plain, balanced = (runs(tmp_path, f"batching: {word}\n") for word in ("remainder", "balanced"))
    n = plain[0].data.n_train
    assert {run.optimiser.batch_size for run in plain} == {512}
    assert {run.optimiser.batch_size for run in balanced} == {balanced_batch_size(n, 512)}
    assert set(plain[0].columns()) == set(balanced[0].columns())
