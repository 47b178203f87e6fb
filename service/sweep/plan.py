"""Pending runs → bundles: stacks of equal shape, put together to about a minute of work.

A bundle is what one Ray Tune trial trains: one or more stacks, one after another. Runs that
can share a stack are put into one; where these are small, several stacks share a bundle, so
that starting a trial stays a small part of the work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from service.spec import RunSpec
from service.sweep.cost import CostModel
from workers.stack import stack_shape

Order = Literal["longest_first", "seeds_first"]

TARGET_SECONDS = 60.0  # a bundle's aim: a trial's start is then well under one percent
SHORTEST_SECONDS = 4.0  # small sweeps are cut finer, to keep all workers busy to the end
BUNDLES_PER_WORKER = 12


@dataclass(frozen=True)
class Pending:
    """A run that waits to be trained, with its number in the database."""

    id: int
    spec: RunSpec


@dataclass(frozen=True)
class Stack:
    """Runs of one shape that train side by side."""

    runs: tuple[Pending, ...]
    seconds: float


@dataclass(frozen=True)
class Bundle:
    """The work of one trial."""

    stacks: tuple[Stack, ...]

    @property
    def seconds(self) -> float:
        return sum(stack.seconds for stack in self.stacks)

    @property
    def runs(self) -> tuple[Pending, ...]:
        return tuple(run for stack in self.stacks for run in stack.runs)

    def without(self, ids: Collection[int]) -> Bundle | None:
        """The bundle with these runs taken out; None when nothing remains."""
        kept = []
        for stack in self.stacks:
            runs = tuple(run for run in stack.runs if run.id not in ids)
            if runs:
                kept.append(Stack(runs, stack.seconds * len(runs) / len(stack.runs)))
        return Bundle(tuple(kept)) if kept else None


def plan(
    pending: Sequence[Pending],
    cost: CostModel,
    *,
    workers: int,
    order: Order = "longest_first",
    room: Callable[[RunSpec], int] | None = None,
    on_gpu: bool = False,
    target_seconds: float = TARGET_SECONDS,
) -> list[Bundle]:
    """Bundles in the order they should start.

    `longest_first` keeps workers busy to the end. `seeds_first` finishes all cells of the
    first seed before the next one begins, so that every cell has an early answer. `room` says
    how many models of a run's shape fit into one stack on its device.

    A GPU trains a full stack in little more than the time of one model, so there only memory
    cuts a stack, and seeds share it whatever the order.
    """
    if not pending:
        return []
    priced = [_Priced(run, shape, cost.seconds(run.spec, shape)) for run, shape in _shaped(pending)]
    total = sum(entry.seconds for entry in priced)
    target = min(target_seconds, max(SHORTEST_SECONDS, total / (workers * BUNDLES_PER_WORKER)))
    waves: dict[int, list[_Priced]] = {}
    for entry in priced:
        wave = entry.run.spec.seed if order == "seeds_first" and not on_gpu else 0
        waves.setdefault(wave, []).append(entry)
    bundles: list[Bundle] = []
    for wave in sorted(waves):
        stacks = _stacks(waves[wave], math.inf if on_gpu else target, room)
        bundles += sorted(_bundles(stacks, target), key=lambda bundle: -bundle.seconds)
    return bundles


@dataclass(frozen=True, slots=True)
class _Priced:
    run: Pending
    shape: Hashable
    seconds: float


def _shaped(pending: Sequence[Pending]) -> Iterator[tuple[Pending, Hashable]]:
    return ((run, stack_shape(run.spec)) for run in pending)


def _stacks(
    priced: Iterable[_Priced], longest: float, room: Callable[[RunSpec], int] | None
) -> list[Stack]:
    """Equal shapes together, cut where the longest time or the memory is full."""
    groups: dict[Hashable, list[_Priced]] = {}
    for entry in priced:
        groups.setdefault(entry.shape, []).append(entry)
    stacks = []
    for group in groups.values():
        # Runs of like length end together; a long one alone would keep the stack half empty.
        group.sort(key=lambda entry: -entry.seconds)
        most = max(1, room(group[0].run.spec)) if room else len(group)
        taken: list[Pending] = []
        seconds = 0.0
        for entry in group:
            if taken and (len(taken) >= most or seconds + entry.seconds > longest):
                stacks.append(Stack(tuple(taken), seconds))
                taken, seconds = [], 0.0
            taken.append(entry.run)
            seconds += entry.seconds
        stacks.append(Stack(tuple(taken), seconds))
    return stacks


def _bundles(stacks: list[Stack], target: float) -> list[Bundle]:
    """Stacks too small for a trial of their own are filled up to the target, biggest first."""
    bundles: list[Bundle] = []
    small: list[Stack] = []
    filled = 0.0
    for stack in sorted(stacks, key=lambda stack: -stack.seconds):
        if stack.seconds >= target / 2:
            bundles.append(Bundle((stack,)))
            continue
        if small and filled + stack.seconds > target:
            bundles.append(Bundle(tuple(small)))
            small, filled = [], 0.0
        small.append(stack)
        filled += stack.seconds
    if small:
        bundles.append(Bundle(tuple(small)))
    return bundles


def halves(bundle: Bundle) -> list[Bundle]:
    """Two bundles of half the runs each, to find the run that makes a bundle crash.

    Stacks are kept whole where there are several.
    """
    if len(bundle.stacks) > 1:
        middle = len(bundle.stacks) // 2
        return [Bundle(bundle.stacks[:middle]), Bundle(bundle.stacks[middle:])]
    (stack,) = bundle.stacks
    middle = len(stack.runs) // 2
    return [
        Bundle((Stack(part, stack.seconds * len(part) / len(stack.runs)),))
        for part in (stack.runs[:middle], stack.runs[middle:])
    ]
