"""An epoch on a CUDA device, without one: no sync, no second device, and a budget of launches."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from cuda_without_a_gpu import Launches, Memory, load_guard
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from worker_runs import VARIANTS, make_run, random_labels

from groktime.service.spec import ModularData, RunSpec
from groktime.workers.devices import EVALUATION_BYTES, evaluation_bytes, model_bytes
from groktime.workers.graphed import GraphedEpoch
from groktime.workers.model import initial_state
from groktime.workers.tasks import make_dataset
from groktime.workers.torch_engine import Slab

CUDA = torch.device("cuda", 0)


@pytest.fixture(scope="module", autouse=True)
def _guard(tmp_path_factory: pytest.TempPathFactory) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler on this machine")
    if not torch.cuda.is_available():
        load_guard(tmp_path_factory.mktemp("guard"), compiler)


@pytest.fixture
def fake() -> Iterator[FakeTensorMode]:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        yield mode


def slab_on_a_gpu(specs: list[RunSpec]) -> tuple[Slab, tuple[Tensor, ...]]:
    """The slab, and what one of its epochs is given."""
    states, datasets = [initial_state(s) for s in specs], [make_dataset(s) for s in specs]
    slab = Slab(specs, states, [0] * len(specs), datasets, None, CUDA)
    steps, models = specs[0].steps_per_epoch, len(specs)
    keys = torch.zeros(steps, slab.layers, models, dtype=torch.int64, device=CUDA)
    shuffle = torch.zeros(models, dtype=torch.int64, device=CUDA)
    return slab, (shuffle, torch.zeros(steps, 4, models, device=CUDA), keys, keys)


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("data", [None, random_labels(60)], ids=["modular", "random"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_an_epoch_never_waits_for_the_gpu_nor_leaves_it(variant: str, data: Any) -> None:
    runs = [make_run(data=data, seed=seed, **VARIANTS[variant]) for seed in (1, 2, 3)]
    slab, given = slab_on_a_gpu(runs)
    reals, counts = slab.epoch(*given)
    assert reals.device == counts.device == CUDA
    assert (reals.shape, counts.shape) == ((3, 4), (3, 3))


@pytest.mark.usefixtures("fake")
def test_an_epoch_is_recorded_on_the_device_of_its_slab(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here recording fails, since there is no device; it was begun on the second one."""
    begun: list[int] = []

    @contextlib.contextmanager
    def current(index: int) -> Iterator[None]:
        begun.append(index)
        yield

    monkeypatch.setattr(torch.cuda, "device", current)
    weights = torch.zeros(2, device="cuda:1")
    epoch = GraphedEpoch(lambda given: (given, given), [weights], "on the second device")
    assert epoch(weights)[0] is weights
    assert begun == [1]


# Launches of a step and of an epoch of the central model at p = 113, for ten models of width 64.
# An RMSNorm counts five of them here and one on a GPU, whose kernel this build lacks: of 76 norms
# an epoch the GPU starts 304 kernels fewer than counted.
BUDGETS = {"none": (212, 2_950), "rope": (230, 3_200)}


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("positions", BUDGETS)
def test_launches_stay_within_their_budget(
    positions: str, record_property: Callable[[str, object], None]
) -> None:
    run = {"data": ModularData(prime=113), "width": 64, "batch_size": 512, "positions": positions}
    slab, given = slab_on_a_gpu([make_run(seed=seed, **run) for seed in range(10)])
    with Launches() as epoch:
        slab.epoch(*given)
    with Launches() as measured:
        slab.evaluate()
    steps = slab.members[0].steps_per_epoch
    per_step = (epoch.count - measured.count) / steps
    counted = f"{per_step:g} a step, {measured.count} to measure, {epoch.count} an epoch"
    record_property(f"launches with positions {positions}", counted)
    assert per_step <= BUDGETS[positions][0]
    assert epoch.count <= BUDGETS[positions][1]


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    "data", [ModularData(prime=113), random_labels(6328)], ids=["113", "random"]
)
@pytest.mark.parametrize("variant", ["central", "three layers", "released projection", "MLP"])
def test_an_epoch_takes_no_more_memory_than_planning_counts(variant: str, data: Any) -> None:
    run = {**VARIANTS[variant], "data": data, "width": 64, "batch_size": 512}
    slab, given = slab_on_a_gpu([make_run(seed=seed, **run) for seed in range(10)])
    with Memory() as evaluation:
        slab.evaluate()
    with Memory() as epoch:
        slab.epoch(*given)
    spec = slab.members[0]
    chunk = min(slab.chunk, slab.y_eval.shape[1])
    assert 0 < evaluation.peak <= 10 * chunk * evaluation_bytes(spec)
    assert epoch.peak <= 10 * model_bytes(spec, "cuda") + EVALUATION_BYTES
