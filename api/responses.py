"""From a question to a response: tagged, kept by suite revision, computed once off the event loop.

Every route that answers from a suite goes through `answered` or `served`. A kept answer is found
by what was asked and carries the stamp of the data it was computed from (revision, analysis
version). One with another stamp is recomputed, but while a sweep runs at most every HOLD_SECONDS.
Which suite a question means, and its stamp, are remembered while the database does not change: a
warm answer or a 304 asks no database and takes no thread, and the same request again
(WarmAnswers) is not even parsed.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import Request, Response
from prometheus_client import Counter
from pydantic import TypeAdapter
from sqlalchemy import Connection, text
from starlette.types import ASGIApp, Receive, Scope, Send

from groktime.api.database import CAPACITY, Database, Stamps
from groktime.api.middleware import HeavyWork, client_of
from groktime.api.queries import FormatQuery
from groktime.api.tables import Row, as_csv
from groktime.db.records import SuiteRecord
from groktime.service.analysis import ANALYSIS_VERSION
from groktime.service.answers.choice import About, choose, is_open
from groktime.service.answers.question import Question

HOLD_SECONDS = 2.0
MAX_BYTES = 64 * 1024 * 1024
COMPUTING_THREADS = 4

FINISHED_SECONDS = 60
MAX_LOOKS = 4096  # questions whose suite is remembered
GZIP_FROM = 1024  # bytes from which a body is kept compressed, too

ANSWERS = Counter("groktime_answers", "Answers by where they came from", ["source"])
HIT, COMPUTED, NOT_MODIFIED = map(ANSWERS.labels, ("hit", "computed", "not_modified"))

CHOSEN_AT = "groktime.chosen_at"

K = TypeVar("K")
V = TypeVar("V")
Stamp = tuple[Any, ...]  # suite, revision, and what else an answer depends on
Find = Callable[[Connection], SuiteRecord]
Compute = Callable[[Connection], Any]


@dataclass(frozen=True)
class Entry:
    """A finished response body and the moment of the data it shows."""

    body: bytes
    media_type: str
    stamp: Stamp
    etag: str
    made_at: float
    gzipped: bytes | None = None

    @property
    def size(self) -> int:
        return len(self.body) + len(self.gzipped or b"")

    def is_newer(self, other: Entry) -> bool:
        """Shows a later revision of the same suite."""
        return self.stamp[0] == other.stamp[0] and self.stamp[:2] > other.stamp[:2]


@dataclass(frozen=True)
class Look:
    """The stamp of the suite that a question meant, and whether a worker trains it (`running`) or
    may (`open`), while the database is at `version`. Not the suite itself: thousands are kept."""

    version: int
    stamp: Stamp
    running: bool
    open: bool


@dataclass(frozen=True)
class Prepared:
    """What a request that was answered once asks for; the same bytes ask the same."""

    asked: Hashable
    headers: Mapping[str, str]
    route: Any


def etag(asked: Hashable, stamp: Stamp) -> str:
    """The same question to the same data has the same tag in every process."""
    digest = hashlib.sha256(repr((asked, stamp)).encode()).hexdigest()
    return f'"{digest[:32]}"'


class LRU(OrderedDict[K, V]):
    """A dictionary of bounded length that forgets what was set longest ago."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)


class AnswerCache:
    """An LRU of response bodies, bounded by their bytes; used from one event loop.

    Remembered are also what was chosen for questions that leave something open (`choices`), the
    suite each question was about (`looks`), and what a request asked (`prepared`).
    """

    def __init__(
        self,
        max_bytes: int = MAX_BYTES,
        hold_seconds: float = HOLD_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._entries: OrderedDict[Hashable, Entry] = OrderedDict()
        self._flights: dict[Hashable, asyncio.Future[Entry]] = {}
        self._looking: dict[Hashable, asyncio.Future[Any]] = {}
        self._bytes = 0
        self._max_bytes = max_bytes
        self.hold_seconds = hold_seconds
        self._clock = clock
        self._threads: CapacityLimiter | None = None
        self.computed = 0
        self.looks: LRU[Hashable, Look] = LRU(MAX_LOOKS)
        self.prepared: LRU[Hashable, Prepared] = LRU(MAX_LOOKS)
        self.choices: LRU[Hashable, tuple[int, Question]] = LRU(MAX_LOOKS)

    def fresh(self, asked: Hashable, stamp: Stamp, running: bool) -> Entry | None:
        """An entry that may be served: of this stamp, or held for a moment during a sweep."""
        entry = self._entries.get(asked)
        if entry is None:
            return None
        held = running and self._clock() - entry.made_at < self.hold_seconds
        if entry.stamp != stamp and not held:
            return None
        self._entries.move_to_end(asked)
        return entry

    @property
    def busy(self) -> bool:
        """Whether anything is being computed."""
        return bool(self._flights)

    def under_way(self, asked: Hashable, stamp: Stamp, running: bool) -> bool:
        """Whether it is being computed already, so that asking costs nothing more."""
        return _flight(asked, stamp, running) in self._flights

    async def looked_once(
        self,
        asked: Hashable,
        version: int,
        current: Callable[[], int | None],
        look: Callable[[], V],
    ) -> V:
        """Look into the database in a thread; whoever asks the same meanwhile waits for it, too.

        Only while the database is known to be at the version that the look began with: whoever
        cannot know looks for itself, so that no answer is older than a look of its own would be.
        """
        flight = (asked, version)
        under_way = self._looking.get(flight)
        if under_way is not None and current() == version:
            return await asyncio.shield(under_way)
        mine = asyncio.ensure_future(anyio.to_thread.run_sync(look))
        self._looking[flight] = mine

        def forget(done: asyncio.Future[V]) -> None:
            if self._looking.get(flight) is mine:
                del self._looking[flight]
            if not done.cancelled():
                done.exception()  # seen: whoever asked may be gone

        mine.add_done_callback(forget)
        return await asyncio.shield(mine)

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
        flight = _flight(asked, stamp, running)
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
        began = self._clock()
        try:
            (body, media_type, stamp), gzipped = await anyio.to_thread.run_sync(
                lambda: _compressed(compute()), limiter=self._threads
            )
        except Exception as error:
            future.set_exception(error)
            return
        except BaseException:
            future.cancel()
            raise
        self.computed += 1
        entry = Entry(body, media_type, stamp, etag(asked, stamp), self._clock(), gzipped)
        self._keep(asked, entry, began)
        future.set_result(entry)

    def _keep(self, asked: Hashable, entry: Entry, began: float) -> None:
        before = self._entries.get(asked)
        if before is not None and before.made_at > began and before.is_newer(entry):
            return  # computed meanwhile: a sweep that holds answers must not go back
        self._entries.pop(asked, None)
        self._bytes += entry.size - (before.size if before else 0)
        self._entries[asked] = entry
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            _, oldest = self._entries.popitem(last=False)
            self._bytes -= oldest.size


def _flight(asked: Hashable, stamp: Stamp, running: bool) -> Hashable:
    return asked if running else (asked, stamp)


def _compressed(
    computed: tuple[bytes, str, Stamp],
) -> tuple[tuple[bytes, str, Stamp], bytes | None]:
    """What was computed, and its body compressed where that makes it smaller."""
    body, media_type, _ = computed
    if len(body) < GZIP_FROM or media_type == "image/png":
        return computed, None
    return computed, gzip.compress(body, 6, mtime=0)


_adapters: dict[type, TypeAdapter[Any]] = {}


def as_json(answer: Any) -> bytes:
    """An answer's JSON; the adapters are built once per type."""
    kind = type(answer)
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind].dump_json(answer)


def wants_csv(request: Request, query: FormatQuery) -> bool:
    """`format` decides; without it the Accept header does."""
    if query.format is not None:
        return query.format == "csv"
    accept = request.headers.get("accept", "")
    return "text/csv" in accept and "application/json" not in accept


def stamp_of(connection: Connection, suite: SuiteRecord) -> Stamp:
    """What an answer about the suite depends on."""
    capacity = tuple(connection.execute(text(CAPACITY)).one())
    return (suite.id, suite.revision, suite.hash, *map(str, capacity), ANALYSIS_VERSION)


async def chosen(request: Request, question: Question, about: About) -> Question:
    """The question with its suite and prime named; one that names them is not looked at."""
    if not is_open(question, about):
        return question
    database: Database = request.app.state.database
    answers: AnswerCache = request.app.state.answers
    stamps: Stamps = request.app.state.stamps
    key = (about, repr(question))
    kept = answers.choices.get(key)
    if kept is None or kept[0] != stamps.version():
        version = stamps.counted()

        def look() -> Question:
            with database.reading() as connection:
                return choose(connection, question, about)

        found = await answers.looked_once(key, version, stamps.version, look)
        kept = answers.choices[key] = (version, found)
    # What is read next is no more current than what was chosen.
    request.scope[CHOSEN_AT], found = kept
    return found


async def answered(
    request: Request,
    query: FormatQuery,
    find: Find,
    compute: Compute,
    rows: Callable[[Any], list[Row]],
    name: str,
    *,
    choice: str = "",
) -> Response:
    """The answer, from the cache where neither the suite nor what was chosen has changed."""
    csv = wants_csv(request, query)

    def encode(answer: Any) -> tuple[bytes, str]:
        if csv:
            return as_csv(rows(answer)), "text/csv; charset=utf-8"
        return as_json(answer), "application/json"

    asked = (name, csv, query.model_dump_json(exclude={"format"}), choice)
    filename = f"{name.replace('/', '-')}.csv"
    headers = {"Content-Disposition": f'attachment; filename="{filename}"'} if csv else None
    return await served(request, asked, find, compute, encode, headers=headers)


async def served(
    request: Request,
    asked: Hashable,
    find: Find,
    compute: Compute,
    encode: Callable[[Any], tuple[bytes, str]],
    *,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Serve one cached body: 304 where the client has it, else the body with its tag."""
    database: Database = request.app.state.database
    answers: AnswerCache = request.app.state.answers
    stamps: Stamps = request.app.state.stamps

    version = request.scope.get(CHOSEN_AT, stamps.counted())

    def look() -> Look:
        with database.reading() as connection:
            suite = find(connection)
            stamp = stamp_of(connection, suite)
        stamps.seen(suite.name, suite.revision)
        return Look(version, stamp, suite.running, suite.open)

    looked = answers.looks.get(asked)
    if looked is None or looked.version != stamps.version():
        looked = await answers.looked_once(asked, version, stamps.version, look)
        answers.looks[asked] = looked
    stamp, running = looked.stamp, looked.running
    wanted = Wanted.of(request.scope["headers"])
    tag = etag(asked, stamp)
    if wanted.has(tag):
        NOT_MODIFIED.inc()
        return Response(status_code=304, headers=_headers(looked, tag, wanted, headers))
    entry = answers.fresh(asked, stamp, running)
    if entry is None:
        if not answers.under_way(asked, stamp, running):
            heavy: HeavyWork = request.app.state.heavy
            heavy.take(client_of(request))

        def work() -> tuple[bytes, str, Stamp]:
            with database.reading() as connection:
                found = find(connection)
                now = stamp_of(connection, found)
                body, media_type = encode(compute(connection))
            stamps.seen(found.name, found.revision)
            return body, media_type, now

        COMPUTED.inc()
        entry = await answers.computed_once(asked, stamp, work, running=running)
    else:
        HIT.inc()
    key = request_key(request.scope, wanted)
    answers.prepared[key] = Prepared(asked, headers or {}, request.scope.get("route"))
    status, body, sent = _answer(entry, looked, wanted, headers)
    return Response(body, status, headers=sent)


@dataclass(frozen=True)
class Wanted:
    """What a request's headers say about the form of its answer."""

    accept: bytes = b""
    gzip: bool = False
    known: bytes | None = None  # If-None-Match

    @classmethod
    def of(cls, headers: Iterable[tuple[bytes, bytes]]) -> Self:
        accept, encodings, known = b"", b"", None
        for name, value in headers:
            if name == b"accept":
                accept += value + b","  # given twice, both decide
            elif name == b"accept-encoding":
                encodings = value
            elif name == b"if-none-match":
                known = value
        return cls(accept, _takes_gzip(encodings), known)

    def has(self, tag: str) -> bool:
        """If-None-Match holds the tag; weak comparison, as RFC 9110 says, of either encoding."""
        if self.known is None:
            return False
        named = (
            part.strip().removeprefix("W/").replace(GZIP_MARK, "")
            for part in self.known.decode("latin-1").split(",")
        )
        return self.known.strip() == b"*" or tag in named


GZIP_MARK = "-gzip"  # tells the tags of one answer's two encodings apart


def marked(tag: str) -> str:
    """The tag of the compressed form."""
    return f'{tag[:-1]}{GZIP_MARK}"'


@lru_cache(maxsize=256)
def _takes_gzip(encodings: bytes) -> bool:
    """Accept-Encoding allows gzip."""
    for part in encodings.decode("latin-1").lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def request_key(scope: Scope, wanted: Wanted) -> Hashable:
    """All of a request that decides what is asked."""
    return scope["path"], scope["query_string"], wanted.accept


def _answer(
    entry: Entry, looked: Look, wanted: Wanted, headers: Mapping[str, str] | None
) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers for who wants the entry."""
    sent = _headers(looked, entry.etag, wanted, headers, entry.gzipped is not None)
    if wanted.has(entry.etag):
        return 304, b"", sent
    body = entry.body
    if wanted.gzip and entry.gzipped is not None:
        body = entry.gzipped
        sent["Content-Encoding"] = "gzip"
    sent["Content-Type"] = entry.media_type
    return 200, body, sent


def _headers(
    looked: Look,
    tag: str,
    wanted: Wanted,
    more: Mapping[str, str] | None,
    compressed: bool = True,
) -> dict[str, str]:
    """A finished suite may be kept for a moment; one with open runs is asked about each time."""
    lifetime = "no-cache" if looked.open else f"max-age={FINISHED_SECONDS}"
    if wanted.gzip and compressed:
        tag = marked(tag)
    return {
        "ETag": tag,
        "Cache-Control": f"private, {lifetime}",
        "Vary": "Accept, Accept-Encoding, Authorization",
        **(more or {}),
    }


class WarmAnswers:
    """ASGI middleware: a request that was answered before, of data that has not changed since.

    It is answered before it is parsed. Only where reading is open: nobody is asked for a token.
    """

    def __init__(self, app: ASGIApp, answers: AnswerCache, stamps: Stamps) -> None:
        self._app = app
        self._answers = answers
        self._stamps = stamps

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        wanted = Wanted.of(scope["headers"])
        prepared = self._answers.prepared.get(request_key(scope, wanted))
        found = None if prepared is None else self._found(prepared.asked)
        if prepared is None or found is None:
            await self._app(scope, receive, send)
            return
        looked, entry = found
        scope["route"] = prepared.route
        status, body, headers = _answer(entry, looked, wanted, prepared.headers)
        (HIT if status == 200 else NOT_MODIFIED).inc()
        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
        if status == 200:
            raw.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": body})

    def _found(self, asked: Hashable) -> tuple[Look, Entry] | None:
        looked = self._answers.looks.get(asked)
        if looked is None or looked.version != self._stamps.version():
            return None
        entry = self._answers.fresh(asked, looked.stamp, looked.running)
        return None if entry is None else (looked, entry)
