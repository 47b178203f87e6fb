"""Headers that browsers hold a page to."""

from __future__ import annotations

import re

import httpx
import pytest


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/crossing?prime=29", "/nothing", "/charts/delay?prime=29&format=html"]
)
def test_scripts_run_from_here_only_and_never_inline(api: httpx.Client, path: str) -> None:
    headers = api.get(path).headers
    policy = dict(
        part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
    )
    scripts = policy.get("script-src", policy["default-src"])
    assert "unsafe" not in scripts
    assert policy["default-src"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"


def test_other_sites_may_not_read(api: httpx.Client) -> None:
    response = api.get("/crossing?prime=29", headers={"Origin": "https://example.org"})
    assert "access-control-allow-origin" not in response.headers
    preflight = api.options(
        "/sweeps",
        headers={"Origin": "https://example.org", "Access-Control-Request-Method": "POST"},
    )
    assert "access-control-allow-origin" not in preflight.headers


@pytest.mark.parametrize("path", ["/docs", "/charts/delay?prime=29&format=html"])
def test_pages_load_nothing_from_elsewhere(api: httpx.Client, path: str) -> None:
    page = api.get(path).text
    files = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert files
    for file in files:
        assert file.startswith("/")
        assert api.get(file).status_code == 200
    assert not re.search(r"<script(?![^>]*(src=|application/json))", page)
