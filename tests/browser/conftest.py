"""A real server on a seeded database, and Debian's Chromium looking at it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from fixtures.database import Database, Server, scratch_database
from fixtures.http import serving, settings_for
from fixtures.seeded import record, register
from fixtures.visitor import Visitor
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    Playwright,
    ViewportSize,
    sync_playwright,
)
from pydantic import SecretStr
from sqlalchemy import Engine

from groktime.api.app import create_app
from groktime.api.middleware import Limits
from groktime.db.claims import claim
from groktime.db.engine import connect
from groktime.db.export import dump_suite
from groktime.db.load import load_dump
from groktime.db.suites import open_runs
from groktime.service.answers.question import reading
from groktime.service.suites import Suite, load_suite
from groktime.service.suites.loader import check_stored

EXAMPLE = Path(__file__).parent.parent / "fixtures" / "example.yaml"
TOKEN = "a-token-for-tests"
READ_TOKEN = "a-token-for-reading"
RECORDED = """
description: A few runs that were trained elsewhere.
primes: [23]
seeds: [7]
stop: {max_epochs: 600}
speed:
  widths: [16, 24]
grok:
  widths: [16, 24]
"""
SCREEN: ViewportSize = {"width": 1440, "height": 900}
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
]


def chromium() -> str | None:
    """The browser of this machine."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    return None


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    """Chromium; without one the tests are skipped, except in CI, where that is a failure."""
    path = chromium()
    if path is None:
        message = "no Chromium on this machine: install Debian's chromium to run browser tests"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    opened = playwright.chromium.launch(executable_path=path, args=FLAGS)
    yield opened
    opened.close()


def train(engine: Engine, suite: Suite) -> None:
    """Register a suite and record made-up curves for all its runs."""
    ids = list(open_runs(engine, register(engine, suite)).values())
    record(engine, claim(engine, ids, "seeding", 600))


@pytest.fixture(scope="session")
def recording(
    database_server: Server, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A suite trained in another database and written to a file."""
    folder = tmp_path_factory.mktemp("recording")
    (folder / "recorded.yaml").write_text(RECORDED)
    path = folder / "recorded.groktime"
    with scratch_database(database_server, template_database) as elsewhere:
        train(elsewhere.engine, load_suite(folder / "recorded.yaml"))
        with reading(elsewhere.engine) as connection:
            dump_suite(connection, "recorded", path, dense=20)
    return path


@pytest.fixture(scope="session")
def example_database(
    database_server: Server, seeded_template: str, recording: Path
) -> Iterator[Database]:
    """The seeded suites, a larger one with all kinds of runs and a swept axis, the demo's runs
    (made up), and a suite loaded from a recording."""
    name = f"gt_browser_{os.getpid()}"
    engine = connect(database_server.create(name, seeded_template))
    train(engine, load_suite(EXAMPLE))
    train(engine, load_suite("demo"))
    load_dump(engine, recording, check_stored)
    yield Database(database_server.url(name), engine)
    engine.dispose()
    database_server.drop(name)


@pytest.fixture(scope="session")
def site(browser: Browser, example_database: Database) -> Iterator[str]:
    """Address of the dashboard."""
    settings = settings_for(example_database.url, api_token=SecretStr(TOKEN))
    settings = settings.model_copy(update={"default_suite": "example"})
    with serving(create_app(settings, Limits(heavy_burst=100_000))) as address:
        yield address


@pytest.fixture(scope="session")
def closed_site(browser: Browser, example_database: Database) -> Iterator[str]:
    """Address of the same dashboard where reading needs a token."""
    settings = settings_for(example_database.url, read_token=SecretStr(READ_TOKEN))
    with serving(create_app(settings, Limits(heavy_burst=100_000))) as address:
        yield address


@pytest.fixture(scope="session")
def api(site: str) -> Iterator[httpx.Client]:
    """The same server's API, to compare the page with."""
    with httpx.Client(base_url=site, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def profiles(browser: Browser) -> Iterator[dict[str, BrowserContext]]:
    """One profile a theme for all tests, so that the drawing library is read once."""
    opened = {
        theme: browser.new_context(
            viewport=SCREEN,
            color_scheme=theme,  # type: ignore[arg-type]
            accept_downloads=True,
            permissions=["clipboard-read", "clipboard-write"],
        )
        for theme in ("light", "dark")
    }
    yield opened
    for profile in opened.values():
        profile.close()


@pytest.fixture(scope="session")
def windows(profiles: dict[str, BrowserContext]) -> dict[str, list[Page]]:
    """Windows that nobody looks through at the moment: opening one takes Chromium longer than
    drawing a chart."""
    return {theme: [] for theme in profiles}


@pytest.fixture
def visit(
    profiles: dict[str, BrowserContext], windows: dict[str, list[Page]], site: str
) -> Iterator[Callable[..., Visitor]]:
    """Look at the dashboard in a theme, at the shared server unless another is named; what the
    page stored is forgotten afterwards."""
    visitors: list[tuple[str, Visitor]] = []

    def opened(theme: str = "light", at: str = site) -> Visitor:
        page = windows[theme].pop() if windows[theme] else profiles[theme].new_page()
        page.set_viewport_size(SCREEN)
        visitors.append((theme, Visitor(page, at)))
        return visitors[-1][1]

    yield opened
    for theme, visitor in visitors:
        visitor.leave()
        windows[theme].append(visitor.page)


@pytest.fixture
def visitor(visit: Callable[..., Visitor]) -> Visitor:
    return visit()


@pytest.fixture
def inside(visit: Callable[..., Visitor], closed_site: str) -> Visitor:
    """A visitor who has given the token that a closed server asks for."""
    visitor = visit(at=closed_site)
    visitor.open("/view/sweeps?suite=tiny")
    assert "asks for a token" in visitor.page.inner_text("main h1")
    visitor.page.fill("#read-token", READ_TOKEN)
    visitor.page.get_by_role("button", name="Read").click()
    visitor.page.wait_for_selector("main[data-view=sweeps][data-state=settled]")
    return visitor


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("browser")
