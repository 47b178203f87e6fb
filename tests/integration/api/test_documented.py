"""A route that is not in the documentation, or a documented one that is not there, fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from groktime.api.app import create_app
from groktime.api.queries import AnswerQuery
from groktime.service.settings import Settings

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "api.md").read_text("utf-8")


def routes() -> set[str]:
    paths = create_app(Settings()).openapi()["paths"]
    return {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}


def test_the_table_of_routes_is_that_of_the_application() -> None:
    documented = set(re.findall(r"^\| `((?:GET|POST|DELETE) [^`]+)` \|", PAGE, re.MULTILINE))
    assert documented == routes()


@pytest.mark.parametrize("path", ["/", "/view/{name}", "/docs", "/openapi.json"])
def test_pages_are_mentioned(path: str) -> None:
    assert f"`{path}`" in PAGE


def test_every_parameter_of_a_question_is_documented_or_a_setting_of_runs() -> None:
    from groktime.service.spec import SETTING_COLUMNS

    for name in AnswerQuery.model_fields:
        assert (
            name in SETTING_COLUMNS
            or f"`{name}`" in PAGE
            or f"`{name}=" in PAGE
            or (name == "format" and "format=csv" in PAGE)
        ), name


def test_every_route_has_a_summary_and_a_response_described() -> None:
    for path, methods in create_app(Settings()).openapi()["paths"].items():
        for method, described in methods.items():
            assert described["summary"], (path, method)
            assert described["description"], (path, method)
