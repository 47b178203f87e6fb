"""What a suite file may not say although every field of it is well-formed.

Fields that no run would read, and parts that repeat each other, are slips of the pen: better
refused than silently without effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groktime.service.spec import Kind
from groktime.service.suites.values import DATA_AXES, Setting, refuse

if TYPE_CHECKING:
    from groktime.service.suites.schema import Block, StopRule, SuiteFile

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
