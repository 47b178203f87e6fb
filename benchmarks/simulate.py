"""How long a suite takes on 4 to 1,000 GPUs, by the real planner and simulated workers.

    python -m benchmarks.simulate [--suite central] [--gpus 4 64 1000] [--quick] [--json]

Nothing is trained: the planner cuts the suite's runs into bundles as it does for a sweep, and
workers of a simulated clock take as long as the cost model's inputs below say, with epochs that
differ from the expected ones at random. As in a sweep, one queue hands the next bundle to whoever
is free, and what nobody has begun is planned anew when workers come or go.

The bound is the larger of all work in full stacks divided among the workers, and the longest run
alone. Scaled clusters start with one GPU and add some every minute; bundles are cut for the size
that the autoscaler may reach, as GROKTIME_MOST_GPUS says it. Of joined ones nobody knows how many
GPUs will come. Preempted ones lose each GPU once in two hours on average, and with it the work
since the last checkpoint.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from groktime.service.spec import RunSpec
from groktime.service.suites import load_suite
from groktime.service.sweep.cluster import BUNDLES_PER_GPU
from groktime.service.sweep.cost import CostModel, Finished, expected_epochs, flops_per_epoch
from groktime.service.sweep.plan import REPLAN_CHANGE, Bundle, Pending, plan
from groktime.workers.devices import model_bytes
from groktime.workers.engines import stack_shape

# The cost model's inputs. Launches are those counted on CUDA fake tensors; nobody has measured a
# GPU, so the rest are round figures for one with 40 GB.
LAUNCHES_PER_STEP, LAUNCHES_TO_MEASURE, LAUNCH_SECONDS = 191, 124, 4e-6
FLOPS = 4e12  # that small matrix products reach on a GPU which bundles share
MEMORY_BYTES, MEMORY_SHARE = 40e9, 0.6
SPREAD = 0.4  # standard deviation of log epochs around the expected
TRIAL_SECONDS = 0.25  # starting a trial on an actor that is there
CHECKPOINT_SECONDS, GPU_HOURS_TO_PREEMPTION, REPLACED_SECONDS = 60.0, 2.0, 180.0
SCALED_PER_MINUTE = 16  # GPUs


@dataclass(frozen=True)
class Scenario:
    """A cluster's size and whether it grows, to a size known or not, or loses GPUs."""

    gpus: int
    scaled: bool = False
    joined: bool = False
    preempted: bool = False

    def __str__(self) -> str:
        words = [name for name in ("scaled", "joined", "preempted") if getattr(self, name)]
        return ", ".join([f"{self.gpus:,} GPUs", *words])


@dataclass
class Outcome:
    """What the queue makes of a scenario."""

    scenario: str
    hours: float
    bound_hours: float
    busy: float
    bundles: int
    planned: int
    preemptions: int
    epochs_a_second: float  # that Postgres is to take in, on average

    @property
    def ratio(self) -> float:
        return self.hours / self.bound_hours


class Work:
    """The runs of a suite, with the epochs that they will really take."""

    def __init__(self, specs: Sequence[RunSpec], seed: int) -> None:
        noise = np.random.default_rng(seed).normal(0.0, SPREAD, len(specs))
        self.runs = [Pending(number, spec) for number, spec in enumerate(specs)]
        self.epochs = [
            min(float(spec.stop.max_epochs), expected_epochs(spec) * math.exp(factor))
            for spec, factor in zip(specs, noise, strict=True)
        ]
        self.shapes = [stack_shape(spec) for spec in specs]

    def stack_limit(self, spec: RunSpec) -> int:
        share = MEMORY_BYTES * MEMORY_SHARE / BUNDLES_PER_GPU
        return int(share // model_bytes(spec, "cuda"))

    def seconds(self, runs: Iterable[Pending]) -> float:
        """A stack's time: models that have ended leave it, launches remain until the last one."""
        members = list(runs)
        each = flops_per_epoch(members[0].spec) / (FLOPS / BUNDLES_PER_GPU)
        return self.launching(members) + each * sum(self.epochs[run.id] for run in members)

    def launching(self, runs: Sequence[Pending]) -> float:
        """What of a stack's time goes to starting kernels."""
        steps = runs[0].spec.steps_per_epoch
        launches = LAUNCHES_PER_STEP * steps + LAUNCHES_TO_MEASURE
        return launches * LAUNCH_SECONDS * max(self.epochs[run.id] for run in runs)

    def bundle_seconds(self, bundle: Bundle) -> float:
        return TRIAL_SECONDS + sum(self.seconds(stack.runs) for stack in bundle.stacks)

    def full_stacks(self) -> Iterator[list[Pending]]:
        """All runs in as few stacks as memory allows."""
        by_shape: dict[object, list[Pending]] = {}
        for run in self.runs:
            by_shape.setdefault(self.shapes[run.id], []).append(run)
        for group in by_shape.values():
            group.sort(key=lambda run: -self.epochs[run.id])
            most = max(1, self.stack_limit(group[0].spec))
            for start in range(0, len(group), most):
                yield group[start : start + most]

    def least(self) -> tuple[float, float]:
        """All work in full stacks, in seconds of a worker, and the longest run alone."""
        total = sum(self.seconds(stack) for stack in self.full_stacks())
        return total, max(self.seconds([run]) for run in self.runs)


@dataclass
class Cluster:
    """Workers of a simulated clock: when each appears, and when its GPU is taken away."""

    scenario: Scenario
    seed: int
    preemptions: int = 0
    _random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def workers(self, now: float) -> int:
        """How many there are."""
        gpus = self.scenario.gpus
        if self.scenario.scaled or self.scenario.joined:
            gpus = min(gpus, 1 + SCALED_PER_MINUTE * int(now // 60))
        return gpus * BUNDLES_PER_GPU

    def planned_for(self, now: float) -> int:
        """How many workers the sweep cuts its bundles for."""
        most = self.scenario.gpus * BUNDLES_PER_GPU
        return most if self.scenario.scaled else self.workers(now)

    def starts(self) -> list[float]:
        """When every worker appears."""
        per_minute = SCALED_PER_MINUTE * BUNDLES_PER_GPU
        first = self.workers(0.0)
        all_of_them = self.scenario.gpus * BUNDLES_PER_GPU
        later = [60.0 * (1 + n // per_minute) for n in range(all_of_them - first)]
        return [0.0] * first + later

    def capacity_until(self, now: float) -> float:
        """Seconds of all workers together until now."""
        return sum(max(0.0, now - start) for start in self.starts())

    def preempted_after(self, seconds: float) -> float | None:
        """When within these seconds of work the GPU is taken away, if it is."""
        if not self.scenario.preempted:
            return None
        after = float(self._random.exponential(GPU_HOURS_TO_PREEMPTION * 3600))
        return after if after < seconds else None


class Simulation:
    """A queue and the workers of one cluster."""

    def __init__(self, work: Work, scenario: Scenario, seed: int) -> None:
        self.work = work
        self.cluster = Cluster(scenario, seed)
        self.cost = CostModel(FLOPS / BUNDLES_PER_GPU)
        self.pending = {run.id: run for run in work.runs}
        self.busy = 0.0
        self.bundles = self.planned = 0
        # When each worker is free next; a worker is nothing more than that.
        self.free = self.cluster.starts()
        heapq.heapify(self.free)
        self.learnt: list[Finished] = []

    def plan(self, workers: int) -> deque[Bundle]:
        self.planned += 1
        self.cost.learn(self.learnt)
        self.learnt.clear()
        return deque(
            plan(
                list(self.pending.values()),
                self.cost,
                workers=workers,
                stack_limit=self.work.stack_limit,
                on_gpu=True,
            )
        )

    def run(self) -> float:
        """Simulated seconds to the end: bundles go to free workers until none is left."""
        counted = self.cluster.planned_for(0.0)
        queue = self.plan(counted)
        again: list[tuple[float, float]] = []  # when preempted work may go on, and how much is left
        end = 0.0
        while queue or again:
            free = heapq.heappop(self.free)
            there = self.cluster.planned_for(free)
            if queue and abs(there - counted) > REPLAN_CHANGE * counted:
                counted = there
                queue = self.plan(counted)
            if again and (not queue or again[0][0] <= free):
                since, seconds = heapq.heappop(again)
                free = max(free, since)
            else:
                bundle = queue.popleft()
                seconds = self.work.bundle_seconds(bundle)
                self.bundles += 1
                for stack in bundle.stacks:
                    took = self.work.seconds(stack.runs) / len(stack.runs)
                    for run in stack.runs:
                        del self.pending[run.id]
                        epochs = int(self.work.epochs[run.id])
                        shape = self.work.shapes[run.id]
                        self.learnt.append(Finished(run.spec, shape, epochs, took))
            lost = self.cluster.preempted_after(seconds)
            if lost is not None:
                self.cluster.preemptions += 1
                kept = max(0.0, lost - CHECKPOINT_SECONDS)
                self.busy += kept
                heapq.heappush(again, (free + lost, seconds - kept))
                heapq.heappush(self.free, free + lost + REPLACED_SECONDS)
                continue
            self.busy += seconds
            end = max(end, free + seconds)
            heapq.heappush(self.free, free + seconds)
        return end


def bound(work_seconds: float, longest: float, cluster: Cluster) -> float:
    """No way of feeding is quicker than this."""
    low, high = 0.0, work_seconds + 1e6
    for _ in range(80):
        middle = (low + high) / 2
        if cluster.capacity_until(middle) < work_seconds:
            low = middle
        else:
            high = middle
    return max(high, longest)


def measure(work: Work, scenario: Scenario, seed: int) -> Outcome:
    simulation = Simulation(work, scenario, seed)
    seconds = simulation.run()
    least, longest = work.least()
    return Outcome(
        scenario=str(scenario),
        hours=seconds / 3600,
        bound_hours=bound(least, longest, simulation.cluster) / 3600,
        busy=simulation.busy / simulation.cluster.capacity_until(seconds),
        bundles=simulation.bundles,
        planned=simulation.planned,
        preemptions=simulation.cluster.preemptions,
        epochs_a_second=sum(work.epochs) / seconds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--suite", default="central")
    parser.add_argument("--gpus", type=int, nargs="+", default=[4, 64, 1000])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="every tenth run only")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    specs = load_suite(options.suite).runs()[:: 10 if options.quick else 1]
    work = Work(specs, options.seed)
    scenarios = [Scenario(gpus) for gpus in options.gpus]
    largest = max(options.gpus)
    scenarios += [
        Scenario(largest, scaled=True),
        Scenario(largest, joined=True),
        Scenario(largest, preempted=True),
    ]
    outcomes = [measure(work, scenario, options.seed) for scenario in scenarios]
    if options.json:
        sys.stdout.write(json.dumps([asdict(o) | {"ratio": o.ratio} for o in outcomes]) + "\n")
        return
    least, longest = work.least()
    launching = sum(work.launching(stack) for stack in work.full_stacks()) / least
    print(
        f"{options.suite}: {len(specs):,} runs, {least / 3600:,.1f} worker-hours in full stacks, "
        f"longest run {longest / 3600:.2f} h; {BUNDLES_PER_GPU} workers a GPU, "
        f"{FLOPS:.0e} FLOP/s, {LAUNCH_SECONDS * 1e6:g} µs a launch, which is {launching:.1%} of it"
    )
    names = ("cluster", "hours", "bound", "ratio", "busy", "bundles", "plans", "preempted")
    print("{:26}{:>8}{:>8}{:>7}{:>7}{:>9}{:>7}{:>11}{:>11}".format(*names, "epochs/s"))
    row = "{:26}{:8.2f}{:8.2f}{:7.2f}{:7.0%}{:9,}{:7,}{:11,}{:11,.0f}"
    for o in outcomes:
        figures = (o.hours, o.bound_hours, o.ratio, o.busy, o.bundles, o.planned, o.preemptions)
        print(row.format(o.scenario, *figures, o.epochs_a_second))


if __name__ == "__main__":
    main()
