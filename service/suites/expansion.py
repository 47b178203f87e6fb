"""From a suite file to its runs: every point of its grids, each knowing its cell.

Runs of one suite share their parts (data, model, optimiser, stop rule), which are frozen, so
that eighteen thousand runs are built and keyed in well under a second.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import ValidationError

from groktime.service.errors import SuiteError
from groktime.service.spec import (
    MODEL_COLUMNS,
    OPTIMISER_COLUMNS,
    S5_ORDER,
    Data,
    Kind,
    ModelSpec,
    ModularData,
    OptimiserSpec,
    PatienceStop,
    PermutationData,
    RandomData,
    RunSpec,
    ShuffledData,
    ThresholdStop,
)
from groktime.service.suites.document import Document, Path, field_name
from groktime.service.suites.schema import Block, CapacityBlock, StopRule, SuiteFile, merged_stop
from groktime.service.suites.values import (
    DATA_AXES,
    FittingHeads,
    NearParams,
    Setting,
    StepsPerEpoch,
    readable,
)

MAX_RUNS = 1_000_000
MAX_PARAMS = 1_000_000_000

_OPTIMISER = tuple(name for name in OPTIMISER_COLUMNS if name != "batch_size")

Part = TypeVar("Part")
Resolved = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Member:
    """One run's place in a suite: the cell whose analysis it belongs to.

    A run may have several places: one random-label run serves every operation of equal size.
    `resolved` holds the value of every setting; `setting` those of the swept axes.
    """

    spec: RunSpec
    prime: int
    setting: Mapping[str, Any]
    resolved: Mapping[str, Any]


@dataclass(frozen=True)
class LeftOut:
    """A target of `near_params` that no even width comes near enough to."""

    kind: Kind
    prime: int
    setting: Mapping[str, Any]
    target: int
    nearest: int

    def __str__(self) -> str:
        setting = "".join(f", {name} {value}" for name, value in self.setting.items())
        return f"{self.kind} at p={self.prime}{setting}: P = {self.target} (nearest {self.nearest})"


@dataclass(frozen=True)
class Expansion:
    members: tuple[Member, ...]
    left_out: tuple[LeftOut, ...]


def expand(suite: SuiteFile, document: Document) -> Expansion:
    """Every run of the suite, in the order of its grids."""
    grid = _Grid(suite, document)
    grid.refuse_absurd()
    places = [(place, list(grid.runs(place))) for place in grid.places()]
    _refuse_repeated_runs(suite, document, places)
    members = [member for _, runs in places for member in runs]
    _refuse_empty_analysis(suite, document, members)
    return Expansion(tuple(members), tuple(grid.left_out))


def _refuse_repeated_runs(
    suite: SuiteFile, document: Document, places: Sequence[tuple[_Place, Sequence[Member]]]
) -> None:
    """Blocks of one kind may share a cell, but not a run of it."""
    seen: dict[tuple[object, ...], Path] = {}
    for place, members in places:
        if len(getattr(suite, place.kind)) == 1:
            continue
        cell = (place.prime, *map(repr, place.setting.items()))
        for member in members:
            before = seen.setdefault((member.spec.key, *cell), place.path)
            if before == place.path:
                continue
            spec = member.spec
            size = f", {spec.data.n_train} examples" if place.kind == "capacity" else ""
            raise document.error(
                place.path,
                f"repeats a run of {field_name(before)} (prime {place.prime}, "
                f"width {spec.model.width}{size}, seed {spec.seed}); name each run in one block",
            )


def _refuse_empty_analysis(suite: SuiteFile, document: Document, members: Sequence[Member]) -> None:
    """The analysis must leave widths to look at and read a clock that was recorded."""
    widest, clock = suite.analysis.max_width, suite.analysis.clock
    for kind in ("speed", "grok"):
        specs = [member.spec for member in members if member.spec.kind == kind]
        least = min((spec.model.width for spec in specs), default=0)
        if widest is not None and widest < least:
            raise document.error(
                ("analysis", "max_width"),
                f"{widest} leaves no {kind} run; the smallest width is {least}",
            )
        if clock == "eval" and not all(spec.eval_train for spec in specs):
            raise document.error(
                ("analysis", "clock"),
                f"'eval' is not recorded by {kind} runs with eval_train: false; accepted: 'online'",
            )


@dataclass(frozen=True)
class _Place:
    """One block at one prime and one setting: what remains is widths, examples and seeds."""

    kind: Kind
    block: Block
    path: Path
    prime: int
    setting: Resolved
    resolved: Resolved
    variant: str | None


class _Grid:
    def __init__(self, suite: SuiteFile, document: Document) -> None:
        self.suite = suite
        self.document = document
        self.left_out: list[LeftOut] = []
        # Frozen parts are built once per distinct value.
        self._table = cache(self._build_table)
        self._random = cache(RandomData)
        self._model = cache(ModelSpec)
        self._optimiser = cache(OptimiserSpec)

    def places(self) -> Iterator[_Place]:
        for kind, index, block in self.suite.blocks():
            path: Path = (kind, index) if (kind, index) in self.document.lines else (kind,)
            for prime in self._primes(block):
                for variant, axes in self._combinations(kind, block):
                    resolved = self._resolve(kind, block, axes, variant)
                    setting = dict(axes) if variant is None else {**axes, "variant": variant}
                    yield _Place(kind, block, path, prime, setting, resolved, variant)

    def _primes(self, block: Block) -> tuple[int, ...]:
        if self.suite.task == "permutation":
            return (S5_ORDER,)
        return block.primes or self.suite.primes or ()

    def _combinations(
        self, kind: Kind, block: Block
    ) -> Iterator[tuple[str | None, dict[str, Any]]]:
        axes = {**self.suite.axes, **block.axes}
        if kind == "capacity":
            axes = {name: values for name, values in axes.items() if name not in DATA_AXES}
        for variant in block.variants or tuple(self.suite.variants) or (None,):
            for values in itertools.product(*axes.values()):
                yield variant, dict(zip(axes, values, strict=True))

    def _resolve(
        self, kind: Kind, block: Block, axes: Mapping[str, Any], variant: str | None
    ) -> Resolved:
        """Later layers win: defaults, suite, kind, block, axes, variant."""
        suite = self.suite
        resolved = {name: field.default for name, field in Setting.model_fields.items()}
        resolved |= suite.named_settings()
        if kind == "capacity":
            resolved["dropout"] = 0.0  # a regulariser would hide what the weights can hold
        resolved |= block.settings.named() | dict(axes)
        if variant is not None:
            resolved |= suite.variants[variant].named()
        return resolved

    def runs(self, place: _Place) -> Iterator[Member]:
        block, resolved = place.block, place.resolved
        widths = self._widths(place)
        seeds = block.seeds or self.suite.seeds
        examples = block.examples if isinstance(block, CapacityBlock) else (0,)
        stop = _stop(place.kind, merged_stop(self.suite.stop, block.stop))
        eval_train = resolved["eval_train"]
        for width, n in itertools.product(widths, examples):
            data = self._data(place, n)
            model = self._model_of(place, width)
            optimiser = self._optimiser_of(place, data)
            for seed in seeds:
                spec = self._part(
                    place,
                    RunSpec,
                    kind=place.kind,
                    data=data,
                    model=model,
                    optimiser=optimiser,
                    stop=stop,
                    eval_train=eval_train,
                    seed=seed,
                )
                yield Member(spec, place.prime, place.setting, resolved)

    def refuse_absurd(self) -> None:
        """Count the points of every grid before any of them is built."""
        total = 0
        for kind, _, block in self.suite.blocks():
            axes = {**self.suite.axes, **block.axes}.values()
            variants = block.variants or self.suite.variants or (None,)
            sizes = [len(values) for values in (*axes, variants, block.seeds or self.suite.seeds)]
            widths = block.widths if isinstance(block.widths, tuple) else _listed(block.widths)
            examples = block.examples if isinstance(block, CapacityBlock) else (0,)
            total += math.prod((*sizes, len(widths), len(examples), len(self._primes(block))))
            if total > MAX_RUNS:
                raise self.document.error(
                    (kind,), f"the suite has more than {MAX_RUNS:,} runs; split it"
                )

    def _widths(self, place: _Place) -> tuple[int, ...]:
        asked = place.block.widths
        if isinstance(asked, NearParams):
            widths = self._near(place, asked)
        elif isinstance(asked, FittingHeads):
            divisor = 2 * place.resolved["heads"]
            widths = tuple(width for width in asked.fitting_heads if width % divisor == 0)
        else:
            widths = asked
        if not widths:
            raise self.document.error(
                (*place.path, "widths"),
                f"no width remains at prime {place.prime} and {dict(place.setting)}",
            )
        return widths

    def _near(self, place: _Place, asked: NearParams) -> tuple[int, ...]:
        """The width of each target; parameters grow with width, so a bisection finds it."""
        step = 2 * place.resolved["heads"]
        chosen: list[int] = []
        for target in asked.near_params:

            def params(multiple: int) -> int:
                return self._model_of(place, multiple * step).params(place.prime + 2)

            high = 1
            while params(high) < target:
                high += 1
            best = min(
                (m for m in (high - 1, high) if m),
                key=lambda m: abs(params(m) - target),
            )
            if abs(params(best) - target) > asked.tolerance * target:
                self.left_out.append(
                    LeftOut(place.kind, place.prime, place.setting, target, params(best))
                )
            elif best * step not in chosen:
                chosen.append(best * step)
        return tuple(chosen)

    def _data(self, place: _Place, n: int) -> Data:
        resolved = place.resolved
        if place.kind == "capacity":
            return self._part(place, self._random, prime=place.prime, n=n)
        labels = resolved["labels"] if place.kind == "speed" else None
        table = self._table_of(place, shuffled=labels == "shuffled")
        if labels == "random":
            return self._part(place, self._random, prime=place.prime, n=table.n_train)
        return table

    def _table_of(
        self, place: _Place, *, shuffled: bool
    ) -> ModularData | ShuffledData | PermutationData:
        resolved = place.resolved
        return self._part(
            place,
            self._table,
            prime=place.prime,
            operation=resolved["operation"],
            train_fraction=resolved["train_fraction"],
            split=resolved["split"],
            shuffled=shuffled,
        )

    def _build_table(
        self, *, prime: int, shuffled: bool, operation: str, **split: Any
    ) -> ModularData | ShuffledData | PermutationData:
        if self.suite.task == "permutation":
            return PermutationData(**split)
        task = ShuffledData if shuffled else ModularData
        return task(prime=prime, operation=operation, **split)

    def _model_of(self, place: _Place, width: int) -> ModelSpec:
        named = {name: place.resolved[name] for name in MODEL_COLUMNS}
        model = self._part(place, self._model, width=width, **named)
        if model.params(place.prime + 2) > MAX_PARAMS:
            raise self.document.error(
                (*place.path, "widths"),
                f"width = {width} at depth {model.depth} has "
                f"{model.params(place.prime + 2):,} parameters; at most {MAX_PARAMS:,}",
            )
        return model

    def _optimiser_of(self, place: _Place, data: Data) -> OptimiserSpec:
        batch = place.resolved["batch_size"]
        if batch == "full":
            batch = data.n_train
        elif isinstance(batch, StepsPerEpoch):
            # Of the task at this prime, so that all kinds of its runs use one batch size.
            table = self._table_of(place, shuffled=False)
            batch = max(1, round(table.n_train / batch.steps))
        if self.suite.batching == "balanced":
            batch = balanced_batch_size(data.n_train, batch)
        named = {name: place.resolved[name] for name in _OPTIMISER}
        return self._part(place, self._optimiser, batch_size=batch, **named)

    def _part(self, place: _Place, build: Callable[..., Part], **fields: Any) -> Part:
        """Build a part of a run; a refusal names the suite's field and line."""
        try:
            return build(**fields)
        except ValidationError as problem:
            raise self._located(place, problem) from None

    def _located(self, place: _Place, problem: ValidationError) -> SuiteError:
        error = problem.errors()[0]
        named = re.match(r"(?:Value error, )?(\w+)(?: = | \w+ needs )", error["msg"])
        field = str(error["loc"][-1]) if error["loc"] else named.group(1) if named else ""
        path = self._source(place, field)
        message = readable(error)
        if not error["loc"]:
            message = error["msg"].removeprefix("Value error, ")
        if path == place.path and field:
            message = f"{field}: {message}"
        where = f" (prime {place.prime}" + "".join(
            f", {name} {value}" for name, value in place.setting.items()
        )
        return self.document.error(path, f"{message}{where})")

    def _source(self, place: _Place, field: str) -> Path:
        """Where in the file the field got its value."""
        field = {"width": "widths", "n": "examples", "prime": "primes"}.get(field, field)
        candidates: list[Path] = [
            ("variants", place.variant or "", field),
            (*place.path, "axes", field),
            (*place.path, "settings", field),
            (*place.path, field),
            ("axes", field),
            ("settings", field),
            (field,),
        ]
        return next((path for path in candidates if path in self.document.lines), place.path)


def balanced_batch_size(n: int, batch: int) -> int:
    """The batch size nearest below that gives as many batches, all of nearly equal size.

    B′ = ⌈n/k⌉ with k = ⌈n/B⌉: the last of the k batches has at least B′ − k + 1 examples.
    """
    return -(-n // -(-n // batch))


def _listed(widths: NearParams | FittingHeads) -> tuple[int, ...]:
    return widths.near_params if isinstance(widths, NearParams) else widths.fitting_heads


def _stop(kind: Kind, rule: StopRule) -> ThresholdStop | PatienceStop:
    if kind == "capacity":
        return PatienceStop(
            patience=rule.patience,
            min_improvement=rule.min_improvement,
            max_epochs=rule.max_epochs,
        )
    val = rule.val if kind == "grok" else None
    return ThresholdStop(train=rule.train, val=val, max_epochs=rule.max_epochs)
