"""Errors as RFC 9457 problem documents that name the parameter and what is accepted."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, get_args, get_origin

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnectionFree
from starlette.exceptions import HTTPException

from groktime.service.answers.question import NotEnough, QuestionError, Unknown
from groktime.service.errors import (
    AnalysisError,
    ConfigurationError,
    DatabaseError,
    GroktimeError,
    InputError,
    SchemaError,
    SuiteError,
    SweepError,
)

PROBLEM_JSON = "application/problem+json"
RETRY_SECONDS = 5
UNREACHABLE = "the results database cannot be reached; try again, or see the server's log"
STATEMENT_TIMEOUT = "57014"  # SQLSTATE query_canceled

Fields = Mapping[str, FieldInfo]

log = logging.getLogger("groktime.api.problems")


class Problem(BaseModel):
    """What went wrong, in the shape of RFC 9457."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": "about:blank",
                "title": "Not Found",
                "status": 404,
                "detail": "prime: 114 is not in central",
                "instance": "/crossing",
                "parameter": "prime",
                "value": 114,
                "accepted": [97, 101, 103, 107, 109, 113, 127, 131, 137, 139],
            }
        }
    )

    type: str = "about:blank"
    title: Annotated[str, Field(description="the status in words")]
    status: int
    detail: Annotated[str, Field(description="what is wrong with this request, in one line")]
    instance: Annotated[str, Field(description="path of the request")]
    parameter: Annotated[str | None, Field(description="the parameter that is refused")] = None
    value: Annotated[Any, Field(description="its value")] = None
    accepted: Annotated[
        Any, Field(description="what would be accepted: values, axes with values, or words")
    ] = None
    request_id: str | None = None


def described(words: str) -> dict[str, Any]:
    """A refusal's entry among the responses of the OpenAPI document."""
    return {"model": Problem, "description": words, "content": {PROBLEM_JSON: {}}}


class ApiError(Exception):
    """A request the API itself refuses, such as one without the token it needs."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        parameter: str | None = None,
        value: object = None,
        accepted: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.parameter = parameter
        self.value = value
        self.accepted = accepted
        self.headers = dict(headers or {})


def document(request: Request, error: ApiError) -> JSONResponse:
    """The problem document of one refused request."""
    problem = Problem(
        title=HTTPStatus(error.status).phrase,
        status=error.status,
        detail=error.detail,
        instance=request.url.path,
        parameter=error.parameter,
        value=jsonable_encoder(error.value),
        accepted=jsonable_encoder(error.accepted),
        request_id=request.scope.get("request_id"),
    )
    return JSONResponse(
        problem.model_dump(exclude_none=True),
        status_code=error.status,
        media_type=PROBLEM_JSON,
        headers={"Cache-Control": "no-store", **error.headers},
    )


def refusal(error: Exception) -> dict[str, Any]:
    """What a part of an answer says in place of what it cannot give."""
    told = translate(error)
    return {
        "status": told.status,
        "detail": told.detail,
        "parameter": told.parameter,
        "accepted": jsonable_encoder(told.accepted),
    }


def translate(error: Exception) -> ApiError:
    """The status and words for an error raised on purpose below the API."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QuestionError):
        status = 404 if isinstance(error, Unknown) else 422
        if isinstance(error, NotEnough):
            status = 409
        return ApiError(
            status,
            str(error),
            parameter=error.parameter,
            value=error.value,
            accepted=error.accepted,
        )
    if isinstance(error, DatabaseError):
        # What it says may name the database's user, address and files; that is for the log.
        said = str(error) if isinstance(error, SchemaError) else UNREACHABLE
        return ApiError(503, said, headers={"Retry-After": str(RETRY_SECONDS)})
    if isinstance(error, DataError):
        return ApiError(422, "a value is not one that the database can compare with")
    if isinstance(error, DBAPIError):
        return _database_problem(error)
    if isinstance(error, NoConnectionFree):
        retry = {"Retry-After": str(RETRY_SECONDS)}
        return ApiError(503, "all connections to the database are in use; try again", headers=retry)
    if isinstance(error, AnalysisError | SuiteError | InputError):
        return ApiError(422, str(error))
    if isinstance(error, SweepError):
        return ApiError(503, str(error))
    if isinstance(error, ConfigurationError):
        return ApiError(503, "the server is not configured for this; its log has the reason")
    return ApiError(500, "the server failed to answer; its log has the reason")


def _database_problem(error: DBAPIError) -> ApiError:
    if getattr(error.orig, "pgcode", None) == STATEMENT_TIMEOUT:
        return ApiError(503, "the database took too long; ask for less or try again")
    if error.connection_invalidated or not getattr(error.orig, "pgcode", None):
        return ApiError(503, UNREACHABLE, headers={"Retry-After": str(RETRY_SECONDS)})
    return ApiError(500, "the server failed to answer; its log has the reason")


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


def _validation(request: Request, error: RequestValidationError) -> JSONResponse:
    first = error.errors()[0]
    where = [str(part) for part in first["loc"] if part not in ("query", "path", "body", "header")]
    parameter = ".".join(where) or str(first["loc"][-1])
    context = first.get("ctx") or {}
    accepted = context.get("expected")
    message = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if accepted is None and message.startswith("should be "):
        accepted = message.removeprefix("should be ").partition(", unable")[0]
    if first["type"] == "json_invalid":
        parameter, accepted, message = "body", "a JSON object", "is not JSON"
    if first["type"] == "extra_forbidden":
        in_body = first["loc"][0] == "body"
        known = body_fields(request, first["loc"][1:-1]) if in_body else query_fields(request)
        accepted = sorted(known)
        message = "no such field" if in_body else "no such parameter"
    return document(
        request,
        ApiError(
            422,
            f"{parameter}: {message}",
            parameter=parameter,
            value=first.get("input") if first["type"] != "missing" else None,
            accepted=accepted,
        ),
    )


async def on_error(request: Request, error: Exception) -> JSONResponse:
    """The problem document of an error; the log has what the client is not told."""
    told = translate(error)
    if told.status >= 500:
        level = logging.ERROR if told.status == 500 else logging.WARNING
        log.log(
            level,
            "request failed: %s",
            told.detail if told.status == 500 else str(error).strip().partition("\n")[0],
            exc_info=error if told.status == 500 else None,
            extra={"request_id": request.scope.get("request_id"), "path": request.url.path},
        )
    return document(request, told)


def install(app: FastAPI) -> None:
    """Turn every error that is expected into a problem document; `Observed` has the others."""

    async def on_http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        detail = {
            404: f"there is no {request.url.path}; see /docs",
            405: f"{request.method} is not offered here",
        }.get(error.status_code, str(error.detail))
        headers = dict(error.headers or {})
        if "GET" in headers.get("Allow", ""):
            headers["Allow"] += ", HEAD"
        return document(request, ApiError(error.status_code, detail, headers=headers))

    async def on_validation(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return _validation(request, error)

    for kind in (ApiError, GroktimeError, DBAPIError, NoConnectionFree):
        app.add_exception_handler(kind, on_error)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_validation)
