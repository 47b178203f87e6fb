"""What a sweep gives out next, and who pays when a worker ends early; no cluster is needed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from fixtures.database import Database
from ray.tune.search import Searcher
from sqlalchemy import text

from groktime.db.claims import claim
from groktime.service.suites import load_suite
from groktime.service.sweep import plan, tuner
from groktime.service.sweep.plan import SYSTEMIC_BUNDLES, Bundle, BundleQueue, Pending, Stack
from groktime.service.sweep.selection import SweepOptions, prepare
from groktime.service.sweep.tuner import FORGIVEN_DEATHS, Crash, FedSearcher

EIGHT = """\
description: eight
positions: none
primes: [5]
seeds: [1, 2, 3, 4, 5, 6, 7, 8]
settings: {batch_size: 16}
stop: {max_epochs: 12}
speed:
  widths: [4]
"""
DEATH = Crash("The actor died because its node has died.", node_died=True)
CRASH = Crash("MemoryError: no memory")
SILENCE = Crash("The actor 0a is unavailable", silent_actor="0a")


class Cluster:
    """Stands where Tune stands: asks for work, claims it as a worker does, and tells its end."""

    def __init__(self, database: Database, folder: Path, *, together: int = 8) -> None:
        path = folder / "eight.yaml"
        path.write_text(EIGHT)
        self.database = database
        self.runs = prepare(load_suite(path), database.engine, SweepOptions()).runs
        self.slots, self.together = 2, together
        self.planned: list[int] = []
        self.told: list[str] = []
        self.trials: dict[str, list[int]] = {}
        self._names: Iterator[str] = map(str, count(1))
        self.queue = BundleQueue(
            database.engine, list(self.runs), self._plan, lambda: self.slots, self.told.append
        )
        self.searcher = FedSearcher(
            self.queue, database.engine, "sweep-1-0", lambda: 3, self.queue.spares
        )
        self.spares: dict[str, list[int]] = {}

    def _plan(self, slots: int, begun: Collection[int]) -> list[Bundle]:
        self.planned.append(slots)
        left = [Pending(run.id, run.spec) for run in self.runs.values() if run.id not in begun]
        parts = (left[i : i + self.together] for i in range(0, len(left), self.together))
        return [Bundle((Stack(tuple(part), 1.0),)) for part in parts]

    def ask(self) -> tuple[str, Any]:
        """The name of a trial, and the runs it has claimed or why there are none."""
        trial = next(self._names)
        config = self.searcher.suggest(trial)
        if not isinstance(config, dict):
            return trial, config
        bundle = config["bundle"]
        runs = [run for stack in bundle["stacks"] for run in stack]
        self.trials[trial] = runs
        self.spares[trial] = [run for stack in bundle["spares"] for run in stack]
        claim(self.database.engine, runs, f"{bundle['name']}@host:1", 600.0)
        return trial, runs

    def start(self) -> tuple[str, list[int]]:
        trial, runs = self.ask()
        assert isinstance(runs, list), f"nothing was given out: {runs}"
        return trial, runs

    def crash(self, trial: str, how: Crash) -> None:
        self.searcher.on_trial_complete(trial, error=True)
        self.searcher.crashed(trial, how)

    def close(self, trial: str) -> None:
        """All its runs end well."""
        done = (
            "UPDATE runs SET state = 'failed', reason = 'diverged', owner = NULL, "
            "lease_until = NULL, closed_at = now() WHERE id = ANY(:ids)"
        )
        with self.database.engine.begin() as connection:
            connection.execute(text(done), {"ids": self.trials[trial]})
        self.searcher.on_trial_complete(trial, {"training_seconds": 1.0})

    def failed(self) -> dict[int, str]:
        query = "SELECT id, reason FROM runs WHERE state = 'failed' AND reason <> 'diverged'"
        with self.database.engine.connect() as connection:
            return {row.id: row.reason for row in connection.execute(text(query))}


def test_the_death_of_nodes_counts_only_after_five_with_the_same_run(
    database: Database, tmp_path: Path
) -> None:
    cluster = Cluster(database, tmp_path)
    for death in range(FORGIVEN_DEATHS):
        trial, runs = cluster.start()
        assert len(runs) == 8, f"the bundle is whole after {death} deaths"
        cluster.crash(trial, DEATH)
    running = "SELECT count(*) FROM runs WHERE state = 'running'"
    assert database.scalar(running) == 0, "leases of the dead are given back at once"
    died = "SELECT count(*) FROM attempts WHERE reason = 'its node died'"
    assert database.scalar(died) == 8 * FORGIVEN_DEATHS
    for _ in range(2):  # the sixth counts as a try, and so does the last one there is
        trial, runs = cluster.start()
        assert len(runs) == 8
        cluster.crash(trial, DEATH)
    _, runs = cluster.start()
    assert len(runs) == 4
    assert cluster.failed() == {}


@pytest.mark.parametrize("gone", [True, False])
def test_others_are_given_work_until_ray_knows_why_a_worker_does_not_answer(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    known: list[bool | None] = [None]
    monkeypatch.setattr(tuner, "node_is_gone", lambda actor: known[0])
    monkeypatch.setattr(tuner, "LOOK_SECONDS", 0.0)
    cluster = Cluster(database, tmp_path, together=4)
    lost, runs = cluster.start()
    cluster.crash(lost, SILENCE)
    other, others = cluster.start()
    assert not set(others) & set(runs)
    cluster.close(other)
    assert cluster.ask()[1] is None, "the sweep is not over"
    known[0] = gone
    _, again = cluster.start()
    assert again == runs
    died = "SELECT count(*) FROM attempts WHERE reason = 'its node died'"
    assert database.scalar(died) == (len(runs) if gone else 0)


def test_a_worker_that_never_answers_is_taken_for_a_crash_in_the_end(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner, "node_is_gone", lambda actor: None)
    monkeypatch.setattr(tuner, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(tuner, "NODE_MISSED_SECONDS", 0.0)
    cluster = Cluster(database, tmp_path)
    for size in (8, 8, 4):  # once more, then by halves
        trial, runs = cluster.start()
        assert len(runs) == size
        cluster.crash(trial, SILENCE)


def test_a_run_that_crashes_by_itself_is_found_by_halves(
    database: Database, tmp_path: Path
) -> None:
    cluster = Cluster(database, tmp_path)
    bad = list(cluster.runs)[5]
    while True:
        trial, runs = cluster.ask()
        if not isinstance(runs, list):
            break
        if bad in runs:
            cluster.crash(trial, CRASH)
        else:
            cluster.close(trial)
    assert runs == Searcher.FINISHED
    cluster.queue.fail_suspects()
    assert cluster.failed() == {bad: "crashed: MemoryError: no memory"}
    assert sum("is split" in line for line in cluster.told) == 3
    assert cluster.queue.problem is None
    reasons = "SELECT count(*) FROM attempts WHERE reason = 'crashed: MemoryError: no memory'"
    assert database.scalar(reasons) == 2 * (8 + 4 + 2 + 1)


def test_when_everything_crashes_no_run_is_blamed(database: Database, tmp_path: Path) -> None:
    cluster = Cluster(database, tmp_path, together=1)
    started = [cluster.start()[0] for _ in range(3)]
    while cluster.queue.problem is None:
        cluster.crash(started.pop(0), CRASH)
        if cluster.queue.problem is None:
            started.append(cluster.start()[0])
    assert f"{SYSTEMIC_BUNDLES} bundles crashed and nothing went on" in cluster.queue.problem
    assert cluster.failed() == {}
    for trial in started:
        cluster.crash(trial, DEATH)
        cluster.crash(cluster.start()[0], CRASH)
    while True:
        trial, runs = cluster.ask()
        if not isinstance(runs, list):
            break
        cluster.crash(trial, CRASH)
    assert runs == Searcher.FINISHED
    assert cluster.failed() == {}


def test_a_run_is_never_given_out_twice_and_waiting_ends_with_the_last_trial(
    database: Database, tmp_path: Path
) -> None:
    cluster = Cluster(database, tmp_path, together=3)
    one, two, three = (cluster.start() for _ in range(3))
    assert cluster.ask()[1] is None, "no more than three at once"
    assert sorted([*one[1], *two[1], *three[1]]) == sorted(cluster.runs)
    cluster.close(one[0])
    assert cluster.ask()[1] is None, "Tune waits for what is live"
    cluster.crash(two[0], CRASH)
    trial, again = cluster.start()
    assert again == two[1]
    cluster.close(trial)
    cluster.close(three[0])
    assert cluster.ask()[1] == Searcher.FINISHED


def test_a_refusal_ends_it_all(database: Database, tmp_path: Path) -> None:
    cluster = Cluster(database, tmp_path, together=1)
    trial, _ = cluster.start()
    other, _ = cluster.start()
    refusal = {"refused": "no tables", "training_seconds": 0.0}
    cluster.searcher.on_trial_complete(trial, refusal)
    assert cluster.ask()[1] is None
    cluster.close(other)
    assert cluster.ask()[1] == Searcher.FINISHED
    assert cluster.searcher.refused == "no tables"


def test_the_rest_is_planned_anew_when_nodes_have_come(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(database, tmp_path, together=4)
    monkeypatch.setattr(plan, "RECOUNT_SECONDS", 0.0)
    _, first = cluster.start()
    cluster.slots, cluster.together = 8, 1
    trial, second = cluster.start()
    assert cluster.planned == [2, 8]
    assert len(second) == 1
    assert not set(first) & set(second)
    cluster.start()
    cluster.close(trial)
    _, third = cluster.start()
    assert not set(third) & {*first, *second}
    assert cluster.planned == [2, 8], "nothing has changed since"


def test_a_stack_may_be_refilled_with_what_nobody_has_begun_unless_it_crashed(
    database: Database, tmp_path: Path
) -> None:
    cluster = Cluster(database, tmp_path, together=3)
    first, one = cluster.start()
    assert sorted([*one, *cluster.spares[first]]) == sorted(cluster.runs)
    second, two = cluster.start()
    assert sorted([*one, *two, *cluster.spares[second]]) == sorted(cluster.runs)
    cluster.crash(first, CRASH)
    again, same = cluster.start()
    assert same == one
    assert cluster.spares[again] == [], "what crashed is tried alone"
