"""The largest suite is expanded, priced and planned in work that grows with its runs only.

Work is counted in steps of the interpreter, not in seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from groktime.service.spec import RunSpec
from groktime.service.suites import load_suite
from groktime.service.suites.expansion import expand
from groktime.service.sweep import cost as cost_module
from groktime.service.sweep.cost import CostModel, Finished
from groktime.service.sweep.plan import Pending, plan
from groktime.workers.engines import stack_shape

CENTRAL = 18_756
# Twice the work in at most so many times the steps; quadratic work would take four times as many.
TWICE = 2.4


def steps(work: Callable[[], object]) -> int:
    """How many lines of Python the work executes; each turn of a loop counts."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.fixture(scope="module")
def central() -> list[RunSpec]:
    return load_suite("central").runs()


def half_done(runs: list[RunSpec]) -> tuple[list[Pending], CostModel]:
    """Every other run is pending; the others are finished and teach what they took."""
    cost = CostModel(1e11)
    cost.learn(Finished(run, stack_shape(run), 100, 10.0) for run in runs[::2])
    return [Pending(number, run) for number, run in enumerate(runs[1::2])], cost


def test_central_is_planned_whole_pricing_each_run_once(central: list[RunSpec]) -> None:
    assert len(central) == CENTRAL
    priced: list[RunSpec] = []
    asked: list[RunSpec] = []

    class Counting(CostModel):
        def seconds(self, spec: RunSpec, shape: Any) -> float:
            priced.append(spec)
            return super().seconds(spec, shape)

    def room(spec: RunSpec) -> int:
        asked.append(spec)
        return 1000

    pending = [Pending(number, run) for number, run in enumerate(central)]
    bundles = plan(pending, Counting(1e11), workers=64, stack_limit=room)
    assert sorted(run.id for bundle in bundles for run in bundle.runs) == list(range(CENTRAL))
    assert len(priced) == CENTRAL
    assert len(asked) == len({stack_shape(run) for run in central})


def test_twice_the_seeds_are_expanded_in_twice_the_steps() -> None:
    suite = load_suite("central")

    def expanding(seeds: int) -> int:
        file = suite.file.model_copy(update={"seeds": tuple(range(seeds))})
        return steps(lambda: expand(file, suite.document))

    assert expanding(4) < TWICE * expanding(2)


@pytest.mark.parametrize("order", ["longest_first", "seeds_first"])
def test_twice_the_runs_are_learnt_and_planned_in_twice_the_steps(
    central: list[RunSpec], order: Any
) -> None:
    def planning(runs: list[RunSpec]) -> int:
        def work() -> None:
            pending, cost = half_done(runs)
            plan(pending, cost, workers=8, order=order)

        return steps(work)

    assert planning(central[::4]) < TWICE * planning(central[::8])


def test_a_price_does_not_look_at_every_finished_run_again(
    central: list[RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    added = 0

    class Counted(float):
        """A number that counts how often it is added."""

        def __add__(self, other: float) -> Counted:
            nonlocal added
            added += 1
            return Counted(float(self) + other)

        __radd__ = __add__

    log = cost_module.math.log
    monkeypatch.setattr(cost_module.math, "log", lambda value: Counted(log(value)))
    runs = central[::20]
    pending, cost = half_done(runs)
    for run in pending:
        cost.seconds(run.spec, stack_shape(run.spec))
    assert 0 < added < 10 * len(runs)
