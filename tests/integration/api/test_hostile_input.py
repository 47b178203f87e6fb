"""Nothing a client sends reaches SQL, headers, files or the log as anything but a value."""

from __future__ import annotations

import httpx
import pytest
from fixtures.database import Database
from sqlalchemy import text

INJECTIONS = [
    "' OR 1=1 --",
    "tiny'; DROP TABLE runs; --",
    "1; SELECT pg_sleep(10)",
    "$$ || version() || $$",
    "%(suite)s",
    ":name",
    "\x00",
    "tiny\r\nSet-Cookie: a=b",
    "💥" * 50,
    "../../../etc/passwd",
]
PLACES = [
    "/crossing?suite={}",
    "/crossing?prime={}",
    "/crossing?prime=29&operation={}",
    "/crossing?prime=29&positions={}",
    "/runs?sort={}",
    "/runs?state={}",
    "/runs?key={}",
    "/runs?seed={}",
    "/runs?cursor={}",
    "/suites/{}",
    "/export/{}.csv",
    "/charts/residual?axis={}",
    "/events?suite={}",
    "/static/{}",
    "/docs/assets/{}",
]


@pytest.mark.parametrize("place", PLACES)
def test_injections_are_values_and_nothing_else(api: httpx.Client, place: str) -> None:
    from urllib.parse import quote

    for injection in INJECTIONS:
        response = api.get(place.format(quote(injection, safe="")))
        assert response.status_code in (200, 404, 422), (place, injection)
        assert "set-cookie" not in response.headers
        if response.status_code == 200:
            assert response.json()["items"] == []


def test_the_database_is_as_it_was(api: httpx.Client, shared_seeded: Database) -> None:
    with shared_seeded.engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM runs")) > 200


@pytest.mark.parametrize("name", ["x-request-id", "if-none-match", "last-event-id", "accept"])
def test_odd_headers_do_no_harm(api: httpx.Client, name: str) -> None:
    for value in (b"\xff" * 100, b'"' * 50, b"a" * 3000, b"%0d%0aX-Evil: 1"):
        response = api.get("/crossing?prime=29", headers={name: value})
        assert response.status_code in (200, 304)
        assert "x-evil" not in response.headers
        assert value not in response.headers["x-request-id"].encode("latin-1")


def test_a_log_line_cannot_be_forged(api: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    import logging

    with caplog.at_level(logging.INFO, logger="groktime.api"):
        api.get("/nothing%0a12:00:00 error forged")
    assert not any("\n" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../page.py",
        "/static/%2e%2e/page.py",
        "/static/..%2f..%2fpyproject.toml",
        "/static//etc/passwd",
        "/static/v-000000000000/..%2fpage.py",
        "/static/v-000000000000//etc/passwd",
    ],
)
def test_no_file_outside_the_folder_is_served(api: httpx.Client, path: str) -> None:
    assert api.get(path).status_code == 404
