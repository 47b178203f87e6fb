"""The bundles of a sweep in the order they are given out, and what follows when one crashes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial

from sqlalchemy import Engine, text

from groktime.db.claims import fail_runs
from groktime.db.engine import retrying
from groktime.service.sweep.plan import REPLAN_CHANGE, Bundle, halves
from groktime.workers.engines import stack_shape

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
