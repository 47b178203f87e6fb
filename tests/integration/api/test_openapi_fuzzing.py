"""Random requests by the OpenAPI document: no 5xx, and every response is as described."""

from __future__ import annotations

import json

import httpx
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


def test_the_document_is_valid_and_has_examples(api: httpx.Client) -> None:
    document = api.get("/openapi.json").json()
    crossing = document["paths"]["/crossing"]["get"]["responses"]["200"]["content"]
    assert crossing["application/json"]["example"]["p_cross"]["estimate"]
    assert json.dumps(document)
