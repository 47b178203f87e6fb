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
from worker_runs import VARIANTS, make_run, same

from groktime.service.errors import ConfigurationError
from groktime.service.settings import Settings
from groktime.workers import devices, engines, forward, operators, torch_engine, trainable
from groktime.workers.checkpoints import CheckpointStore
from groktime.workers.devices import free_memory, max_stack, model_bytes
from groktime.workers.engines import engine_fingerprint, step_mode
from groktime.workers.graphed import StepMode, difference
from groktime.workers.model import initial_state
from groktime.workers.tasks import make_dataset
from groktime.workers.torch_engine import Slab, TorchStack, torch_fingerprint
from groktime.workers.trainable import WorkerConfig
from groktime.workers.training import CurveSink, train

CPU = torch.device("cpu")


def slab_of(seeds: list[int], step: StepMode = "plain", **model: object) -> Slab:
    specs = [make_run(seed=seed, **model) for seed in seeds]  # type: ignore[arg-type]
    states = [initial_state(spec) for spec in specs]
    datasets = [make_dataset(spec) for spec in specs]
    return Slab(specs, states, [0] * len(specs), datasets, None, CPU, step)


@pytest.mark.parametrize("variant", VARIANTS)
def test_fused_kernels_train_as_the_written_ones(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a GPU takes for lookups, products, softmax, norms, masks and AdamW, on the CPU."""
    written = slab_of([42, 43], **VARIANTS[variant])
    curves = written.advance(4)
    asked = take_fused_kernels(monkeypatch)
    fused = slab_of([42, 43], **VARIANTS[variant])
    curves_fused = fused.advance(4)
    assert asked, "both ways may round alike, so that only the question tells them apart"
    for name in ("train_loss", "val_loss", "weight_norm"):
        np.testing.assert_allclose(curves_fused[name], curves[name], rtol=1e-5)
    for name, values in written.state(1).items():
        np.testing.assert_allclose(fused.state(1)[name], values, rtol=1e-3, atol=1e-5)


def take_fused_kernels(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """Tensors of a CPU are treated as those of a GPU; returns those that were asked about."""
    asked: list[torch.Tensor] = []

    def fused(tensor: torch.Tensor) -> bool:
        asked.append(tensor)
        return True

    for module in (operators, forward, torch_engine):
        monkeypatch.setattr(module, "fused", fused)
    return asked


def test_masks_made_for_several_steps_at_once_are_those_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take_fused_kernels(monkeypatch)
    one, several = slab_of([42, 43]), slab_of([42, 43])
    several.masked_steps = 2
    assert one.members[0].steps_per_epoch == 3
    assert same(several.advance(3), one.advance(3))


def test_models_of_different_optimisers_take_fused_steps_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    specs = [make_run(seed=seed, optimiser={"lr": lr}) for seed, lr in ((42, 1e-3), (43, 3e-3))]
    states = [initial_state(spec) for spec in specs]
    datasets = [make_dataset(spec) for spec in specs]
    take_fused_kernels(monkeypatch)
    together = Slab(specs, states, [0, 0], datasets, None, CPU).advance(3)
    for place, spec in enumerate(specs):
        alone = Slab([spec], [states[place]], [0], [datasets[place]], None, CPU).advance(3)
        np.testing.assert_allclose(together[place]["val_loss"], alone[0]["val_loss"], rtol=1e-5)


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


def test_an_epoch_that_cannot_be_recorded_is_trained_plainly_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A CPU has no graphs: recording fails for real."""
    plain, graphed = slab_of([42, 43]), slab_of([42, 43], "graph")
    assert same(graphed.advance(3), plain.advance(3))
    again = slab_of([44, 45], "graph")
    again.advance(1)
    said = [r.getMessage() for r in caplog.records if "CUDA graph" in r.getMessage()]
    assert len(said) == 1


def test_curves_that_differ_by_more_than_rounding_are_told_apart() -> None:
    reals, counts = torch.tensor([[1.0, 2.0, torch.nan, 3.0]]), torch.tensor([[50, -1, 400]])
    plain = [(reals, counts)] * 3
    assert difference(plain, [(reals * (1 + 1e-5), counts + 1)] * 3) is None
    assert "losses differ" in str(difference(plain, [*plain[:2], (reals * 1.01, counts)]))
    assert "epoch 2" in str(difference(plain, [plain[0], (reals, counts - 9), plain[0]]))


def test_models_that_leave_a_recorded_slab_pad_it_until_half_have_left() -> None:
    whole, cut = slab_of([42, 43, 44, 45]), slab_of([42, 43, 44, 45], "graph")
    whole.advance(1)
    cut.advance(1)
    cut.keep([0, 2, 3])
    assert (len(cut.specs), len(cut.members)) == (3, 4)
    expected = whole.advance(1)[[0, 2, 3]]
    np.testing.assert_allclose(cut.advance(1)["train_loss"], expected["train_loss"], rtol=1e-4)
    cut.keep([1, 2])
    assert (len(cut.specs), len(cut.members)) == (2, 2)
    assert [spec.seed for spec in cut.specs] == [44, 45]
    assert cut.epochs == [2, 2]
    for place, row in enumerate((2, 3)):
        state, other = cut.state(place), whole.state(row)
        for name, values in state.items():
            np.testing.assert_allclose(values, other[name], rtol=1e-3, atol=1e-6)
    expected = whole.advance(1)[[2, 3]]
    np.testing.assert_allclose(cut.advance(1)["train_loss"], expected["train_loss"], rtol=1e-4)


def test_a_graph_has_the_fingerprint_of_the_kernels_it_starts() -> None:
    plain, graph, compiled = (
        torch_fingerprint(CPU, step) for step in ("plain", "graph", "compile")
    )
    assert plain == graph != compiled


def test_gpus_of_one_family_share_a_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert "CUDA 8.0" in torch_fingerprint(torch.device("cuda"))


def test_a_cpu_is_stepped_plainly_whatever_is_set_for_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from groktime.service.settings import get_settings

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
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(torch_engine, "TorchStack", make)


@pytest.mark.usefixtures("gpu_by_name")
def test_a_gpu_is_stepped_as_ordered_whatever_its_node_is_set_to() -> None:
    gpu = torch.device("cuda")
    ordered = [
        engine_fingerprint(make_run(), engine="torch", device="cuda", gpu_step=step)
        for step in ("plain", "compile")
    ]
    assert ordered == [torch_fingerprint(gpu, "plain"), torch_fingerprint(gpu, "compile")]
    with pytest.raises(Made, match="graph"):
        train([make_run()], CurveSink(1), engine="torch", device="cuda", gpu_step="graph")


@pytest.mark.usefixtures("gpu_by_name")
def test_a_worker_steps_and_looks_for_checkpoints_as_its_sweep_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = WorkerConfig.of(Settings(checkpoints=tmp_path, gpu_step="graph"), "url", "cuda")
    worker = object.__new__(trainable.BundleTrainable)  # as on a worker, without Ray around it
    worker._worker, worker._store, worker._name = config, CheckpointStore(tmp_path), "bundle"
    spec = make_run()
    key, way = spec.key, torch_fingerprint(torch.device("cuda"), "graph")
    worker._store.save(key, 3, way, {}, {})
    found: list[Any] = []
    monkeypatch.setattr(trainable, "claim", lambda *given: found.append(given[-2:]))
    worker.claimed(Mock(), {1: spec})
    ((checkpoints, trainer),) = found
    assert checkpoints == {1: [3]}
    assert trainer.fingerprint == way
    monkeypatch.setattr(trainable, "Recorder", MagicMock())
    with pytest.raises(Made, match="graph"):
        worker._train_claims(Mock(), [SimpleNamespace(spec=spec, resume_epoch=0)], [])


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
