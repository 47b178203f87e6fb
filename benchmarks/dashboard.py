"""How long a visitor waits: time to the first chart, to switch primes, to page through runs.

    python -m benchmarks.dashboard [--quick] [--repeats N] [--json] [--url URL] [--beside TREE URL]

Fills a scratch embedded server with the suites of the paper, serves the API on loopback and
looks at it with Chromium. Times are milliseconds (medians, and the least, which other work disturbs
less); `ratio` is against loading a small document without a chart in the same run. `page`,
`browser` and `server` are medians of processor milliseconds, which say more than the time on a
machine that others use: of the thread that runs and draws the page, of all of Chromium, and of the
API without Postgres. Linux only: they are read from /proc. `--url` names a database that was filled
before by benchmarks/paper_database.py or benchmarks/api.py; the revisions of its suites are raised.
`--beside` names another checkout and a database that its own benchmarks have filled: both are
looked at by turns, and a column tells the time here as a share of the time there.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
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

ROOT = Path(__file__).resolve().parent.parent
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
]
SETTLED = "main[data-state=settled] .chart[data-state=ready]"
# Charts below the screen are drawn once those on it are there.
ALL_DRAWN = "!document.querySelector('.multiple[data-state=loading]')"
VIEW = "/view/delay?suite=central&method=robust&clock=online"
PRIMES = (97, 101, 103, 107, 109)
PAPER_ROWS, QUICK_ROWS = 2_000_000, 200_000
LOOKING_MS = 500  # a visitor looks at a chart before asking for the next
NOTICED = 0.3  # seconds after which the server has heard of a new revision
REST_MS, AT_REST = (
    500,
    15.0,
)  # Chromium rests when it takes less of the processor, in ms, in a while


# Milliseconds: of time, and of the processor in the page's thread, the browser and the server.
Timed = tuple[float, float, float, float]
PATIENCE = 300_000  # ms; a machine that others use may take long


@contextmanager
def paper_database(quick: bool, url: str | None) -> Iterator[str]:
    """The address of a database of the paper's size: a given one, or one of its own."""
    if url is not None:
        yield url
        return
    home = Path(tempfile.mkdtemp(prefix="gt-", dir="/tmp"))
    try:
        url = embedded.start(home)
        owner = connect(url, check_schema=False)
        migrate(owner)
        names = ("central",) if quick else PAPER
        runs, rows = fill(owner, names, QUICK_ROWS if quick else PAPER_ROWS)
        owner.dispose()
        print(f"{runs:,} runs and {rows:,} epochs of {len(names)} suites")
        yield url
    finally:
        embedded.stop(home)
        shutil.rmtree(home)


@contextmanager
def served(tree: Path, url: str) -> Iterator[str]:
    """The address of the API of a checkout, in a process of its own."""
    home = Path(tempfile.mkdtemp(prefix="gt-", dir="/tmp"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Before it had one importable name the packages lay at the top.
    command = "groktime.service.cli" if (tree / "groktime").is_dir() else "service.cli"
    settings = {
        "PYTHONPATH": str(tree),
        "GROKTIME_HOME": str(home),
        "GROKTIME_DATABASE_URL": url,
    }
    server = subprocess.Popen(
        [sys.executable, "-m", command, "serve", "--port", str(port)],
        cwd=tree,
        env={**os.environ, **settings},
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


def rest(page: Page) -> None:
    """Waits until Chromium has nothing to do.

    A window that has just opened loads pages of its own, such as its address bar's list of some
    four hundred scripts: as much work as the first chart, and no part of a visitor's wait.
    """
    before = _processors.used()["browser"]
    while True:
        page.wait_for_timeout(REST_MS)
        after = _processors.used()["browser"]
        if after - before < AT_REST:
            return
        before = after


def first_chart(browser: Browser, address: str, path: str, *, known: bool) -> Timed:
    """From entering the address to the drawn chart; `known`: the browser was here before."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    rest(page)

    def arrive() -> None:
        page.goto(address + path, wait_until="commit")
        page.wait_for_selector(SETTLED)

    if known:
        arrive()
        page.goto("about:blank")
        rest(page)
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


def measure(sites: Sequence[tuple[str, str]], repeats: int) -> list[dict[str, list[Timed]]]:
    """Times by what was done, for each site (its address and its database), taken by turns."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    assert chromium, "no Chromium on this machine"
    found: list[dict[str, list[Timed]]] = [{} for _ in sites]
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=FLAGS)
        for address, _ in sites:
            httpx.get(f"{address}/charts/delay?suite=central&prime=139", timeout=PATIENCE)
        for _ in range(repeats):
            for times, (address, _) in zip(found, sites, strict=True):
                arrivals(browser, address, times)
        for times, (address, url) in zip(found, sites, strict=True):
            visit(browser, address, url, repeats, times)
        browser.close()
    return found


def arrivals(browser: Browser, address: str, times: dict[str, list[Timed]]) -> None:
    """A small document, and the first chart for a new visitor and for one who was here before."""
    blank = browser.new_page()
    blank.set_default_timeout(PATIENCE)
    rest(blank)
    _note(times, "empty page", milliseconds(lambda: blank.goto(f"{address}/view/none")))
    blank.close()
    path = f"{VIEW}&prime=139"
    _note(times, "first chart, new visitor", first_chart(browser, address, path, known=False))
    _note(times, "first chart, again", first_chart(browser, address, path, known=True))


def visit(
    browser: Browser, address: str, url: str, repeats: int, times: dict[str, list[Timed]]
) -> None:
    """What a visitor does who stays: other primes, all of them, pages of runs."""
    owner = connect(url, check_schema=False)
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(PATIENCE)
    page.goto(f"{address}{VIEW}&prime=139")
    page.wait_for_selector(SETTLED)
    rest(page)
    for name in ("switch primes, computed", "switch primes, known"):
        for prime in PRIMES:
            _note(times, name, switch(page, prime))
            page.wait_for_timeout(LOOKING_MS)
    everything = f"{address}{VIEW}&prime=all"
    for _ in range(repeats):
        for name in ("all primes, computed", "all primes, known"):
            page.goto("about:blank")
            rest(page)
            if name == "all primes, computed":
                raise_revision(owner)
                time.sleep(NOTICED)
            start = time.perf_counter()
            _note(times, name, milliseconds(lambda: _arrive(page, everything)))
            page.wait_for_function(ALL_DRAWN)
            _note(times, f"{name}: all", (1000 * (time.perf_counter() - start), 0.0, 0.0, 0.0))
    page.goto(f"{address}/view/runs?suite=central")
    page.wait_for_selector("[data-table][data-state=ready]")
    for _ in range(repeats):
        _note(times, "next 100 runs", turn_page(page))
    page.close()
    owner.dispose()


def _note(times: dict[str, list[Timed]], name: str, taken: Timed) -> None:
    times.setdefault(name, []).append(taken)


def _arrive(page: Page, address: str) -> None:
    page.goto(address, wait_until="commit")
    page.wait_for_selector("main[data-state=settled]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="the central suite only")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--url", help="a database that is filled already")
    parser.add_argument(
        "--beside", nargs=2, metavar=("TREE", "URL"), help="another checkout and its database"
    )
    given = parser.parse_args()
    other, other_url = given.beside or (None, None)
    with ExitStack() as stack:
        url = stack.enter_context(paper_database(given.quick, given.url))
        sites = [(stack.enter_context(served(ROOT, url)), url)]
        if other:
            tree = Path(other).resolve()
            sites.append((stack.enter_context(served(tree, other_url)), other_url))
        found = measure(sites, given.repeats)
    medians = [
        {
            name: tuple(statistics.median(part) for part in zip(*values, strict=True))
            for name, values in times.items()
        }
        for times in found
    ]
    if given.json:
        print(json.dumps(medians[0] if not other else medians))
        return
    print(f"load {os.getloadavg()[0]:.1f}")
    heads = (
        "ms",
        "least",
        "ratio",
        "page",
        "browser",
        "server",
        "n",
        *(["share"] if other else []),
    )
    print(f"{'':26}" + "".join(f"{head:>8}" for head in heads))
    for name, (middle, page, browser, server) in medians[0].items():
        least, n = min(taken[0] for taken in found[0][name]), len(found[0][name])
        ratio = f"{middle / medians[0]['empty page'][0]:8.1f}"
        share = f"{middle / medians[1][name][0]:8.2f}" if other else ""
        print(
            f"{name:26}{middle:8.0f}{least:8.0f}{ratio}{page:8.0f}{browser:8.0f}{server:8.0f}"
            f"{n:8}{share}"
        )


if __name__ == "__main__":
    main()
