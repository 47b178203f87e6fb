"""The simulation of many GPUs: nothing is trained twice, nothing beats the bound."""

from __future__ import annotations

import pytest

from benchmarks.simulate import Scenario, Simulation, Work, measure
from groktime.service.suites import load_suite


@pytest.fixture(scope="module")
def work() -> Work:
    return Work(load_suite("mini").runs()[::3], seed=1)


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(1),
        Scenario(8),
        Scenario(40, scaled=True),
        Scenario(40, joined=True),
        Scenario(4, preempted=True),
    ],
)
def test_nothing_beats_the_bound(work: Work, scenario: Scenario) -> None:
    outcome = measure(work, scenario, seed=1)
    assert outcome.ratio >= 1
    assert 0 < outcome.busy <= 1


def test_every_run_is_trained_once(work: Work) -> None:
    simulation = Simulation(work, Scenario(2), seed=1)
    simulation.run()
    assert not simulation.pending
    # A run that is taken twice would be missing from what is pending, and raise.
    assert simulation.bundles > 0


def test_a_stack_takes_less_than_its_models_one_by_one(work: Work) -> None:
    same = [run for run in work.runs if work.shapes[run.id] == work.shapes[0]]
    assert len(same) > 1
    alone = [work.seconds([run]) for run in same]
    assert max(alone) <= work.seconds(same) < sum(alone)


def test_more_gpus_never_take_longer(work: Work) -> None:
    hours = [measure(work, Scenario(gpus), seed=1).hours for gpus in (1, 4, 16)]
    assert hours == sorted(hours, reverse=True)


def test_a_cluster_that_grows_to_a_known_size_ends_near_the_bound() -> None:
    work = Work(load_suite("central").runs()[::10], seed=1)
    assert measure(work, Scenario(100, scaled=True), seed=1).ratio < 1.1
