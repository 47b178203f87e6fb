"""Suites as the database has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, text

from groktime.service.errors import SuiteError
from groktime.service.spec import SUITE_NAME

Design = Literal["grid", "locate"]

LAST_YEAR = 9999  # how the driver reads Postgres's infinity

SUITES = """
SELECT s.id, s.name, s.spec, s.hash, s.design, s.revision,
       -- Python has no years before 1: such a row is damaged, and is told so below
       CASE WHEN s.frozen_at < '0001-01-02Z' THEN '0001-01-02Z' ELSE s.frozen_at END AS frozen_at,
       s.recorded,
       EXISTS (SELECT FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
               WHERE sr.suite_id = s.id AND r.state = 'running') AS running,
       EXISTS (SELECT FROM suite_runs sr JOIN runs r ON r.id = sr.run_id
               WHERE sr.suite_id = s.id
                 AND r.state IN ('pending', 'running', 'stale')) AS open
FROM suites s
"""


@dataclass(frozen=True, kw_only=True)
class SuiteRecord:
    """A suite as the database has it.

    `running`: a worker trains one of its runs now; `open`: some of its runs are not closed;
    `recorded`: of a suite loaded from a dump, how that was made.
    """

    id: int
    name: str
    spec: Mapping[str, Any]
    hash: str
    design: Design
    revision: int
    frozen_at: datetime | None
    recorded: Mapping[str, Any] | None
    running: bool
    open: bool

    @property
    def frozen(self) -> bool:
        """The suite can no longer change."""
        return self.frozen_at is not None

    @property
    def is_located(self) -> bool:
        """Whether the suite chooses its runs as it goes."""
        return self.design == "locate"

    @property
    def damage(self) -> str | None:
        """What makes the stored suite unreadable, such as a dump that was written by hand."""
        if not isinstance(self.spec, Mapping):
            return f"its spec is a {type(self.spec).__name__}, not an object"
        if not isinstance(self.recorded, Mapping | None):
            return f"`recorded` is a {type(self.recorded).__name__}, not an object"
        if self.frozen_at is not None and not 1970 <= self.frozen_at.year < LAST_YEAR:
            return "frozen_at is no time at which it could have been frozen"
        if not isinstance((self.recorded or {}).get("versions"), Mapping | None):
            return "`recorded.versions` is not an object"
        return None

    @property
    def prior(self) -> tuple[str, ...]:
        """Earlier suites whose cells told this one where to look."""
        design = self.spec.get("design") if self.is_located else None
        return tuple(design.get("prior") or ()) if isinstance(design, Mapping) else ()

    @property
    def analysis(self) -> Mapping[str, Any]:
        """How the suite means to be analysed; empty where its file does not say."""
        written = self.spec.get("analysis")
        return written if isinstance(written, Mapping) else {}


def printable(name: str) -> str:
    """A name as it may be printed, whatever it holds."""
    return name if re.fullmatch(SUITE_NAME.rstrip("$"), name) else ascii(name[:100])


def suite_names(connection: Connection) -> list[str]:
    return list(connection.scalars(text("SELECT name FROM suites ORDER BY name")))


def find_suite(connection: Connection, name: str) -> SuiteRecord | None:
    """The suite of this name, or None."""
    found = connection.execute(text(f"{SUITES} WHERE s.name = :name"), {"name": name})
    row = found.mappings().one_or_none()
    return None if row is None else SuiteRecord(**row)


def get_suite(connection: Connection, name: str) -> SuiteRecord:
    """One suite; a name that is not there is refused with those that are."""
    suite = find_suite(connection, name)
    if suite is None:
        known = suite_names(connection)
        listed = ", ".join(map(printable, known)) if known else "none yet"
        raise SuiteError(f"suite: {name!r} is not in the database; there: {listed}")
    return suite


def read_suites(connection: Connection) -> list[SuiteRecord]:
    """All suites, by name; damaged ones, too."""
    rows = connection.execute(text(f"{SUITES} ORDER BY s.name")).mappings()
    return [SuiteRecord(**row) for row in rows]
