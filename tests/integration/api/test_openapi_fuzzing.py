"""Requests by the OpenAPI document: no 5xx, and every response is as described.

Three passes: what the document allows, most of which is refused; real questions about the suites
that are there, all of which are answered; and sweeps that are started and stopped, with no Ray.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest
import schemathesis
from fixtures.database import Database
from fixtures.http import asking
from fixtures.seeded import PRIMES
from hypothesis import HealthCheck, Phase, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from groktime.api.app import create_app
from groktime.service.settings import Settings

QUESTIONS = [
    "crossing",
    "onset",
    "delay",
    "regimes",
    "speeds",
    "capacity",
    "law",
    "delay_law",
    "tests",
]
# One never ends, the other draws every figure of a suite.
LEFT_OUT = ["/events", "/suites/{suite}/report"]
AS_DESCRIBED = [status_code_conformance, content_type_conformance, response_schema_conformance]


def bounded(examples: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def described(document: dict[str, Any]) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_dict(document)


DOCUMENT = create_app(Settings()).openapi()
schema = described(DOCUMENT)


@schema.exclude(path=LEFT_OUT).parametrize()
@bounded(5)
def test_every_operation_keeps_its_word(case: schemathesis.Case, api: httpx.Client) -> None:
    response = case.call(base_url=str(api.base_url))
    case.validate_response(response, checks=[not_a_server_error, *AS_DESCRIBED])


real = described(DOCUMENT)
real.config.generation.update(modes=[GenerationMode.POSITIVE])

# Parameters whose every value is answered; others ask for what a small suite may not have.
FREE = {"method", "clock", "units", "level", "format", "kind", "points", "order", "limit", "table"}
PICTURES = ("svg", "png")
ALL_PRIMES = "/charts/delay/primes"  # the only prime it takes is `all`


def about_what_is_there(case: schemathesis.Case) -> None:
    """Put the question to a suite, prime and run of the database, by the conventions drawn."""
    names = {parameter.name for parameter in case.operation.query}
    asked = {n: v for n, v in dict(case.query or {}).items() if n in FREE and v not in PICTURES}
    one = PRIMES[len(asked) % len(PRIMES)]
    prime = "all" if case.operation.path == ALL_PRIMES else one
    there = {"suite": "tiny", "prime": prime, "run": [1, 2]}
    case.query = asked | {n: v for n, v in there.items() if n in names}
    for name, value in {"suite": "tiny", "id": 1}.items():
        if name in case.path_parameters:
            case.path_parameters[name] = value


# What the small suite cannot answer: few of its primes have delays, and it lists its widths.
NOT_THERE = {"/delay_law": 409, "/suites/{suite}/placement": 422}


@real.include(method="GET").exclude(path=[*LEFT_OUT, "/sweeps/{id}"]).parametrize()
@bounded(3)
def test_every_real_question_is_answered(case: schemathesis.Case, api: httpx.Client) -> None:
    about_what_is_there(case)
    response = case.call(base_url=str(api.base_url))
    assert response.status_code == NOT_THERE.get(case.operation.path, 200), response.text
    case.validate_response(response, checks=AS_DESCRIBED)


writing = described(DOCUMENT)


@pytest.fixture(scope="module")
def starting(shared_seeded: Database) -> Iterator[httpx.Client]:
    """An API that may start sweeps, on a cluster that is not there."""
    away = "http://127.0.0.1:9"
    with asking(shared_seeded.url, api_token="secret", ray_jobs_address=away) as client:
        client.headers["Authorization"] = "Bearer secret"
        yield client


@writing.include(method=["POST", "DELETE"]).parametrize()
@bounded(4)
def test_sweeps_are_refused_or_noted_in_order(
    case: schemathesis.Case, starting: httpx.Client
) -> None:
    body = case.body
    if isinstance(body, dict) and isinstance(body.get("suite"), str):
        body["suite"] = "demo"
    if "id" in (case.path_parameters or {}) and case.path_parameters["id"] in range(1, 1000):
        case.path_parameters["id"] = 1
    case.headers = {"Authorization": "Bearer secret"}  # in place of what was drawn
    response = case.call(base_url=str(starting.base_url))
    assert response.status_code in (200, 404, 405, 409, 422, 503), response.text
    if response.status_code != 405:  # a path without its id is another path
        case.validate_response(response, checks=AS_DESCRIBED)
    noted = starting.get("/sweeps").json()["items"]
    assert {sweep["state"] for sweep in noted} <= {"failed"}


def test_a_question_of_the_documents_examples_is_the_one_that_is_shown() -> None:
    asked = DOCUMENT["paths"]["/crossing"]["get"]
    shown = asked["responses"]["200"]["content"]["application/json"]["example"]
    examples = {p["name"]: p["schema"].get("examples") for p in asked["parameters"]}
    assert (examples["prime"], examples["suite"]) == ([shown["prime"]], [shown["suite"]])


def test_examples_are_what_the_document_says_an_answer_is(api: httpx.Client) -> None:
    document = api.get("/openapi.json").json()
    shown = {}
    for path, operations in document["paths"].items():
        content = operations.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
        answer = content.get("application/json", {})
        if "example" in answer:
            schema = {**answer["schema"], "components": document["components"]}
            jsonschema.validate(answer["example"], schema)
            shown[path] = answer["example"]
    lists = ["/suites", "/suites/{suite}/coverage", "/suites/{suite}/cells"]
    runs = ["/runs", "/runs/{id}", "/runs/{id}/curve"]
    assert {*(f"/{name}" for name in QUESTIONS), *lists, *runs} <= shown.keys()
    assert shown["/crossing"]["p_cross"]["estimate"]
