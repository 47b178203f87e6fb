"""The parameters and fields that a route declares, read off the route itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin

from fastapi import Request
from pydantic import BaseModel
from pydantic.fields import FieldInfo

Fields = Mapping[str, FieldInfo]


def query_fields(request: Request) -> Fields:
    """The query parameters of the route that was asked, by name."""
    dependant = getattr(request.scope.get("route"), "dependant", None)
    found: dict[str, FieldInfo] = {}
    for parameter in getattr(dependant, "query_params", ()):
        model = _model(parameter.field_info.annotation)
        found |= {parameter.alias: parameter.field_info} if model is None else model.model_fields
    return found


def body_fields(request: Request, where: Sequence[str | int]) -> Fields:
    """The fields of the body, or of the part of it at `where`."""
    body = getattr(request.scope.get("route"), "body_field", None)
    model = None if body is None else _model(body.field_info.annotation)
    for part in where:
        field = None if model is None else model.model_fields.get(str(part))
        model = None if field is None else _model(field.annotation)
    return {} if model is None else model.model_fields


def _model(annotation: Any) -> type[BaseModel] | None:
    """The model among the types of an annotation, such as `Model | None`."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def is_list(annotation: Any) -> bool:
    """Whether a parameter may be given several times."""
    return get_origin(annotation) is list or any(is_list(part) for part in get_args(annotation))
