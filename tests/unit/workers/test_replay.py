"""Golden runs: exact numerics, and a verification that notices what is wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import groktime.workers.golden
from groktime.service.errors import InputError
from groktime.workers.replay import Check, load_golden, replay

FOLDER = Path(next(iter(groktime.workers.golden.__path__)))
FILES = sorted(FOLDER.glob("*.npz"))


def test_all_recorded_runs_are_shipped() -> None:
    assert len(FILES) == 7
    assert len(list(FOLDER.glob("*.json"))) == 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_golden_run_is_replayed_exactly(path: Path) -> None:
    checks = replay(path, engine="torch", device="cpu")
    assert len(checks) in (3, 5)
    assert [check for check in checks if not check.passed] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_tensors_are_the_models_parameters(path: Path) -> None:
    golden = load_golden(path)
    assert sum(value.size for value in golden.weights.values()) == golden.spec.params


def test_a_wrong_number_fails_its_check(tmp_path: Path) -> None:
    with np.load(FILES[0]) as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["train_loss"][7] *= 1.001
    np.savez(tmp_path / "wrong.npz", **arrays)
    failed = [c.quantity for c in replay(tmp_path / "wrong.npz", engine="torch") if not c.passed]
    assert failed == ["train loss, relative"]


def test_a_deviation_that_is_no_number_fails() -> None:
    check = Check("file", "loss", 0.0, 1.0)
    assert check.passed
    assert not replace(check, deviation=float("nan")).passed


def test_a_file_that_is_not_golden_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.npz"
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"other\.npz"):
        replay(path)
