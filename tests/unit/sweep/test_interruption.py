"""A signal ends a sweep, also one whose exception Python loses."""

from __future__ import annotations

import signal
import weakref

import pytest

from groktime.service.sweep.interruption import check_interruption, interruptible


class Thing:
    """Something that can be referred to weakly."""


def lose(number: signal.Signals) -> None:
    """Send this process a signal inside a callback, where its exception goes no further."""
    thing = Thing()
    reference = weakref.ref(thing, lambda _: signal.raise_signal(number))
    del thing
    assert reference() is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_whose_exception_is_lost_is_raised_at_the_next_check(
    number: signal.Signals,
) -> None:
    with interruptible():
        check_interruption()
        lose(number)
        with interruptible(), pytest.raises(KeyboardInterrupt):
            check_interruption()
    check_interruption()


def test_a_termination_is_an_interrupt_and_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(signal.SIGTERM)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    check_interruption()


def test_a_process_that_ignores_interrupts_goes_on_ignoring_them() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible():
            signal.raise_signal(signal.SIGINT)
            check_interruption()
    finally:
        signal.signal(signal.SIGINT, before)
