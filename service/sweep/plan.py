"""Pending runs → bundles: stacks of equal shape, put together to about a minute of work; the order
in which they are given out, and what follows when one crashes.

A bundle is what one Ray Tune trial trains: one or more stacks, one after another. Runs that
can share a stack are put into one; where these are small, several stacks share a bundle, so
that starting a trial stays a small part of the work.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from sqlalchemy import Engine, text

from groktime.db.claims import fail_runs
from groktime.db.engine import retrying
from groktime.service.spec import RunSpec
from groktime.service.suites import Suite
from groktime.service.sweep.cluster import ClusterCapacity
from groktime.service.sweep.cost import CostModel, expected_epochs, flops_per_epoch
from groktime.service.sweep.selection import StoredRun, SweepOptions, in_order, learnt_cost
from groktime.service.words import duration
from groktime.workers.engines import stack_shape

Order = Literal["longest_first", "seeds_first"]

TARGET_SECONDS = 60.0  # a bundle's aim: a trial's start is then well under one percent
SHORTEST_SECONDS = 4.0  # small sweeps are cut finer, to keep all workers busy to the end
BUNDLES_PER_WORKER = 12
REPLAN_CHANGE = 0.25  # of the workers, before what nobody has begun is planned anew
SHARE_OF_A_STACK = 0.6  # of all work divided by workers: the longest stack on a GPU


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
    stack_limit: Callable[[RunSpec], int] | None = None,
    on_gpu: bool = False,
    target_seconds: float = TARGET_SECONDS,
) -> list[Bundle]:
    """Bundles in the order they should start.

    `longest_first` keeps workers busy to the end. `seeds_first` finishes all cells of the
    first seed before the next one begins, so that every cell has an early answer. `stack_limit`
    says how many models of a run's shape fit into one stack on its device.

    A GPU trains a full stack in little more than the time of one model, so there memory cuts a
    stack, and seeds share it whatever the order; where there are more workers than such stacks,
    they are cut to about half of a worker's share of the work.
    """
    if not pending:
        return []
    priced = [_Priced(run, shape, cost.seconds(run.spec, shape)) for run, shape in _shaped(pending)]
    total = sum(entry.seconds for entry in priced)
    target = min(target_seconds, max(SHORTEST_SECONDS, total / (workers * BUNDLES_PER_WORKER)))
    longest = max(target, SHARE_OF_A_STACK * total / workers) if on_gpu else target
    waves: dict[int, list[_Priced]] = {}
    for entry in priced:
        wave = entry.run.spec.seed if order == "seeds_first" and not on_gpu else 0
        waves.setdefault(wave, []).append(entry)
    bundles: list[Bundle] = []
    for wave in sorted(waves):
        stacks = _stacks(waves[wave], longest, stack_limit)
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
    priced: Iterable[_Priced], longest: float, stack_limit: Callable[[RunSpec], int] | None
) -> list[Stack]:
    """Equal shapes together, cut where the longest time or the memory is full."""
    groups: dict[Hashable, list[_Priced]] = {}
    for entry in priced:
        groups.setdefault(entry.shape, []).append(entry)
    stacks = []
    for group in groups.values():
        # Runs of like length end together; a long one alone would keep the stack half empty.
        group.sort(key=lambda entry: -entry.seconds)
        most = max(1, stack_limit(group[0].run.spec)) if stack_limit else len(group)
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


KNOWN = """
SELECT key, reason, seconds, last_epoch,
    CASE WHEN state = 'running' AND lease_until < now() THEN 'stale' ELSE state END AS state
FROM runs WHERE key = ANY(:keys)
"""


@dataclass(frozen=True)
class Preview:
    """Runs that would be trained, in how many bundles and stacks, and what they would cost."""

    suite: str
    selected: int
    done: int
    failed: int
    running: int  # in the hands of another sweep
    to_train: int
    bundles: int
    stacks: int
    model_epochs: float
    flops: float
    core_seconds: float
    workers: int  # bundles trained at once

    def __str__(self) -> str:
        return (
            f"{self.suite}: {self.selected:,} runs selected, {self.done:,} done, "
            f"{self.failed:,} failed, {self.running:,} being trained, {self.to_train:,} to train "
            f"in {self.bundles:,} bundles of {self.stacks:,} stacks; about "
            f"{self.model_epochs:,.0f} model-epochs, {self.flops:.2g} FLOPs, "
            f"{duration(self.core_seconds)} of one core, "
            f"{duration(self.core_seconds / self.workers)} with {self.workers} at once"
        )


def preview(
    suite: Suite, engine: Engine | None, options: SweepOptions, capacity: ClusterCapacity
) -> Preview:
    """Plan against what the database knows, or against nothing where there is none."""
    chosen = options.selection.chosen(suite)
    known = {}
    if engine is not None:
        with engine.connect() as connection:
            rows = connection.execute(text(KNOWN), {"keys": [spec.key for spec in chosen]})
            known = {row.key: row for row in rows}
    runs: dict[int, StoredRun] = {}
    for number, spec in enumerate(chosen, start=1):
        row = known.get(spec.key)
        stored = (row.state, row.reason, row.seconds, row.last_epoch) if row else None
        # Runs that are not in the database yet have no number there.
        runs[-number] = StoredRun(-number, spec, *(stored or ("pending", None, None, 0)))
    out = {"done", "running"} if options.retry_failed else {"done", "running", "failed"}
    still = in_order(suite, [run for run in runs.values() if run.state not in out])
    pending = [Pending(run.id, run.spec) for run in still[: options.limit]]
    cost = learnt_cost(runs)
    bundles = plan(
        pending,
        cost,
        workers=capacity.slots,
        order=suite.file.order,
        stack_limit=capacity.stack_limit,
        on_gpu=capacity.on_gpu,
    )
    return Preview(
        suite=suite.name,
        selected=len(runs),
        done=sum(run.state == "done" for run in runs.values()),
        failed=sum(run.state == "failed" for run in runs.values()),
        running=sum(run.state == "running" for run in runs.values()),
        to_train=len(pending),
        bundles=len(bundles),
        stacks=sum(len(bundle.stacks) for bundle in bundles),
        model_epochs=sum(expected_epochs(run.spec) for run in pending),
        flops=sum(flops_per_epoch(run.spec) * expected_epochs(run.spec) for run in pending),
        core_seconds=sum(bundle.seconds for bundle in bundles),
        workers=capacity.slots,
    )


RECOUNT_SECONDS = 5.0  # of the slots
SYSTEMIC_BUNDLES = 4  # so many crashing without any progress are no fault of single runs

CLOSED = "SELECT id FROM runs WHERE id = ANY(:ids) AND closed_at IS NOT NULL"
MOVED = """
SELECT count(*) FILTER (WHERE state IN ('done', 'failed')) AS closed, sum(last_epoch) AS epochs
FROM runs WHERE id = ANY(:ids)
"""

Plan = Callable[[int, Collection[int]], list[Bundle]]  # for so many slots, without these runs


def moved(engine: Engine, run_ids: Sequence[int]) -> tuple[int, int]:
    """How many of the runs are closed, and the epochs recorded of all."""
    with engine.connect() as connection:
        row = connection.execute(text(MOVED), {"ids": list(run_ids)}).one()
    return row.closed, row.epochs or 0


class BundleQueue:
    """A feed of the bundles of a suite's open runs, cut for the cluster as it is.

    What crashed is halved, until a run that crashes by itself can be told from its mates.
    """

    def __init__(
        self,
        engine: Engine,
        run_ids: Sequence[int],
        plan: Plan,
        slots: Callable[[], int],
        say: Callable[[str], None],
    ) -> None:
        self._engine, self._run_ids, self._plan = engine, list(run_ids), plan
        self._slots, self._say = slots, say
        self._planned_for, self._counted_at = slots(), time.monotonic()
        self._fresh: deque[Bundle] = deque()
        self._shapes: dict[int, Hashable] = {}
        self._waiting: dict[Hashable, dict[int, None]] = {}  # runs in `_fresh` by their shape
        self._wait(plan(self._planned_for, ()))
        self._parts: deque[Bundle] = deque()  # of what crashed
        self._given: dict[frozenset[int], tuple[Bundle, bool]] = {}  # and whether it is a part
        self._moved = retrying(lambda: moved(engine, self._run_ids))
        self._in_vain = 0  # planned bundles that crashed to the end since anything moved
        self._suspects: dict[int, str] = {}  # runs that crash by themselves, and the reason
        self.problem: str | None = None  # that no single run is to blame for

    def next(self, live: Collection[int]) -> list[list[int]] | None:
        """The stacks of the next bundle."""
        if self.problem:
            return None
        self._plan_again(live)
        queue = self._parts or self._fresh
        if not queue:
            return None
        is_part, bundle = queue is self._parts, queue.popleft()
        self._given[_ids(bundle)] = bundle, is_part
        for run in bundle.runs:
            self._waiting.get(self._shapes[run.id], {}).pop(run.id, None)
        return [[run.id for run in stack.runs] for stack in bundle.stacks]

    def _plan_again(self, live: Collection[int]) -> None:
        """Nodes come and go: what nobody has begun is cut to the slots that are there."""
        now = time.monotonic()
        if not self._fresh or now - self._counted_at < RECOUNT_SECONDS:
            return
        self._counted_at = now
        slots = self._slots()
        if abs(slots - self._planned_for) <= REPLAN_CHANGE * self._planned_for:
            return
        self._planned_for = slots
        begun = {run.id for bundle in self._parts for run in bundle.runs}
        self._wait(self._plan(slots, {*begun, *live, *self._suspects}))

    def _wait(self, bundles: Sequence[Bundle]) -> None:
        self._fresh = deque(bundles)
        self._waiting.clear()
        for bundle in bundles:
            for run in bundle.runs:
                shape = self._shapes.setdefault(run.id, stack_shape(run.spec))
                self._waiting.setdefault(shape, {})[run.id] = None

    def spares(self, stack: Sequence[int]) -> list[int]:
        """Runs that may take the places of this stack's when those have ended.

        A bundle that is given out later finds them taken, and trains the rest.
        """
        return [*self._waiting.get(self._shapes[stack[0]], ())]

    def trained(self, runs: Sequence[int]) -> None:
        """A bundle ended well."""
        del self._given[frozenset(runs)]

    def crashed(self, runs: Sequence[int], reason: str) -> None:
        """Halve the bundle, and suspect a run that crashes by itself."""
        bundle, is_part = self._given.pop(frozenset(runs))
        left = self._still_open(bundle)
        if left is None:
            return
        self._look_for_progress()
        self._in_vain += not is_part
        if self._in_vain >= SYSTEMIC_BUNDLES:
            self.problem = f"{self._in_vain} bundles crashed and nothing went on: {reason}"
        elif len(left.runs) > 1:
            self._say(f"a bundle of {len(left.runs)} runs crashed and is split: {reason}")
            self._parts.extend(halves(left))
        else:
            (run,) = left.runs
            self._say(f"run {run.id} crashes its worker: {reason}")
            self._suspects[run.id] = f"crashed: {reason}"

    def _look_for_progress(self) -> None:
        """Once anything has gone on, the fault is with the runs that crashed."""
        now = retrying(lambda: moved(self._engine, self._run_ids))
        if now != self._moved:
            self._in_vain = 0
            self.fail_suspects()
            self._moved = retrying(lambda: moved(self._engine, self._run_ids))

    def fail_suspects(self) -> None:
        """Close the runs that crash by themselves: nothing else was wrong."""
        for run, reason in self._suspects.items():
            retrying(partial(fail_runs, self._engine, [run], reason))
        self._suspects.clear()

    def _still_open(self, bundle: Bundle) -> Bundle | None:
        """The bundle without the runs that ended before the crash."""
        ids = [run.id for run in bundle.runs]

        def closed() -> set[int]:
            with self._engine.connect() as connection:
                return set(connection.scalars(text(CLOSED), {"ids": ids}))

        return bundle.without(retrying(closed))


def _ids(bundle: Bundle) -> frozenset[int]:
    return frozenset(run.id for run in bundle.runs)
