"""How the first page arrives: what it needs is asked early, and nothing twice."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, Route

pytestmark = pytest.mark.browser


def test_the_first_page_asks_early_and_nothing_twice(browser: Browser, site: str) -> None:
    page = browser.new_page()
    asked: list[str] = []

    def note(request: Request) -> None:
        parts = urlsplit(request.url)
        asked.append(f"{parts.path}?{parts.query}" if parts.query else parts.path)

    page.on("request", note)
    # The page's own script is kept back until its first questions have been asked.
    page.route("**/page.js", lambda route: wait_for(page, asked, "/start?of=cell", route))
    page.goto(f"{site}/")
    page.wait_for_selector("main[data-state=settled]")
    page.close()
    data = [path for path in asked if not path.startswith("/static/") and path != "/events"]
    assert len(data) == len(set(data))
    assert {"/suites", "/start?of=cell"} <= set(data)


@pytest.mark.parametrize(
    "path", ["/", "/view/delay", "/view/delay?suite=tiny&prime=29&method=robust&clock=online"]
)
def test_the_first_chart_is_asked_before_its_view_is_there_and_once(
    browser: Browser, site: str, path: str
) -> None:
    page = browser.new_page()
    charts: list[str] = []

    def note(request: Request) -> None:
        if urlsplit(request.url).path == "/charts/delay":
            charts.append(request.url)

    page.on("request", note)
    # The script is kept back until the chart has been asked for.
    page.route("**/page.js", lambda route: wait_for_chart(page, charts, route))
    page.goto(f"{site}{path}")
    page.wait_for_selector("main[data-state=settled] .chart[data-state=ready]")
    shown = page.locator(".chart").get_attribute("data-shown")
    page.close()
    assert charts[0] == f"{site}/charts/delay?{shown}"
    assert charts.count(charts[0]) == 1


def test_all_primes_are_asked_for_once_and_early(browser: Browser, site: str) -> None:
    page = browser.new_page()
    charts: list[str] = []

    def note(request: Request) -> None:
        if urlsplit(request.url).path.startswith("/charts/"):
            charts.append(request.url)

    page.on("request", note)
    page.route("**/page.js", lambda route: wait_for_chart(page, charts, route))
    page.goto(f"{site}/view/delay?suite=tiny&prime=all&method=robust&clock=online")
    page.wait_for_selector("main[data-state=settled] .multiple[data-state=ready]")
    drawn = page.locator(".multiple[data-state=ready]").count()
    page.close()
    assert drawn > 1
    assert len(charts) == 1, "one question for all of them"


def test_charts_below_the_screen_come_by_themselves(browser: Browser, site: str) -> None:
    page = browser.new_page(viewport={"width": 400, "height": 300})
    page.goto(f"{site}/view/delay?suite=tiny&prime=all&method=robust&clock=online")
    page.wait_for_selector("main[data-state=settled]")
    page.wait_for_selector(".multiple:last-child[data-state=ready] .main-svg")
    waiting = page.locator(".multiple:not([data-state=ready])").count()
    caption = page.locator(".multiples + .caption").inner_text()
    page.close()
    assert waiting == 0
    assert "suite tiny" in caption


def wait_for(page: Page, asked: list[str], path: str, route: Route) -> None:
    while path not in asked:
        page.wait_for_timeout(20)
    route.continue_()


def wait_for_chart(page: Page, charts: list[str], route: Route) -> None:
    while not charts:
        page.wait_for_timeout(20)
    route.continue_()


def test_a_chart_is_drawn_though_the_drawing_library_is_there_before_the_body(
    browser: Browser, site: str
) -> None:
    page = browser.new_page()
    address = f"{site}/view/delay?suite=tiny&prime=29"

    def hold_the_body(route: Route) -> None:
        html = route.fetch().text().replace("</head>", '<script src="/held.js"></script></head>')
        route.fulfill(body=html, content_type="text/html")

    def library_first(route: Route) -> None:
        page.evaluate(
            """async () => {
                while (!window.groktimePlotly) await new Promise((next) => setTimeout(next));
                if (document.body) throw new Error("The body is not held back.");
                const script = document.querySelector("script[src$='plotly.min.js']");
                if (script) await window.groktimePlotly.catch(() => {});
            }"""
        )
        route.fulfill(body="", content_type="text/javascript")

    page.route(address, hold_the_body)
    page.route("**/held.js", library_first)
    page.goto(address)
    page.wait_for_selector("main[data-state=settled]")
    state = page.locator(".chart").get_attribute("data-state")
    page.close()
    assert state == "ready"


def test_the_neighbours_of_a_prime_are_asked_for_before_they_are_wanted(
    browser: Browser, site: str
) -> None:
    page = browser.new_page()
    with page.expect_request(lambda request: "prime=31" in request.url):
        page.goto(f"{site}/view/delay?suite=tiny&prime=29")
    page.close()


def test_an_address_that_names_its_cell_asks_for_no_other(browser: Browser, site: str) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    page.goto(f"{site}/view/delay?suite=tiny&prime=29")
    page.wait_for_selector("main[data-state=settled]")
    page.close()
    assert asked.count("/suites") == 1
    assert "/start" not in asked
