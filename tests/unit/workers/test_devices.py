"""Devices and engines: what is asked for and missing is an error."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from worker_runs import make_run

from groktime.service.errors import ConfigurationError
from groktime.workers.devices import max_stack, resolve_device
from groktime.workers.engines import choose_engine, engine_fingerprint, make_stack
from groktime.workers.native import unavailable
from groktime.workers.torch_engine import TorchStack


@pytest.mark.parametrize("name", ["gpu", "cpu:1", "cuda:x", "mps:0", ""])
def test_a_name_that_is_no_device_is_refused_with_what_is_accepted(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"auto, cpu, cuda, cuda:N or mps"):
        resolve_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
@pytest.mark.parametrize("name", ["cuda", "cuda:0"])
def test_a_missing_gpu_is_an_error_not_a_fallback(name: str) -> None:
    with pytest.raises(ConfigurationError, match="0 CUDA devices"):
        TorchStack([make_run()], device=name)


def test_auto_takes_what_is_there() -> None:
    assert resolve_device("auto").type in ("cpu", "cuda", "mps")


def test_a_stack_bound_falls_with_the_model_and_is_at_least_one() -> None:
    small, large = make_run(), make_run(width=512, depth=4)
    assert max_stack(small, "cpu") > max_stack(large, "cpu") >= 1


def test_the_fingerprint_is_known_before_training() -> None:
    spec = make_run()
    stack = make_stack([spec], engine="torch", device="cpu")
    assert engine_fingerprint(spec, engine="torch", device="cpu") == stack.fingerprint


def test_threads_are_part_of_the_fingerprint() -> None:
    spec = make_run()
    one = engine_fingerprint(spec, engine="torch", device="cpu")
    torch.set_num_threads(2)
    try:
        assert engine_fingerprint(spec, engine="torch", device="cpu") != one
    finally:
        torch.set_num_threads(1)


def test_full_precision_products_are_asked_for() -> None:
    torch.set_float32_matmul_precision("medium")
    TorchStack([make_run()], device="cpu")
    assert torch.get_float32_matmul_precision() == "highest"


def test_torch_is_taken_when_asked_for() -> None:
    assert choose_engine(make_run(), "torch", "cpu") == "torch"


@pytest.mark.skipif(unavailable() is not None, reason="no native engine on this machine")
def test_training_on_a_cpu_does_without_torch() -> None:
    program = (
        "import sys\n"
        "from groktime.service.suites import load_suite\n"
        "from groktime.workers.devices import max_stack\n"
        "from groktime.workers.engines import engine_fingerprint, make_stack\n"
        "import groktime.workers.training, groktime.workers.trainable\n"
        "spec = load_suite('demo').runs()[0]\n"
        "make_stack([spec], device='cpu').advance(1)\n"
        "engine_fingerprint(spec, device='cpu'), max_stack(spec, 'cpu')\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
