"""What a route may be asked, and examples of its answers.

Query parameters are strict models: an unknown name, or a value given twice, is refused and not
ignored.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from groktime.api.problems import ApiError, is_list, query_fields
from groktime.service.answers.question import (
    DEFAULT_LEVEL,
    Clock,
    Labels,
    Method,
    Question,
    QuestionError,
    Units,
)
from groktime.service.settings import Settings
from groktime.service.spec import (
    MAX_DEPTH,
    MAX_PRIME,
    MAX_WIDTH,
    SUITE_NAME,
    Operation,
    Positions,
    Split,
)

MAX_INTEGER = 2**31 - 1

# Real answers, shortened, about a suite that ships recorded, by route.
# Written by scripts/api-examples.
EXAMPLES = Path(__file__).with_name("examples.json")

_ANSWERS: dict[str, Any] = json.loads(EXAMPLES.read_text()) if EXAMPLES.exists() else {}
# What the examples are about, so that asking for it gives the answer that is shown.
SUITES: list[Any] = [a["suite"] for a in (_ANSWERS.get("/crossing"),) if a]
PRIMES: list[Any] = [a["prime"] for a in (_ANSWERS.get("/crossing"),) if a]

TWINS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {}, "text/csv": {"schema": {"type": "string"}}}},
    304: {"description": "The client's copy (If-None-Match) is the current one."},
}

WORDS = {"addition": "+", "subtraction": "-", "multiplication": "*", "division": "/", " ": "+"}


def _symbol(value: Any) -> Any:
    # A plus sign that was not escaped arrives as a space.
    return WORDS.get(value, value) if isinstance(value, str) else value


SuiteName = Annotated[str, Field(pattern=SUITE_NAME)]
Accuracy = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Real = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Format = Literal["json", "csv"]


class StrictQuery(BaseModel):
    """Refuses parameters it does not know."""

    model_config = ConfigDict(extra="forbid")


class FormatQuery(StrictQuery):
    """`format`, for every route that has a CSV twin."""

    format: Format | None = Field(
        None, description="json (default) or csv; `Accept: text/csv` does the same"
    )


class SettingQuery(FormatQuery):
    """Values of the swept axes, which choose one cell among those of a prime."""

    operation: Annotated[Operation | None, BeforeValidator(_symbol)] = Field(
        None, description="`+ - * /`, escaped, or addition, subtraction, ..."
    )
    train_fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    split: Split | None = None
    architecture: Literal["transformer", "mlp"] | None = None
    depth: Annotated[int, Field(ge=1, le=MAX_DEPTH)] | None = None
    heads: Annotated[int, Field(ge=1, le=MAX_WIDTH)] | None = None
    positions: Positions | None = None
    norm: Literal["rms", "layer"] | None = None
    ffn: Literal["gated", "plain"] | None = None
    released_head_projection: bool | None = None
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    init_scale: Real | None = None
    lr: Real | None = None
    beta1: Real | None = None
    beta2: Real | None = None
    eps: Real | None = None
    weight_decay: Real | None = None
    batch_size: Annotated[int, Field(ge=1, le=MAX_INTEGER)] | Literal["full"] | None = None
    warmup: Annotated[int, Field(ge=0, le=MAX_INTEGER)] | None = None


AXES = tuple(name for name in SettingQuery.model_fields if name != "format")


class AnswerQuery(SettingQuery):
    """Which cell is asked about, and by which convention."""

    prime: Annotated[int, Field(ge=2, le=MAX_PRIME)] | None = Field(
        None,
        description="p (120 for S5); default: one that has a crossing and an onset",
        examples=PRIMES,
    )
    suite: SuiteName | None = Field(
        None,
        description="default: GROKTIME_DEFAULT_SUITE, else the one that can answer best",
        examples=SUITES,
    )
    labels: Labels | None = Field(None, description="labels of the speed runs")
    method: Method | None = Field(None, description="default: the suite's, else robust")
    clock: Clock | None = Field(None, description="training clock; default: the suite's, online")
    units: Units = Field("epochs", description="of speeds: epochs or optimiser steps")
    t_mem: Accuracy | None = Field(None, description="training accuracy that is memorisation")
    t_gen: Accuracy | None = Field(None, description="validation accuracy that is generalisation")
    e_train: Accuracy | None = Field(None, description="training accuracy where a delay begins")
    e_val: Accuracy | None = Field(None, description="validation accuracy where a delay ends")
    min_delay: Annotated[float, Field(ge=1, le=MAX_INTEGER)] | None = Field(
        None, description="least delay that counts, epochs; default: the suite's, 1"
    )
    min_delay_share: Annotated[float, Field(ge=0, le=1e6)] | None = Field(
        None, description="least delay that counts, share of E_train; default: the suite's, 0"
    )
    max_width: Annotated[int, Field(ge=2, le=MAX_WIDTH)] | None = Field(
        None, description="leave wider models out; default: the suite's"
    )
    level: Annotated[float, Field(ge=0.5, le=0.999)] = Field(
        DEFAULT_LEVEL, description="of confidence intervals"
    )

    def question(self, settings: Settings) -> Question:
        """The question these parameters put."""
        asked = {name: getattr(self, name) for name in Question.__dataclass_fields__ if name in _Q}
        filters = {name: value for name in AXES if (value := getattr(self, name)) is not None}
        return Question(**asked, default_suite=settings.default_suite, filters=filters)


_Q = set(AnswerQuery.model_fields) - set(SettingQuery.model_fields)


class LawQuery(AnswerQuery):
    """The laws also take the window of capacity fractions that is fitted."""

    f_min: Annotated[float, Field(ge=0, le=1e6)] | None = Field(None, description="window of f")
    f_max: Annotated[float, Field(ge=0, le=1e6)] | None = Field(None, description="window of f")


def fraction_window(query: LawQuery) -> tuple[float, float] | None:
    """The window of capacity fractions that is asked for; None: the suite's."""
    low, high = query.f_min, query.f_max
    if low is None and high is None:
        return None
    if low is None or high is None:
        missing = "f_min" if low is None else "f_max"
        raise QuestionError(missing, None, "both ends of a window", "is missing")
    if low >= high:
        raise QuestionError("f_max", high, f"above {low:g}", f"{high:g} is not above f_min")
    return low, high


class TestsQuery(AnswerQuery):
    """The tests have several tables; their CSV twin is one of them."""

    __test__ = False

    table: Literal["cells", "pooled", "models", "within", "apart"] = Field(
        "cells", description="which table the CSV twin gives"
    )


async def given_once(request: Request) -> None:
    """Refuse a parameter that is given twice but has one value: none of them is the right one."""
    counted = Counter(name for name, _ in request.query_params.multi_items())
    if not counted or max(counted.values()) == 1:
        return
    fields = query_fields(request)
    for name, times in counted.items():
        if times > 1 and name in fields and not is_list(fields[name].annotation):
            raise ApiError(
                422,
                f"{name}: given {times} times, but takes one value",
                parameter=name,
                value=request.query_params.getlist(name),
                accepted="one value",
            )


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
