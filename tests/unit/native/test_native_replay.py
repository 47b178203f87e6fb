"""The native engine against recorded runs and against the PyTorch engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worker_runs import make_run, random_labels

import groktime.workers.golden
from groktime.service.spec import ModularData, RunSpec, ShuffledData
from groktime.workers.native import NativeStack, supports
from groktime.workers.native.engine import library
from groktime.workers.replay import compare_passages, load_golden, replay
from groktime.workers.streams import Purpose, permutation, stream_key
from groktime.workers.torch_engine import TorchStack

FOLDER = Path(next(iter(groktime.workers.golden.__path__)))
SUPPORTED = [path for path in sorted(FOLDER.glob("*.npz")) if supports(load_golden(path).spec)]


def test_all_recorded_runs_of_one_head_are_supported() -> None:
    assert len(SUPPORTED) == 6


@pytest.mark.parametrize("path", SUPPORTED, ids=lambda path: path.stem)
def test_golden_runs_are_replayed_exactly(path: Path) -> None:
    checks = replay(path, engine="native", device="cpu")
    assert len(checks) in (3, 5)
    assert [check for check in checks if not check.passed] == []


@pytest.mark.long
@pytest.mark.parametrize("name", ["speed_p47_d32", "grok_p47_d48"])
def test_first_passages_are_distributed_like_the_recorded_ones(name: str) -> None:
    checks = compare_passages(
        FOLDER / f"{name}.json", seeds=range(42, 62), engine="native", device="cpu"
    )
    assert checks
    assert [check for check in checks if not check.passed] == []


@pytest.mark.parametrize("count", [1, 2, 17, 253, 6328])
def test_shuffles_are_those_of_the_host_streams(count: int) -> None:
    for seed, epoch in [(42, 1), (2**63 - 1, 77)]:
        expected = permutation(stream_key(seed, Purpose.SHUFFLE, epoch), count)
        assert np.array_equal(library().permutation(seed, epoch, count), expected)


CASES: dict[str, dict[str, Any]] = {
    "modular": {"positions": "none"},
    "rope": {},
    "no dropout": {"dropout": 0.0},
    "one layer": {"depth": 1},
    "three layers": {"depth": 3, "positions": "none"},
    "four layers, no dropout": {"depth": 4, "dropout": 0.0},
    "random labels": {"data": random_labels(150, 23), "kind": "capacity"},
    "random labels, no dropout": {"data": random_labels(150, 23), "kind": "capacity", "dropout": 0},
    "shuffled labels": {"data": ShuffledData(prime=23)},
    "batch below the vocabulary": {"batch_size": 16},
    "plain FFN": {"ffn": "plain"},
    "plain FFN, no dropout, three layers": {"ffn": "plain", "dropout": 0.0, "depth": 3},
    "layer norm": {"norm": "layer"},
    "layer norm, three layers, no dropout": {"norm": "layer", "depth": 3, "dropout": 0.0},
    "learned positions": {"positions": "learned"},
    "learned positions, one layer": {"positions": "learned", "depth": 1},
    "learned positions on random labels": {"positions": "learned", "data": random_labels(150, 23)},
    "all three": {"ffn": "plain", "norm": "layer", "positions": "learned"},
    "no eval clock": {"eval_train": False},
    "other optimiser": {"optimiser": {"lr": 3e-3, "beta1": 0.8, "eps": 1e-6, "weight_decay": 0.1}},
}


@pytest.mark.parametrize("name", CASES)
def test_first_epochs_equal_those_of_the_torch_engine(name: str) -> None:
    """Same streams, same arithmetic: only rounding differs."""
    settings = {"data": ModularData(prime=23), "width": 18, "batch_size": 96, **CASES[name]}
    spec: RunSpec = make_run(**settings)
    ours = NativeStack([spec]).advance(12)[0]
    theirs = TorchStack([spec], device="cpu").advance(12)[0]
    for field in ("train_loss", "val_loss", "bits", "weight_norm"):
        tolerance = 1e-4 * spec.k_mem if field == "bits" else 0.0
        np.testing.assert_allclose(ours[field], theirs[field], rtol=1e-4, atol=tolerance)
    for field in ("train_correct", "train_correct_eval", "val_correct"):
        assert np.abs(ours[field] - theirs[field]).max() <= 1
        assert np.array_equal(ours[field] == -1, theirs[field] == -1)
