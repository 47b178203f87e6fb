"""A step that torch compiles gives the curve of the one it was made from."""

from __future__ import annotations

import numpy as np
import pytest
from worker_runs import make_run

from groktime.workers.torch_engine import TorchStack


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # compiling uses what it deprecates
@pytest.mark.long  # half a minute of compiling for each shape
@pytest.mark.parametrize("depth", [1, 2])
def test_a_compiled_step_trains_as_the_plain_one(depth: int) -> None:
    spec = make_run(depth=depth)
    plain = TorchStack([spec], device="cpu").advance(3)
    stack = TorchStack([spec], device="cpu", step="compile")
    compiled = stack.advance(3)
    assert "compile" in stack.fingerprint
    for name in ("train_loss", "val_loss", "weight_norm"):
        np.testing.assert_allclose(compiled[name], plain[name], rtol=1e-5)
    np.testing.assert_array_equal(compiled["train_correct"], plain["train_correct"])
