"""How long a visitor waits: time to the first chart, to switch primes, to page through runs.

    python -m benchmarks.dashboard [--quick] [--repeats N] [--json] [--url URL]

Fills a scratch embedded server with the suites of the paper, serves the API on loopback and
looks at it with Chromium. Times are milliseconds (medians, and the least, which other work disturbs
less); `ratio` is against loading a small document without a chart in the same run. `page`,
`browser` and `server` are medians of processor milliseconds, which say more than the time on a
machine that others use: of the thread that runs and draws the page, of all of Chromium, and of the
API without Postgres. Linux only: they are read from /proc. `--url` names a database that was filled
before by benchmarks/paper_database.py or benchmarks/api.py; the revisions of its suites are raised.
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

from benchmarks.api import raise_revision
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
NOTICED = 0.3  # seconds after which the server has heard of a new revision


# Milliseconds: of time, and of the processor in the page's thread, the browser and the server.
Timed = tuple[float, float, float, float]
PATIENCE = 300_000  # ms; a machine that others use may take long


@contextmanager
def paper_server(quick: bool, url: str | None) -> Iterator[tuple[str, str]]:
    """Addresses of the API, in a process of its own, and of its database: a given one, or of the
    paper's size."""
    home = Path(tempfile.mkdtemp(prefix="gt-", dir="/tmp"))
    own = url is None
    try:
        if url is None:
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
            yield address, url
        finally:
            server.terminate()
            server.wait()
    finally:
        if own:
            embedded.stop(home)
        shutil.rmtree(home)


def milliseconds(action: Callable[[], object]) -> Timed:
    before = _processors.used()
    start = time.perf_counter()
    action()
    taken = 1000 * (time.perf_counter() - start)
    after = _processors.used()
    page, browser, server = (after[part] - before[part] for part in ("page", "browser", "server"))
    return taken, page, browser, server


class Processors:
    """Milliseconds of the processes of this benchmark; those that have ended keep their last."""

    def __init__(self) -> None:
        self._read: dict[tuple[str, int, float], float] = {}

    def used(self) -> dict[str, float]:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error, OSError):
                line = " ".join(process.cmdline())
                began = process.create_time()
                if "serve" in line and "chrom" not in line:
                    self._read["server", process.pid, began] = _of_process(process)
                elif "chrom" in line:
                    self._read["browser", process.pid, began] = _of_process(process)
                    if "--type=renderer" in line:  # whose first thread runs the page
                        ran = Path(f"/proc/{process.pid}/task/{process.pid}/schedstat")
                        at = int(ran.read_text().split()[0]) / 1e6
                        self._read["page", process.pid, began] = at
        found = dict.fromkeys(("page", "browser", "server"), 0.0)
        for (part, _, _), spent in self._read.items():
            found[part] += spent
        return found


def _of_process(process: psutil.Process) -> float:
    return 1000 * sum(process.cpu_times()[:2])


_processors = Processors()


def first_chart(browser: Browser, address: str, path: str, *, known: bool) -> Timed:
    """From entering the address to the drawn chart; `known`: the browser was here before."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)

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


def measure(address: str, url: str, repeats: int) -> dict[str, list[Timed]]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    assert chromium, "no Chromium on this machine"
    times: dict[str, list[Timed]] = {}
    owner = connect(url)

    def note(name: str, taken: Timed) -> None:
        times.setdefault(name, []).append(taken)

    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=FLAGS)
        blank = browser.new_page()
        blank.set_default_timeout(PATIENCE)
        httpx.get(f"{address}/charts/delay?suite=central&prime=139", timeout=PATIENCE)
        for _ in range(repeats):
            note("empty page", milliseconds(lambda: blank.goto(f"{address}/view/none")))
            path = f"{VIEW}&prime=139"
            note("first chart, new visitor", first_chart(browser, address, path, known=False))
            note("first chart, again", first_chart(browser, address, path, known=True))
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(PATIENCE)
        page.goto(f"{address}{VIEW}&prime=139")
        page.wait_for_selector(SETTLED)
        for prime in PRIMES:
            note("switch primes, computed", switch(page, prime))
        for prime in PRIMES:
            note("switch primes, known", switch(page, prime))
        everything = f"{address}{VIEW}&prime=all"
        for _ in range(repeats):
            page.goto("about:blank")
            raise_revision(owner)
            time.sleep(NOTICED)
            note("all primes, computed", milliseconds(lambda: _arrive(page, everything)))
            page.goto("about:blank")
            note("all primes, known", milliseconds(lambda: _arrive(page, everything)))
        page.goto(f"{address}/view/runs?suite=central")
        page.wait_for_selector("[data-table][data-state=ready]")
        for _ in range(repeats):
            note("next 100 runs", turn_page(page))
        browser.close()
    owner.dispose()
    return times


def _arrive(page: Page, address: str) -> None:
    page.goto(address, wait_until="commit")
    page.wait_for_selector("main[data-state=settled]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="the central suite only")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--url", help="a database that is filled already")
    given = parser.parse_args()
    with paper_server(given.quick, given.url) as (address, url):
        times = measure(address, url, given.repeats)
    medians = {
        name: tuple(statistics.median(part) for part in zip(*values, strict=True))
        for name, values in times.items()
    }
    if given.json:
        print(json.dumps(medians))
        return
    print(f"load {os.getloadavg()[0]:.1f}")
    heads = ("ms", "least", "ratio", "page", "browser", "server", "n")
    print(f"{'':26}" + "".join(f"{head:>8}" for head in heads))
    for name, (middle, page, browser, server) in medians.items():
        least, n = min(taken[0] for taken in times[name]), len(times[name])
        ratio = f"{middle / medians['empty page'][0]:8.1f}"
        print(
            f"{name:26}{middle:8.0f}{least:8.0f}{ratio}{page:8.0f}{browser:8.0f}{server:8.0f}{n:8}"
        )


if __name__ == "__main__":
    main()
