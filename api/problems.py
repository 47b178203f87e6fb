"""Errors as RFC 9457 problem documents that name the parameter and what is accepted."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnectionFree
from starlette.exceptions import HTTPException

from api.parameters import body_fields, query_fields
from service.answers.refusals import Ambiguous, NotEnough, Refusal, Unknown
from service.errors import (
    AnalysisError,
    ConfigurationError,
    DatabaseError,
    GroktimeError,
    InputError,
    SuiteError,
    SweepError,
)

PROBLEM_JSON = "application/problem+json"
RETRY_SECONDS = 5
STATEMENT_TIMEOUT = "57014"  # SQLSTATE query_canceled

log = logging.getLogger("api.problems")


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


def translate(error: Exception) -> ApiError:
    """The status and words for an error raised on purpose below the API."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, Refusal):
        status = 404 if isinstance(error, Unknown) else 422
        if isinstance(error, NotEnough):
            status = 409
        parameter = None if isinstance(error, Ambiguous) else error.parameter
        return ApiError(
            status,
            str(error),
            parameter=parameter or error.parameter,
            value=error.value,
            accepted=error.accepted,
        )
    if isinstance(error, DatabaseError):
        return ApiError(503, str(error), headers={"Retry-After": str(RETRY_SECONDS)})
    if isinstance(error, DataError):
        return ApiError(422, "a value is not one that the database can compare with")
    if isinstance(error, DBAPIError):
        return _database_problem(error)
    if isinstance(error, NoConnectionFree):
        retry = {"Retry-After": str(RETRY_SECONDS)}
        return ApiError(503, "all connections to the database are in use; try again", headers=retry)
    if isinstance(error, AnalysisError | SuiteError | InputError):
        return ApiError(422, str(error))
    if isinstance(error, SweepError | ConfigurationError):
        return ApiError(503, str(error))
    return ApiError(500, "the server failed to answer; its log has the reason")


def _database_problem(error: DBAPIError) -> ApiError:
    if getattr(error.orig, "pgcode", None) == STATEMENT_TIMEOUT:
        return ApiError(503, "the database took too long; ask for less or try again")
    if error.connection_invalidated or not getattr(error.orig, "pgcode", None):
        return ApiError(
            503,
            "the results database cannot be reached; try again",
            headers={"Retry-After": str(RETRY_SECONDS)},
        )
    return ApiError(500, "the server failed to answer; its log has the reason")


def _validation(request: Request, error: RequestValidationError) -> JSONResponse:
    first = error.errors()[0]
    where = [str(part) for part in first["loc"] if part not in ("query", "path", "body", "header")]
    parameter = ".".join(where) or str(first["loc"][-1])
    context = first.get("ctx") or {}
    accepted = context.get("expected")
    message = first["msg"]
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
            accepted=accepted if accepted is not None else message,
        ),
    )


def install(app: FastAPI) -> None:
    """Turn every error into a problem document."""

    async def on_error(request: Request, error: Exception) -> JSONResponse:
        told = translate(error)
        if told.status >= 500:
            level = logging.ERROR if told.status == 500 else logging.WARNING
            log.log(
                level,
                "request failed: %s",
                told.detail,
                exc_info=error if told.status == 500 else None,
                extra={"request_id": request.scope.get("request_id"), "path": request.url.path},
            )
        return document(request, told)

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
    app.add_exception_handler(Exception, on_error)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_validation)
