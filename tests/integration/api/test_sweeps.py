"""Sweeps started over HTTP: noted, submitted, shown and refused."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from fixtures.database import Database
from fixtures.http import asking

from groktime.api.client import Client, Refused
from groktime.service.suites import load_suite

DEMO = load_suite("demo")
# A width that only runs on the structured task have.
WIDE = max(run.model.width for run in load_suite("mini").runs() if run.kind == "grok")
BEARER = {"Authorization": "Bearer secret"}


@pytest.fixture
def api(seeded: Database) -> Iterator[httpx.Client]:
    """An API that may start sweeps, on a cluster that is not there."""
    with asking(seeded.url, api_token="secret", ray_jobs_address="http://127.0.0.1:9") as client:
        client.headers.update(BEARER)
        yield client


def test_a_cluster_that_is_away_is_a_503_and_the_sweep_is_noted_as_failed(
    api: httpx.Client,
) -> None:
    body = {"suite": "demo", "filters": {"kind": ["grok"]}, "resources": {"limit": 3}}
    refused = api.post("/sweeps", json=body)
    assert refused.status_code == 503
    assert refused.headers["content-type"] == "application/problem+json"
    (noted,) = api.get("/sweeps").json()["items"]
    assert (noted["suite"], noted["state"], noted["job_id"]) == ("demo", "failed", None)
    assert noted["filters"] == {"filters": {"kind": ["grok"]}, "resources": {"limit": 3}}
    detail = api.get(f"/sweeps/{noted['id']}").json()
    assert detail["log"] == []
    assert api.delete(f"/sweeps/{noted['id']}").status_code == 409


def test_the_notebook_client_starts_sweeps_with_its_token(api: httpx.Client) -> None:
    asked = {"filters": {"seed": [42]}, "resources": {"workers": 1}}
    with Client(str(api.base_url), token="secret") as client, pytest.raises(Refused) as refused:
        client.start_sweep("demo", **asked)
    assert refused.value.status == 503  # asked for and noted, but there is no cluster
    (noted,) = api.get("/sweeps").json()["items"]
    assert (noted["suite"], noted["filters"]) == ("demo", asked)
    with Client(str(api.base_url)) as client, pytest.raises(Refused) as refused:
        client.start_sweep("demo")
    assert refused.value.status == 401


def test_an_unknown_sweep_is_not_found(api: httpx.Client) -> None:
    assert api.get("/sweeps/77").status_code == 404
    assert api.delete("/sweeps/77").status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"suite": "absent"},
        {"suite": "../../etc/passwd"},
        {"suite": "demo.yaml"},
        {"suite": "demo; rm -rf /"},
        {"suite": "demo", "filters": {"kind": ["--address=evil"]}},
        {"suite": "demo", "filters": {"prime": ["47; true"]}},
        {"suite": "demo", "resources": {"gpus_per_bundle": -1}},
        {"suite": "demo", "shell": "true"},
        {"suite": "demo", "filters": {"prime": [999]}},
        {"suite": "demo", "filters": {"kind": ["capacity"]}},
        {"suite": "demo", "filters": {"settings": {"dropout": 0.3}}},
        {"suite": "demo", "filters": {"settings": {"dropout": "much"}}},
        {"suite": "demo", "filters": {"settings": {"--address": "evil"}}},
        {"suite": "mini", "filters": {"kind": ["capacity"], "width": [WIDE]}},
    ],
)
def test_a_sweep_that_cannot_be_is_refused_and_not_noted(
    api: httpx.Client, body: dict[str, object]
) -> None:
    assert api.post("/sweeps", json=body).status_code == 422
    assert api.get("/sweeps").json() == {"items": []}


@pytest.mark.parametrize(
    ("body", "parameter", "accepted"),
    [
        (
            {"suite": "demo", "filters": {"foo": 1}},
            "filters.foo",
            ["kind", "prime", "seed", "settings", "width"],
        ),
        (
            {"suite": "demo", "resources": {"cpus": 1}},
            "resources.cpus",
            ["gpus_per_bundle", "limit", "workers"],
        ),
        (
            {"suite": "demo", "shell": "true"},
            "shell",
            ["filters", "locate", "resources", "retry_failed", "suite"],
        ),
        ({"suite": "demo", "filters": {"prime": [999]}}, "filters.prime", sorted(DEMO.primes)),
        (
            {"suite": "dropout-two-cores", "filters": {"kind": ["grok"]}},
            "filters.kind",
            ["filters.prime", "filters.settings"],
        ),
        (
            {"suite": "demo", "resources": {"limit": 0}},
            "resources.limit",
            "greater than or equal to 1",
        ),
    ],
)
def test_a_refused_sweep_names_the_field_and_what_is_accepted(
    api: httpx.Client, body: dict[str, object], parameter: str, accepted: list[object]
) -> None:
    told = api.post("/sweeps", json=body).json()
    assert (told["status"], told["parameter"], told["accepted"]) == (422, parameter, accepted)


def test_a_body_that_is_no_json_is_refused_as_that(api: httpx.Client) -> None:
    told = api.post("/sweeps", content="{bad", headers={"Content-Type": "application/json"}).json()
    assert (told["status"], told["parameter"], told["detail"]) == (422, "body", "body: is not JSON")


def test_an_unknown_suite_is_told_the_names_there_are(api: httpx.Client) -> None:
    told = api.post("/sweeps", json={"suite": "absent"}).json()
    assert (told["parameter"], told["value"]) == ("suite", "absent")
    assert {"demo", "demo-released", "central"} <= set(told["accepted"])
    assert ".yaml" not in json.dumps(told)
