"""Being told to stop: SIGTERM, which `ray job stop` sends, ends a sweep as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """Turn SIGTERM into KeyboardInterrupt, so that leases are given back on the way out.

    Ray puts handlers of its own into a process that connects to it: enter this afterwards. Only
    a main thread can handle signals; in another one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(signum: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
