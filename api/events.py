"""Progress as it happens: one LISTEN connection a process, any number of clients.

The recorder notifies when a run closes or goes on. A thread listens; changes of a suite are
gathered for a moment, its progress is read once, and every client gets the same event. An
event's id holds the revision of every suite, so that a client that comes back with
Last-Event-ID, to whichever process, is sent just the suites that changed meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import logging
import select
import threading
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import anyio.to_thread
import psycopg2
from psycopg2.extensions import ISOLATION_LEVEL_AUTOCOMMIT
from sqlalchemy import make_url, text

from api.database import Database
from api.metrics import LISTENERS
from api.problems import ApiError
from db.notices import CHANNEL
from service.errors import DatabaseError

GATHER_SECONDS = 0.25  # changes of one moment become one event
HEARTBEAT_SECONDS = 15.0  # keeps proxies from closing a silent stream
RETRY_SECONDS = 1.0
QUEUED = 100  # a client that reads slower than this is closed and may resume

PROGRESS = """
SELECT s.id, s.name, s.revision,
       count(*) AS runs,
       count(*) FILTER (WHERE r.state = 'pending') AS pending,
       count(*) FILTER (WHERE r.state = 'running' AND r.lease_until >= now()) AS running,
       count(*) FILTER (WHERE r.state = 'stale'
                           OR r.state = 'running' AND r.lease_until < now()) AS stale,
       count(*) FILTER (WHERE r.state = 'done') AS done,
       count(*) FILTER (WHERE r.state = 'failed') AS failed,
       coalesce(sum(r.last_epoch), 0) AS epochs
FROM suites s JOIN suite_runs sr ON sr.suite_id = s.id AND NOT sr.inherited
JOIN runs r ON r.id = sr.run_id
WHERE CAST(:names AS text[]) IS NULL OR s.name = ANY(:names)
GROUP BY s.id ORDER BY s.id
"""

log = logging.getLogger("api.events")


@dataclass(frozen=True)
class Progress:
    """Where one suite stands: the data of one event."""

    suite_id: int
    suite: str
    revision: int
    runs: int
    states: Mapping[str, int]
    epochs: int

    def data(self) -> str:
        return json.dumps(
            {
                "suite": self.suite,
                "revision": self.revision,
                "runs": self.runs,
                "states": dict(self.states),
                "epochs": self.epochs,
            }
        )


Seen = dict[int, int]  # suite id -> revision


def parse_id(header: str | None) -> Seen | None:
    """What a returning client has seen; None for a new client or an id that is not ours."""
    if not header:
        return None
    try:
        pairs = [part.split(".") for part in header.split("-")]
        return {int(suite): int(revision) for suite, revision in pairs}
    except ValueError:
        return None


def event_id(seen: Seen) -> str:
    return "-".join(f"{suite}.{revision}" for suite, revision in sorted(seen.items()))


class EventHub:
    """Listens once for the process and tells every client."""

    def __init__(self, database: Database, max_clients: int) -> None:
        self._database = database
        self._max_clients = max_clients
        self._clients: set[asyncio.Queue[Progress | None]] = set()
        self._changed: set[str] = set()
        self._everything = False
        self._awake: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._teller: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen; called on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._awake = asyncio.Event()
        self._stopping.clear()
        self._thread = threading.Thread(target=self._listen, name="groktime-listen", daemon=True)
        self._thread.start()
        self._teller = asyncio.create_task(self._tell())

    async def stop(self) -> None:
        """Close every stream and the listening connection."""
        self._stopping.set()
        for client in list(self._clients):
            _offer(client, None)
        if self._teller is not None:
            self._teller.cancel()
        if self._thread is not None:
            await anyio.to_thread.run_sync(self._thread.join)

    async def stream(self, suite: str | None, last_event_id: str | None) -> AsyncIterator[str]:
        """Server-sent events for one client, beginning with what it has not seen."""
        if len(self._clients) >= self._max_clients:
            raise ApiError(503, f"{self._max_clients} clients listen already; try again later")
        queue: asyncio.Queue[Progress | None] = asyncio.Queue(QUEUED)
        # Registered before the first reading, so that no change falls between the two.
        self._clients.add(queue)
        LISTENERS.inc()
        try:
            names = None if suite is None else [suite]
            now = await anyio.to_thread.run_sync(self._read, names)
            return self._events(queue, suite, now, parse_id(last_event_id))
        except BaseException:
            self._forget(queue)
            raise

    async def _events(
        self,
        queue: asyncio.Queue[Progress | None],
        suite: str | None,
        now: list[Progress],
        seen: Seen | None,
    ) -> AsyncIterator[str]:
        try:
            known: Seen = {p.suite_id: p.revision for p in now}
            yield "retry: 1000\n\n"
            for progress in now:
                if seen is None or seen.get(progress.suite_id) != progress.revision:
                    yield _event(progress, known)
            while True:
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        change = await queue.get()
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if change is None:
                    return
                if suite is None or change.suite == suite:
                    known[change.suite_id] = change.revision
                    yield _event(change, known)
        finally:
            self._forget(queue)

    def _forget(self, queue: asyncio.Queue[Progress | None]) -> None:
        if queue in self._clients:
            self._clients.discard(queue)
            LISTENERS.dec()

    def _read(self, names: list[str] | None) -> list[Progress]:
        with self._database.reading() as connection:
            rows = connection.execute(text(PROGRESS), {"names": names}).all()
        return [
            Progress(
                suite_id=row.id,
                suite=row.name,
                revision=row.revision,
                runs=row.runs,
                states={
                    "pending": row.pending,
                    "running": row.running,
                    "stale": row.stale,
                    "done": row.done,
                    "failed": row.failed,
                },
                epochs=int(row.epochs),
            )
            for row in rows
        ]

    async def _tell(self) -> None:
        """Gather changes for a moment, read each changed suite once, and tell all clients."""
        assert self._awake is not None
        while True:
            await self._awake.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._awake.clear()
            changed, everything = sorted(self._changed), self._everything
            self._changed, self._everything = set(), False
            if not self._clients:
                continue
            try:
                news = await anyio.to_thread.run_sync(self._read, None if everything else changed)
            except Exception as error:  # the database went away: all is read when it is back
                log.warning("progress could not be read: %s", error)
                self._everything = True
                continue
            for progress in news:
                for client in list(self._clients):
                    _offer(client, progress)

    def _notice(self, payload: str | None) -> None:
        """On the event loop: something changed; None after a gap in listening."""
        assert self._awake is not None
        if payload is None:
            self._everything = True
        else:
            try:
                self._changed.add(str(json.loads(payload)["suite"]))
            except (ValueError, KeyError, TypeError):
                log.warning("a notice that is not ours was ignored")
                return
        self._awake.set()

    def _listen(self) -> None:
        """In a thread: hold one connection and pass notices on; reconnect for ever."""
        assert self._loop is not None
        while not self._stopping.is_set():
            try:
                self._listen_once(self._loop)
            except (psycopg2.Error, DatabaseError, OSError) as error:
                log.info("not listening: %s", str(error).strip().splitlines()[:1])
                self._stopping.wait(RETRY_SECONDS)

    def _listen_once(self, loop: asyncio.AbstractEventLoop) -> None:
        url = make_url(self._database.url).set(drivername="postgresql")
        connection = psycopg2.connect(
            url.render_as_string(hide_password=False), application_name="groktime events"
        )
        try:
            connection.set_isolation_level(ISOLATION_LEVEL_AUTOCOMMIT)
            with connection.cursor() as cursor:
                cursor.execute(f"LISTEN {CHANNEL}")
            loop.call_soon_threadsafe(self._notice, None)
            while not self._stopping.is_set():
                # A second at most passes before a stop is seen; notices wake it at once.
                ready, _, _ = select.select([connection], [], [], 1.0)
                if not ready:
                    continue
                connection.poll()
                while connection.notifies:
                    loop.call_soon_threadsafe(self._notice, connection.notifies.pop(0).payload)
        finally:
            connection.close()


def _event(progress: Progress, known: Seen) -> str:
    return f"id: {event_id(known)}\nevent: progress\ndata: {progress.data()}\n\n"


def _offer(client: asyncio.Queue[Progress | None], item: Progress | None) -> None:
    """Give a client an event; one that does not keep up is ended and may resume."""
    if client.full():
        while not client.empty():
            client.get_nowait()
        item = None
    client.put_nowait(item)
