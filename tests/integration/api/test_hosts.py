"""The server answers to its own names only."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from fixtures.database import Database
from fixtures.http import asking


@pytest.fixture(scope="module")
def named(shared_seeded: Database) -> Iterator[httpx.Client]:
    """An API that is also called groktime.example and everything below lab.example."""
    hosts = "Groktime.example, *.lab.example"
    with asking(shared_seeded.url, allowed_hosts=hosts) as client:
        yield client


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:80", "LOCALHOST:1"])
def test_loopback_names_are_always_its_own(api: httpx.Client, host: str) -> None:
    assert api.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("rebound.example", "localhost.rebound.example", "127.0.0.1.rebound.example:8000"),
        *("localhost:rebound.example", "localhost:80/x", "[::1]rebound.example", "[", ""),
    ],
)
@pytest.mark.parametrize("path", ["/", "/suites", "/health", "/static/app.js", "/nothing"])
def test_a_name_of_somebody_else_is_refused(api: httpx.Client, host: str, path: str) -> None:
    refused = api.get(path, headers={"Host": host})
    assert refused.status_code == 400
    told = refused.json()
    assert told["parameter"] == "Host"
    assert "GROKTIME_ALLOWED_HOSTS" in told["accepted"]


def test_a_setting_adds_names(named: httpx.Client) -> None:
    for host in ("groktime.example", "a.lab.example:443", "localhost"):
        assert named.get("/health", headers={"Host": host}).status_code == 200
    for host in ("lab.example", "xlab.example", "groktime.example.org"):
        assert named.get("/health", headers={"Host": host}).status_code == 400


def test_any_name_can_be_allowed(shared_seeded: Database) -> None:
    with asking(shared_seeded.url, allowed_hosts="*") as client:
        assert client.get("/health", headers={"Host": "anything"}).status_code == 200
