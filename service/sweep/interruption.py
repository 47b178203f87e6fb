"""Ctrl-C and SIGTERM end a sweep, at whatever moment they come.

Python raises KeyboardInterrupt where the main thread happens to be. In the callback of a weak
reference, of which every import runs one, it prints the exception and goes on as if nothing had
come. So a signal is kept as well, and raised once more where a sweep goes round.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_came = threading.Event()
_depth = 0


def _interrupt(signum: int, frame: FrameType | None) -> None:
    _came.set()
    raise KeyboardInterrupt


def check_interruption() -> None:
    """Raise KeyboardInterrupt if a signal has come since the outermost `interruptible`."""
    if _came.is_set():
        raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGINT and SIGTERM into KeyboardInterrupt, so that leases are given back on the way out.

    Ray puts handlers of its own into a process that connects to it: enter this again afterwards.
    Only a main thread can handle signals; in another one nothing changes. A process that was
    started to ignore SIGINT goes on ignoring it.
    """
    global _depth
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    ours = (signal.SIGTERM,) if ignored else (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, _interrupt) for number in ours}
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if not _depth:
            _came.clear()
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
