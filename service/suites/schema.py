"""What a suite file may say: strict pydantic models of its fields.

A suite is a grid: primes × seeds × swept axes × widths, for each kind of run it has.
Settings are named as the columns of a run (service/spec.py), so a suite, a table and a
route use one vocabulary.

Fields that no run would read, and parts that repeat each other, are slips of the pen: better
refused (`refuse_meaningless`) than silently without effect.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from groktime.service.spec import (
    KINDS,
    MAX_EPOCHS,
    MAX_WIDTH,
    SUITE_NAME,
    Kind,
    NamedOperation,
    Positions,
    later,
)
from groktime.service.suites.values import (
    DATA_AXES,
    Axes,
    Numbers,
    Setting,
    Strict,
    Widths,
    check_widths,
    refuse,
    refuse_none_or_repeated,
)
from groktime.service.words import refuse_unprintable

# The fields of a stop rule that each kind of run reads.
STOPS: dict[Kind, tuple[str, ...]] = {
    "speed": ("train", "max_epochs"),
    "grok": ("train", "val", "max_epochs"),
    "capacity": ("patience", "min_improvement", "max_epochs"),
}
LONGEST_NAME = 100  # characters of a variant's name


def refuse_meaningless(suite: SuiteFile) -> None:
    """Refuse what no run of the suite would read and what is said twice."""
    _axes_that_change_nothing(suite)
    _swept_and_set(suite)
    _stops_that_nobody_reads(suite)
    _variants(suite)
    _repeated_inheritance(suite)
    if suite.task == "permutation":
        _not_of_a_permutation(suite)


def _place(suite: SuiteFile, kind: Kind, index: int) -> tuple[str | int, ...]:
    """Where the block stands: a kind with one block may be written without a list."""
    return (kind, index) if len(getattr(suite, kind)) > 1 else (kind,)


def _axes_that_change_nothing(suite: SuiteFile) -> None:
    for axis in suite.axes:
        if axis == "labels" and not (suite.speed or suite.design):
            raise refuse("is swept, but only speed runs read it and there are none", "axes", axis)
        if axis in DATA_AXES and not (suite.speed or suite.grok or suite.design):
            raise refuse("is swept, but capacity runs do not read it", "axes", axis)


def _swept_and_set(suite: SuiteFile) -> None:
    """A swept axis has its own values: one that is set beside it would count nowhere."""
    places: list[tuple[tuple[str | int, ...], Setting]] = [(("settings",), suite.settings)]
    for kind, index, block in suite.blocks():
        places.append(((*_place(suite, kind, index), "settings"), block.settings))
    places += [(("variants", name), setting) for name, setting in suite.variants.items()]
    if suite.operation is not None and "operation" in suite.axes:
        raise refuse(f"{suite.operation!r} is set, but operation is swept as an axis", "operation")
    for place, setting in places:
        for name in setting.named():
            if name in suite.axes:
                value = getattr(setting, name)
                raise refuse(f"{value!r} is set, but {name} is swept as an axis", *place, name)


def _stops_that_nobody_reads(suite: SuiteFile) -> None:
    def check(stop: StopRule, kinds: list[Kind], *place: str | int) -> None:
        read = [name for kind in kinds for name in STOPS[kind]]
        for name in stop.model_fields_set:
            if name not in read:
                accepted = ", ".join(dict.fromkeys(read))
                raise refuse(
                    f"{getattr(stop, name)!r} is read by no {' or '.join(kinds)} run; "
                    f"accepted: {accepted}",
                    *place,
                    "stop",
                    name,
                )

    kinds: list[Kind] = list(dict.fromkeys(kind for kind, _, _ in suite.blocks()))
    check(suite.stop, kinds)
    for kind, index, block in suite.blocks():
        check(block.stop, [kind], *_place(suite, kind, index))


def _variants(suite: SuiteFile) -> None:
    blocks: list[Block] = [block for _, _, block in suite.blocks()]
    seen: dict[str, str] = {}
    for name, variant in suite.variants.items():
        if name.strip() != name or not name or not name.isprintable() or len(name) > LONGEST_NAME:
            raise refuse(
                f"{name[:LONGEST_NAME]!r} is no name of a variant; accepted: 1 to "
                f"{LONGEST_NAME} printable characters without spaces around them",
                "variants",
            )
        takers = [block for block in blocks if name in (block.variants or suite.variants)]
        if not takers:
            raise refuse("no block trains this variant", "variants", name)
        base = {key: field.default for key, field in Setting.model_fields.items()}
        base |= suite.named_settings()
        meant = repr(
            [sorted((base | block.settings.named() | variant.named()).items()) for block in takers]
        )
        if meant in seen:
            raise refuse(f"is the same as variant {seen[meant]}", "variants", name)
        seen[meant] = name


def _repeated_inheritance(suite: SuiteFile) -> None:
    for index, entry in enumerate(suite.inherits):
        if entry in suite.inherits[:index]:
            before = suite.inherits.index(entry)
            raise refuse(f"is the same as inherits[{before}]", "inherits", index)


def _not_of_a_permutation(suite: SuiteFile) -> None:
    """S5 has one operation, one table and no primes."""
    for kind, index, block in suite.blocks():
        place = _place(suite, kind, index)
        if block.primes is not None:
            raise refuse("task permutation is S5 alone and has no primes", *place, "primes")
        _no_operation(block.settings, *place, "settings")
    if suite.operation is not None:
        raise refuse("task permutation has none", "operation")
    _no_operation(suite.settings, "settings")
    for name, variant in suite.variants.items():
        _no_operation(variant, "variants", name)


def _no_operation(setting: Setting, *place: str | int) -> None:
    for name in ("operation", "labels"):
        if name in setting.model_fields_set:
            raise refuse("task permutation has none", *place, name)


WIDEST_FRACTION = 1e6  # of a window of capacity fractions


class StopRule(Strict):
    """When runs end; each kind reads the fields that concern it."""

    train: float = Field(
        default=0.99, gt=0, le=1, description="training accuracy that ends speed and grok runs"
    )
    val: float = Field(
        default=0.99, gt=0, le=1, description="validation accuracy that ends grok runs"
    )
    max_epochs: int = Field(
        default=5000, ge=1, le=MAX_EPOCHS, description="cap: runs are censored here"
    )
    patience: int = Field(
        default=100, ge=1, le=MAX_EPOCHS, description="epochs without improvement (capacity runs)"
    )
    min_improvement: float = Field(
        default=1e-4, ge=0, le=1, description="of the training loss (capacity runs)"
    )


class Block(Strict):
    """One kind of run: its widths, and what differs from the suite."""

    widths: Widths = Field(
        description="even widths: a list, spans, `{near_params: […]}` or `{fitting_heads: […]}`"
    )
    primes: Numbers | None = Field(None, description="other primes than the suite's")
    seeds: Numbers | None = Field(None, description="other seeds than the suite's")
    settings: Setting = Field(Setting(), description="settings of this block alone")
    axes: Axes = Field(default_factory=dict, description="other values of the suite's axes")
    variants: tuple[str, ...] | None = Field(None, description="only these of the suite's variants")
    stop: StopRule = Field(StopRule(), description="what differs from the suite's stop rule")

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

    examples: Numbers = Field(description="sizes of the random-label sets")


class Design(Strict):
    """How widths are chosen where they are not listed: as the suite trains, to a precision."""

    kind: Literal["locate"] = Field("locate", description="the only design beside listed widths")
    place: tuple[Literal["crossing", "onset"], ...] = Field(
        ("crossing", "onset"), description="the points that are located in every cell"
    )
    precision: float = Field(
        0.03, gt=0, le=1, description="target standard deviation of each point, dex"
    )
    widths: Numbers = Field(tuple(range(16, 258, 2)), description="even widths that may be trained")
    max_runs: int = Field(60, ge=4, le=10_000, description="most runs of one cell")
    max_hours: float | None = later(
        None, gt=0, le=1e6, description="most core-hours of one cell; default: no limit"
    )
    seeds_apart: bool = later(
        False, description="each seed serves the crossing or the onset, never both"
    )
    prior: tuple[str, ...] = later(
        (), description="earlier suites to start the search from; they change no estimate"
    )
    chooser: str | None = later(
        None,
        max_length=64,
        description="hash of the code that chooses runs, written when the suite is registered",
    )

    @field_validator("place", "prior", mode="before")
    @classmethod
    def _tuple(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("prior")
    @classmethod
    def _no_suite_twice(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for index, name in enumerate(value):
            if not re.fullmatch(SUITE_NAME.rstrip("$"), name):
                raise refuse(f"{name[:100]!r} is not the name of a suite", index)
            if name in value[:index]:
                raise refuse(f"{name!r} is given twice", index)
        return value

    @field_validator("place")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        refuse_none_or_repeated(value)
        return value

    @field_validator("widths")
    @classmethod
    def _even(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        check_widths(value)
        return tuple(sorted(value))


def _design(value: Any) -> Any:
    """`design: locate` is a design with its defaults, `design: grid` says what is the default."""
    if isinstance(value, str):
        if value not in ("locate", "grid"):
            raise refuse(f"{value!r} is not accepted; accepted: locate, grid or a mapping")
        return {} if value == "locate" else None
    return value


def _blocks(value: Any) -> Any:
    """One block, or a list of blocks where parts of a kind have grids of their own."""
    if isinstance(value, list | tuple):
        if not value:
            raise refuse("is empty; give a block or leave the kind out")
        return tuple(value)
    return (value,)


class Inheritance(Strict):
    """Cells of another suite that this one's analyses count as their own."""

    suite: str = Field(description="a shipped suite, or a path relative to this file")
    primes: Numbers | None = Field(None, description="only these primes")
    settings: Setting = Field(Setting(), description="only cells with these settings")
    kinds: tuple[Kind, ...] = Field(KINDS, description="only these kinds of run")

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

    t_mem: float = Field(default=0.99, gt=0, le=1, description="training, speed runs")
    t_gen: float = Field(default=0.99, gt=0, le=1, description="validation, grok runs")
    e_train: float = Field(default=0.99, gt=0, le=1, description="training, for the delay")
    e_val: float = Field(default=0.98, gt=0, le=1, description="validation, for the delay")


class Analysis(Strict):
    """How the suite means to be analysed; frozen with it, so that it is decided beforehand."""

    thresholds: Thresholds = Field(Thresholds(), description="accuracies of the four clocks")
    max_width: int | None = Field(
        default=None, ge=2, le=MAX_WIDTH, description="wider networks are left out of analyses"
    )
    axes: tuple[str, ...] | None = Field(None, description="swept axes that are tested")
    baselines: tuple[Literal["log_p", "log_k_mem"], ...] = Field(
        ("log_p", "log_k_mem"), description="what the crossing must predict better than"
    )
    clock: Literal["online", "eval"] = Field("online", description="clock of training")
    method: Literal["robust", "paper"] = Field("robust", description="convention")
    fraction_window: tuple[float, float] = Field(
        (0.0, 0.25), description="capacity fractions the T_mem law is fitted on"
    )
    min_delay: float | None = Field(
        default=None, ge=1, description="least delay that counts, epochs; default 1"
    )
    min_delay_share: float | None = Field(
        default=None, ge=0, description="least delay that counts, share of E_train; default 0"
    )

    @model_serializer(mode="wrap")
    def _without_later_fields(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Fields added later are left out where they are not given: digests stay as they were."""
        written: dict[str, Any] = serialise(self)
        later = ("min_delay", "min_delay_share")
        return {k: v for k, v in written.items() if k not in later or v is not None}

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

    description: str = Field(
        min_length=1, max_length=2000, description="What the suite asks, in one line for lists."
    )
    notes: str = later("", max_length=10_000, description="Details, shown by `suite show`.")
    task: Literal["modular", "permutation"] = Field(
        "modular", description="modular arithmetic, or composition in S5 (no primes)"
    )
    operation: NamedOperation | None = later(
        None, description="+ - * / or addition, subtraction, multiplication, division; default /"
    )
    positions: Positions = Field(
        "rope", description="of every network; NAME-released is the same suite with `none`"
    )
    primes: Numbers | None = Field(None, description="a list, or `{from: 97, to: 97}`")
    seeds: Numbers = Field(description="a list, or `{from: 42, to: 46}`")
    settings: Setting = Field(Setting(), description="settings of all runs")
    axes: Axes = Field(
        default_factory=dict, description="settings to sweep: each with a list of values"
    )
    variants: dict[str, Setting] = Field(
        default_factory=dict, description="named bundles of settings to sweep"
    )
    batching: Literal["remainder", "balanced"] = later(
        "remainder",
        description="a small last batch for the remainder, or batches of nearly equal size",
    )
    stop: StopRule = Field(StopRule(), description="when runs end")
    order: Literal["longest_first", "seeds_first"] = Field(
        "longest_first", description="which runs are trained first"
    )
    speed: Annotated[tuple[Block, ...], BeforeValidator(_blocks)] = Field(
        (), description="random labels, for T_mem: a block or a list of blocks"
    )
    grok: Annotated[tuple[Block, ...], BeforeValidator(_blocks)] = Field(
        (), description="the task itself, for T_gen and the delay: a block or a list of blocks"
    )
    capacity: Annotated[tuple[CapacityBlock, ...], BeforeValidator(_blocks)] = Field(
        (), description="random labels of many sizes, for C_model"
    )
    design: Annotated[Design | None, BeforeValidator(_design)] = later(
        None, description="`locate` chooses widths and seeds one by one, instead of speed and grok"
    )
    inherits: tuple[Inheritance, ...] = Field(
        (), description="cells of other suites that analyses count as this one's"
    )
    analysis: Analysis = Field(Analysis(), description="defaults of its analyses")

    @field_validator("inherits", mode="before")
    @classmethod
    def _tuple(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("description", "notes")
    @classmethod
    def _can_be_printed(cls, value: str) -> str:
        try:
            return refuse_unprintable(value)
        except ValueError as problem:
            raise refuse(f"{problem}") from None

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
        if not (self.speed or self.grok or self.capacity or self.design):
            raise refuse("has no runs; give at least one of speed, grok, capacity, design")
        if self.design and (self.speed or self.grok or self.capacity):
            raise refuse(
                "chooses speed and grok runs itself; leave these out and inherit capacity runs",
                "design",
            )
        if self.operation is not None and "operation" in self.settings.model_fields_set:
            raise refuse("is given twice: here and in settings", "operation")
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

    def named_settings(self) -> dict[str, Any]:
        """What the suite sets for all its runs, the fields at the top of the file included."""
        top: dict[str, Any] = {"positions": self.positions}
        if self.operation is not None:
            top["operation"] = self.operation
        return top | self.settings.named()

    def blocks(self) -> list[tuple[Kind, int, Block]]:
        """All blocks with their kind and place; those of a design hold what it may choose."""
        kinds: tuple[Kind, ...] = ("speed", "grok", "capacity")
        listed = [
            (kind, index, block)
            for kind in kinds
            for index, block in enumerate(getattr(self, kind))
        ]
        if self.design is None:
            return listed
        chosen = Block.model_validate({"widths": {"fitting_heads": self.design.widths}})
        return [("speed", 0, chosen), ("grok", 0, chosen), *listed]


def merged_stop(suite: StopRule, block: StopRule) -> StopRule:
    """The block's stop rule where it speaks, else the suite's."""
    named = {name: getattr(block, name) for name in block.model_fields_set}
    return suite.model_copy(update=named)
