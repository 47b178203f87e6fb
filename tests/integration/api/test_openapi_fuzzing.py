"""Random requests by the OpenAPI document: no 5xx, and every response is as described."""

from __future__ import annotations

import httpx
import jsonschema
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api import create_app
from service.settings import Settings

EXAMPLES = 5
# One never ends, the other draws every figure of a suite.
QUESTIONS = ["crossing", "onset", "delay", "regimes", "speeds", "capacity", "law", "tests"]
LEFT_OUT = ["/events", "/suites/{suite}/report"]


schema = schemathesis.openapi.from_dict(create_app(Settings()).openapi())


@schema.exclude(path=LEFT_OUT).parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_operation_keeps_its_word(case: schemathesis.Case, api: httpx.Client) -> None:
    response = case.call(base_url=str(api.base_url))
    case.validate_response(
        response,
        checks=[
            not_a_server_error,
            status_code_conformance,
            content_type_conformance,
            response_schema_conformance,
        ],
    )


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
