"""Finding suites by name or path, and the suite itself: its runs, cells and settings; also as a
database or a dump keeps it, held against the hash it claims.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from groktime.service.errors import SuiteError
from groktime.service.spec import KINDS, SPEC_VERSION, Kind, RunSpec
from groktime.service.suites.document import MAX_BYTES, Document, field_name, parse
from groktime.service.suites.expansion import Expansion, LeftOut, Member, expand
from groktime.service.suites.schema import Analysis, SuiteFile
from groktime.service.suites.values import readable

SHIPPED = Path(__file__).parent
INDEX = SHIPPED / "index.json"
RELEASED = "-released"
MADE = "the cell"  # in place of a file's name, where no file was written
MAX_DONORS = 20  # from a suite to the donor of its donor's donor and so on


@dataclass(frozen=True)
class Inherited:
    """Members taken over from another suite, with their places in this one."""

    suite: str
    members: tuple[Member, ...]


@dataclass(frozen=True, eq=False)
class Suite:
    """A validated suite: what it asks to be run and how it means to be analysed."""

    name: str
    file: SuiteFile
    document: Document

    @cached_property
    def expansion(self) -> Expansion:
        return expand(self.file, self.document)

    def members(self) -> tuple[Member, ...]:
        """The suite's own runs with the cells they belong to; a run may have several places."""
        return self.expansion.members

    def runs(self) -> list[RunSpec]:
        """The distinct runs of the suite, in the order of its grids."""
        return list(self._by_key.values())

    @cached_property
    def _by_key(self) -> dict[str, RunSpec]:
        return {member.spec.key: member.spec for member in self.members()}

    def counts(self) -> dict[Kind, int]:
        """Number of distinct runs by kind."""
        counts: dict[Kind, int] = dict.fromkeys(KINDS, 0)
        for spec in self._by_key.values():
            counts[spec.kind] += 1
        return counts

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        return self.expansion.left_out

    @property
    def analysis(self) -> Analysis:
        return self.file.analysis

    @property
    def inherits(self) -> tuple[str, ...]:
        """Names of the suites whose cells this one counts as its own."""
        return tuple(entry.suite for entry in self.file.inherits)

    @property
    def primes(self) -> tuple[int, ...]:
        """Primes of the suite's own speed and grok runs, ascending."""
        cells = (m for m in self.members() if m.spec.kind != "capacity")
        return tuple(sorted({member.prime for member in cells}))

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the swept axes in the order of the file; `variant` where there are any."""
        return (*self.file.axes, *(("variant",) if self.file.variants else ()))

    @cached_property
    def donors(self) -> tuple[Suite, ...]:
        """The suites that cells are inherited from, in the order of the file."""
        return tuple(self._donor(index) for index in range(len(self.file.inherits)))

    def _donor(self, index: int) -> Suite:
        name = self.file.inherits[index].suite
        try:
            if is_path(name):
                return _load_file(Path(self.document.source).parent / name)
            return _load_shipped(name)
        except SuiteError as problem:
            raise self.document.error(("inherits", index, "suite"), str(problem)) from problem

    @property
    def is_shipped(self) -> bool:
        """Whether the suite comes with groktime; others are files of their users."""
        return self.name.removesuffix(RELEASED) in shipped_suites()

    @property
    def is_made(self) -> bool:
        """Whether the suite was made from a question; there is no file of it."""
        return self.document.source == MADE

    @property
    def path(self) -> Path:
        """The file the suite was read from."""
        source = Path(self.document.source)
        return source.parent.resolve() / source.name

    @property
    def origin(self) -> str:
        """What tells this suite from all others: its name, or where its file is."""
        return self.name if self.is_shipped else str(self.path.resolve())

    @cached_property
    def inherited(self) -> tuple[Inherited, ...]:
        """Donors' members that match, placed by this suite's axes."""
        found = []
        for index, (entry, donor) in enumerate(zip(self.file.inherits, self.donors, strict=True)):
            there = {m.prime for m in donor.members() if m.spec.kind in entry.kinds}
            for prime in entry.primes or ():
                if prime not in there:
                    raise self.document.error(
                        ("inherits", index, "primes"),
                        f"{prime} is not a prime of suite {entry.suite}; accepted: "
                        f"{', '.join(map(str, sorted(there)))}",
                    )
            members = tuple(
                replace(member, setting=self._placed(member))
                for member in donor.members()
                if member.spec.kind in entry.kinds
                and (entry.primes is None or member.prime in entry.primes)
                and all(member.resolved[k] == v for k, v in entry.settings.named().items())
            )
            if not members:
                raise self.document.error(
                    ("inherits", index), f"suite {entry.suite} has no such cell"
                )
            found.append(Inherited(entry.suite, members))
        return tuple(found)

    def _placed(self, member: Member) -> Mapping[str, Any]:
        setting = {name: member.resolved[name] for name in self.axes}
        if member.spec.kind == "capacity":
            return {name: value for name, value in setting.items() if name in member.setting}
        return setting

    def stored(self) -> dict[str, Any]:
        """The validated file as the database keeps it."""
        return self.file.model_dump(mode="json", by_alias=True, exclude_unset=True) | {
            "positions": self.file.positions,
            "analysis": self.analysis.model_dump(mode="json"),
        }

    @cached_property
    def digest(self) -> str:
        """sha256 of everything that decides runs and analysis; wording may change freely."""
        keys = {member.spec.key for member in self.members()}
        donors: dict[str, list[str]] = {}
        for entry in self.inherited:
            donors[entry.suite] = sorted({*donors.get(entry.suite, ()), *entry_keys(entry)})
        return digest_of(self.file, keys, donors)


def digest_of(file: SuiteFile, keys: Iterable[str], donors: Mapping[str, Sequence[str]]) -> str:
    """The hash of a suite's content, its runs' keys and those of each donor, sorted.

    Of a located suite these are the runs it may choose from, not those it has chosen.
    """
    wording: dict[str, Any] = {"description": True, "notes": True, "design": {"chooser"}}
    content = file.model_dump(mode="json", by_alias=True, exclude=wording)
    text = json.dumps([SPEC_VERSION, content, sorted(keys), donors], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def entry_keys(entry: Inherited) -> list[str]:
    """Sorted keys of inherited runs."""
    return sorted({member.spec.key for member in entry.members})


def shipped_suites() -> list[str]:
    """Names of the suites that come with groktime; each also exists as NAME-released."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def suite_index() -> list[dict[str, Any]]:
    """Name, description and runs by kind of every shipped suite, and of a located one how many of
    these it trains at most.

    From INDEX, which scripts/suite-index writes, unless a file has changed since: expanding them
    all takes seconds.
    """
    try:
        written = json.loads(INDEX.read_text("utf-8"))
        if written["files"] == shipped_digest():
            return list(written["suites"])
    except (OSError, ValueError, KeyError):
        pass
    return expanded_index()


def expanded_index() -> list[dict[str, Any]]:
    """The same, from the suites themselves."""
    suites = [load_suite(name) for name in shipped_suites()]
    return [
        {"suite": s.name, "description": s.file.description, "runs": s.counts()} | _at_most(s)
        for s in suites
    ]


def _at_most(suite: Suite) -> dict[str, int]:
    design = suite.file.design
    return {} if design is None else {"at_most": design.max_runs * cell_count(suite.members())}


def cell_count(members: Iterable[Member]) -> int:
    """Number of primes × settings; capacity runs belong to a setting, not to a prime."""
    return len(
        {
            (member.prime, tuple(map(repr, member.setting.items())))
            for member in members
            if member.spec.kind != "capacity"
        }
    )


def shipped_digest() -> str:
    """A hash of all shipped suites' files."""
    files = [(path.name, path.read_text("utf-8")) for path in sorted(SHIPPED.glob("*.yaml"))]
    return hashlib.sha256(json.dumps([SPEC_VERSION, files]).encode()).hexdigest()


def load_suite(name_or_path: str | Path) -> Suite:
    """Load a shipped suite by name (`central`, `central-released`) or any file by path."""
    text = str(name_or_path)
    suite = _load_file(Path(text)) if is_path(text) else _load_shipped(text)
    chain(suite)
    suite.inherited  # noqa: B018  refuse cells that no donor has
    return suite


def chain(suite: Suite) -> list[Suite]:
    """The suite, its donors, theirs and so on, each once; refuses one that is its own donor."""
    found: dict[str, Suite] = {}

    def follow(one: Suite, above: tuple[str, ...]) -> None:
        found[one.origin] = one
        above = (*above, one.origin)
        for index, donor in enumerate(one.donors):
            at = ("inherits", index, "suite")
            name = one.file.inherits[index].suite
            if donor.origin in above:
                raise one.document.error(
                    at, f"{name!r} creates an inheritance cycle: a suite cannot inherit from itself"
                )
            if len(above) > MAX_DONORS:
                raise one.document.error(
                    at, f"{name!r} is more than {MAX_DONORS} donors away from {suite.name}"
                )
            if donor.origin not in found:
                follow(donor, above)

    follow(suite, ())
    return list(found.values())


def is_path(text: str) -> bool:
    """Whether a suite is named by its file."""
    return text.endswith((".yaml", ".yml")) or "/" in text


@lru_cache(maxsize=64)
def _load_shipped(name: str) -> Suite:
    plain = name.removesuffix(RELEASED)
    if plain not in shipped_suites():
        near = difflib.get_close_matches(plain, shipped_suites(), 1, 0.6)
        hint = f"did you mean {near[0]}? " if near else ""
        raise SuiteError(
            f"suite: {name!r} does not exist; {hint}accepted: a path to a .yaml file or one of "
            f"{', '.join(shipped_suites())}, each also with {RELEASED}"
        )
    path = SHIPPED / f"{plain}.yaml"
    suite = _validated(plain, parse(path.read_text("utf-8"), path.name))
    return released(suite) if name.endswith(RELEASED) else suite


def _load_file(path: Path) -> Suite:
    if not str(path).isprintable():
        raise SuiteError(f"suite: {str(path)!r} is not a path; accepted: a path to a .yaml file")
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise SuiteError(f"suite: {path}: is not a file; accepted: a .yaml file")
        if status.st_size > MAX_BYTES:
            raise SuiteError(f"{path}: larger than {MAX_BYTES // 1024} KB; a suite is a small file")
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "not a UTF-8 text file"
        raise SuiteError(f"suite: {path}: {reason}") from None
    name = path.stem
    if name.removesuffix(RELEASED) in shipped_suites():
        raise SuiteError(
            f"{path}: the file is named as the shipped suite {name}; give it another name"
        )
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", name):
        raise SuiteError(f"{path}: a suite is named by letters A to Z, digits, - and _")
    return _validated(name, parse(text, str(path)))


def made_suite(name: str, content: Mapping[str, Any]) -> Suite:
    """A suite that no file holds, named after what it asks; refused as a file would be."""
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
    return _validated(f"{name}-{digest}", Document(MADE, content, {}))


def cell_suite(
    prime: int,
    settings: Mapping[str, Any],
    *,
    precision: float = 0.03,
    place: Sequence[str] = ("crossing", "onset"),
    seeds: int = 10,
    widths: tuple[int, int] = (16, 256),
    max_epochs: int = 5000,
    max_runs: int = 60,
    max_hours: float | None = None,
    seeds_apart: bool = False,
    prior: Sequence[str] = (),
    min_delay: float | None = None,
    min_delay_share: float | None = None,
) -> Suite:
    """The suite that locates one cell; the same question makes the same suite."""
    delayed = {"min_delay": min_delay, "min_delay_share": min_delay_share}
    delayed = {name: value for name, value in delayed.items() if value is not None}
    others = {name: value for name, value in settings.items() if name != "positions"}
    content: dict[str, Any] = {
        "description": f"The {' and the '.join(place)} at p={prime}, located",
        "positions": settings.get("positions", "rope"),
        "primes": [prime],
        "seeds": {"from": 42, "to": 41 + seeds},
        "settings": others,
        "stop": {"max_epochs": max_epochs},
        "design": {
            "place": list(place),
            "precision": precision,
            "widths": {"from": widths[0], "to": widths[1], "step": 2},
            "max_runs": max_runs,
            # Left out where they say nothing, as are fields that a suite's name does not know.
            **({"max_hours": max_hours} if max_hours is not None else {}),
            **({"seeds_apart": True} if seeds_apart else {}),
            **({"prior": list(prior)} if prior else {}),
        },
        **({"analysis": delayed} if delayed else {}),
    }
    return made_suite(f"locate-p{prime}", content)


def released(suite: Suite) -> Suite:
    """The same suite without positions, as the published numbers were measured.

    What a suite sets by itself, such as a variant with learned positions, stays; cells are
    inherited from the donors' released suites.
    """
    donors = tuple(
        entry.model_copy(update={"suite": entry.suite + RELEASED}) for entry in suite.file.inherits
    )
    file = suite.file.model_copy(update={"positions": "none", "inherits": donors})
    return Suite(suite.name + RELEASED, file, suite.document)


def _validated(name: str, document: Document) -> Suite:
    try:
        file = SuiteFile.model_validate(document.content)
    except ValidationError as problem:
        errors = problem.errors()
        first = errors[0]
        at = first.get("ctx", {}).get("at", ())
        path = tuple(p for p in (*first["loc"], *at) if isinstance(p, str | int))
        raise document.error(_in_file(document, path), readable(first)) from None
    suite = Suite(name, file, document)
    suite.expansion  # noqa: B018  refuse runs that cannot exist
    return suite


def _in_file(document: Document, path: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """The path without steps that pydantic adds, such as the index of a single block."""
    if document.source == MADE:
        return tuple(part for part in path if isinstance(part, str))[-1:]
    shown: tuple[str | int, ...] = ()
    for index, part in enumerate(path):
        last = index == len(path) - 1
        if (*shown, part) in document.lines or (last and isinstance(part, str)):
            shown = (*shown, part)
    return shown


def read_stored(name: str, spec: Any) -> Suite:
    """The suite of a stored spec; refuses one that no suite file could have given."""
    document = Document(f"suite {name}", spec, {})
    try:
        file = SuiteFile.model_validate(spec)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = field_name((*first["loc"], *first.get("ctx", {}).get("at", ())))
        raise SuiteError(f"suite {name}: {where or 'spec'}: {readable(first)}") from None
    except (TypeError, ValueError, RecursionError) as problem:
        raise SuiteError(f"suite {name}: spec: {str(problem)[:200]}") from None
    suite = Suite(name, file, document)
    suite.expansion  # noqa: B018  refuse runs that cannot exist
    return suite


def check_stored(
    name: str, spec: Any, digest: str, own: Collection[str], inherited: Collection[str]
) -> bool:
    """Refuse a spec that is no suite, or a hash that is not its own.

    `own` and `inherited` are the keys of the runs that come with it. False: the hash cannot be
    told, since a suite that it inherits from is a file of somebody else's (which is not read).
    """
    suite = read_stored(name, spec)
    keys = {member.spec.key for member in suite.members()}
    strange = set(own) - keys
    donors: dict[str, list[str]] = {}
    if any(is_path(entry.suite) for entry in suite.file.inherits):
        return False
    for entry in suite.inherited:
        found = {member.spec.key for member in entry.members}
        donors[entry.suite] = sorted({*donors.get(entry.suite, ()), *found})
    if not strange and digest == digest_of(suite.file, keys, donors):
        return True
    # Specs once lost settings that say the default explicitly; the runs themselves did not.
    if digest == digest_of(suite.file, own, donors):
        return True
    if strange:
        raise SuiteError(f"suite {name}: {len(strange)} of the runs are not runs of this suite")
    raise SuiteError(f"suite {name}: hash: {digest[:12]} is not that of its spec")
