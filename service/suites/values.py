"""The values a suite file may give: lists of numbers, widths, settings and swept axes."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    create_model,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from groktime.service.errors import InputError
from groktime.service.spec import (
    MAX_WIDTH,
    MODEL_COLUMNS,
    OPTIMISER_COLUMNS,
    ModelSpec,
    ModularData,
    NamedOperation,
    OptimiserSpec,
    added_later,
    later,
)

MAX_VALUES = 10_000  # entries of one list of numbers
LONGEST_SHOWN = 200  # characters of a value that is not accepted

# Axes of the data: random-label runs of capacity do not depend on them.
DATA_AXES = ("operation", "train_fraction", "split", "labels")


def refuse(message: str, *at: str | int) -> PydanticCustomError:
    """A validation error at a place below the field being validated."""
    return PydanticCustomError("suite", "{message}", {"message": message, "at": at})


class Strict(BaseModel):
    """Frozen; unknown keys are refused with the nearest accepted one."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=False
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: Any) -> Any:
        if isinstance(value, BaseModel):
            return value
        if not isinstance(value, Mapping):
            raise refuse(f"{value!r} is not a mapping of fields")
        accepted = [field.alias or name for name, field in cls.model_fields.items()]
        for key in value:
            if key not in accepted:
                near = difflib.get_close_matches(str(key), accepted, 1)
                hint = f"did you mean {near[0]}? " if near else ""
                raise refuse(f"unknown key; {hint}accepted: {', '.join(accepted)}", key)
        return value

    @model_serializer(mode="wrap")
    def _without_neutral(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Fields added later are left out at their neutral value: old suites keep their hash."""
        content: dict[str, Any] = dump(self)
        for name, field in type(self).model_fields.items():
            if added_later(field) and getattr(self, name) == field.default:
                content.pop(field.alias or name, None)
        return content


class Span(Strict):
    """`{from: 20, to: 128, step: 4}`: both ends are included."""

    first: int = Field(alias="from")
    last: int = Field(alias="to")
    step: int = Field(default=1, ge=1)

    def values(self) -> range:
        return range(self.first, self.last + 1, self.step)


def _numbers(value: Any) -> tuple[int, ...]:
    """Whole numbers from a list of numbers and spans, or from one span."""
    items = value if isinstance(value, list | tuple) else [value]
    numbers: list[int] = []
    for index, item in enumerate(items):
        at = (index,) if isinstance(value, list | tuple) else ()
        if isinstance(item, Mapping):
            span = _span(item, at)
            if not span.values():
                raise refuse(f"from {span.first} to {span.last} is empty", *at)
            if (span.last - span.first) % span.step:
                raise refuse(
                    f"from {span.first} in steps of {span.step} never meets {span.last}", *at
                )
            if len(span.values()) > MAX_VALUES:
                raise refuse(f"has {len(span.values())} values; at most {MAX_VALUES}", *at)
            numbers.extend(span.values())
        elif isinstance(item, int) and not isinstance(item, bool):
            numbers.append(item)
        else:
            raise refuse(f"{item!r} is neither a whole number nor {{from: …, to: …, step: …}}", *at)
        if len(numbers) > MAX_VALUES:
            raise refuse(f"has more than {MAX_VALUES} values")
    refuse_none_or_repeated(numbers)
    return tuple(numbers)


def _span(item: Mapping[str, Any], at: tuple[int, ...]) -> Span:
    try:
        return Span.model_validate(item)
    except ValidationError as problem:
        first = problem.errors()[0]
        inner = first.get("ctx", {}).get("at", ())
        raise refuse(first["msg"], *at, *first["loc"], *inner) from None


def refuse_none_or_repeated(values: Sequence[Any], *at: str | int) -> None:
    """Lists of a suite have at least one value, and each of them once."""
    if not values:
        raise refuse("is empty; give at least one value", *at)
    if len(set(values)) < len(values):
        index = next(i for i, value in enumerate(values) if value in values[:i])
        raise refuse(f"{values[index]!r} is given twice", *at, index)


Numbers = Annotated[tuple[int, ...], BeforeValidator(_numbers)]


class NearParams(Strict):
    """Even widths whose parameter count is nearest to each target.

    A target is left out, and `suite show` says so, when even the nearest is further off than
    the tolerance.
    """

    near_params: Numbers
    tolerance: float = Field(default=0.15, gt=0, lt=1)


class FittingHeads(Strict):
    """Those of the widths that are multiples of twice the number of heads."""

    fitting_heads: Numbers


def _widths(value: Any) -> Any:
    if isinstance(value, Mapping) and "near_params" in value:
        near = NearParams.model_validate(value)
        for index, target in enumerate(near.near_params):
            if target < 1:
                raise refuse(f"{target} is not a number of parameters", "near_params", index)
        return near
    if isinstance(value, Mapping) and "fitting_heads" in value:
        chosen = FittingHeads.model_validate(value)
        check_widths(chosen.fitting_heads, "fitting_heads")
        return chosen
    numbers = _numbers(value)
    check_widths(numbers)
    return numbers


def check_widths(widths: tuple[int, ...], *at: str) -> None:
    """Widths are even and within bounds."""
    for index, width in enumerate(widths):
        if width % 2:
            raise refuse(f"{width} is odd; widths are even", *at, index)
        if not 2 <= width <= MAX_WIDTH:
            raise refuse(f"{width} is out of range; widths are 2 to {MAX_WIDTH}", *at, index)


Widths = Annotated[tuple[int, ...] | NearParams | FittingHeads, BeforeValidator(_widths)]


class StepsPerEpoch(Strict):
    """A batch size that gives about this many optimiser steps an epoch at every prime."""

    steps: float = Field(gt=0, le=100_000)


def _batch_size(value: Any) -> Any:
    if isinstance(value, Mapping):
        return StepsPerEpoch.model_validate(value)
    if value == "full" or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise refuse(f"{value!r} is not a whole number, full or {{steps: …}}")


BatchSize = Annotated[int | Literal["full"] | StepsPerEpoch, BeforeValidator(_batch_size)]


def _columns(part: type[BaseModel], *names: str) -> dict[str, Any]:
    """Type and default of a spec's fields; their limits are checked where the run is built."""
    fields = {name: part.model_fields[name] for name in names}
    return {
        name: (
            field.annotation,
            (later if added_later(field) else Field)(field.default, description=field.description),
        )
        for name, field in fields.items()
    }


if TYPE_CHECKING:
    _Columns = Strict
else:
    # Every hyperparameter of service/spec.py is a setting, by its name there.
    _Columns = create_model(
        "Columns",
        __base__=Strict,
        operation=(
            NamedOperation,
            Field("/", description="+ - * / or addition, subtraction, multiplication, division"),
        ),
        **_columns(ModularData, "train_fraction", "split"),
        labels=(
            Literal["random", "shuffled"],
            Field("random", description="of speed runs: random inputs, or the task's, permuted"),
        ),
        **_columns(ModelSpec, *MODEL_COLUMNS),
        **_columns(OptimiserSpec, *OPTIMISER_COLUMNS)
        | {
            "batch_size": (
                BatchSize,
                Field(512, description="examples a step, `full`, or `{steps: 12.4}` an epoch"),
            )
        },
        eval_train=(
            bool,
            Field(True, description="also record the eval clock of training (a pass more)"),
        ),
    )


class Setting(_Columns):
    """Values of a run's columns; what is not named keeps the default of service/spec.py."""

    def named(self) -> dict[str, Any]:
        """The fields that were written, typed."""
        return {name: getattr(self, name) for name in sorted(self.model_fields_set)}


AXES = tuple(Setting.model_fields)


def typed_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a suite holds them; a name or value that none can have is refused."""
    try:
        return Setting.model_validate(given).named()
    except ValidationError as problem:
        first = problem.errors()[0]
        # A refusal of its own names the field beside the error's place.
        at = (*first["loc"], *first.get("ctx", {}).get("at", ()))
        raise InputError(f"setting {'.'.join(map(str, at))}: {readable(first)}") from None


def _axes(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise refuse(f"{value!r} is not a mapping of axes to lists of values")
    typed: dict[str, tuple[Any, ...]] = {}
    for axis, values in value.items():
        if axis not in AXES:
            near = difflib.get_close_matches(str(axis), AXES, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise refuse(f"unknown axis; {hint}accepted: {', '.join(AXES)}", axis)
        if not isinstance(values, list | tuple):
            raise refuse(f"{values!r} is not a list of values", axis)
        typed[axis] = tuple(_axis_value(axis, item, index) for index, item in enumerate(values))
        refuse_none_or_repeated(typed[axis], axis)
    return typed


def _axis_value(axis: str, value: Any, index: int) -> Any:
    try:
        return getattr(Setting.model_validate({axis: value}), axis)
    except ValidationError as problem:
        raise refuse(readable(problem.errors()[0]), axis, index) from None


Axes = Annotated[dict[str, tuple[Any, ...]], BeforeValidator(_axes)]


def readable(error: Mapping[str, Any]) -> str:
    """A pydantic error as a sentence with the value."""
    kind, given = error["type"], error.get("input")
    if kind == "suite":
        return str(error["ctx"]["message"])
    if kind == "missing":
        return "is missing"
    if kind == "literal_error":
        return f"{given!r} is not accepted; accepted: {error['ctx']['expected']}"
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    shown = repr(given)
    if len(shown) > LONGEST_SHOWN:
        shown = f"{shown[:LONGEST_SHOWN]}…"
    return message if shown in message else f"{shown} is not accepted: {message}"
