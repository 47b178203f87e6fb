"""Requests per second and latency of the API, on loopback, with a database of the paper's size.

A scratch embedded server is filled as by benchmarks/database.py (with `--quick` with `central`
alone), and its first passages are then made to follow the paper's laws, so that curves cross; the
API runs as `groktime serve` does, in a process of its own. Printed for 1 and 32 clients: warm
answers, a 304, and cold answers after each of several revisions. Times are this machine's; compare
rows of one run only.

    python benchmarks/api.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx
import numpy as np
from sqlalchemy import Engine, text

from benchmarks.paper_database import PAPER, PAPER_ROWS, QUICK_ROWS, fill
from db import embedded
from db.engine import connect
from db.migrating import migrate
from db.thresholds import LADDER

WARM = {
    "warm /crossing": "/crossing?prime=113",
    "warm /speeds": "/speeds?prime=113",
    "warm /charts/delay": "/charts/delay?prime=113",
}
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


def start_server(url: str) -> tuple[subprocess.Popen[bytes], str]:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "service.cli", "serve", "--port", str(port)],
        env=os.environ | {"GROKTIME_DATABASE_URL": url, "GROKTIME_LOG_LEVEL": "error"},
    )
    address = f"http://127.0.0.1:{port}"
    for _ in range(300):
        try:
            if httpx.get(f"{address}/health").status_code == 200:
                return process, address
        except httpx.TransportError:
            time.sleep(0.1)
    process.terminate()
    raise SystemExit("the API did not start")


def measure(address: str, path: str, clients: int, requests: int, tag: str | None) -> np.ndarray:
    """Milliseconds of every request, and of the whole as the last entry."""
    headers = {} if tag is None else {"If-None-Match": tag}
    expected = 200 if tag is None else 304
    barrier = threading.Barrier(clients + 1)

    def one_client(_: int) -> list[float]:
        times = []
        with httpx.Client(base_url=address, timeout=60) as client:
            client.get("/health")
            barrier.wait()
            for _ in range(max(1, requests // clients)):
                began = time.perf_counter()
                response = client.get(path, headers=headers)
                times.append(1000 * (time.perf_counter() - began))
                assert response.status_code == expected, response.text
        return times

    with ThreadPoolExecutor(clients) as threads:
        futures = [threads.submit(one_client, i) for i in range(clients)]
        barrier.wait()
        began = time.perf_counter()
        times = [t for future in futures for t in future.result()]
    return np.array([*times, 1000 * (time.perf_counter() - began)])


def raise_revision(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE suites SET revision = revision + 1"))


def row(name: str, clients: int, measured: np.ndarray) -> dict[str, object]:
    times, whole = measured[:-1], measured[-1]
    return {
        "request": name,
        "clients": clients,
        "n": len(times),
        "per_second": round(1000 * len(times) / whole, 1),
        "p50_ms": round(float(np.percentile(times, 50)), 2),
        "p99_ms": round(float(np.percentile(times, 99)), 2),
    }


def benchmark(address: str, engine: Engine, requests: int, colds: int) -> list[dict[str, object]]:
    rows = []
    with httpx.Client(base_url=address, timeout=60) as client:
        answers = {path: client.get(path).raise_for_status() for path in WARM.values()}
    tags = {path: answer.headers["etag"] for path, answer in answers.items()}
    for clients in (1, 32):
        for name, path in WARM.items():
            rows.append(row(name, clients, measure(address, path, clients, requests, None)))
        path = WARM["warm /crossing"]
        rows.append(
            row("304 /crossing", clients, measure(address, path, clients, requests, tags[path]))
        )
    for clients in (1, 32):
        for name, path in COLD.items():
            measured = []
            for _ in range(colds):
                raise_revision(engine)
                measured.append(measure(address, path, clients, clients, None))
            times = np.concatenate([m[:-1] for m in measured])
            whole = sum(float(m[-1]) for m in measured)
            rows.append(row(name, clients, np.append(times, whole)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small database, fewer requests")
    parser.add_argument("--json", action="store_true", help="one JSON line")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="gt-", dir="/tmp"))
    process = None
    try:
        url = embedded.start(home)
        engine = connect(url, check_schema=False)
        migrate(engine)
        runs, epochs = fill_with_crossings(engine, options.quick)
        process, address = start_server(url)
        rows = benchmark(
            address, engine, 320 if options.quick else 3200, 3 if options.quick else 10
        )
        engine.dispose()
    finally:
        if process is not None:
            process.terminate()
            process.wait(30)
        embedded.stop(home)
        shutil.rmtree(home, ignore_errors=True)
    if options.json:
        print(json.dumps({"runs": runs, "epochs": epochs, "rows": rows}))
        return
    print(f"{runs:,} runs, {epochs:,} epochs; one API process; load {os.getloadavg()[0]:.1f}\n")
    print(f"{'request':<22}{'clients':>8}{'n':>7}{'req/s':>9}{'p50 ms':>9}{'p99 ms':>9}")
    for r in rows:
        print(
            f"{r['request']:<22}{r['clients']:>8}{r['n']:>7}{r['per_second']:>9}"
            f"{r['p50_ms']:>9}{r['p99_ms']:>9}"
        )


if __name__ == "__main__":
    main()
