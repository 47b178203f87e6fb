"""What a suite file may say: strict pydantic models of its fields.

A suite is a grid: primes × seeds × swept axes × widths, for each kind of run it has.
Settings are named as the columns of a run (service/spec.py), so a suite, a table and a
route use one vocabulary.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from service.spec import KINDS, MAX_EPOCHS, MAX_WIDTH, Kind, Positions
from service.suites.meaning import refuse_meaningless
from service.suites.values import (
    Axes,
    Numbers,
    Setting,
    Strict,
    Widths,
    refuse,
    refuse_none_or_repeated,
)

WIDEST_FRACTION = 1e6  # of a window of capacity fractions


class StopRule(Strict):
    """When runs end; each kind reads the fields that concern it."""

    train: float = Field(default=0.99, gt=0, le=1)
    val: float = Field(default=0.99, gt=0, le=1)
    max_epochs: int = Field(default=5000, ge=1, le=MAX_EPOCHS)
    patience: int = Field(default=100, ge=1, le=MAX_EPOCHS)
    min_improvement: float = Field(default=1e-4, ge=0, le=1)


class Block(Strict):
    """One kind of run: its widths, and what differs from the suite."""

    widths: Widths
    primes: Numbers | None = None
    seeds: Numbers | None = None
    settings: Setting = Setting()
    axes: Axes = Field(default_factory=dict)
    variants: tuple[str, ...] | None = None
    stop: StopRule = StopRule()

    @field_validator("variants", mode="before")
    @classmethod
    def _list_of_names(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple) or not value:
            raise refuse(f"{value!r} is not a list of variants")
        return tuple(value)

    @field_validator("variants")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        refuse_none_or_repeated(value)
        return value


class CapacityBlock(Block):
    """Capacity runs also sweep the number of random-label examples."""

    examples: Numbers


def _blocks(value: Any) -> Any:
    """One block, or a list of blocks where parts of a kind have grids of their own."""
    if isinstance(value, list | tuple):
        if not value:
            raise refuse("is empty; give a block or leave the kind out")
        return tuple(value)
    return (value,)


class Inheritance(Strict):
    """Cells of another suite that this one's analyses count as their own."""

    suite: str
    primes: Numbers | None = None
    settings: Setting = Setting()
    kinds: tuple[Kind, ...] = KINDS

    @field_validator("kinds", mode="before")
    @classmethod
    def _tuple(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("kinds")
    @classmethod
    def _each_once(cls, value: tuple[Kind, ...]) -> tuple[Kind, ...]:
        refuse_none_or_repeated(value)
        return value


class Thresholds(Strict):
    """Accuracies whose first epochs are the clocks of the paper."""

    t_mem: float = Field(default=0.99, gt=0, le=1)
    t_gen: float = Field(default=0.99, gt=0, le=1)
    e_train: float = Field(default=0.99, gt=0, le=1)
    e_val: float = Field(default=0.98, gt=0, le=1)


class Analysis(Strict):
    """How the suite means to be analysed; frozen with it, so that it is decided beforehand."""

    thresholds: Thresholds = Thresholds()
    max_width: int | None = Field(default=None, ge=2, le=MAX_WIDTH)
    axes: tuple[str, ...] | None = None
    baselines: tuple[Literal["log_p", "log_k_mem"], ...] = ("log_p", "log_k_mem")
    clock: Literal["online", "eval"] = "online"
    method: Literal["robust", "paper"] = "robust"
    fraction_window: tuple[float, float] = (0.0, 0.25)

    @field_validator("axes", "baselines", "fraction_window", mode="before")
    @classmethod
    def _tuple(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("axes", "baselines")
    @classmethod
    def _each_once(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None:
            refuse_none_or_repeated(value)
        return value

    @field_validator("fraction_window")
    @classmethod
    def _from_low_to_high(cls, value: tuple[float, float]) -> tuple[float, float]:
        low, high = value
        if not 0 <= low < high <= WIDEST_FRACTION:
            raise refuse(
                f"[{low:g}, {high:g}] is no window; accepted: two numbers from 0 to "
                f"{WIDEST_FRACTION:g}, the lower one first"
            )
        return value


class SuiteFile(Strict):
    """A whole suite file."""

    description: str = Field(min_length=1, max_length=2000)
    task: Literal["modular", "permutation"] = "modular"
    positions: Positions = "rope"
    primes: Numbers | None = None
    seeds: Numbers
    settings: Setting = Setting()
    axes: Axes = Field(default_factory=dict)
    variants: dict[str, Setting] = Field(default_factory=dict)
    stop: StopRule = StopRule()
    order: Literal["longest_first", "seeds_first"] = "longest_first"
    speed: Annotated[tuple[Block, ...], BeforeValidator(_blocks)] = ()
    grok: Annotated[tuple[Block, ...], BeforeValidator(_blocks)] = ()
    capacity: Annotated[tuple[CapacityBlock, ...], BeforeValidator(_blocks)] = ()
    inherits: tuple[Inheritance, ...] = ()
    analysis: Analysis = Analysis()

    @field_validator("inherits", mode="before")
    @classmethod
    def _tuple(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("description")
    @classmethod
    def _says_something(cls, value: str) -> str:
        if not value.strip():
            raise refuse(f"{value!r} is blank; say in a sentence what the suite asks")
        return value

    @field_validator("seeds")
    @classmethod
    def _seeds_from_zero(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        for index, seed in enumerate(value):
            if seed < 0:
                raise refuse(f"{seed} is negative; seeds count from 0", index)
        return value

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        if not (self.speed or self.grok or self.capacity):
            raise refuse("has no runs; give at least one of speed, grok, capacity")
        if "positions" in self.settings.model_fields_set:
            raise refuse(
                "is a field of the suite itself, not of its settings", "settings", "positions"
            )
        if self.task == "modular" and self.primes is None:
            raise refuse("is missing; a modular suite names its primes", "primes")
        if self.task == "permutation":
            self._permutation_has_no_primes()
        if self.variants and self.inherits:
            raise refuse("a suite with variants cannot inherit cells", "inherits")
        self._check_axes_and_variants()
        self._check_thresholds()
        refuse_meaningless(self)
        return self

    def _permutation_has_no_primes(self) -> None:
        if self.primes is not None:
            raise refuse("task permutation is S5 alone and has no primes", "primes")
        for axis in ("operation", "labels"):
            if axis in self.axes:
                raise refuse("task permutation has none", "axes", axis)

    def _check_axes_and_variants(self) -> None:
        for kind, index, block in self.blocks():
            at = (kind, index) if len(getattr(self, kind)) > 1 else (kind,)
            for axis in block.axes:
                if axis not in self.axes:
                    raise refuse(
                        f"is not an axis of the suite ({', '.join(self.axes) or 'it has none'})",
                        *at,
                        "axes",
                        axis,
                    )
            for name in block.variants or ():
                if name not in self.variants:
                    raise refuse(
                        f"{name!r} is not a variant; accepted: {', '.join(self.variants)}",
                        *at,
                        "variants",
                    )
        for axis in self.analysis.axes or ():
            if axis not in (*self.axes, *(("variant",) if self.variants else ())):
                raise refuse(f"{axis!r} is not swept by this suite", "analysis", "axes")

    def _check_thresholds(self) -> None:
        """An analysis cannot ask for more than the accuracy at which its runs stopped."""
        wanted = self.analysis.thresholds
        for kind, names in (("speed", ("t_mem",)), ("grok", ("e_train", "t_gen", "e_val"))):
            for _, _, block in (entry for entry in self.blocks() if entry[0] == kind):
                stop = merged_stop(self.stop, block.stop)
                for name in names:
                    limit = stop.val if name in ("t_gen", "e_val") else stop.train
                    if getattr(wanted, name) > limit:
                        raise refuse(
                            f"{getattr(wanted, name)} is above {limit}, where {kind} runs stop",
                            "analysis",
                            "thresholds",
                            name,
                        )

    def blocks(self) -> list[tuple[Kind, int, Block]]:
        """All blocks with their kind and place."""
        kinds: tuple[Kind, ...] = ("speed", "grok", "capacity")
        return [
            (kind, index, block)
            for kind in kinds
            for index, block in enumerate(getattr(self, kind))
        ]


def merged_stop(suite: StopRule, block: StopRule) -> StopRule:
    """The block's stop rule where it speaks, else the suite's."""
    named = {name: getattr(block, name) for name in block.model_fields_set}
    return suite.model_copy(update=named)
