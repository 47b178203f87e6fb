"""Requests per second and latency of the API, on loopback, with a database of the paper's size.

A scratch embedded server is filled as by benchmarks/database.py (with `--quick` with `central`
alone), and its first passages are then made to follow the paper's laws, so that curves cross; the
API runs as `groktime serve` does, in a process of its own. Printed for 1 and 32 clients: a bare
FastAPI route that returns a body of the same size under the same loop and parser (what is
possible), warm answers, a 304, and cold answers after each of several revisions of the suites that
have a run at p = 113, by a server that prepares nothing; `prepared` are those of one that does.
Times are this machine's; compare rows of one run only. On a shared machine look at the processor
time of one request (the server's and Postgres's together), which others disturb least.

    python benchmarks/api.py [--quick] [--json] [--url URL] [--beside TREE]

`--url` names a database that was filled before by this program or by benchmarks/paper_database.py.
`--beside` names another checkout, whose API is asked the same by turns (rows `beside: …`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx
import numpy as np
import psutil
from fastapi import FastAPI, Response
from sqlalchemy import Engine, text

from benchmarks.paper_database import PAPER, PAPER_ROWS, QUICK_ROWS, fill
from groktime.db import embedded
from groktime.db.engine import connect, migrate
from groktime.db.suites import CHANNEL
from groktime.service.spec import LADDER

ROOT = Path(__file__).resolve().parent.parent

LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
RETRY = re.compile(rb"retry-after: (\d+)", re.IGNORECASE)
TAG = re.compile(rb"etag: (\S+)", re.IGNORECASE)

WARM = {
    "warm /crossing": "/crossing?prime=113",
    "warm /speeds": "/speeds?prime=113",
    "warm /charts/delay": "/charts/delay?prime=113",
}
PREPARED = {"prepared /charts/delay": "/charts/delay?suite=central&prime=113"}
COLD = {
    "cold /crossing": "/crossing?prime=113",
    "cold /speeds": "/speeds?prime=113",
    "cold /charts/delay": "/charts/delay?prime=113",
}

# T_mem and T_gen at 99 %, epochs, with noise by run id; the rest of the ladder in proportion.
FOLLOW_LAWS = """
UPDATE runs r SET
    last_epoch = ceil(greatest(t.mem, t.gen)),
    first_online = ARRAY(SELECT ceil(t.mem * share)::int FROM unnest(CAST(:shares AS float8[]))
        WITH ORDINALITY AS s(share, i) ORDER BY i),
    first_eval = ARRAY(SELECT ceil(t.mem * share)::int FROM unnest(CAST(:shares AS float8[]))
        WITH ORDINALITY AS s(share, i) ORDER BY i),
    first_val = CASE WHEN r.kind = 'grok' THEN ARRAY(
        SELECT ceil(t.gen * share)::int FROM unnest(CAST(:shares AS float8[]))
        WITH ORDINALITY AS s(share, i) ORDER BY i) ELSE array_fill(NULL::int, ARRAY[59]) END,
    bits = CASE WHEN r.kind = 'capacity' THEN least(0.97 * r.k_mem, 2.1 * r.params) END
FROM (
    SELECT id, least(greatest(mem, 1), 4900) AS mem, least(greatest(gen, 1), 4900) AS gen
    FROM (
        SELECT id, 200 * power(params / (3.0 * k_mem), -1.3) * noise AS mem,
            200 * power(params / (3.0 * k_mem), -0.3) * noise AS gen
        FROM (SELECT id, params, k_mem, 0.9 + 0.2 * ((id * 7919) % 1000) / 1000.0 AS noise
              FROM runs) made
    ) speeds
) t WHERE t.id = r.id
"""


def fill_with_crossings(engine: Engine, quick: bool) -> tuple[int, int]:
    """Numbers of runs and of curve rows that a scratch database has now."""
    filled = fill(engine, ("central",), QUICK_ROWS) if quick else fill(engine, PAPER, PAPER_ROWS)
    shares = [0.7 + 0.3 * (k - 500) / 490 if k < 990 else 1.0 for k in LADDER]
    with engine.begin() as connection:
        connection.execute(text(FOLLOW_LAWS), {"shares": shares})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE runs"))
    return filled


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def bare_app() -> FastAPI:
    """One route of FastAPI that returns a body it has: what is possible at all."""
    app = FastAPI()
    body = b"x" * int(os.environ["BARE_BYTES"])

    @app.get("/bare")
    async def bare() -> Response:
        return Response(body, media_type="application/json")

    return app


def start(arguments: list[str], tree: Path, path: str, **environment: str) -> Server:
    """A server process of a checkout, when it answers."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments, "--port", str(port)],
        env=os.environ | {"PYTHONPATH": str(tree)} | environment,
        cwd=tree,
    )
    for _ in range(600):
        try:
            if httpx.get(f"http://127.0.0.1:{port}{path}").status_code == 200:
                return Server(process, port)
        except httpx.TransportError:
            time.sleep(0.1)
    process.terminate()
    raise SystemExit("the server did not start")


@dataclass(frozen=True)
class Server:
    """A running server and where it listens."""

    process: subprocess.Popen[bytes]
    port: int

    def processor_ms(self) -> float:
        """What the server itself has used so far."""
        return 1000 * sum(psutil.Process(self.process.pid).cpu_times()[:2])

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def start_api(url: str, tree: Path = ROOT) -> Server:
    environment = {"GROKTIME_DATABASE_URL": url, "GROKTIME_LOG_LEVEL": "error"}
    return start(["groktime.service.cli", "serve"], tree, "/health", **environment)


def unprepared_app() -> FastAPI:
    """The API, which computes nothing before it is asked."""
    from groktime.api.app import create_app

    return create_app(prepare=False)


def start_unprepared(url: str, tree: Path = ROOT) -> Server:
    environment = {"GROKTIME_DATABASE_URL": url, "GROKTIME_LOG_LEVEL": "error"}
    arguments = ["uvicorn", "benchmarks.api:unprepared_app", "--factory", "--log-level", "error"]
    arguments += ["--loop", "uvloop", "--http", "httptools", "--no-access-log"]
    return start(arguments, tree, "/health", **environment)


def processor_ms(server: Server, engine: Engine) -> float:
    """Of the server and of its Postgres backends on this machine, so far."""
    found = server.processor_ms()
    with engine.connect() as connection:
        pids = connection.scalars(text("SELECT pid FROM pg_stat_activity")).all()
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            found += 1000 * sum(psutil.Process(pid).cpu_times()[:2])
    return found


def start_bare(size: int) -> Server:
    arguments = ["uvicorn", "benchmarks.api:bare_app", "--factory", "--log-level", "error"]
    arguments += ["--loop", "uvloop", "--http", "httptools", "--no-access-log"]
    return start(arguments, ROOT, "/bare", BARE_BYTES=str(size))


@dataclass
class Answer:
    status: int
    head: bytes
    body: bytes


class Connection:
    """One kept connection; as little Python as possible, so that the server is what is timed."""

    def __init__(self, port: int, request: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request
        self._buffer = b""

    def send(self) -> None:
        self.began = time.perf_counter()
        self.socket.sendall(self._request)

    def receive(self) -> Answer | None:
        """The answer, once all of it is there."""
        part = self.socket.recv(1 << 20)
        if not part:
            raise SystemExit("the server closed a connection")
        self._buffer += part
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return None
        match = LENGTH.search(head)
        length = int(match[1]) if match else 0
        if len(rest) < length:
            return None
        self._buffer = rest[length:]
        return Answer(int(head[9:12]), head, rest[:length])


def request(path: str, tag: str | None = None) -> bytes:
    more = "" if tag is None else f"If-None-Match: {tag}\r\n"
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: gzip\r\n{more}\r\n"
    return head.encode()


def measure(
    port: int, path: str, clients: int, requests: int, tag: str | None = None
) -> tuple[np.ndarray, list[Answer]]:
    """Milliseconds of every request, and of the whole as the last entry; the last answers."""
    expected = 200 if tag is None else 304
    connections = [Connection(port, request(path, tag)) for _ in range(clients)]
    answers: list[Answer] = []
    times: list[float] = []
    with selectors.DefaultSelector() as ready:
        for connection in connections:
            ready.register(connection.socket, selectors.EVENT_READ, connection)
        began = time.perf_counter()
        for connection in connections:
            connection.send()
        sent = clients
        while len(times) < requests:
            for key, _ in ready.select():
                connection = key.data
                answer = connection.receive()
                if answer is None:
                    continue
                if answer.status == 429:  # too fast for the limit of one client
                    waited = RETRY.search(answer.head)
                    time.sleep(float(waited[1]) if waited else 1.0)
                    connection.send()
                    continue
                times.append(1000 * (time.perf_counter() - connection.began))
                assert answer.status == expected, (answer.head, answer.body[:300])
                answers = [answer, *answers[:31]]
                if sent < requests:
                    sent += 1
                    connection.send()
        whole = 1000 * (time.perf_counter() - began)
    for connection in connections:
        connection.socket.close()
    return np.array([*times, whole]), answers


# The run is written anew, as closing does: what is kept by the versions of rows must notice.
CLOSE_AGAIN = """
UPDATE runs SET closed_at = now() WHERE id = (
    SELECT min(r.id) FROM runs r JOIN suite_runs sr ON sr.run_id = r.id
    JOIN suites s ON s.id = sr.suite_id
    WHERE s.name = 'central' AND r.kind = 'grok' AND r.prime = 113)
RETURNING id
"""
RAISE = """
UPDATE suites SET revision = revision + 1
WHERE id IN (SELECT suite_id FROM suite_runs WHERE run_id = :run) RETURNING name, revision
"""


def raise_revision(engine: Engine) -> None:
    """As when a run at p = 113 closes: its suites change, and listeners are told."""
    with engine.begin() as connection:
        run = connection.scalar(text(CLOSE_AGAIN))
        for name, revision in connection.execute(text(RAISE), {"run": run}).all():
            told = json.dumps({"suite": name, "revision": revision})
            connection.execute(text("SELECT pg_notify(:c, :t)"), {"c": CHANNEL, "t": told})


def measure_cold(
    server: Server, engine: Engine, path: str, clients: int, colds: int, wait: float = 0.1
) -> tuple[np.ndarray, float]:
    """Times of the first answers after each of several revisions; processor ms of each."""
    port, used = server.port, 0.0
    times, whole, before = [], 0.0, tag_of(measure(port, path, 1, 1)[1][0])
    while len(times) < colds * clients:
        raise_revision(engine)
        time.sleep(wait)  # the notice arrives
        began = processor_ms(server, engine)
        measured, answers = measure(port, path, clients, clients)
        if tag_of(answers[-1]) == before:
            continue  # it had not arrived yet
        used += processor_ms(server, engine) - began
        before = tag_of(answers[0])
        times += list(measured[:-1])
        whole += float(measured[-1])
    return np.array([*times, whole]), used / len(times)


def tag_of(answer: Answer) -> str:
    found = TAG.search(answer.head)
    return found[1].decode() if found else ""


def row(
    name: str, clients: int, measured: np.ndarray, processor: float | None = None
) -> dict[str, object]:
    times, whole = measured[:-1], measured[-1]
    return {
        "request": name,
        "clients": clients,
        "n": len(times),
        "per_second": round(1000 * len(times) / whole, 1),
        "p50_ms": round(float(np.percentile(times, 50)), 2),
        "p99_ms": round(float(np.percentile(times, 99)), 2),
        "processor_ms": None if processor is None else round(processor, 2),
    }


ROUNDS = 5  # in turn, so that other work on the machine disturbs all rows alike


def benchmark(
    url: str, apis: dict[str, Server], engine: Engine, requests: int, colds: int, trees: list[Path]
) -> list[dict[str, object]]:
    """Rows of the APIs of these trees; `apis` are known by what their rows begin with."""
    rows = []
    path = WARM["warm /crossing"]
    tags = {}
    for before, api in apis.items():
        answers = {warm: measure(api.port, warm, 1, 1)[1][0] for warm in WARM.values()}
        tags[before] = tag_of(answers[path])
    bare = start_bare(len(answers[path].body))
    try:
        for clients in (1, 32):
            asked: dict[str, tuple[Server, str, str | None]] = {
                "bare FastAPI route": (bare, "/bare", None)
            }
            for before, api in apis.items():
                asked |= {before + name: (api, warm, None) for name, warm in WARM.items()}
                asked[f"{before}304 /crossing"] = (api, path, tags[before])
            times: dict[str, list[np.ndarray]] = {name: [] for name in asked}
            used = dict.fromkeys(asked, 0.0)
            for turn in range(ROUNDS + 1):  # the first warms up and is not counted
                for name, (server, what, known) in asked.items():
                    began = server.processor_ms()
                    taken = measure(server.port, what, clients, requests // ROUNDS, known)[0]
                    if turn:
                        used[name] += server.processor_ms() - began
                        times[name].append(taken)
            for name, rounds in times.items():
                joined = np.concatenate([taken[:-1] for taken in rounds])
                # The whole is the median round's, as if all had gone like it.
                whole = ROUNDS * float(np.median([taken[-1] for taken in rounds]))
                rows.append(
                    row(name, clients, np.array([*joined, whole]), used[name] / len(joined))
                )
    finally:
        bare.stop()
    for before, tree in zip(apis, trees, strict=True):
        cold = start_unprepared(url, tree)
        try:
            for clients in (1, 32):
                for name, what in COLD.items():
                    found, used_ms = measure_cold(cold, engine, what, clients, colds)
                    rows.append(row(before + name, clients, found, used_ms))
        finally:
            cold.stop()
    for before, api in apis.items():
        for name, what in PREPARED.items():
            found, used_ms = measure_cold(api, engine, what, 1, colds, wait=5.0)
            rows.append(row(before + name, 1, found, used_ms))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small database, fewer requests")
    parser.add_argument("--json", action="store_true", help="one JSON line")
    parser.add_argument("--url", help="a database that is filled already")
    parser.add_argument("--beside", type=Path, help="another checkout of this project")
    options = parser.parse_args()
    trees = [ROOT, *([options.beside.resolve()] if options.beside else [])]
    home = Path(tempfile.mkdtemp(prefix="gt-", dir="/tmp"))
    apis: dict[str, Server] = {}
    try:
        url = options.url or embedded.start(home)
        engine = connect(url, check_schema=False)
        if options.url:
            with engine.connect() as connection:
                counts = "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM curve)"
                runs, epochs = connection.execute(text(counts)).one()
        else:
            migrate(engine)
            runs, epochs = fill_with_crossings(engine, options.quick)
        for before, tree in zip(("", "beside: "), trees, strict=False):
            apis[before] = start_api(url, tree)
        requests, colds = (3_200, 5) if options.quick else (32_000, 10)
        rows = benchmark(url, apis, engine, requests, colds, trees)
        engine.dispose()
    finally:
        for server in apis.values():
            server.stop()
        if not options.url:
            embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)
    if options.json:
        print(json.dumps({"runs": runs, "epochs": epochs, "rows": rows}))
        return
    print(f"{runs:,} runs, {epochs:,} epochs; one API process; load {os.getloadavg()[0]:.1f}\n")
    print(
        f"{'request':<30}{'clients':>8}{'n':>7}{'req/s':>9}{'p50 ms':>9}{'p99 ms':>9}{'CPU ms':>9}"
    )
    for r in rows:
        print(
            f"{r['request']:<30}{r['clients']:>8}{r['n']:>7}{r['per_second']:>9}"
            f"{r['p50_ms']:>9}{r['p99_ms']:>9}{r['processor_ms']:>9}"
        )


if __name__ == "__main__":
    main()
