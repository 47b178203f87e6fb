"""Examples in the OpenAPI document: real answers, shortened, about a suite that ships recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI

# By route; written by scripts/api-examples.
PATH = Path(__file__).with_name("examples.json")

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
            for path, answer in json.loads(PATH.read_text()).items():
                content = document["paths"][path]["get"]["responses"]["200"]["content"]
                content["application/json"]["example"] = answer
        return written()

    app.openapi = openapi  # type: ignore[method-assign]
