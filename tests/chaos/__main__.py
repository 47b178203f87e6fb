"""Break things at random for some minutes, by a seed, and print what came of it.

Rounds of one suite, each on a database of its own; in each the adversary injects faults until
everything is trained, and then every invariant is checked against an undisturbed run. Every third
round's suite is located. Workers write through PgBouncer, and two API processes are read from.
SIGTERM breaks nothing more: the round under way ends, is checked, and the table is printed.

Nothing fails for being slow: a fault whose moment does not come is left out, and a suite may take
as long as it likes. Only one that does not go on at all for a quarter of an hour fails.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import fixtures.cluster  # noqa: F401  settles how Ray authenticates before it is imported
from chaos.faults import FAULTS, Named, await_training, fill_disk, starve_worker
from chaos.ground import Ground, ground
from chaos.invariants import (
    Results,
    check_clean,
    check_located,
    check_repeats,
    check_same,
    common_damage,
    damage,
    results,
)
from chaos.readers import Api, Reader, Told
from chaos.table import Injection, Table
from chaos.trial import Trial, trial

from groktime.service.answers.question import Question

EPOCHS = 4000
SEEDS = 4
MEAN_SECONDS = 1.0  # between faults
LOCATED_EVERY = 3  # rounds
LOCATED_CELL = Question(suite="chaos", prime=53)
API_KILLED = "API killed and started again"


def say(message: str) -> None:
    sys.stdout.write(message + "\n")
    sys.stdout.flush()


@dataclass
class Goal:
    """How long things are broken, and how many at least; SIGTERM says that it is enough."""

    end: float  # by time.monotonic
    faults: int
    enough: bool = False

    def reached(self, injected: int) -> bool:
        return self.enough or (time.monotonic() >= self.end and injected >= self.faults)

    def stop(self, *_: object) -> None:
        self.enough = True


def possible(place: Ground) -> list[Named]:
    """Faults that this machine and user can make; says which are left out."""
    missing = set()
    if place.disk is None:
        missing.add(fill_disk)
    if not place.nodes.can_starve:
        missing.add(starve_worker)
    for fault in FAULTS:
        if fault.inject in missing:
            say(f"cannot be made here: {fault.name}")
    return [fault for fault in FAULTS if fault.inject not in missing]


class Adversary:
    """Chooses what to break next, from a pack that is shuffled when it has run out.

    None in the pack is the API, which belongs to no trial.
    """

    def __init__(self, seed: int, faults: list[Named]) -> None:
        self.rng = random.Random(seed)
        self._order = random.Random(seed)  # its own: what faults draw depends on what they find
        self._pack: list[Named | None] = [None, None]
        for fault in faults:
            self._pack += [fault] * fault.often
        self._next: list[Named | None] = []

    def choose(self) -> Named | None:
        if not self._next:
            self._next = self._order.sample(self._pack, len(self._pack))
        return self._next.pop()

    def disturb(
        self, trial: Trial, apis: list[Api], goal: Goal, before: int, injections: list[Injection]
    ) -> None:
        """Inject faults, noting each, until the suite is trained or enough has been broken."""
        while not goal.reached(before + len(injections)):
            trial.keep_going()
            if not trial.living():
                if trial.is_trained():
                    break
                trial.sweep()
            if not await_training(trial):
                if trial.is_trained():
                    break
                continue
            time.sleep(self.rng.expovariate(1 / MEAN_SECONDS))
            fault = self.choose()
            if fault is None:
                api = self.rng.choice(apis)
                api.kill()
                api.start()
                injections.append(Injection(API_KILLED, frozenset()))
                say(f"  {API_KILLED}")
                continue
            began = time.monotonic()
            hit = fault.inject(trial, self.rng)
            if hit is not None:
                injections.append(Injection(fault.name, hit))
            what = "too late" if hit is None else f"{len(hit)} runs"
            say(f"  {fault.name}: {what}, {time.monotonic() - began:.0f} s")


@dataclass(frozen=True)
class References:
    """What the suites say when nobody breaks anything."""

    grid: Results
    located: Results


def one_round(
    place: Ground,
    folder: Path,
    adversary: Adversary,
    references: References,
    table: Table,
    answers: Counter[str],
    goal: Goal,
    *,
    located: bool,
) -> list[str]:
    """One suite, disturbed; returns what did not hold."""
    with trial(place, folder, epochs=EPOCHS, seeds=SEEDS, located=located) as disturbed:
        apis = [Api(disturbed), Api(disturbed)]
        told: list[Told] = []
        readers = [Reader(api, disturbed, told) for api in apis]
        injections: list[Injection] = []
        problems: list[str] = []
        try:
            disturbed.sweep()
            try:
                adversary.disturb(disturbed, apis, goal, table.injected, injections)
            except Exception:  # what was broken until then is checked all the same
                problems.append(traceback.format_exc())
            disturbed.end()
            for api in apis:
                api.await_answer()
        except Exception:
            table.add(injections, disturbed.database, {})
            return [*problems, traceback.format_exc()]
        finally:
            for reader in readers:
                reader.stop()
            for api in apis:
                api.kill()
        if located:
            found, reference = results(disturbed.database, LOCATED_CELL), references.located
            damages = common_damage(found, reference)
        else:
            found, reference = results(disturbed.database), references.grid
            damages = damage(found, reference)
        table.add(injections, disturbed.database, damages)
        problems += [complaint for reader in readers for complaint in reader.complaints]
        for check in (
            lambda: check_located(found, reference) if located else check_same(found, reference),
            lambda: check_clean(disturbed),
            lambda: say(f"  at most {check_repeats(disturbed.database):.1f} s repeated a worker"),
        ):
            try:
                check()
            except AssertionError as problem:
                problems.append(str(problem)[:2000])
        if disturbed.given_up:
            say(f"  tried again after their workers kept dying: {len(disturbed.given_up)} runs")
        for reader in readers:
            answers.update(reader.seen)
    return problems


def undisturbed(place: Ground) -> References:
    """Train both suites once in peace."""
    with trial(place, place.home / "calm", epochs=EPOCHS, seeds=SEEDS) as calm:
        calm.end()
        grid = results(calm.database)
    with trial(place, place.home / "calm-located", epochs=0, located=True) as calm:
        calm.end()
        return References(grid, results(calm.database, LOCATED_CELL))


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long faults are injected")
    parser.add_argument("--faults", type=int, default=0, help="how many at least")
    parser.add_argument("--seed", type=int, default=1, help="of everything chosen at random")
    options = parser.parse_args()
    table = Table()
    answers: Counter[str] = Counter()
    problems: list[str] = []
    rounds, minutes = 0, 0.0
    try:
        with ground() as place:
            say("training undisturbed")
            references = undisturbed(place)
            chosen = len(references.located.runs)
            say(f"{len(references.grid.runs)} runs and {chosen} located ones; breaking things")
            adversary = Adversary(options.seed, possible(place))
            began = time.monotonic()
            goal = Goal(began + 60 * options.minutes, options.faults)
            signal.signal(signal.SIGTERM, goal.stop)
            while not goal.reached(table.injected) and not problems:
                rounds += 1
                say(f"round {rounds}: {table.injected} faults so far")
                folder = place.home / f"round-{rounds}"
                problems += one_round(
                    *(place, folder, adversary, references, table, answers, goal),
                    located=rounds % LOCATED_EVERY == 0,
                )
            minutes = (time.monotonic() - began) / 60
            if place.nodes.replaced:
                say(f"nodes that ended by themselves, replaced: {place.nodes.replaced}")
    except Exception:
        problems.append(traceback.format_exc())
    for what, times in sorted(answers.items()):
        say(f"a reader of the API: {what}, {times} times")
    say(f"\nseed {options.seed}, {minutes:.0f} minutes, {rounds} rounds\n\n{table}\n")
    for problem in problems:
        say(f"DOES NOT HOLD: {problem}")
    if not problems:
        say("everything holds")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
