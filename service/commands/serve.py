"""`groktime serve`: the API and the dashboard over HTTP; `groktime demo`: the main job on one
machine, from an empty database to a crossing.
"""

from __future__ import annotations

import json
import os
import socket
import socket as socket_module
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from groktime.service.commands.suite import settle_change
from groktime.service.commands.sweep import cores, planned, ready_database, tell
from groktime.service.errors import ConfigurationError
from groktime.service.settings import Settings, get_settings
from groktime.service.suites import Suite, load_suite
from groktime.service.words import count, duration

if TYPE_CHECKING:
    import uvicorn
    from sqlalchemy import Engine


def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to bind to; default: GROKTIME_HOST.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that answer.")] = 1,
) -> None:
    """Answer questions over HTTP and show the dashboard.

    Examples:

    groktime serve

    groktime serve --host 0.0.0.0 --port 80 --workers 4
    """
    import uvicorn

    from groktime.api.server import OPTIONS

    settings = get_settings()
    bind = host or settings.host
    if settings.embedded:
        _start_embedded()
    if workers > 1 and (port if port is not None else settings.port) == 0:
        raise ConfigurationError("port = 0 needs --workers 1: workers share one known port")
    trusted = settings.trusted_proxies
    proxies = {"proxy_headers": True, "forwarded_allow_ips": trusted} if trusted else {}
    with bound(bind, settings.port if port is None else port) as socket, metrics_folder(workers):
        address, chosen = socket.getsockname()[:2]
        if workers == 1:
            socket.listen()  # who comes as soon as the address is told waits, and is not refused
        typer.echo(
            f"groktime serves http://{shown_host(address)}:{chosen} (Ctrl-C ends it)", err=True
        )
        options: dict[str, Any] = {
            "factory": True,
            "timeout_graceful_shutdown": 5,
            "timeout_worker_healthcheck": 60,  # a worker of a busy machine is not taken for dead
            **OPTIONS | proxies,
        }
        app = "groktime.api.server:served_app"
        if workers == 1:
            uvicorn.Server(uvicorn.Config(app, **options)).run(sockets=[socket])
            return
        socket.close()  # the workers' supervisor binds the port itself
        uvicorn.run(app, host=bind, port=chosen, workers=workers, **options)


@contextmanager
def bound(host: str, port: int) -> Iterator[socket_module.socket]:
    """A socket on the address; one that cannot be used is refused before anything starts."""
    with ExitStack() as stack:
        try:
            family, kind, protocol, _, address = socket_module.getaddrinfo(
                host, port, type=socket_module.SOCK_STREAM, flags=socket_module.AI_PASSIVE
            )[0]
            found = stack.enter_context(socket_module.socket(family, kind, protocol))
            found.setsockopt(socket_module.SOL_SOCKET, socket_module.SO_REUSEADDR, 1)
            found.bind(address)
        except OSError as error:
            raise ConfigurationError(
                f"host = {host}, port = {port} cannot be used ({error.strerror}): choose another "
                "with --host or --port"
            ) from error
        yield found


def shown_host(address: str) -> str:
    """The address as a browser takes it: every address of the machine is reached as localhost."""
    if address in ("0.0.0.0", "::"):
        return "localhost"
    return f"[{address}]" if ":" in address else address


@contextmanager
def metrics_folder(workers: int) -> Iterator[None]:
    """Where several workers count together: read by prometheus_client in each of them."""
    if workers == 1:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="groktime-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        yield


def _start_embedded() -> None:
    """One machine: the embedded server is started and its schema brought up to date."""
    from groktime.db import embedded
    from groktime.db.engine import connect_migrated

    connect_migrated(embedded.start(get_settings().home)).dispose()


HOST = "127.0.0.1"
RECORDINGS = Path(__file__).resolve().parents[2] / "recordings"
ANSWER_SECONDS = 60


def demo(
    check: Annotated[
        bool, typer.Option("--check", help="Print the crossing as one JSON line and end.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of API and dashboard; 0 takes a free one.")
    ] = 8000,
) -> None:
    """Train the demo suite on this machine, then serve API and dashboard.

    Started again it trains only what is missing. Examples:

    groktime demo

    groktime demo --check
    """
    from groktime.service.sweep.interruption import interruptible

    console = Console(stderr=check, highlight=False)
    settings = get_settings()
    suite = load_suite("demo")
    with interruptible(), listening(0 if check else port) as ours, database() as engine:
        load_recordings(engine, console)
        train(suite, engine, settings, console)
        console.print(f"3. {'computing the crossing' if check else 'serving'}: a few seconds")
        with serving(settings, ours) as server:
            address = f"http://{HOST}:{ours.getsockname()[1]}"
            answer = ask(address, suite)
            if check:
                sys.stdout.write(json.dumps(answer) + "\n")
                return
            announce(console, address, answer)
            server.wait()


@contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """The bound port, taken before any training so that a taken one is told at once."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((HOST, port))
        except OSError as error:
            raise ConfigurationError(
                f"port = {port} cannot be used ({error.strerror}): choose another with --port"
            ) from error
        yield bound


@contextmanager
def database() -> Iterator[Engine]:
    """The results database; an embedded server that was not running before is stopped after."""
    from groktime.db import embedded

    settings = get_settings()
    ours = settings.embedded and not embedded.is_running(settings.home)
    try:
        _, engine = ready_database()
        try:
            yield engine
        finally:
            engine.dispose()
    finally:
        if ours:
            embedded.stop(settings.home)


def load_recordings(engine: Engine, console: Console) -> None:
    """Put the shipped results beside the demo's own; those already there stay as they are."""
    from groktime.db.load import load_dump
    from groktime.service.suites.loader import check_stored

    recordings = sorted(RECORDINGS.glob("*.groktime"))
    console.print(f"1. loading recorded runs of {count(len(recordings), 'suite')}: half a minute")
    for recording in recordings:
        loaded = load_dump(engine, recording, check_stored)
        if loaded.taken:
            console.print(f"   {loaded.suite}: {count(loaded.taken, 'run')}")


def train(suite: Suite, engine: Engine, settings: Settings, console: Console) -> None:
    """Train what is missing of the suite through Ray Tune, with a progress bar."""
    from groktime.service.sweep.driver import run_sweep
    from groktime.service.sweep.selection import SweepOptions

    # Results of an earlier version's demo stay beside it.
    settle_change(suite, engine, replace=True)
    url = engine.url.render_as_string(hide_password=False)
    # Its models are too small for a GPU, which would be slower; one that was asked for is used.
    gpus = None if settings.device.startswith("cuda") else 0.0
    options = SweepOptions(gpus_per_bundle=gpus)
    plan = planned(suite, engine, options)
    if plan.to_train:
        takes = duration(plan.core_seconds / cores(options))
        console.print(
            f"2. training {count(plan.to_train, 'run')} through Ray Tune: about {takes} after half "
            f"a minute to start, if {count(cores(options), 'core')} have nothing else to do",
            soft_wrap=True,
        )
    else:
        console.print("2. nothing to train")
    job, report = run_sweep(suite, url, engine, settings, options, console)
    tell(job, report, console, as_json=False)


class Serving:
    """A server in a thread of its own, so that the main thread can ask it and be interrupted."""

    def __init__(self, server: uvicorn.Server, ours: socket.socket) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.run, args=([ours],), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until Ctrl-C."""
        self._thread.join()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()


@contextmanager
def serving(settings: Settings, ours: socket.socket) -> Iterator[Serving]:
    """API and dashboard on the bound socket until the block ends."""
    import uvicorn

    from groktime.api.app import create_app
    from groktime.api.server import OPTIONS

    config = uvicorn.Config(create_app(settings), timeout_graceful_shutdown=2, **OPTIONS)
    running = Serving(uvicorn.Server(config), ours)
    try:
        yield running
    finally:
        running.stop()


def ask(address: str, suite: Suite) -> dict[str, Any]:
    """The crossing of the suite's first prime, over HTTP; null with a reason where it is not."""
    import httpx

    prime = suite.runs()[0].data.prime
    # Retries cover the moment before the server listens.
    with httpx.Client(transport=httpx.HTTPTransport(retries=5), timeout=ANSWER_SECONDS) as client:
        response = client.get(f"{address}/crossing", params={"suite": suite.name, "prime": prime})
    body = response.json()
    answer: dict[str, Any] = {"suite": suite.name, "prime": prime}
    if response.is_error:
        return {**answer, "p_cross": None, "ci": None, "p_onset": None, "reason": body["detail"]}
    cross, onset = body["p_cross"], body["p_onset"]
    ci = [cross["low"], cross["high"]]
    answer |= {
        "p_cross": cross["estimate"],
        "ci": None if None in ci else ci,
        "p_onset": onset["estimate"],
    }
    reasons = [
        f"{name}: {why}"
        for name, value, why in (
            ("p_cross", answer["p_cross"], body["status"]),
            ("ci", answer["ci"], "fewer than 3 seeds in common, or no crossing in the resamples"),
            ("p_onset", answer["p_onset"], onset["rule"]),
        )
        if value is None
    ]
    return {**answer, "reason": "; ".join(reasons)} if reasons else answer


def announce(console: Console, address: str, answer: dict[str, Any]) -> None:
    """Where to look now."""
    if answer["p_cross"] is not None:
        console.print(
            f"\nMemorisation and generalisation cross at P = {answer['p_cross']:,.0f} "
            f"(p = {answer['prime']})."
        )
    console.print(f"\n  dashboard  {address}/")
    console.print(f"  crossing   {address}/crossing?prime={answer['prime']}&suite=demo")
    console.print(f"  API        {address}/docs\n\nCtrl-C ends it.")
