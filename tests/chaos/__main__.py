"""Break things at random for some minutes, by a seed, and print what came of it.

Rounds of one suite, each on a database of its own; in each the adversary injects faults until
everything is trained, and then every invariant is checked against an undisturbed run.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

import fixtures.cluster  # noqa: F401  settles how Ray authenticates before it is imported
from chaos.faults import FAULTS, Named, await_training, is_over
from chaos.ground import Ground, ground
from chaos.invariants import (
    Results,
    check_clean,
    check_repeats,
    check_same,
    damage,
    results,
)
from chaos.readers import Api, Reader
from chaos.shared_memory import left_in_shared_memory, shared_memory
from chaos.table import Injection, Table
from chaos.trial import Trial, trial

EPOCHS = 4000
SEEDS = 4
MEAN_SECONDS = 3.0  # between faults


def say(message: str) -> None:
    sys.stdout.write(message + "\n")
    sys.stdout.flush()


class Adversary:
    """Chooses what to break next; every fault comes up before any comes up again."""

    def __init__(self, seed: int, faults: list[Named]) -> None:
        self.rng = random.Random(seed)
        self._faults = faults
        self._next: list[Named] = []

    def choose(self) -> Named:
        if not self._next:
            self._next = self.rng.sample(self._faults, len(self._faults))
        return self._next.pop()

    def disturb(self, trial: Trial, api: Api, deadline: float) -> list[Injection]:
        """Inject faults until the suite is trained or time is up."""
        injections: list[Injection] = []
        while time.monotonic() < deadline:
            if not trial.living():
                if trial.begun() and not trial.open_runs():
                    break
                trial.sweep()
            if not await_training(trial):
                if is_over(trial) and not trial.open_runs():
                    break
                continue
            time.sleep(self.rng.expovariate(1 / MEAN_SECONDS))
            if self.rng.random() < 1 / (len(self._faults) + 1):
                api.kill()
                api.start()
                injections.append(Injection("API killed and started again", frozenset()))
                say("  API killed and started again")
                continue
            fault = self.choose()
            began = time.monotonic()
            hit = fault.inject(trial, self.rng)
            if hit is not None:
                injections.append(Injection(fault.name, hit))
            what = "too late" if hit is None else f"{len(hit)} runs"
            say(f"  {fault.name}: {what}, {time.monotonic() - began:.0f} s")
        return injections


def one_round(
    place: Ground, folder: Path, adversary: Adversary, reference: Results, table: Table, end: float
) -> list[str]:
    """One suite, disturbed; returns what did not hold."""
    with trial(place, folder, epochs=EPOCHS, seeds=SEEDS) as disturbed:
        api = Api(disturbed)
        reader = Reader(api.address)
        try:
            disturbed.sweep()
            injections = adversary.disturb(disturbed, api, end)
            disturbed.end(1800)
            api.await_answer()
        finally:
            reader.stop()
            api.kill()
        found = results(disturbed.database)
        table.add(injections, disturbed.database, damage(found, reference))
        problems = list(reader.complaints)
        for check in (
            lambda: check_same(found, reference),
            lambda: check_clean(disturbed.database),
            lambda: say(f"  at most {check_repeats(disturbed.database):.1f} s repeated a worker"),
        ):
            try:
                check()
            except AssertionError as problem:
                problems.append(str(problem)[:2000])
        if disturbed.given_up:
            say(f"  tried again after their workers kept dying: {len(disturbed.given_up)} runs")
        say(f"  answers of the API by status: {dict(sorted(reader.statuses.items()))}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long faults are injected")
    parser.add_argument("--seed", type=int, default=1, help="of everything chosen at random")
    options = parser.parse_args()
    adversary = Adversary(options.seed, FAULTS)
    table = Table()
    problems: list[str] = []
    before = shared_memory()
    with ground() as place:
        say("training undisturbed")
        with trial(place, place.home / "calm", epochs=EPOCHS, seeds=SEEDS) as calm:
            calm.end(1800)
            reference = results(calm.database)
        say(f"{len(reference.runs)} runs are the reference; breaking things")
        end = time.monotonic() + 60 * options.minutes
        number = 0
        while time.monotonic() < end and not problems:
            number += 1
            say(f"round {number}: {table.injected} faults so far")
            folder = place.home / f"round-{number}"
            problems += one_round(place, folder, adversary, reference, table, end)
    problems += [f"left in shared memory: {name}" for name in left_in_shared_memory(before)]
    say(f"\nseed {options.seed}, {options.minutes:g} minutes, {number} rounds\n\n{table}\n")
    for problem in problems:
        say(f"DOES NOT HOLD: {problem}")
    if not problems:
        say("everything holds")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
