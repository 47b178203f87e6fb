"""/events: progress as it happens, to any number of clients.

The recorder notifies when a run closes or goes on, which Stamps hears; changes of a suite are
gathered for a moment, its progress is read once, and every client gets the same event. An
event's id holds the revision of every suite, so that a client that comes back with
Last-Event-ID, to whichever process, is sent just the suites that changed meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from prometheus_client import Gauge
from pydantic import Field
from sqlalchemy import text

from groktime.api.database import Database, Stamps
from groktime.api.middleware import Limits, MayRead, client_of, no_stream, only_head
from groktime.api.problems import ApiError
from groktime.api.queries import StrictQuery, SuiteName
from groktime.service.answers.question import read_suite

router = APIRouter(tags=["progress"], dependencies=[MayRead])

GATHER_SECONDS = 0.25  # changes of one moment become one event
HEARTBEAT_SECONDS = 15.0  # keeps proxies from closing a silent stream
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
       count(*) FILTER (WHERE r.state = 'set_aside') AS set_aside,
       coalesce(sum(r.last_epoch), 0) AS epochs
FROM suites s JOIN suite_runs sr ON sr.suite_id = s.id AND NOT sr.inherited
JOIN runs r ON r.id = sr.run_id
WHERE CAST(:names AS text[]) IS NULL OR s.name = ANY(:names)
GROUP BY s.id ORDER BY s.id
"""

LISTENERS = Gauge("groktime_event_clients", "Clients of /events", multiprocess_mode="livesum")

log = logging.getLogger("groktime.api.events")


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
    """Hears of changes once for the process and tells every client."""

    def __init__(self, database: Database, stamps: Stamps, limits: Limits) -> None:
        self._database = database
        self._limits = limits
        self._clients: dict[asyncio.Queue[Progress | None], str] = {}
        self._changed: set[str] = set()
        self._everything = False
        self._awake: asyncio.Event | None = None
        self._teller: asyncio.Task[None] | None = None
        self._stamps = stamps
        stamps.on_notice(self._notice)

    def start(self) -> None:
        """Begin to tell; called on the event loop."""
        self._awake = asyncio.Event()
        self._teller = asyncio.create_task(self._tell())

    async def stop(self) -> None:
        """Close every stream."""
        for client in list(self._clients):
            _offer(client, None)
        if self._teller is not None:
            self._teller.cancel()

    async def stream(
        self, client: str, suite: str | None, last_event_id: str | None
    ) -> AsyncIterator[str]:
        """Server-sent events for one client, beginning with what it has not seen."""
        most, own = self._limits.events_clients, self._limits.events_per_client
        if len(self._clients) >= most:
            raise ApiError(503, f"{most} clients listen already; try again later")
        if sum(address == client for address in self._clients.values()) >= own:
            raise ApiError(429, f"{own} event streams of one client are open already")
        queue: asyncio.Queue[Progress | None] = asyncio.Queue(QUEUED)
        # Registered before the first reading, so that no change falls between the two.
        self._clients[queue] = client
        LISTENERS.inc()
        try:
            now = await anyio.to_thread.run_sync(self._read_first, suite)
            return self._events(queue, suite, now, parse_id(last_event_id))
        except BaseException:
            self._forget(queue)
            raise

    async def nothing(self, suite: str | None) -> AsyncIterator[bytes]:
        """No events, for who asks only whether there would be any."""
        await anyio.to_thread.run_sync(self._read_first, suite)
        return no_stream()

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
            del self._clients[queue]
            LISTENERS.dec()

    def _read_first(self, suite: str | None) -> list[Progress]:
        """Where the suites stand; a suite that does not exist is refused by name."""
        if suite is None:
            return self._read(None)
        with self._database.reading() as connection:
            read_suite(connection, suite)
        return self._read([suite])

    def _read(self, names: list[str] | None) -> list[Progress]:
        with self._database.reading() as connection:
            rows = connection.execute(text(PROGRESS), {"names": names}).all()
        for row in rows:
            self._stamps.seen(row.name, row.revision)
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
                    "set_aside": row.set_aside,
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
            self._changed.add(str(json.loads(payload)["suite"]))
        self._awake.set()


def _event(progress: Progress, known: Seen) -> str:
    return f"id: {event_id(known)}\nevent: progress\ndata: {progress.data()}\n\n"


def _offer(client: asyncio.Queue[Progress | None], item: Progress | None) -> None:
    """Give a client an event; one that does not keep up is ended and may resume."""
    if client.full():
        while not client.empty():
            client.get_nowait()
        item = None
    client.put_nowait(item)


class EventsQuery(StrictQuery):
    """Which suite is listened to."""

    suite: SuiteName | None = Field(None, description="only this suite; default: all")


@router.get(
    "/events",
    summary="Progress of running sweeps, as server-sent events",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {
                "text/event-stream": {
                    "schema": {"type": "string"},
                    "example": 'id: 1.42\nevent: progress\ndata: {"suite": "demo", "revision": 42, '
                    '"runs": 30, "states": {"pending": 4, "running": 2, "stale": 0, "done": 24, '
                    '"failed": 0, "set_aside": 0}, "epochs": 18230}\n\n',
                }
            }
        }
    },
)
async def events(
    request: Request,
    query: Annotated[EventsQuery, Query()],
    last_event_id: Annotated[str | None, Header(max_length=4096)] = None,
) -> StreamingResponse:
    """First the suites the client has not seen at their revision, then every change.

    The stream never ends by itself; a client that returns with Last-Event-ID goes on from there.
    """
    hub: EventHub = request.app.state.events
    stream: AsyncIterator[str] | AsyncIterator[bytes]
    if only_head(request):
        stream = await hub.nothing(query.suite)
    else:
        stream = await hub.stream(client_of(request), query.suite, last_event_id)
    return StreamingResponse(
        stream,
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )
