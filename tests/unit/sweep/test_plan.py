"""Bundles hold every pending run once, in stacks of equal shape, sized and ordered by cost."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groktime.service.spec import ModelSpec, OptimiserSpec, RandomData, RunSpec, ThresholdStop
from groktime.service.suites import load_suite
from groktime.service.sweep.cost import CostModel, Finished, expected_epochs, flops_per_epoch
from groktime.service.sweep.plan import Bundle, Pending, halves, plan
from groktime.workers.engines import stack_shape

RATE = 1e11  # nominal FLOP/s


def speed_run(width: int = 8, seed: int = 0, n: int = 50, max_epochs: int = 100) -> RunSpec:
    return RunSpec(
        kind="speed",
        data=RandomData(prime=7, n=n),
        model=ModelSpec(width=width),
        optimiser=OptimiserSpec(batch_size=16),
        stop=ThresholdStop(max_epochs=max_epochs),
        seed=seed,
    )


def numbered(specs: list[RunSpec]) -> list[Pending]:
    return [Pending(number, spec) for number, spec in enumerate(specs, start=1)]


def planned_ids(bundles: list[Bundle]) -> list[int]:
    return [run.id for bundle in bundles for run in bundle.runs]


@settings(max_examples=50)
@given(
    specs=st.lists(
        st.builds(
            speed_run,
            width=st.sampled_from([4, 8, 64]),
            seed=st.integers(0, 5),
            n=st.sampled_from([20, 300]),
            max_epochs=st.sampled_from([5, 5000]),
        ),
        max_size=40,
    ),
    workers=st.integers(1, 64),
    order=st.sampled_from(["longest_first", "seeds_first"]),
    most=st.integers(1, 10),
)
def test_every_run_is_planned_exactly_once_in_stacks_of_one_shape_that_fit(
    specs: list[RunSpec], workers: int, order: str, most: int
) -> None:
    pending = numbered(specs)
    bundles = plan(
        pending, CostModel(RATE), workers=workers, order=order, stack_limit=lambda _: most
    )
    assert Counter(planned_ids(bundles)) == Counter(run.id for run in pending)
    for bundle in bundles:
        for stack in bundle.stacks:
            assert len({stack_shape(run.spec) for run in stack.runs}) == 1
            assert len(stack.runs) <= most


def test_nothing_pending_needs_no_bundle() -> None:
    assert plan([], CostModel(RATE), workers=2) == []


def test_the_longest_bundle_starts_first() -> None:
    runs = numbered([speed_run(width=w, seed=s) for w in (4, 64, 16) for s in range(3)])
    slow = CostModel(rate=1e6)
    seconds = [bundle.seconds for bundle in plan(runs, slow, workers=2)]
    assert len(seconds) > 1
    assert seconds == sorted(seconds, reverse=True)


def test_seeds_first_finishes_a_seed_everywhere_before_the_next_begins() -> None:
    runs = numbered([speed_run(width=w, seed=s) for w in (4, 64, 16) for s in (3, 1, 2)])
    slow = CostModel(rate=1e6)
    bundles = plan(runs, slow, workers=2, order="seeds_first")
    seeds = [run.spec.seed for bundle in bundles for run in bundle.runs]
    assert seeds == sorted(seeds)


def test_on_a_gpu_seeds_share_a_stack_up_to_its_memory_whatever_the_order() -> None:
    runs = numbered([speed_run(width=w, seed=s) for s in range(6) for w in (8, 64)])
    slow = CostModel(rate=1e6)  # one run alone is longer than a bundle should be

    def stack_sizes(most: int) -> list[int]:
        bundles = plan(
            runs, slow, workers=1, order="seeds_first", stack_limit=lambda _: most, on_gpu=True
        )
        return sorted(len(stack.runs) for bundle in bundles for stack in bundle.stacks)

    # Two stacks at least for a worker: the longer one of them would otherwise end alone.
    assert stack_sizes(100) == [3, 3, 6]
    assert stack_sizes(2) == [2] * 6


def test_full_stacks_of_a_gpu_are_cut_where_more_workers_wait_than_there_are_stacks() -> None:
    runs = numbered([speed_run(seed=s) for s in range(64)])
    slow = CostModel(flops_per_epoch(runs[0].spec) / 10)  # ten seconds an epoch

    def stacks(workers: int) -> int:
        bundles = plan(runs, slow, workers=workers, stack_limit=lambda _: 100, on_gpu=True)
        assert sum(len(bundle.runs) for bundle in bundles) == 64
        return sum(len(bundle.stacks) for bundle in bundles)

    assert stacks(1) == 2
    assert stacks(16) > 16
    assert stacks(1000) == 64


def test_bundles_come_near_the_target_when_there_is_enough_work() -> None:
    runs = numbered([speed_run(seed=s) for s in range(2000)])
    cost = CostModel(RATE)
    cost.rate = flops_per_epoch(runs[0].spec) * expected_epochs(runs[0].spec)  # one second each
    bundles = plan(runs, cost, workers=2)
    assert all(50 <= bundle.seconds <= 60 for bundle in bundles[:-1])


def test_small_stacks_share_a_bundle() -> None:
    specs = [speed_run(width=w, n=n) for w in (4, 8, 12) for n in range(20, 60)]
    bundles = plan(numbered(specs), CostModel(RATE), workers=2)
    assert len(bundles) < len(specs) / 10


def test_a_small_sweep_is_cut_fine_enough_for_all_workers() -> None:
    runs = numbered([speed_run(seed=s) for s in range(64)])
    cost = CostModel(RATE)
    cost.rate = flops_per_epoch(runs[0].spec) * expected_epochs(runs[0].spec)
    assert len(plan(runs, cost, workers=4)) >= 8


def test_finished_runs_correct_the_cost_of_their_shape_and_less_so_of_others() -> None:
    cost = CostModel(RATE)
    seen, other = speed_run(width=8), speed_run(width=16)
    before, before_other = (
        cost.seconds(seen, stack_shape(seen)),
        cost.seconds(other, stack_shape(other)),
    )
    cost.learn([Finished(seen, stack_shape(seen), 10, before * 8) for _ in range(10)])
    cost.learn([Finished(other, stack_shape(other), 10, before_other * 2) for _ in range(10)])
    assert cost.seconds(seen, stack_shape(seen)) == pytest.approx(before * 8, rel=0.1)
    assert cost.seconds(other, stack_shape(other)) == pytest.approx(before_other * 2, rel=0.1)
    fresh = speed_run(width=32)
    expected = CostModel(RATE).seconds(fresh, stack_shape(fresh)) * 4
    assert cost.seconds(fresh, stack_shape(fresh)) == pytest.approx(expected, rel=1e-6)


def test_runs_without_a_measured_time_teach_nothing() -> None:
    cost = CostModel(RATE)
    run = speed_run()
    before = cost.seconds(run, stack_shape(run))
    cost.learn([Finished(run, stack_shape(run), 0, 0.0)])
    assert cost.seconds(run, stack_shape(run)) == before


def test_halving_a_bundle_keeps_its_runs_and_ends_at_single_ones() -> None:
    runs = numbered([speed_run(width=w, seed=s) for w in (4, 8) for s in range(3)])
    (bundle,) = plan(runs, CostModel(RATE), workers=1)
    queue, alone = [bundle], []
    while queue:
        part = queue.pop()
        if len(part.runs) == 1:
            alone.append(part.runs[0].id)
        else:
            first, second = halves(part)
            assert first.runs
            assert second.runs
            queue += [first, second]
    assert sorted(alone) == [run.id for run in runs]


def test_swept_hyperparameters_share_stacks() -> None:
    specs = [run for run in load_suite("weight_decay").runs() if run.kind == "speed"]
    bundles = plan(numbered(specs), CostModel(rate=1e15), workers=1)
    stacks = [stack for bundle in bundles for stack in bundle.stacks]
    # 7 values × 5 seeds of each of 6 primes and 15 widths
    assert [len(stack.runs) for stack in stacks] == [35] * 90


def test_nominal_flops_of_the_central_model_follow_its_matrix_products() -> None:
    grok = next(r for r in load_suite("central").runs() if r.kind == "grok" and r.data.prime == 113)
    d, v, n = grok.model.width, 115, 6328
    forward = 2 * (2 * 16 * d * d * 4 + d * v)
    assert flops_per_epoch(grok) == forward * (3 * n + n + n)


@pytest.mark.parametrize("name", ["central", "depth", "architecture", "permutations"])
def test_every_run_has_a_finite_positive_cost(name: str) -> None:
    cost = CostModel(RATE)
    for run in load_suite(name).runs():
        assert 0 < cost.seconds(run, stack_shape(run)) < 1e7
        assert 1 <= expected_epochs(run) <= run.stop.max_epochs
