"""How long a visitor waits: time to the first chart, to switch primes, to page through runs.

    python -m benchmarks.dashboard [--quick] [--repeats N] [--json]

Fills a scratch embedded server with the suites of the paper, serves the API on loopback and
looks at it with Chromium. Times are milliseconds (medians); `ratio` is against loading a small
document without a chart in the same run. `browser` and `server` are processor milliseconds, which
say more than the time on a machine that others use; Postgres is not among them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx
import psutil
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.paper_database import PAPER, fill
from groktime.db import embedded
from groktime.db.engine import connect, migrate

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--enable-unsafe-swiftshader",
]
SETTLED = "main[data-state=settled] .chart[data-state=ready]"
VIEW = "/view/delay?suite=central&method=robust&clock=online"
PRIMES = (97, 101, 103, 107, 109)
PAPER_ROWS, QUICK_ROWS = 2_000_000, 200_000


Timed = tuple[float, float, float]  # milliseconds: of time, of the browser's and server's processor


@contextmanager
def paper_server(quick: bool) -> Iterator[str]:
    """The API, in a process of its own, on a database of the paper's size."""
    home = Path(tempfile.mkdtemp(prefix="gt-", dir="/tmp"))
    try:
        url = embedded.start(home)
        owner = connect(url, check_schema=False)
        migrate(owner)
        names = ("central",) if quick else PAPER
        runs, rows = fill(owner, names, QUICK_ROWS if quick else PAPER_ROWS)
        owner.dispose()
        print(f"{runs:,} runs and {rows:,} epochs of {len(names)} suites")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = subprocess.Popen(
            [sys.executable, "-m", "groktime.service.cli", "serve", "--port", str(port)],
            env={**os.environ, "GROKTIME_HOME": str(home), "GROKTIME_DATABASE_URL": url},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            while True:
                try:
                    httpx.get(f"{address}/health").raise_for_status()
                    break
                except httpx.TransportError:
                    assert server.poll() is None, "the server ended"
                    time.sleep(0.05)
            yield address
        finally:
            server.terminate()
            server.wait()
    finally:
        embedded.stop(home)
        shutil.rmtree(home)


def milliseconds(action: Callable[[], object]) -> Timed:
    browser, server = processor_ms("chrom"), processor_ms("serve")
    start = time.perf_counter()
    action()
    taken = 1000 * (time.perf_counter() - start)
    return taken, processor_ms("chrom") - browser, processor_ms("serve") - server


def processor_ms(what: str) -> float:
    """Of the processes of this benchmark that have this word in their command."""
    used = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if what in " ".join(process.cmdline()):
                used += 1000 * sum(process.cpu_times()[:2])
    return used


def first_chart(browser: Browser, address: str, path: str, *, known: bool) -> Timed:
    """From entering the address to the drawn chart; `known`: the browser was here before."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()

    def arrive() -> None:
        page.goto(address + path, wait_until="commit")
        page.wait_for_selector(SETTLED)

    if known:
        arrive()
        page.goto("about:blank")
    taken = milliseconds(arrive)
    context.close()
    return taken


def switch(page: Page, prime: int) -> Timed:
    """From the click on a prime to its drawn chart."""
    box = page.locator(f'input[data-setting="prime"][value="{prime}"]')
    label = f'label[for="{box.get_attribute("id")}"]'

    def choose() -> None:
        page.click(label)
        page.wait_for_selector(f'.chart[data-state=ready][data-shown*="prime={prime}"]')

    return milliseconds(choose)


def turn_page(page: Page) -> Timed:
    """From the click on Next to the next hundred runs."""
    last = page.locator("tr[data-run]").last.get_attribute("data-run")

    def turn() -> None:
        page.get_by_role("button", name="Next").click()
        page.wait_for_selector(f'tr[data-run="{last}"]', state="detached")
        page.wait_for_selector("[data-table][data-state=ready]")

    return milliseconds(turn)


def measure(address: str, repeats: int) -> dict[str, list[Timed]]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    assert chromium, "no Chromium on this machine"
    times: dict[str, list[Timed]] = {}

    def note(name: str, taken: Timed) -> None:
        times.setdefault(name, []).append(taken)

    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=FLAGS)
        blank = browser.new_page()
        httpx.get(f"{address}/charts/delay?suite=central&prime=139", timeout=60)
        for _ in range(repeats):
            note("empty page", milliseconds(lambda: blank.goto(f"{address}/view/none")))
            path = f"{VIEW}&prime=139"
            note("first chart, new visitor", first_chart(browser, address, path, known=False))
            note("first chart, again", first_chart(browser, address, path, known=True))
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{address}{VIEW}&prime=139")
        page.wait_for_selector(SETTLED)
        for prime in PRIMES:
            note("switch primes, computed", switch(page, prime))
        for prime in PRIMES:
            note("switch primes, known", switch(page, prime))
        everything = f"{address}{VIEW}&prime=all"
        note("all primes, computed", milliseconds(lambda: _arrive(page, everything)))
        page.goto("about:blank")
        note("all primes, known", milliseconds(lambda: _arrive(page, everything)))
        page.goto(f"{address}/view/runs?suite=central")
        page.wait_for_selector("[data-table][data-state=ready]")
        for _ in range(repeats):
            note("next 100 runs", turn_page(page))
        browser.close()
    return times


def _arrive(page: Page, address: str) -> None:
    page.goto(address, wait_until="commit")
    page.wait_for_selector("main[data-state=settled]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="the central suite only")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with paper_server(given.quick) as address:
        times = measure(address, given.repeats)
    medians = {
        name: tuple(statistics.median(part) for part in zip(*values, strict=True))
        for name, values in times.items()
    }
    if given.json:
        print(json.dumps(medians))
        return
    print(f"load {os.getloadavg()[0]:.1f}")
    print(f"{'':28} {'ms':>8} {'ratio':>7} {'browser':>8} {'server':>8} {'n':>3}")
    for name, (middle, browser, server) in medians.items():
        ratio, n = middle / medians["empty page"][0], len(times[name])
        print(f"{name:28} {middle:8.0f} {ratio:7.1f} {browser:8.0f} {server:8.0f} {n:3}")


if __name__ == "__main__":
    main()
