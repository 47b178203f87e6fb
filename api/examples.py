"""Examples in the OpenAPI document: real answers, shortened, about a suite that ships recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI

# By route; written by scripts/api-examples.
PATH = Path(__file__).with_name("examples.json")

_ANSWERS: dict[str, Any] = json.loads(PATH.read_text()) if PATH.exists() else {}
# What the examples are about, so that asking for it gives the answer that is shown.
SUITES: list[Any] = [a["suite"] for a in (_ANSWERS.get("/crossing"),) if a]
PRIMES: list[Any] = [a["prime"] for a in (_ANSWERS.get("/crossing"),) if a]

TWINS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {}, "text/csv": {"schema": {"type": "string"}}}},
    304: {"description": "The client's copy (If-None-Match) is the current one."},
}


def show_examples(app: FastAPI) -> None:
    """Put the examples into the document as they are; FastAPI would leave out what is null."""
    written = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = written()
            for path, answer in _ANSWERS.items():
                content = document["paths"][path]["get"]["responses"]["200"]["content"]
                content["application/json"]["example"] = answer
        return written()

    app.openapi = openapi  # type: ignore[method-assign]
