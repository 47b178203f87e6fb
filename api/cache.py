"""Answers kept by suite revision: one computation for a stampede, 304 for who has it already.

An entry is found by what was asked and carries the stamp of the data it was computed from
(revision, analysis version). An entry with another stamp is recomputed, but while a sweep runs
at most every HOLD_SECONDS.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

import anyio.to_thread
from anyio import CapacityLimiter

HOLD_SECONDS = 2.0
MAX_BYTES = 64 * 1024 * 1024
COMPUTING_THREADS = 4

Stamp = tuple[Hashable, ...]


@dataclass(frozen=True)
class Entry:
    """A finished response body and the moment of the data it shows."""

    body: bytes
    media_type: str
    stamp: Stamp
    etag: str
    made_at: float


def etag(asked: Hashable, stamp: Stamp) -> str:
    """The same question to the same data has the same tag in every process."""
    digest = hashlib.sha256(repr((asked, stamp)).encode()).hexdigest()
    return f'"{digest[:32]}"'


class AnswerCache:
    """An LRU of response bodies, bounded by their bytes; used from one event loop."""

    def __init__(
        self,
        max_bytes: int = MAX_BYTES,
        hold_seconds: float = HOLD_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._entries: OrderedDict[Hashable, Entry] = OrderedDict()
        self._flights: dict[Hashable, asyncio.Future[Entry]] = {}
        self._bytes = 0
        self._max_bytes = max_bytes
        self._hold = hold_seconds
        self._clock = clock
        self._threads: CapacityLimiter | None = None
        self.computed = 0

    def fresh(self, asked: Hashable, stamp: Stamp, running: bool) -> Entry | None:
        """An entry that may be served: of this stamp, or held for a moment during a sweep."""
        entry = self._entries.get(asked)
        if entry is None:
            return None
        held = running and self._clock() - entry.made_at < self._hold
        if entry.stamp != stamp and not held:
            return None
        self._entries.move_to_end(asked)
        return entry

    async def computed_once(
        self,
        asked: Hashable,
        stamp: Stamp,
        compute: Callable[[], tuple[bytes, str, Stamp]],
        *,
        running: bool = False,
    ) -> Entry:
        """Compute in a thread; whoever asks the same meanwhile waits for the same result.

        While a sweep runs that is so for other stamps, too: an answer that takes longer than runs
        take to close would otherwise be computed several times at once.
        """
        flight = asked if running else (asked, stamp)
        under_way = self._flights.get(flight)
        if under_way is not None:
            return await asyncio.shield(under_way)
        future: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        # Marks the exception as seen: the first asker raises it, later ones may not exist.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._flights[flight] = future
        task = asyncio.ensure_future(self._fly(asked, compute, future))
        task.add_done_callback(lambda _: self._flights.pop(flight, None))
        return await asyncio.shield(future)

    async def _fly(
        self,
        asked: Hashable,
        compute: Callable[[], tuple[bytes, str, Stamp]],
        future: asyncio.Future[Entry],
    ) -> None:
        if self._threads is None:
            self._threads = CapacityLimiter(COMPUTING_THREADS)
        try:
            body, media_type, stamp = await anyio.to_thread.run_sync(compute, limiter=self._threads)
        except Exception as error:
            future.set_exception(error)
            return
        except BaseException:
            future.cancel()
            raise
        self.computed += 1
        entry = Entry(body, media_type, stamp, etag(asked, stamp), self._clock())
        self._keep(asked, entry)
        future.set_result(entry)

    def _keep(self, asked: Hashable, entry: Entry) -> None:
        before = self._entries.pop(asked, None)
        self._bytes += len(entry.body) - (len(before.body) if before else 0)
        self._entries[asked] = entry
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            _, oldest = self._entries.popitem(last=False)
            self._bytes -= len(oldest.body)
