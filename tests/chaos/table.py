"""What was broken and what came of it, one line a fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chaos.faults import Hit
from chaos.invariants import Damage
from fixtures.database import Database
from sqlalchemy import text

TAKEOVERS = "SELECT run_id, attempt, reached - resumed AS repeated FROM takeovers"


@dataclass(frozen=True)
class Injection:
    """A fault that took place, and the runs and attempts in its way."""

    fault: str
    hit: Hit


@dataclass
class Line:
    """Sums over all injections of one fault."""

    injected: int = 0
    runs: int = 0
    repeated: int = 0
    lost: int = 0
    duplicated: int = 0
    differing: int = 0


class Table:
    """Lines by fault; what an attempt repeats is counted for the last fault that hit it."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}

    @property
    def injected(self) -> int:
        return sum(line.injected for line in self.lines.values())

    def add(
        self, injections: Iterable[Injection], database: Database, damages: Mapping[int, Damage]
    ) -> None:
        """Count a trial that has ended."""
        last: dict[tuple[int, int], Line] = {}
        for injection in injections:
            line = self.lines.setdefault(injection.fault, Line())
            line.injected += 1
            line.runs += len(injection.hit)
            for attempt in injection.hit:
                last[attempt] = line
            for run in {run for run, _ in injection.hit} & damages.keys():
                line.lost += damages[run].lost
                line.duplicated += damages[run].duplicated
                line.differing += damages[run].differing
        with database.engine.connect() as connection:
            takeovers = connection.execute(text(TAKEOVERS)).all()
        for takeover in takeovers:
            line = last.get(
                (takeover.run_id, takeover.attempt),
                self.lines.setdefault("no fault of the adversary's", Line()),
            )
            line.repeated += takeover.repeated
            line.runs += (takeover.run_id, takeover.attempt) not in last

    def __str__(self) -> str:
        names = ("fault", "injected", "runs affected", "epochs repeated")
        head = (*names, "lost", "duplicated", "differing")
        rows = [
            (
                fault,
                *map(str, (line.injected, line.runs, line.repeated)),
                *map(str, (line.lost, line.duplicated, line.differing)),
            )
            for fault, line in sorted(self.lines.items())
            if line.injected or line.runs
        ]
        lines = list(self.lines.values())
        sums = [
            sum(getattr(line, name) for line in lines)
            for name in ("injected", "runs", "repeated", "lost", "duplicated", "differing")
        ]
        rows.append(("all", *map(str, sums)))
        marks = ("---", *("---:" for _ in head[1:]))
        return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, marks, *rows))
