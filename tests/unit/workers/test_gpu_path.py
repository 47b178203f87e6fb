"""What of the GPU path can be held to account on a CPU.

A slab of several models is what a GPU trains; on a CPU an engine never makes one, so it is made
here by hand and compared with the models one by one.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import numpy as np
import pytest
import torch
from worker_runs import VARIANTS, make_run

from service.errors import ConfigurationError
from service.settings import Settings
from workers import devices, engines, torch_engine, trainable
from workers.checkpoints import CheckpointStore
from workers.devices import free_memory, max_stack
from workers.engines import engine_fingerprint, step_mode
from workers.first_passages import CurveSink
from workers.memory import model_bytes
from workers.model import initial_state
from workers.slab import Slab
from workers.tasks import make_dataset
from workers.torch_engine import TorchStack, torch_fingerprint
from workers.trainable import WorkerOrders
from workers.training import train

CPU = torch.device("cpu")


def slab_of(seeds: list[int], **model: object) -> Slab:
    specs = [make_run(seed=seed, **model) for seed in seeds]  # type: ignore[arg-type]
    states = [initial_state(spec) for spec in specs]
    datasets = [make_dataset(spec) for spec in specs]
    return Slab(specs, states, [0] * len(specs), datasets, None, CPU)


@pytest.mark.parametrize("variant", ["central", "rope", "two heads", "MLP"])
def test_models_of_one_slab_train_as_they_do_alone(variant: str) -> None:
    together = slab_of([42, 43, 44], **VARIANTS[variant]).advance(4)
    for place, seed in enumerate([42, 43, 44]):
        alone = slab_of([seed], **VARIANTS[variant]).advance(4)[0]
        for name in ("train_loss", "val_loss", "weight_norm"):
            np.testing.assert_allclose(together[place][name], alone[name], rtol=1e-4)
        assert abs(together[place]["val_correct"] - alone["val_correct"]).max() <= 1


def test_a_compacted_slab_goes_on_as_before() -> None:
    whole, cut = slab_of([42, 43, 44]), slab_of([42, 43, 44])
    whole.advance(2)
    cut.advance(2)
    cut.keep([2])
    np.testing.assert_allclose(
        cut.advance(2)[0]["train_loss"], whole.advance(2)[2]["train_loss"], rtol=1e-4
    )


def test_recorded_steps_need_a_cuda_device() -> None:
    with pytest.raises(ConfigurationError, match="GROKTIME_GPU_STEP = 'graph' needs a CUDA device"):
        TorchStack([make_run()], device="cpu", step="graph")


def test_the_way_of_stepping_is_part_of_the_fingerprint() -> None:
    prints = {torch_fingerprint(CPU, step) for step in ("plain", "graph", "compile")}
    assert len(prints) == 3


def test_a_cpu_is_stepped_plainly_whatever_is_set_for_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from service.settings import get_settings

    monkeypatch.setenv("GROKTIME_GPU_STEP", "graph")
    get_settings.cache_clear()
    try:
        assert step_mode(CPU) == "plain"
        assert step_mode(torch.device("cuda")) == "graph"
    finally:
        get_settings.cache_clear()


class Made(Exception):
    """A stack was about to be made; its text is the way of stepping."""


@pytest.fixture
def gpu_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose GPU has a name but makes no stack."""

    def make(specs: object, *, step: str, **rest: object) -> None:
        raise Made(step)

    for module in (devices, engines):
        monkeypatch.setattr(module, "resolve_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(torch_engine, "TorchStack", make)


@pytest.mark.usefixtures("gpu_by_name")
def test_a_gpu_is_stepped_as_ordered_whatever_its_node_is_set_to() -> None:
    gpu = torch.device("cuda")
    ordered = [
        engine_fingerprint(make_run(), engine="torch", device="cuda", gpu_step=step)
        for step in ("plain", "graph")
    ]
    assert ordered == [torch_fingerprint(gpu, "plain"), torch_fingerprint(gpu, "graph")]
    with pytest.raises(Made, match="graph"):
        train([make_run()], CurveSink(1), engine="torch", device="cuda", gpu_step="graph")


@pytest.mark.usefixtures("gpu_by_name")
def test_a_worker_steps_and_looks_for_checkpoints_as_its_sweep_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = WorkerOrders.of(Settings(checkpoints=tmp_path, gpu_step="graph"), "url", "cuda")
    worker = object.__new__(trainable.BundleTrainable)  # as on a worker, without Ray around it
    worker._orders, worker._store, worker._name = orders, CheckpointStore(tmp_path), "bundle"
    spec = make_run()
    key, way = spec.key, torch_fingerprint(torch.device("cuda"), "graph")
    worker._store.save(key, 3, way, {}, {})
    found: list[Any] = []
    monkeypatch.setattr(trainable, "claim", lambda *given: found.append(given[-2:]))
    worker._claimed(Mock(), {1: spec})
    ((checkpoints, trainer),) = found
    assert checkpoints == {1: [3]}
    assert trainer.fingerprint == way
    monkeypatch.setattr(trainable, "Recorder", MagicMock())
    with pytest.raises(Made, match="graph"):
        worker._train_claims(Mock(), [SimpleNamespace(spec=spec, resume_epoch=0)])


def test_bundles_that_share_a_gpu_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, gigabyte = torch.device("cuda"), 2**30
    monkeypatch.setattr(devices, "resolve_device", lambda name: gpu)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (15 * gigabyte, 16 * gigabyte))
    assert free_memory(gpu) == 15 * gigabyte
    assert free_memory(gpu, share=0.25) == 4 * gigabyte
    spec = make_run(width=64)
    quarter = max_stack(spec, "cuda", share=0.25)
    assert 4 * quarter * model_bytes(spec, "cuda") <= 16 * gigabyte
    assert quarter < max_stack(spec, "cuda")


def test_a_crowded_gpu_leaves_less_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, gigabyte = torch.device("cuda"), 2**30
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 * gigabyte, 16 * gigabyte))
    assert free_memory(gpu, share=0.5) == 1 * gigabyte


def test_activations_of_stacked_models_are_counted_on_a_gpu() -> None:
    spec = make_run(width=64, batch_size=32)
    assert model_bytes(spec, "cuda") > model_bytes(spec, "cpu")
