"""Which runs of a suite a sweep trains, and what earlier ones teach about their cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, text

from service.errors import InputError
from service.spec import Kind, RunSpec
from service.suites import Suite
from service.sweep.cost import CostModel, Finished
from service.sweep.rate import machine_rate
from workers.stack import stack_shape

ANY_RATE = 1e11  # FLOP/s; finished runs correct it, whatever it is

SUITE_RUNS = """
SELECT r.id, r.key, r.state, r.reason, r.seconds, r.last_epoch FROM suite_runs sr
JOIN runs r ON r.id = sr.run_id WHERE sr.suite_id = :suite AND NOT sr.inherited
"""


class NotInSuite(InputError):
    """A filter names a value that no run of the suite has; `known` are those there are."""

    def __init__(self, name: str, value: object, known: Sequence[Any]) -> None:
        there = ", ".join(str(one) for one in known)
        super().__init__(f"--{name} = {value}: the suite has {there}")
        self.name = name
        self.value = value
        self.known = known


@dataclass(frozen=True)
class Selection:
    """Filters on a suite's runs; empty ones let everything pass."""

    primes: Collection[int] = ()
    kinds: Collection[Kind] = ()
    widths: Collection[int] = ()
    seeds: Collection[int] = ()

    def chosen(self, runs: Sequence[RunSpec]) -> list[RunSpec]:
        """The runs that pass; a value that no run has is refused with those there are."""
        columns: dict[str, tuple[Collection[Any], Collection[Any]]] = {
            "prime": ({run.data.prime for run in runs}, self.primes),
            "kind": ({run.kind for run in runs}, self.kinds),
            "width": ({run.model.width for run in runs}, self.widths),
            "seed": ({run.seed for run in runs}, self.seeds),
        }
        for name, (there, asked) in columns.items():
            for value in asked:
                if value not in there:
                    raise NotInSuite(name, value, sorted(there))
        kept = [
            run
            for run in runs
            if (not self.primes or run.data.prime in self.primes)
            and (not self.kinds or run.kind in self.kinds)
            and (not self.widths or run.model.width in self.widths)
            and (not self.seeds or run.seed in self.seeds)
        ]
        if not kept:
            raise InputError(f"the suite has no run that passes all of --{', --'.join(columns)}")
        return kept


@dataclass(frozen=True)
class StoredRun:
    """A selected run as the database has it."""

    id: int
    spec: RunSpec
    state: str
    reason: str | None
    seconds: float | None
    last_epoch: int


def stored_runs(engine: Engine, suite_id: int, chosen: Sequence[RunSpec]) -> dict[int, StoredRun]:
    """The selected runs by their number, in the order of the suite's grids."""
    by_key = {spec.key: spec for spec in chosen}
    with engine.connect() as connection:
        rows = {row.key: row for row in connection.execute(text(SUITE_RUNS), {"suite": suite_id})}
    found = (rows[key] for key in by_key)
    return {
        row.id: StoredRun(
            row.id, by_key[row.key], row.state, row.reason, row.seconds, row.last_epoch
        )
        for row in found
    }


def learnt_cost(runs: Mapping[int, StoredRun]) -> CostModel:
    """A cost model that has seen the finished runs; without any, this machine's speed counts."""
    finished = [
        Finished(run.spec, stack_shape(run.spec), run.last_epoch, run.seconds)
        for run in runs.values()
        if run.state == "done" and run.seconds
    ]
    if not finished:
        return CostModel(machine_rate([run.spec for run in runs.values()])[0])
    cost = CostModel(ANY_RATE)
    cost.learn(finished)
    return cost


def in_order(suite: Suite, runs: Sequence[StoredRun]) -> list[StoredRun]:
    """Runs as `--limit` counts them: by seed where the suite wants seeds first."""
    if suite.file.order == "seeds_first":
        return sorted(runs, key=lambda run: run.spec.seed)
    return list(runs)
