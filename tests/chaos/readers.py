"""Somebody who reads the API all the time: every answer is whole, none older than the last.

Only a heavy answer may lag behind those to other questions, since it is kept for a moment while a
sweep runs; the same question is never answered from an older revision than before. What another
process has told is known here LAG_SECONDS later.

An API that is up answers 200, says 404 or 409 before there is anything to tell, and a clean 503
while the database is away. Only while the API itself is down may it refuse or cut a connection.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import httpx
from chaos.ground import PATIENCE_SECONDS
from chaos.trial import Trial
from fixtures.commands import free_ports, wait_until

from groktime.api.database import LAG_SECONDS
from groktime.api.responses import HOLD_SECONDS

NOT_YET = {404, 409}  # 409: no finished runs yet to answer from
PATHS = ("/suites/chaos", "/suites/chaos/coverage", "/runs?suite=chaos&limit=5")
# What a client sees of a server whose process has gone, or goes while it answers.
CUT_OFF = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)


@dataclass(frozen=True)
class Span:
    """From when to when, by time.monotonic."""

    begin: float
    end: float

    def meets(self, other: Span) -> bool:
        return self.begin <= other.end and other.begin <= self.end


class Api:
    """`groktime serve` in a process that can be killed and started again on the same port."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        (self.port,) = free_ports(1)
        self.address = f"http://127.0.0.1:{self.port}"
        self.downs: list[Span] = []
        self._down_since: float | None = time.monotonic()
        self._dead_at = self._down_since
        self.start()

    def start(self) -> None:
        self.process: subprocess.Popen[str] = self._trial.ground.commands.start(
            *("serve", "--port", str(self.port)),
            **{**self._trial.environment, "GROKTIME_LOG_LEVEL": "error"},
        )
        # A pipe that nobody empties would stop it one day.
        threading.Thread(target=_empty, args=(self.process,), daemon=True).start()

    def await_answer(self) -> None:
        def answers() -> bool:
            began = time.monotonic()
            try:
                httpx.get(f"{self.address}/health", timeout=60)
            except httpx.HTTPError:
                return False
            self.answered(began)
            return True

        wait_until(answers, PATIENCE_SECONDS)

    def kill(self) -> None:
        # An answer that was on its way says nothing of whether it is up.
        self._dead_at = float("inf")
        if self._down_since is None:
            self._down_since = time.monotonic()
        self.process.kill()
        self.process.wait()
        self._dead_at = time.monotonic()

    def answered(self, asked_at: float) -> None:
        """It is up, if this was asked after it had been killed."""
        if self._down_since is not None and asked_at >= self._dead_at:
            self.downs.append(Span(self._down_since, time.monotonic()))
            self._down_since = None

    def was_down(self, during: Span) -> bool:
        since = [] if self._down_since is None else [Span(self._down_since, float("inf"))]
        return any(during.meets(down) for down in [*self.downs, *since])


def _empty(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for _ in process.stdout:
        pass


@dataclass(frozen=True)
class Told:
    """When which revision was seen in an answer, and by whom."""

    at: float
    revision: int
    by: Reader


class Reader:
    """Asks in turn, from a thread, until told to stop; then tells what it saw.

    What went wrong is judged at the end, when it is known when the API and the database were
    away.
    """

    def __init__(self, api: Api, trial: Trial, told: list[Told]) -> None:
        self._api, self._trial = api, trial
        self._over = threading.Event()
        self._told = told  # by all readers of the trial
        self._last: dict[str, int] = {}  # revision of each path's last answer
        self._longest = 0.0  # seconds that the heavy answer has taken
        self._errors: list[tuple[Span, str, httpx.TransportError]] = []
        self._unavailable: list[tuple[Span, str, str]] = []
        self.seen: Counter[str] = Counter()
        self.complaints: list[str] = []
        self._thread = threading.Thread(target=self._read, name="reader", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop and judge."""
        self._over.set()
        self._thread.join()
        for during, path, error in self._errors:
            self._judge_error(during, path, error)
        outages = [Span(*outage) for outage in self._trial.outages]
        for during, path, text in self._unavailable:
            if any(during.meets(outage) for outage in outages):
                self.seen["503 while the database was away"] += 1
            else:
                self.complaints.append(f"{path}: 503 while the database was there: {text}")

    def _judge_error(self, during: Span, path: str, error: httpx.TransportError) -> None:
        if not self._api.was_down(during):
            self.complaints.append(f"{path}: {error!r} while the API was up")
        elif isinstance(error, httpx.ConnectError):
            self.seen["refused while the API was down"] += 1
        elif isinstance(error, CUT_OFF):
            self.seen["cut off when the API was killed"] += 1
        else:
            self.complaints.append(f"{path}: {error!r}")

    def _read(self) -> None:
        with httpx.Client(base_url=self._api.address, timeout=PATIENCE_SECONDS) as client:
            while not self._over.is_set():
                for path in (*PATHS, self._trial.crossing):
                    self._ask(client, path)
                self._over.wait(0.25)

    def _ask(self, client: httpx.Client, path: str) -> None:
        began = time.monotonic()
        try:
            answer = client.get(path)
        except httpx.TransportError as error:
            self._errors.append((Span(began, time.monotonic()), path, error))
            return
        self._api.answered(began)
        status = answer.status_code
        is_problem = answer.headers["content-type"].startswith("application/problem+json")
        if status == 200:
            self.seen["200"] += 1
            self._check(path, answer.json(), Span(began, time.monotonic()))
        elif not is_problem or status not in {*NOT_YET, 503}:
            self.complaints.append(f"{path}: {status} {answer.text[:300]}")
        elif status == 503:
            self._unavailable.append((Span(began, time.monotonic()), path, answer.text[:300]))
        elif path in self._last:
            self.complaints.append(f"{path}: {status} after it had been answered")
        else:
            self.seen[f"{status} before there was an answer"] += 1

    def _check(self, path: str, document: Any, during: Span) -> None:
        """The suite's revision never goes back, whichever answer and whichever process tells it."""
        lag = 0.0
        if path == self._trial.crossing:
            # What is kept was computed for a request, from what there was when that began.
            self._longest = max(self._longest, during.end - during.begin)
            lag = HOLD_SECONDS + LAG_SECONDS + self._longest
        told = (
            one.revision
            for one in tuple(self._told)
            if one.at <= during.begin - (lag if one.by is self else max(lag, LAG_SECONDS))
        )
        least = max(self._last.get(path, 0), *told, 0)
        revision = document.get("revision", least)
        if revision < least:
            self.complaints.append(f"{path}: revision {revision} after {least}")
        self._last[path] = revision
        self._told.append(Told(during.end, revision, self))
