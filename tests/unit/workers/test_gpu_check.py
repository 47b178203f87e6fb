"""What `groktime verify --gpu` runs, on the one device that every machine has."""

from __future__ import annotations

import pytest
import torch

from groktime.service.commands.train import verify
from groktime.service.errors import ConfigurationError
from groktime.workers.replay import check_device, rates

CPU = torch.device("cpu")


def test_a_device_is_checked_word_for_word_and_epoch_for_epoch() -> None:
    checks = list(check_device(CPU, prime=11, width=8))
    assert [check.quantity for check in checks if not check.passed] == []
    assert len(checks) == 6
    # A stack is trained on both sides, so a CPU equals itself.
    assert max(check.deviation for check in checks) == 0


def test_rates_are_those_of_every_width_and_stack() -> None:
    found = list(rates(CPU, prime=11, widths=(4, 8), stacks=(1, 3), seconds=0.01))
    assert [(rate.width, rate.models) for rate in found] == [(4, 1), (4, 3), (8, 1), (8, 3)]
    assert all(rate.plain > 0 and rate.graph is None for rate in found)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(ConfigurationError, match="0 CUDA devices"):
        verify(gpu=True)
