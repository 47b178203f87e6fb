"""Somebody who reads the API all the time: every answer is whole, none older than the last.

While the API itself is down a connection may be refused; an API that is up answers 200, says 404
before the suite is there, or a clean 503 while the database is away.
"""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from typing import Any

import httpx
from chaos.ground import free_ports
from chaos.trial import PRIME, Trial
from fixtures.commands import wait_until

ACCEPTED = {200, 404, 409, 503}  # 409: no finished runs yet to answer from
PATHS = (
    "/suites/chaos",
    "/suites/chaos/coverage",
    f"/crossing?suite=chaos&prime={PRIME}&lr=0.001",
    "/runs?suite=chaos&limit=5",
)


class Api:
    """`groktime serve` in a process that can be killed and started again on the same port."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        (self.port,) = free_ports(1)
        self.address = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        self.process: subprocess.Popen[str] = self._trial.ground.commands.start(
            *("serve", "--port", str(self.port)),
            **{**self._trial.environment, "GROKTIME_LOG_LEVEL": "error"},
        )

    def await_answer(self) -> None:
        def answers() -> bool:
            try:
                return httpx.get(f"{self.address}/health", timeout=10).status_code in (200, 503)
            except httpx.HTTPError:
                return False

        wait_until(answers)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Reader:
    """Asks in turn, from a thread, until told to stop; keeps every complaint."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._over = threading.Event()
        self._revisions: dict[str, int] = {}
        self.statuses: Counter[int] = Counter()
        self.complaints: list[str] = []
        self._thread = threading.Thread(target=self._read, name="reader", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _read(self) -> None:
        with httpx.Client(base_url=self._address, timeout=60) as client:
            while not self._over.is_set():
                for path in PATHS:
                    self._ask(client, path)
                self._over.wait(0.25)

    def _ask(self, client: httpx.Client, path: str) -> None:
        try:
            answer = client.get(path)
        except httpx.TransportError:
            self.statuses[0] += 1  # no API: it was killed, or is starting
            return
        self.statuses[answer.status_code] += 1
        if answer.status_code not in ACCEPTED:
            self.complaints.append(f"{path}: {answer.status_code} {answer.text[:300]}")
        elif answer.status_code == 200:
            self._check(path, answer.json())
        elif not answer.headers["content-type"].startswith("application/problem+json"):
            self.complaints.append(f"{path}: {answer.status_code} is no problem document")

    def _check(self, path: str, document: Any) -> None:
        revision = document.get("revision")
        if revision is None:
            return
        before = self._revisions.get(path, -1)
        if revision < before:
            self.complaints.append(f"{path}: revision {revision} after {before}")
        self._revisions[path] = revision
