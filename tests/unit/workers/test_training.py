"""The driver: early exit, fencing, divergence, checkpoints and resuming, on real training."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worker_runs import Recording, make_run, memorising_run, random_labels, same

from groktime.service.errors import CheckpointError, StackError
from groktime.service.spec import FixedStop, Outcome, RunSpec, needed
from groktime.workers.checkpoints import CheckpointStore
from groktime.workers.engines import Engine, engine_fingerprint
from groktime.workers.native import unavailable
from groktime.workers.training import train

TORCH: dict[str, Any] = {"device": "cpu", "engine": "torch"}


def trained(specs: list[RunSpec], **options: Any) -> Recording:
    sink = Recording()
    train(specs, sink, **TORCH, **options)
    return sink


@pytest.fixture(scope="module")
def reference() -> Recording:
    """Two runs that end at different epochs, read epoch by epoch."""
    return trained([memorising_run(1), memorising_run(2, width=16, dropout=0.4)], block_seconds=0)


def after_blocks(count: int) -> Callable[[], bool]:
    """Asks to stop after that many blocks."""
    seen = 0

    def should_stop() -> bool:
        nonlocal seen
        seen += 1
        return seen >= count

    return should_stop


def test_a_run_ends_at_its_first_passage(reference: Recording) -> None:
    for run in range(2):
        curve, outcome = reference.curve(run), reference.outcomes[run]
        enough = needed(0.99, 40)
        reached = [
            int(np.argmax(curve[clock] >= enough)) + 1
            for clock in ("train_correct", "train_correct_eval")
        ]
        assert outcome.stopped_by == "threshold"
        assert outcome.state == "done"
        assert outcome.epochs == len(curve) == max(reached)
        assert outcome.seconds > 0
    assert reference.outcomes[0].epochs != reference.outcomes[1].epochs


@pytest.mark.parametrize("block_seconds", [0.02, 0.2, 1e9])
def test_what_is_recorded_does_not_depend_on_the_blocks(
    reference: Recording, block_seconds: float
) -> None:
    specs = [memorising_run(1), memorising_run(2, width=16, dropout=0.4)]
    sink = trained(specs, block_seconds=block_seconds)
    for run in range(2):
        assert same(sink.curve(run), reference.curve(run))
        assert sink.outcomes[run].epochs == reference.outcomes[run].epochs


def test_a_fixed_run_trains_exactly_its_epochs() -> None:
    specs = [make_run(stop=FixedStop(max_epochs=n), seed=n) for n in (2, 5)]
    sink = trained(specs, block_seconds=1e9)
    assert [len(sink.curve(run)) for run in range(2)] == [2, 5]
    assert {outcome.stopped_by for outcome in sink.outcomes.values()} == {"fixed"}


def test_a_fenced_run_is_dropped_and_writes_nothing_more() -> None:
    specs = [make_run(stop=FixedStop(max_epochs=8), seed=s) for s in (1, 2)]
    sink = Recording(fenced={0: 4})
    outcomes = train(specs, sink, **TORCH, block_seconds=0)
    assert outcomes[0] is None
    assert 0 not in sink.outcomes
    assert len(sink.curve(0)) == 3
    assert isinstance(outcomes[1], Outcome)
    assert len(sink.curve(1)) == 8


def test_a_run_that_was_taken_over_keeps_the_checkpoints_of_its_new_owner(tmp_path: Path) -> None:
    mine, taken = (make_run(stop=FixedStop(max_epochs=4), seed=s) for s in (1, 2))
    store = CheckpointStore(tmp_path)
    state = {"weights": np.zeros(3, dtype=np.float32)}
    store.save(taken.key, 1, "its new owner's", state, {})
    sink = Recording()
    sink.taken = {1}
    outcomes = train([mine, taken], sink, **TORCH, checkpoints=store, checkpoint_seconds=0)
    assert isinstance(outcomes[0], Outcome)
    assert outcomes[1] is None
    assert store.keys() == {taken.key}
    assert store.epochs(taken.key, "its new owner's") == [1]
    assert [path.name for path in tmp_path.rglob("*.checkpoint")] == ["00000001.checkpoint"]


def test_a_diverging_run_fails_with_its_epoch_and_touches_no_other(tmp_path: Path) -> None:
    good = make_run(stop=FixedStop(max_epochs=6), seed=1)
    bad = make_run(stop=FixedStop(max_epochs=6), seed=2, optimiser={"lr": 1e30})
    sink = trained([bad, good], checkpoints=CheckpointStore(tmp_path))
    outcome = sink.outcomes[0]
    assert (outcome.state, outcome.reason, outcome.stopped_by) == ("failed", "diverged", "diverged")
    losses = sink.curve(0)["train_loss"]
    assert outcome.epochs == len(losses)
    assert not np.isfinite(losses[-1])
    assert np.isfinite(losses[:-1]).all()
    assert same(sink.curve(1), trained([good]).curve(0))


def test_a_stopped_stack_resumes_bitwise_from_any_checkpoint(
    tmp_path: Path, reference: Recording
) -> None:
    specs = [memorising_run(1), memorising_run(2, width=16, dropout=0.4)]
    store = CheckpointStore(tmp_path / "first")
    options: dict[str, Any] = {**TORCH, "checkpoints": store, "block_seconds": 0}
    first = Recording()
    outcomes = train(specs, first, **options, checkpoint_seconds=0, should_stop=after_blocks(12))
    assert outcomes == [None, None]
    assert first.flushes >= 2  # none while the last checkpoints are being written
    fingerprint = engine_fingerprint(specs[0], engine="torch", device="cpu")
    kept = [store.epochs(spec.key, fingerprint) for spec in specs]
    assert kept[0] == kept[1]
    assert (len(kept[0]), kept[0][0]) == (2, 12)
    for epoch in kept[0]:
        # Stopping again publishes newer checkpoints, so each is resumed from a copy.
        copy = CheckpointStore(shutil.copytree(tmp_path / "first", tmp_path / f"from {epoch}"))
        second = Recording()
        options = {**options, "checkpoints": copy, "resume_epochs": [epoch] * 2}
        train(specs, second, **options, should_stop=after_blocks(5))
        for run in range(2):
            assert second.rows[run][0][0] == epoch + 1
            assert same(second.curve(run), reference.curve(run)[epoch : epoch + 5])


def test_a_resumed_run_ends_where_it_would_have(tmp_path: Path, reference: Recording) -> None:
    spec, store = memorising_run(1), CheckpointStore(tmp_path)
    options: dict[str, Any] = {**TORCH, "checkpoints": store}
    train([spec], Recording(), **options, block_seconds=0, should_stop=after_blocks(9))
    sink = Recording()
    (outcome,) = train([spec], sink, **options, resume_epochs=[9])
    assert outcome is not None
    assert outcome.epochs == reference.outcomes[0].epochs
    assert same(sink.curve(0), reference.curve(0)[9:])
    assert store.epochs(spec.key, outcome.fingerprint) == []


def test_a_stop_rule_remembers_what_it_saw_before_a_resume(tmp_path: Path) -> None:
    spec = make_run(
        data=random_labels(),
        kind="capacity",
        stop={"rule": "patience", "patience": 4, "min_improvement": 10.0, "max_epochs": 50},
    )
    store = CheckpointStore(tmp_path)
    options: dict[str, Any] = {**TORCH, "checkpoints": store, "block_seconds": 0}
    train([spec], Recording(), **options, should_stop=after_blocks(3))
    (outcome,) = train([spec], Recording(), **options, resume_epochs=[3])
    # The first epoch sets the best loss, then four without improvement.
    assert outcome is not None
    assert (outcome.stopped_by, outcome.epochs) == ("patience", 5)


def test_a_checkpoint_of_another_engine_is_refused(tmp_path: Path) -> None:
    spec, store = make_run(), CheckpointStore(tmp_path)
    train([spec], Recording(), **TORCH, checkpoints=store, should_stop=after_blocks(1))
    (epoch,) = store.epochs(spec.key, engine_fingerprint(spec, engine="torch", device="cpu"))
    found = store.load(spec.key, epoch)
    store.save(spec.key, epoch, "another engine", found.state, found.extra)
    with pytest.raises(CheckpointError, match="another engine"):
        train([spec], Recording(), **TORCH, checkpoints=store, resume_epochs=[epoch])


def test_progress_hears_every_block() -> None:
    heard: list[tuple[int, int]] = []
    spec = make_run(stop=FixedStop(max_epochs=4))
    trained([spec], block_seconds=0, progress=lambda run, epoch, row: heard.append((run, epoch)))
    assert heard == [(0, 1), (0, 2), (0, 3), (0, 4)]


def test_runs_that_cannot_share_a_stack_are_refused_before_anything_is_recorded() -> None:
    sink = Recording()
    with pytest.raises(StackError, match="width"):
        train([make_run(width=8), make_run(width=16)], sink, **TORCH)
    assert sink.rows == {}


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_a_place_that_is_free_is_taken_by_another_run_and_no_curve_changes(
    engine: Engine, tmp_path: Path
) -> None:
    if engine == "native" and unavailable() is not None:
        pytest.skip("no C compiler on this machine")
    # Of the first four two end early; one of the others goes on from a checkpoint.
    lengths = [3, 30, 4, 40, 8, 9, 20]
    runs = [
        make_run(seed=seed, stop=FixedStop(max_epochs=length))
        for seed, length in enumerate(lengths, start=1)
    ]
    options: dict[str, Any] = {"device": "cpu", "engine": engine}
    store = CheckpointStore(tmp_path)
    train(
        runs[-1:], Recording(), **options, checkpoints=store, should_stop=after_blocks(2),
        block_seconds=0,
    )  # fmt: skip
    (resumed,) = store.epochs(runs[-1].key, engine_fingerprint(runs[-1], **options))
    waiting = [(runs[4], 0), (runs[5], 0), (runs[6], resumed)]
    asked: list[int] = []

    def refill(places: int) -> list[tuple[RunSpec, int]]:
        asked.append(places)
        taken, waiting[:] = waiting[:places], waiting[places:]
        return taken

    sink = Recording()
    outcomes = train(runs[:4], sink, **options, checkpoints=store, refill=refill, block_seconds=0)
    assert not waiting
    assert asked[0] == 1, "as soon as a quarter of the places is free"
    assert [outcome and outcome.epochs for outcome in outcomes] == lengths
    for number, run in enumerate(runs):
        alone = Recording()
        train([run], alone, **options)
        whole = alone.curve(0)
        first = resumed if number == 6 else 0
        assert same(sink.curve(number), whole[first:])
    assert store.keys() == set()


def test_a_stack_that_nobody_refills_ends_as_before() -> None:
    runs = [make_run(seed=seed, stop=FixedStop(max_epochs=3)) for seed in (1, 2)]
    asked: list[int] = []

    def nothing(places: int) -> list[tuple[RunSpec, int]]:
        asked.append(places)
        return []

    outcomes = train(runs, Recording(), **TORCH, refill=nothing)
    assert [outcome and outcome.epochs for outcome in outcomes] == [3, 3]
    assert len(asked) == 1, "who had none is not asked again"
