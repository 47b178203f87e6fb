"""First passages of whole trainings are distributed as the golden ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import groktime.workers.golden
from groktime.service.errors import InputError
from groktime.workers.replay import compare_passages, load_passages, passage_checks
from groktime.workers.training import first_passage

FOLDER = Path(next(iter(groktime.workers.golden.__path__)))
SPEED, GROK = FOLDER / "speed_p47_d32.json", FOLDER / "grok_p47_d48.json"


def test_a_first_passage_counts_from_one_and_may_be_missing() -> None:
    counts = np.array([0, 98, 99, 97, 100], dtype=np.int32)
    assert first_passage(counts, 0.99, 100) == 3
    assert first_passage(counts, 1.0, 100) == 5
    assert first_passage(counts[:2], 0.99, 100) is None


@pytest.mark.parametrize(("path", "passages"), [(SPEED, 1), (GROK, 3)])
def test_recorded_passages_belong_to_the_run_they_name(path: Path, passages: int) -> None:
    golden = load_passages(path)
    assert len(golden.passages) == passages
    assert all(len(epochs) == 20 for epochs in golden.passages.values())
    assert golden.spec.data.n_train == 1081
    assert golden.spec.params == {SPEED: 36_064, GROK: 78_672}[path]
    assert golden.spec.model.positions == "none"


def testpassage_checks_notices_a_shift_and_a_missing_arrival() -> None:
    recorded = list(range(180, 200))
    assert all(check.passed for check in passage_checks("f", "t", recorded, recorded))
    later = [epoch + 15 for epoch in recorded]
    assert not any(check.passed for check in passage_checks("f", "t", recorded, later))
    (missing,) = passage_checks("f", "t", recorded, [*recorded[1:], None])
    assert not missing.passed


def test_a_file_of_other_content_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "speed_other.json"
    path.write_text('{"runs": []}')
    with pytest.raises(InputError, match="speed_other"):
        load_passages(path)


@pytest.mark.long
@pytest.mark.parametrize("path", [SPEED, GROK], ids=["speed", "grok"])
def test_the_torch_engine_arrives_when_recorded_runs_did(path: Path) -> None:
    checks = compare_passages(path, seeds=range(20), engine="torch", device="cpu")
    assert [check for check in checks if not check.passed] == []
