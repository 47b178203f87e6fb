"""Whatever breaks while a suite trains, it ends with the bits of an undisturbed run."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from chaos import faults
from chaos.invariants import Results, check_clean, check_repeats, check_same, results
from chaos.trial import Trial

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

EVERY_RUN = [
    faults.kill_in_flush,
    faults.kill_in_closing,
    faults.kill_in_checkpoint,
    faults.restart_immediate,
    faults.freeze_worker,
]
NOW_AND_THEN = [fault.inject for fault in faults.FAULTS if fault.inject not in EVERY_RUN]


def survives(
    fault: faults.Fault, new_trial: Callable[[], AbstractContextManager[Trial]], reference: Results
) -> None:
    rng = random.Random(faults.BY_FUNCTION[fault].name)
    with new_trial() as trial:
        if fault is faults.fill_disk and trial.ground.disk is None:
            pytest.skip("only root can make a disk of its own")
        if fault is faults.starve_worker and not trial.ground.nodes.can_starve:
            pytest.skip("a C compiler is needed to starve a worker")
        trial.sweep()
        assert fault(trial, rng), "the fault's moment never came"
        trial.end()
        check_same(results(trial.database), reference)
        check_clean(trial)
        check_repeats(trial.database)


@pytest.mark.parametrize("fault", EVERY_RUN, ids=lambda fault: fault.__name__)
def test_nothing_is_lost(
    fault: faults.Fault, new_trial: Callable[[], AbstractContextManager[Trial]], reference: Results
) -> None:
    survives(fault, new_trial, reference)


@pytest.mark.long
@pytest.mark.parametrize("fault", NOW_AND_THEN, ids=lambda fault: fault.__name__)
def test_nothing_is_lost_by_rarer_faults(
    fault: faults.Fault, new_trial: Callable[[], AbstractContextManager[Trial]], reference: Results
) -> None:
    survives(fault, new_trial, reference)
