"""One ground and one undisturbed run for all tests of a module: its nodes take time from others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from chaos.ground import Ground, ground
from chaos.invariants import Results, results
from chaos.trial import Trial, trial

EPOCHS = 4000

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def broken_ground() -> Iterator[Ground]:
    with ground() as made:
        yield made


@pytest.fixture(scope="module")
def new_trial(broken_ground: Ground) -> Callable[[], AbstractContextManager[Trial]]:
    def make() -> AbstractContextManager[Trial]:
        folder = broken_ground.home / f"trial-{next(_numbers)}"
        return trial(broken_ground, folder, epochs=EPOCHS)

    return make


@pytest.fixture(scope="module")
def reference(new_trial: Callable[[], AbstractContextManager[Trial]]) -> Results:
    """What the suite says when nobody breaks anything."""
    with new_trial() as calm:
        calm.end()
        assert calm.database.scalar("SELECT max(attempt) FROM runs") == 1
        return results(calm.database)
