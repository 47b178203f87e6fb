"""A suite that is located: Ray Tune asks for the next run, Postgres says what is known.

The searcher keeps nothing that matters. Every suggestion is made from what the database holds, so
a sweep that was killed goes on where it was, and what other sweeps have trained counts as well.
"""

from __future__ import annotations

import logging
import math
import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ray import tune
from ray.tune.search import Searcher
from sqlalchemy import Engine, text

from groktime.db.claims import expire, fail_runs, reopen, revoke_leases
from groktime.db.retry import retrying
from groktime.service.errors import SweepError
from groktime.service.settings import Settings
from groktime.service.spec import RunSpec, ladder_index
from groktime.service.suites import Suite
from groktime.service.sweep.cluster import ClusterCapacity
from groktime.service.sweep.cost import flops_per_epoch
from groktime.service.sweep.locate import (
    Choice,
    Finding,
    Grid,
    LocatedKind,
    Noise,
    Prior,
    Progress,
    locate,
    pooled_noise,
)
from groktime.service.sweep.selection import SweepOptions, SweepReport, register
from groktime.service.sweep.tuner import RETRIES, Outcomes
from groktime.workers.trainable import BundleTrainable, WorkerConfig

T_GEN_EPOCHS = 300.0  # of a grok run, for the price of one that nobody has seen

KNOWN = """
SELECT r.id, r.key, r.state, r.reason, r.last_epoch, r.seconds,
    r.first_online[:e_train] AS e_train, r.first_online[:t_mem] AS t_mem,
    r.first_val[:e_val] AS e_val, r.first_val[:t_gen] AS t_gen
FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
WHERE sr.suite_id = :suite AND r.kind <> 'capacity'
"""

Run = tuple[LocatedKind, int, int]  # kind, width, seed


@dataclass
class Cell:
    """One prime at one setting: what may be trained there, and what is known."""

    label: str
    prime: int
    setting: Mapping[str, Any]
    specs: dict[Run, RunSpec]
    grid: Grid
    findings: list[Finding] = field(default_factory=list)
    taken: set[Run] = field(default_factory=set)  # in flight, or failed and not asked for again
    progress: Progress | None = None

    @property
    def runs(self) -> int:
        return len(self.findings) + len(self.taken)


def cells_of(suite: Suite) -> list[Cell]:
    """The suite's cells with everything its design may choose from."""
    grouped: dict[tuple[int, str], list[Any]] = {}
    for member in suite.members():
        if member.spec.kind != "capacity":
            setting = ", ".join(f"{name} {value}" for name, value in member.setting.items())
            grouped.setdefault((member.prime, setting), []).append(member)
    cells = []
    for (prime, setting), members in grouped.items():
        specs: dict[Run, RunSpec] = {
            (m.spec.kind, m.spec.model.width, m.spec.seed): m.spec for m in members
        }
        label = f"p={prime}" + (f", {setting}" if setting else "")
        cells.append(Cell(label, prime, members[0].setting, specs, _grid(specs)))
    return cells


def _grid(specs: Mapping[Run, RunSpec]) -> Grid:
    params = {width: spec.params for (_, width, _), spec in sorted(specs.items())}
    seeds = sorted({seed for _, _, seed in specs})
    some = next(iter(specs.values()))
    centre = math.log(some.k_mem) + Prior().crossing

    def seconds(kind: LocatedKind, width: int) -> float:
        """Relative price: work of an epoch times the epochs that are likely there."""
        spec = specs[kind, width, seeds[0]]
        epochs = T_GEN_EPOCHS
        if kind == "speed":
            below = 4.0 * (centre - math.log(params[width]))
            epochs = min(T_GEN_EPOCHS * math.exp(min(max(below, -3.0), 5.0)), spec.stop.max_epochs)
        return flops_per_epoch(spec) * epochs

    return Grid(dict(sorted(params.items())), seeds, seconds, some.k_mem)


def sharpened(prior: Prior, cells: Sequence[Cell]) -> Prior:
    """The prior of a cell once others of the suite are placed: they lie at like multiples of K_mem.

    A cell counts as much as the prior itself, so that three of them outweigh it.
    """
    crossings, onsets = [prior.crossing], [prior.onset]
    sums = {"mem": prior.noise.weight * prior.noise.mem**2, "gen": 0.0}
    sums["gen"] = prior.noise.weight * prior.noise.gen**2
    weight = prior.noise.weight
    for cell in cells:
        found = cell.progress
        if found is None:
            continue
        for points, point in ((crossings, found.crossing), (onsets, found.onset)):
            if point is not None and point.status == "placed" and point.params:
                points.append(math.log(point.params / cell.grid.k_mem))
        noise = pooled_noise(cell.findings, prior.noise)
        sums["mem"] += noise.mem**2
        sums["gen"] += noise.gen**2
        weight += 1
    return replace(
        prior,
        crossing=sum(crossings) / len(crossings),
        onset=sum(onsets) / len(onsets),
        noise=Noise(
            math.sqrt(sums["mem"] / weight), math.sqrt(sums["gen"] / weight), prior.noise.weight
        ),
    )


class Locator:
    """What a located suite knows, read from Postgres, and the run it wants next."""

    def __init__(self, suite: Suite, engine: Engine, options: SweepOptions) -> None:
        assert suite.file.design is not None, "only located suites have a locator"
        self.suite, self.engine, self.design = suite, engine, suite.file.design
        primes = options.selection.primes
        self.cells = [cell for cell in cells_of(suite) if not primes or cell.prime in primes]
        self._places: dict[str, list[tuple[Cell, Run]]] = {}
        for cell in self.cells:
            for run, spec in cell.specs.items():
                self._places.setdefault(spec.key, []).append((cell, run))
        self.registered = register(suite, engine)
        if options.retry_failed:
            known = self.known()
            reopen(engine, [row.id for row in known if row.state == "failed"])

    def refresh(self) -> None:
        """Read what every cell has, and think again about what it lacks."""
        for cell in self.cells:
            cell.findings.clear()
            cell.taken.clear()
        for row in retrying(self.known):
            for cell, (kind, width, seed) in self._places.get(row.key, ()):
                diverged = row.state == "failed" and row.reason == "diverged"
                if row.state not in ("done", "set_aside") and not diverged:
                    cell.taken.add((kind, width, seed))
                    continue
                epoch = row.t_mem if kind == "speed" else row.t_gen
                delayed = _delayed(row) if kind == "grok" else None
                cell.findings.append(Finding(kind, width, seed, epoch, row.last_epoch, delayed))
        prior = sharpened(Prior(), self.cells)
        for cell in self.cells:
            cell.progress = locate(
                cell.grid,
                cell.findings,
                precision=self.design.precision,
                wanted=self.design.place,
                prior=prior,
                in_flight=cell.taken,
            )

    def known(self) -> Sequence[Any]:
        """The suite's runs as the database has them, with their first passages."""
        wanted = self.suite.analysis.thresholds
        columns = {
            name: ladder_index(getattr(wanted, name)) or ladder_index(0.99)
            for name in ("e_train", "t_mem", "e_val", "t_gen")
        }
        with self.engine.connect() as connection:
            found = connection.execute(text(KNOWN), {"suite": self.registered.suite_id, **columns})
            return found.all()

    def unfinished(self) -> list[int]:
        """Numbers of runs that were chosen before and never closed: they are trained first."""
        return [row.id for row in retrying(self.known) if row.state in ("pending", "stale")]

    def next(self) -> tuple[Cell, Choice, int] | None:
        """The best run of the cell that has had the least, registered; None: nothing is wanted."""
        wanting = [
            cell
            for cell in self.cells
            if cell.progress and cell.progress.choices and cell.runs < self.design.max_runs
        ]
        if not wanting:
            return None
        cell = min(wanting, key=lambda one: one.runs)
        assert cell.progress is not None
        choice = cell.progress.choices[0]
        spec = cell.specs[choice.kind, choice.width, choice.seed]
        register(self.suite, self.engine, [spec])
        with self.engine.connect() as connection:
            number = connection.scalar(
                text("SELECT id FROM runs WHERE key = :key"), {"key": spec.key}
            )
        assert isinstance(number, int), "the run was registered just now"
        cell.taken.add((choice.kind, choice.width, choice.seed))
        return cell, choice, number


def _delayed(row: Any) -> bool | None:
    """ΔE > 0; None: training never got there, or was censored together with validation."""
    if row.e_train is None:
        return None
    if row.e_val is None:
        return True if row.last_epoch > row.e_train else None
    return bool(row.e_val > row.e_train)


class LocateSearcher(Searcher):
    """Locator in Ray Tune's terms: one trial trains one run."""

    def __init__(self, locator: Locator, name: str, say: Callable[[str], None]) -> None:
        super().__init__(metric="training_seconds", mode="min")
        self.locator, self.name, self._say = locator, name, say
        self._live: dict[str, int] = {}
        self._first = locator.unfinished()
        self.count = 0

    def suggest(self, trial_id: str) -> Any:
        """The next run; None waits for one that is being trained."""
        if self._first:
            number = self._first.pop(0)
        else:
            self.locator.refresh()
            found = self.locator.next()
            if found is None:
                return None if self._live else Searcher.FINISHED
            cell, choice, number = found
            self._say(
                f"{cell.label}: {choice.kind} d={choice.width} seed {choice.seed} "
                f"({choice.why}); {described(cell)}"
            )
        self._live[trial_id] = number
        self.count += 1
        bundle = {"number": self.count, "name": f"{self.name}/{self.count}", "stacks": [[number]]}
        return {"bundle": bundle}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """A run that crashed its worker to the end is failed, and not asked for again."""
        number = self._live.pop(trial_id, None)
        if error and number is not None:
            retrying(lambda: revoke_leases(self.locator.engine, self.name))
            retrying(lambda: fail_runs(self.locator.engine, [number], "crashed: see its worker"))

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its parts to restore them; this one is made anew from Postgres instead."""
        return {"name": self.name}

    def save(self, checkpoint_path: str) -> None:
        """Nothing: Postgres has it."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: Postgres has it."""


def described(cell: Cell) -> str:
    """`crossing 41,200 (± 0.02 dex, 36,832–46,044), onset searching; 14 runs`."""
    parts = []
    for name in ("crossing", "onset"):
        point = getattr(cell.progress, name) if cell.progress else None
        if point is None:
            continue
        if point.params is None:
            parts.append(f"{name} {point.status}")
            continue
        text_ = f"{name} {point.params:,.0f}"
        about = [] if point.half_width is None else [f"± {point.half_width:.3f} dex"]
        if point.bracket:
            about.append(f"{point.bracket[0]:,.0f}–{point.bracket[1]:,.0f}")
        about.append(point.status)
        parts.append(f"{text_} ({', '.join(about)})")
    return f"{'; '.join(parts)}; {cell.runs} runs"


def run_located(
    suite: Suite,
    engine: Engine,
    settings: Settings,
    database_url: str,
    options: SweepOptions,
    capacity: ClusterCapacity,
    say: Callable[[str], None],
) -> tuple[Locator, SweepReport]:
    """Train until every cell is located, out of seeds or out of its budget."""
    retrying(lambda: expire(engine))
    locator = Locator(suite, engine, options)
    name = f"locate-{secrets.token_hex(4)}"
    report, outcomes = SweepReport(), Outcomes()
    searcher = LocateSearcher(locator, name, say)
    locator.refresh()
    before = sum(len(cell.findings) for cell in locator.cells)
    if locator.unfinished() or any(c.progress and c.progress.choices for c in locator.cells):
        try:
            _tune(searcher, settings, database_url, options, capacity, outcomes)
        finally:
            retrying(lambda: revoke_leases(engine, name))
    if outcomes.refused:
        raise SweepError("; ".join(sorted(outcomes.refused)))
    locator.refresh()
    report.bundles, report.retried = searcher.count, outcomes.retried
    report.training_seconds = outcomes.training_seconds
    report.trained = sum(len(cell.findings) for cell in locator.cells) - before
    report.failed = {
        row.id: row.reason or "" for row in retrying(locator.known) if row.state == "failed"
    }
    return locator, report


def _tune(
    searcher: LocateSearcher,
    settings: Settings,
    database_url: str,
    options: SweepOptions,
    capacity: ClusterCapacity,
    outcomes: Outcomes,
) -> None:
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
    worker = WorkerConfig.of(settings, database_url, capacity.device)
    asked: dict[str, float] = {"cpu": 1}
    if options.gpus_per_bundle:
        asked["gpu"] = options.gpus_per_bundle
    trainable = tune.with_resources(tune.with_parameters(BundleTrainable, worker=worker), asked)
    with tempfile.TemporaryDirectory(prefix="groktime-tune-") as storage:
        tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                num_samples=-1,
                max_concurrent_trials=capacity.slots,
                reuse_actors=True,
                trial_name_creator=lambda trial: f"run_{trial.trial_id}",
                trial_dirname_creator=lambda trial: f"run_{trial.trial_id}",
            ),
            run_config=tune.RunConfig(
                name=searcher.name,
                storage_path=storage,
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=RETRIES),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                callbacks=[outcomes],
                log_to_file=False,
            ),
        ).fit()
